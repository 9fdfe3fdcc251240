"""What verdicts are built on: how they begin, intervals that hold at once, and exponents of power laws."""

from dataclasses import replace
from pkgutil import resolve_name

import matplotlib.pyplot as plt
import numpy as np
import pytest

import kernattn as ka
from kernattn.studies import PRESETS
from kernattn.studies._cells import measure
from kernattn.studies._presets.verdict import Estimate, count_exponents, fit_exponent, widen_together


def test_intervals_hold_widen_together():
    """Of 15 means of 12 normal numbers, 95% intervals all hold 46% of the time, and the wider ones 95%."""
    value, low, high = ka.metrics.mean_and_ci(np.random.default_rng(0).standard_normal((12, 4000, 15)))
    wide = widen_together(low, high, 12, 15)
    alone, together = (np.mean(np.all((ends[0] < 0) & (ends[1] > 0), axis=1)) for ends in ((low, high), wide))
    assert alone == pytest.approx(0.95**15, abs=0.03)
    assert together == pytest.approx(0.95, abs=0.015)
    np.testing.assert_allclose((wide[0] + wide[1]) / 2, value, atol=1e-12)
    np.testing.assert_allclose(widen_together(low, high, 12, 1), (low, high), atol=1e-12)


def test_an_interval_of_an_exponent_covers_it():
    rng, m = np.random.default_rng(1), np.array([16, 64, 256, 1024])
    inside = 0
    for _ in range(1000):
        value = m**-0.5 * np.exp(0.1 * rng.standard_normal(4))
        ends = {"x": value, "x_low": value * np.exp(-0.196), "x_high": value * np.exp(0.196)}
        found = fit_exponent(
            [{"m": at, **{name: each[i] for name, each in ends.items()}} for i, at in enumerate(m)], "x", "m"
        )
        inside += found.low < -0.5 < found.high
    assert inside / 1000 == pytest.approx(0.95, abs=0.025)


def test_exponents_are_judged_by_their_intervals():
    near, wide, other = Estimate(-0.52, -0.54, -0.503), Estimate(-0.5, -0.9, -0.1), Estimate(-0.3, -0.35, -0.25)
    for found, says in (
        ([near], ("Holds", 0, 0)),  # the interval leaves -1/2 out by less than matters
        ([wide], ("Open", 0, 1)),
        ([other], ("Does not hold", 1, 0)),
        ([near, other, wide], ("Holds in part", 1, 1)),
    ):
        tally = count_exponents(found, -0.5)
        assert (tally.word, tally.against, tally.undecided) == says


CARRIED = {  # by a preset, what its trials return: vectors along what it covers, and fields of several norms
    "redraw": ["averaged_mean", "pooled_mean", "floor"],
    "nystrom": ["trace", "operator", "trace_over_uniform"],
    "regression": ["error", "kernel_over_iid", "pooled_error", "error_over_exact"],
    "estimators": ["error", "ratio"],
}
PLAIN = ("iid", "uniform")  # maps that the others are held against
BELOW = ("iid", "exact", "bound", "_uniform")  # what their errors are divided by


@pytest.mark.parametrize("name", CARRIED)
def test_a_mean_that_one_redraw_carries_has_no_interval(name):
    """Each number of one redraw of many is ten thousand times larger: Student's interval of such means is too short."""
    sweep = resolve_name(PRESETS[name].sweep)(quick=True)
    cell = next(c for c in sweep.cells() if c.get("estimator", "positive") == "positive" and c.get("map") not in PLAIN)
    trial, numbers = sweep.trial, iter(range(1000))

    def heavy(cell, rng):
        factor = 1e4 if next(numbers) == 1 else 1.0
        return {
            field: x if field.startswith(BELOW) or field.endswith(BELOW) else factor * np.asarray(x)
            for field, x in trial(cell, rng).items()
        }

    record = measure(replace(sweep, trial=heavy), cell)
    for field in CARRIED[name]:
        for end in ("_low", "_high"):
            assert set(np.ravel(np.asarray(record[field + end], object))) == {None}, field
        assert not np.any(record[f"{field}_settled"]), field
        assert np.all(np.isfinite(np.asarray(record[field], float))), field


@pytest.mark.parametrize("name", CARRIED)
def test_nothing_is_claimed_of_means_that_are_not_settled(name, found):
    records, preset = found(name)[0], PRESETS[name]
    medians = ("attention", "over_uniform", "averaged", "pooled")
    ends = {f"{field}{end}" for field in records[0] if field not in medians for end in ("_low", "_high")}
    bare = [{field: _none(x) if field in ends else x for field, x in record.items()} for record in records]
    told = preset.verdicts(bare)
    if name in ("nystrom", "regression"):  # claims of the others are of medians and closed forms
        assert {each.word for each in told} <= {"Open", ""} | ({"Holds"} if name == "nystrom" else set())
    assert not any("nan" in str(each) for each in told)
    for figure in preset.figures.values():
        fig, ax = plt.subplots()
        figure.draw(bare, ax=ax)
        plt.close(fig)


def _none(x):
    return [_none(each) for each in x] if isinstance(x, list) else None
