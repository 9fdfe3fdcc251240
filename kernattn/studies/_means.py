"""Averages of redraws, with an interval where it can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernattn.metrics import Interval, mean_and_ci, median_and_ci
from kernattn.studies._records import with_ends, with_intervals
from kernattn.studies._sweep import Cell

FEWEST_OF_MEDIANS = 6  # redraws that bound a median with 95% confidence
SKEWNESS = 0.1  # squared, of a mean by its redraws: above it few of them carry it
CHANCE = 24.0  # over R^2: what normal redraws stay below, two standard deviations of theirs


def mean_interval(samples: Any) -> Interval:
    r"""Return the mean over redraws, with Student's 95% interval; NaN for its ends where few redraws carry the mean.

    They do where the squared skewness of the mean, :math:`g^2 / R` with g that of the R samples, is above 0.1 and above
    :math:`24 / R^2`, which normal samples reach by chance. Student's interval is too short then (Hall 1988), and most
    samples of a heavy tail have a mean that is too small. Of 16 to 128 redraws of log-normal laws, up to 9% of means
    keep an interval that misses, where up to two thirds had one; of Pareto laws 7 to 12%. Where few are kept, most of
    them miss: theirs are the samples without a tail. Six redraws or fewer show nothing, as none of them can be as
    skewed: of six of log-normal laws of variance e - 1 or more, a sixth or more of the means miss. A rare event that no
    redraw saw is not found.
    """
    redraws = np.asarray(samples, np.float64)
    value, low, high = mean_and_ci(redraws)
    off = redraws - value
    off = off / np.maximum(np.max(np.abs(off), axis=0), np.finfo(np.float64).tiny)
    variance = np.mean(off**2, axis=0)
    allowed = max(SKEWNESS, CHANCE / len(off) ** 2)
    carried = np.mean(off**3, axis=0) ** 2 <= allowed * len(off) * variance**3
    return Interval(value, *(np.where(carried, end, np.nan) for end in (low, high)))


def read_settled(facts: Mapping[str, Any], name: str) -> Any:
    """Return where redraws settle a field: what facts say of it, or else of all."""
    return np.asarray(facts.get(f"{name}_settled", facts.get("settled", True)), bool)


def means(facts: Mapping[str, Any], **draws: Any) -> dict[str, Any]:
    """Return the mean of every field over the redraws; an interval where facts and redraws say that these settle it."""
    fields: dict[str, Any] = {}
    for name, values in draws.items():
        value, *ends = mean_interval(values)
        fields |= with_ends(name, [value, *(np.where(read_settled(facts, name), end, np.nan) for end in ends)])
    return fields


def mark_unsettled(facts: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return where redraws settle the fields of which a mean has no interval, for few of them carry it."""
    marks = {}
    for name in fields:
        if not {f"{name}_low", f"{name}_high"} <= set(fields):
            continue
        value, low = (np.asarray(fields[each], np.float64) for each in (name, f"{name}_low"))
        settled, carried = read_settled(facts, name), np.isfinite(low) | ~np.isfinite(value)
        if np.any(settled & ~carried):
            marks[f"{name}_settled"] = settled & carried
    return marks


def medians(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce redraws to the median of every field, between order statistics: ``Sweep(..., reduce=medians)``.

    The interval of `kernattn.metrics.median_and_ci` holds for tails of any length, where that of a mean does not: an
    error of exponential features, or of a ratio, is seldom near its mean.

    Parameters
    ----------
    cell : Cell
        Not looked at.
    draws : mapping of str to array (R, ...)
        What the trials returned; R is at least 6; `run` refuses fewer.
    facts : mapping
        Not looked at.

    Returns
    -------
    dict of str to array
        For each field x the median x, and the ends x_low and x_high of its 95% interval.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> tailed = {"error": np.asarray([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 900.0])}
    >>> print({name: float(value) for name, value in ka.studies.medians(None, tailed, {}).items()})
    {'error': 4.0, 'error_low': 1.0, 'error_high': 900.0}
    """
    del cell, facts
    return with_intervals(median_and_ci, **{name: np.asarray(values, np.float64) for name, values in draws.items()})
