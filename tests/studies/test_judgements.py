"""What verdicts are built on: how they begin, intervals that hold at once, and exponents of power laws."""

import numpy as np
import pytest

import kernattn as ka
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
