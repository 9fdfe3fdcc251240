"""The spectral study: what its quick form finds, and verdicts that records can turn over."""

import copy

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError
from kernattn.studies import PRESETS, study
from kernattn.studies._presets.spectral import _by_leverage, _draw_rows, _problem, features_needed

pytest.importorskip("matplotlib")
verdicts = PRESETS["spectral"].sentences


def only(records, **wanted):
    (record,) = (r for r in records if all(r[key] == value for key, value in wanted.items()))
    return record


def test_what_it_finds(found):
    """Delta falls as m^-1/2 and stays below its bound; orthogonal blocks gain most where few directions are left."""
    records, page, _ = found("spectral")
    for ratio in (8, 64):
        medians = [only(records, n_lambda=ratio, sampling="iid", m=m)["delta"] for m in (32, 256)]
        assert medians[0] / medians[1] == pytest.approx(8**0.5, rel=0.3)
        alone = only(records, n_lambda=ratio, sampling="iid", m=1024)
        x = np.random.default_rng(0).standard_normal((80, 4))
        gram = np.exp(-((x[:, None] - x) ** 2).sum(-1) / 8)
        dimension = np.trace(gram @ np.linalg.inv(gram + 80 / ratio * np.eye(80)))
        assert alone["effective_dimension"] == pytest.approx(dimension, rel=1e-6)
        bound = 8 / 3 * ratio * np.log(160 * dimension)
        assert alone["needed_bound"] == pytest.approx(4 * bound, rel=1e-6)
        assert alone["worst_bound"] == pytest.approx((bound / 1024) ** 0.5, rel=1e-6)
        assert alone["delta"] <= alone["worst_low"] <= alone["worst"] <= alone["worst_high"] < alone["worst_bound"]
    few = {name: only(records, n_lambda=8, sampling=name, m=1024) for name in ("iid", "orthogonal")}
    assert few["orthogonal"]["delta_high"] < few["iid"]["delta_low"]
    assert "Holds: where the bound promises" in page
    assert "Holds: Δ falls as m^-1/2" in page


def test_verdicts_follow_the_records(found):
    records = found("spectral")[0]
    forged = copy.deepcopy(records)
    for r in forged:
        level = 1.0 if r["sampling"] == "iid" else 9.0
        for end, factor in (("", 1), ("_low", 0.9), ("_high", 1.1)):
            r |= {f"{name}{end}": level * factor for name in ("delta", "worst")}
    told = verdicts(forged)
    assert told[0].startswith("Does not hold: where the bound")
    assert told[1].startswith("Does not hold: Δ falls")
    assert sum(each.startswith("Does not hold:") and "err less" in each for each in told) == 2
    wide = [r | {"delta_low": r["delta"] / 9, "delta_high": 9 * r["delta"]} for r in records]
    assert verdicts(wide)[1].startswith("Open: whether Δ falls")
    small = verdicts([r for r in records if r["m"] == 4])
    assert small[0].startswith("Open: whether the bound holds. It asks for more")
    assert not any("falls as" in each for each in small)


def test_needed_interpolates_in_logarithms():
    line = [{"m": m, "worst": m**-0.5} for m in (1, 16, 256)]
    assert features_needed(line) == pytest.approx(4)
    assert features_needed(line[1:]) is None


@pytest.mark.statistical
def test_leverage_sampling_is_unbiased():
    given = _problem(_draw_rows, "normal", 12, 64)
    rng = np.random.default_rng(1)
    draws = np.array([(phi := _by_leverage(given, 64, rng)) @ phi.T for _ in range(200)])
    value, low, high = ka.metrics.mean_and_ci(draws)
    np.testing.assert_array_less(np.abs(value - given.gram), 2.25 * (high - low) / 2 + 1e-12)  # |z| < 4.4
    assert np.max(high - low) < 0.1


def test_bad_axes(tmp_path):
    for axes, message in (({"source": ["nope"]}, "source must be one of"), ({"sampling": ["qmc"]}, "sampling must be")):
        with pytest.raises(ParameterError, match=message):
            study("spectral", tmp_path / "out", quick=True, axes=axes)
    assert not (tmp_path / "out").exists()
