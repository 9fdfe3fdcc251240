"""The lengthscale that targets prefer, by the evidence of random features or of landmarks."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kernattn._arrays.csr import is_sparse, take_rows
from kernattn._arrays.namespaces import Array, Float64, to_numpy64
from kernattn._runtime.checks import MODERATE
from kernattn.errors import KernattnError
from kernattn.features import FeatureMap
from kernattn.kernels import Stationary, usual_lengthscale
from kernattn.sklearn._candidates import FEATURES, SAME, Candidate, line_of, line_to_try, on_one_thread, times_longer
from kernattn.sklearn._on_landmarks import Judge
from kernattn.solvers._conjugate_gradients import units_of
from kernattn.solvers._digests import distinct
from kernattn.solvers._spectrum import LEAST
from kernattn.solvers._tune import OBJECTIVES, Search, search_lengthscales

ROWS = 2048  # that a search looks at
DENSE = 2**24  # numbers of sparse rows that a search makes dense
FEW = 25  # rows that differ, below which the evidence tells nothing
STEPS = 30  # of a search for the largest evidence
STEP = 4.0  # from a lengthscale to the next that is tried
FACTORS = (1.0, 4.0, 16.0)  # of the usual lengthscale; the longest is nearly a line
SHORTEST = 1e-3  # of the usual lengthscale
ULPS, EPS = 8, float(np.finfo(float).eps)  # units in the last place of targets, by which they do not vary


class _Seen(NamedTuple):
    """Rows that a search looks at, and their targets, of mean 0 and variance 1."""

    rows: Float64  # (r, d)
    targets: Float64  # (r, c)

    def map_of(self, candidate: Candidate) -> FeatureMap:
        """Return the map by which a candidate is judged, of at most two features a row."""
        return candidate.small_map(self.rows.shape[1], min(FEATURES, 2 * len(self.rows)))


def tune_by_evidence(
    kernel: Stationary,
    ard: bool,
    x: Array,
    y: Float64,
    weights: Float64 | None,
    linear: bool | None,
    in_span: bool = False,
) -> Candidate:
    """Return a kernel with the lengthscales of the largest evidence, from its own on: a factor, or one for each axis.

    The evidence is that of random features of the kernel, and of at most 2,048 rows that differ, each once with the
    mean of its targets: copies would pass for rows without noise. A digest picks them, so that order has no part in it.
    Targets are as if each had the mean 0 and a variance of 1. A line is beside the kernel where `linear` is True.
    """
    with on_one_thread():
        found = _of_evidence(kernel, ard, _distinct(x, y, weights))
    return Candidate(found, line_of(x, weights, in_span) if linear else None)


def tune_by_landmarks(
    kernel: Stationary, x: Array, y: Float64, weights: Float64 | None, linear: bool | None, in_parts: bool = False
) -> Candidate:
    """Return the candidate with the largest evidence on landmarks, of the rows and targets of `tune_by_evidence`.

    The kernel's own lengthscale is tried, 4 and 16 times it, quarters while they are better, and then one between the
    best and the better of its neighbours. A line is beside the kernel unless `linear` is False. None takes the line
    alone, unless both the evidence and rows left out prefer the kernel: the evidence believes in normal noise, and
    explains far targets by a short lengthscale. Where rows come `in_parts`, the line is not alone, as the choice is for
    good: of enough rows a kernel beside it does no harm, and folds of all rows choose its penalty.
    """
    with on_one_thread():
        seen = _distinct(x, y, weights)
        if _tells_nothing(seen):
            return Candidate(kernel, line_of(x, weights, not in_parts) if linear else None)
        line = line_to_try(x, weights, linear, not in_parts)
        judge = Judge(*seen, None if line is None else line(seen.rows).T)
        best, most = _search(lambda by: judge.log_evidence(times_longer(kernel, by)))
        found = times_longer(kernel, best)
        alone = linear is None and line is not None and not in_parts
        alone = alone and (judge.log_evidence(None) >= most or judge.left_out(None) <= judge.left_out(found))
    return Candidate(None if alone else found, line)


def _search(judge: Callable[[float], float]) -> tuple[float, float]:
    """Return the best factor of a lengthscale, and how good it is."""
    judged = {by: judge(by) for by in FACTORS}

    def find_best() -> float:
        return max(judged, key=judged.__getitem__)

    while find_best() == min(judged) and find_best() > SHORTEST:
        judged[min(judged) / STEP] = judge(min(judged) / STEP)
    best = find_best()
    shorter, longer = judged.get(best / STEP, -np.inf), judged.get(best * STEP, -np.inf)
    between = best * (STEP**0.5 if longer > shorter else STEP**-0.5)
    judged[between] = judge(between)
    return find_best(), judged[find_best()]


def _tells_nothing(seen: _Seen) -> bool:
    return len(seen.rows) < FEW or not seen.targets.shape[1]


def _of_evidence(kernel: Stationary, ard: bool, seen: _Seen) -> Stationary:
    """Return the kernel of the largest evidence, or the one that is given where rows tell nothing."""
    if _tells_nothing(seen):
        return kernel
    if ard:  # from each column's spread, so that units do not matter
        units = units_of(seen.rows)
        spread = units * (seen.rows / units).std(axis=0)
        spread = np.where(spread > SAME * np.abs(seen.rows).max(axis=0), spread, 1.0)
        begin = np.clip(usual_lengthscale(seen.rows / spread) * spread, *MODERATE)
        kernel = replace(kernel, lengthscale=begin)  # type: ignore[type-var]
    search = Search(seen.map_of(Candidate(kernel)), seen.rows, seen.targets, OBJECTIVES["evidence"])
    try:
        return search_lengthscales(search, "evidence", ard, STEPS, quiet=True).kernel
    except KernattnError:  # features that are 0 or beyond their dtype at the first lengthscale
        return kernel


def _distinct(x: Array, y: Float64, weights: Float64 | None) -> _Seen:
    """Return rows that differ, 2,048 at most, and the means of their targets, of those that vary.

    Of sparse rows they are as many as 128 MiB hold dense.
    """
    most = min(ROWS, max(FEW, DENSE // x.shape[1])) if is_sparse(x) else ROWS
    first, which = distinct(x)
    columns = y.reshape(len(y), -1)
    columns = columns / units_of(columns)
    least = columns.min(axis=0)  # off which a large mean has no digits to lose
    columns = columns - least
    shares = np.ones(len(y)) if weights is None else np.maximum(weights / weights.max(), LEAST)
    sums = np.stack([np.bincount(which, shares * column)[:most] for column in columns.T], axis=1)
    counts = np.bincount(which, shares)[:most, None]
    means = sums / counts
    rounding = np.sqrt(EPS) * means.max(axis=0) + ULPS * EPS * np.abs(least)
    targets = means - means.mean(axis=0)
    spread = targets.std(axis=0)
    differs = spread > rounding
    rows = take_rows(x, first[:most])
    rounded = (targets[:, differs] / spread[differs]).astype(np.float32)  # sums in another order differ by rounding
    return _Seen(to_numpy64(rows.toarray() if is_sparse(x) else rows), rounded.astype(np.float64))
