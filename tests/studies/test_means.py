"""What intervals of means cover: of normal redraws and their paired differences what they say, of heavy tails less."""

import numpy as np
import pytest

from kernattn.metrics import mean_and_ci
from kernattn.studies import Stop, Sweep
from kernattn.studies._cells import measure
from kernattn.studies._means import mean_interval

MEANS = 4000
LAWS = {f"lognormal {s}": (lambda rng, size, s=s: np.exp(s * rng.standard_normal(size) - s**2 / 2)) for s in (1, 2, 3)}
LAWS |= {f"pareto {a}": (lambda rng, size, a=a: (rng.pareto(a, size) + 1) * (a - 1) / a) for a in (1.5, 2, 3)}


def shares(redraws):
    """The share of means 1 that keep an interval, that keep one that misses, and that Student's alone misses."""
    (_, low, high), (_, all_low, all_high) = mean_interval(redraws), mean_and_ci(redraws)
    misses = (low > 1) | (high < 1)
    return np.mean(np.isfinite(low)), np.mean(misses), np.mean((all_low > 1) | (all_high < 1))


@pytest.mark.parametrize("redraws", [5, 10, 16])
def test_of_normal_redraws_one_interval_in_twenty_misses(redraws):
    kept, missing, _ = shares(1 + np.random.default_rng(0).standard_normal((redraws, MEANS)))
    assert kept > 0.97
    assert abs(missing / kept - 0.05) < 4 * np.sqrt(0.05 * 0.95 / MEANS)


@pytest.mark.parametrize("law", LAWS)
def test_of_heavy_tails_few_means_keep_an_interval_that_misses_and_most_of_these_do(law):
    for redraws in (16, 64):
        kept, missing, before = shares(LAWS[law](np.random.default_rng(0), (redraws, MEANS)))
        assert missing < (0.1 if "log" in law else 0.135)
        assert missing < before < 0.7
        if kept < 0.1:
            assert missing > 0.5 * kept
    _, missing, before = shares(LAWS[law](np.random.default_rng(0), (6, MEANS)))
    assert missing == before > 1 / 6


def test_intervals_of_paired_differences_cover_what_they_say():
    """Of a method that is 0.3 above the other, beside noise of both ten times as large."""

    def trial(cell, rng):
        return {"error": 10 * rng.standard_normal() + (0.3 + rng.standard_normal() if cell["of"] == "b" else 0)}

    axes, how = {"of": ("a", "b")}, {"paired": ("of",), "against": {"of": "a"}, "stop": Stop(draws=5)}
    sweeps = [Sweep("pairs", axes, trial, seed=seed, **how) for seed in range(200)]
    found = [measure(sweep, sweep.cells()[1]) for sweep in sweeps]
    missing = np.mean([not r["error_difference_low"] <= 0.3 <= r["error_difference_high"] for r in found])
    assert abs(missing - 0.05) < 4 * np.sqrt(0.05 * 0.95 / len(found))
    assert np.mean([r["error_difference_high"] - r["error_difference_low"] for r in found]) < 3  # of the two: some 24
