"""The study of largest errors: what its quick form finds, its bounds, and verdicts that records can turn over."""

import copy

import numpy as np
import pytest

from kernattn.errors import ParameterError
from kernattn.studies import PRESETS, study
from kernattn.studies._presets.uniform import largest_error

pytest.importorskip("matplotlib")
DIAMETER = 4.0  # of the compact set, in lengthscales
verdicts = PRESETS["uniform"].sentences


def test_what_it_finds(found):
    """Sixteen times the features, a fourth of the error; the bounds hold, some times too large."""
    records, page, _ = found("uniform")
    for d in (2, 8):
        ball = {r["m"]: r for r in records if (r["over"], r["projection"], r["d"]) == ("ball", "iid", d)}
        assert ball[64]["largest"] / ball[1024]["largest"] == pytest.approx(4, rel=0.25)
        assert all(2 < r["bound"] / r["largest"] < r["bound_2007"] / r["largest"] < 20 for r in ball.values())
    assert "Holds: the median of the largest error found over a ball" in page
    assert "Holds for the Gaussian kernel, trigonometric features: the largest error falls as m^-1/2" in page


@pytest.mark.parametrize("seed", range(3))
def test_climbing_finds_what_a_fine_grid_finds(seed):
    """In the plane a grid of 1/40 lengthscale is an oracle: no more than a thousandth of the error lies between."""
    rng = np.random.default_rng(seed)
    omega = rng.standard_normal((64, 2))
    axis = np.arange(-DIAMETER, DIAMETER + 1e-9, 0.025)
    half = np.stack(np.meshgrid(axis, axis[axis >= 0]), axis=-1).reshape(-1, 2)  # the error is even
    half = half[np.linalg.norm(half, axis=1) <= DIAMETER]
    error = sum(np.cos(half @ each) for each in omega) / 64 - np.exp(-np.sum(half**2, axis=1) / 2)
    found = largest_error(omega, rng)
    assert 0.999 * np.max(np.abs(error)) <= found <= 1.005 * np.max(np.abs(error))


def test_bounds_are_those_of_the_papers(found):
    """At the error that is told the probability is one half: both formulas, written once more."""
    bounds = [r for r in found("uniform")[0] if r["bound"]]
    assert {(r["d"], r["m"]) for r in bounds} == {(d, m) for d in (2, 8) for m in (64, 256, 1024)}
    for record in bounds:
        d, number = record["d"], record["m"] // 2
        e, ratio = record["bound_2007"], d**0.5 * DIAMETER
        assert 2**8 * (ratio / e) ** 2 * np.exp(-number * e**2 / (4 * (d + 2))) == pytest.approx(0.5, rel=1e-5)
        e = record["bound"]
        beta = ((d / 2) ** (-d / (d + 2)) + (d / 2) ** (2 / (d + 2))) * 2 ** ((6 * d + 2) / (d + 2))
        alpha = min(1, 0.5 + e / 3)
        half = beta * (ratio / e) ** (2 / (1 + 2 / d)) * np.exp(-number * e**2 / (4 * (d + 2) * alpha))
        assert half == pytest.approx(0.5, rel=1e-5)


def test_verdicts_follow_the_records(found):
    records = found("uniform")[0]
    forged = copy.deepcopy(records)
    for r in forged:
        level = 9.0 if r["projection"] == "iid" else 10.0
        r |= {"largest": level, "largest_low": 0.99 * level, "largest_high": 1.01 * level}
    told = verdicts(forged)
    assert told[0].startswith("Does not hold: the median")
    assert sum(each.startswith("Does not hold for the") and "largest error falls" in each for each in told) == 3
    wide = [r | {"largest_low": r["largest"] / 9, "largest_high": 9 * r["largest"]} for r in records]
    opens = [each for each in verdicts(wide) if each.startswith("Open for the")]
    assert sum("whether the largest error falls" in each for each in opens) == 3
    assert sum("surely so in 0 of 6 cells, surely not in 6" in each for each in told) == 3
    tight = [r | {"bound": 0.9 * (r["bound"] or np.nan) / r["bound"] if r["bound"] else None} for r in records]
    assert not any("says nothing: at d" in each for each in verdicts(tight))
    assert any("says nothing: at d" in each for each in verdicts(records))


def test_bad_axes(tmp_path):
    bad = (({"over": ["sphere"]}, "over must be"), ({"estimator": ["phase"]}, "one of"), ({"m": [7]}, "even"))
    for axes, message in bad:
        with pytest.raises(ParameterError, match=message):
            study("uniform", tmp_path / "out", quick=True, axes=axes)
    assert not (tmp_path / "out").exists()
