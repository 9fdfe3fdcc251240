"""The study of capacity: closed forms against draws, what it finds, and verdicts that records can turn over."""

from itertools import product

import numpy as np
import pytest

from kernattn.errors import ParameterError
from kernattn.studies import PRESETS, study
from kernattn.studies._presets import draw
from kernattn.studies._presets.capacity import KEYS, RULES, predict, trial

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(("keys", "writes", "rule"), [*product(KEYS, (1, 2), RULES)])
def test_closed_forms_are_those_of_draws(keys, writes, rule):
    """Of 4 dimensions, where 1 / d^2 counts; the mean of 100 draws is within four of its deviations."""
    rng, pairs = np.random.default_rng(1), 4 if keys == "orthogonal" else 7
    expected = predict(keys, writes, rule, 4, pairs)
    if "delta" in rule and keys == "random" and writes == 2:
        assert expected is None
        return
    cell = {"keys": keys, "writes": writes, "rule": rule, "d": 4, "pairs": pairs}
    found = [trial(cell, rng)["error"] for _ in range(100)]
    assert abs(np.mean(found) - expected) < 4 * np.std(found) / 10 + 1e-12
    if rule == "linear":
        assert expected == pytest.approx((pairs - 1) / 4 * writes * (keys == "random") + writes - 1)


def test_values_that_are_equally_near_count_by_halves():
    """Linear attention reads the sum of both values of an orthogonal key: rounding does not decide which is nearer."""
    cell = {"keys": "orthogonal", "writes": 2, "rule": "linear", "d": 32, "pairs": 24}
    for seed in range(4):
        assert trial(cell, np.random.default_rng(seed))["recall"] == 0.5


def test_what_it_finds(found):
    """Fresh random keys are recalled best by linear attention, keys that are written again by the delta rule."""
    records, page, _ = found("capacity")
    recall = {(r["keys"], r["writes"], r["rule"], r["pairs"]): r["recall"] for r in records}
    assert recall["random", 1, "linear", 16] > 0.8 > recall["random", 1, "delta", 16]
    assert recall["random", 2, "linear", 16] < 0.5 < recall["random", 2, "delta", 16]
    exact = [r for r in records if r["keys"] == "orthogonal" and r["rule"] == "delta"]
    assert max(r["pairs"] for r in exact) == 16
    assert all(r["error"] < 1e-20 and r["recall"] == 1 for r in exact)
    assert "Holds for orthogonal keys, d = 16, written twice: the delta rule holds up to d pairs exactly" in page
    assert (
        "Does not hold for orthogonal keys, d = 16, written twice: linear attention holds up to d pairs exactly" in page
    )
    assert "Does not hold for random keys, d = 16, written once: the delta rule holds up to d pairs exactly" in page
    assert "Holds for random keys, d = 16, written once: the delta rule errs less than linear attention" in page


def test_verdicts_follow_the_records(found):
    records, page, _ = found("capacity")
    swapped = {"linear": "delta", "delta": "linear"}
    forged = [r | {"rule": swapped.get(r["rule"], r["rule"])} for r in records]
    told = "\n".join(PRESETS["capacity"].sentences(forged))
    assert "Does not hold for random keys, d = 16, written once: the delta rule errs less than linear attention" in told
    assert "Does not hold for random keys, d = 16, written twice: the delta rule recalls more pairs" in told
    assert "Holds for random keys, d = 16, written twice: the delta rule recalls more pairs" in page
    assert "Holds for orthogonal keys, d = 16, written twice: linear attention holds up to d pairs exactly" in told


def test_sizes_are_told_apart(tmp_path, monkeypatch):
    """States of two sizes have verdicts and panels of their own; a recall that fails at fewer pairs does not count."""
    axes = {"d": [4, 8], "pairs": [4, 8], "keys": ["random"], "rule": ["linear"], "writes": [1]}
    whole = draw.write_figures
    monkeypatch.setattr(draw, "write_figures", lambda *of: whole(*of, formats=["png"]))
    records = study("capacity", tmp_path, quick=True, axes=axes, workers=0)
    told = PRESETS["capacity"].sentences([r | {"recall": float(r["pairs"] == 8)} for r in records])
    assert sum("never by linear attention" in each for each in told) == 2
    assert all(any(f"Random keys, d = {d}, written once, 8 pairs at most" in each for each in told) for d in (4, 8))


def test_bad_axes(tmp_path):
    for axes, message in (({"keys": ["mine"]}, "keys must be one of"), ({"pairs": [1]}, "pairs must be at least 2")):
        with pytest.raises(ParameterError, match=message):
            study("capacity", tmp_path / "out", quick=True, axes=axes)
    assert not (tmp_path / "out").exists()
