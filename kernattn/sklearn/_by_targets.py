"""The lengthscale that targets prefer, by the evidence and by folds."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from kernattn._arrays.csr import is_sparse, take_rows
from kernattn._arrays.namespaces import Array, Float64, to_numpy64
from kernattn._runtime.checks import MODERATE
from kernattn.errors import KernattnError
from kernattn.features import FeatureMap
from kernattn.kernels import Stationary, usual_lengthscale
from kernattn.sklearn._candidates import FEATURES, ONE_THREAD, SAME, Candidate, line_of, line_to_try, times_longer
from kernattn.sklearn._inputs import lowest_ridge
from kernattn.solvers import cross_validate, moments
from kernattn.solvers._digests import distinct, folds_of
from kernattn.solvers._folds import add_folds
from kernattn.solvers._ridge import choose
from kernattn.solvers._tune import OBJECTIVES, Search, search_lengthscales

ROWS = 2048  # that a search looks at
DENSE = 2**24  # numbers of sparse rows that a search makes dense
FEW = 25  # rows that differ, below which the evidence tells nothing
STEPS = 30  # of a search for the largest evidence
FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0)  # of the usual lengthscale, which folds choose among; the last is nearly a line


class _Seen(NamedTuple):
    """Rows that a search looks at, and their targets, of mean 0 and variance 1."""

    rows: Float64  # (r, d)
    targets: Float64  # (r, c)

    def map_of(self, candidate: Candidate) -> FeatureMap:
        """Return the map by which a candidate is judged, of at most two features a row."""
        return candidate.small_map(self.rows.shape[1], min(FEATURES, 2 * len(self.rows)))


def tune_by_evidence(
    kernel: Stationary, ard: bool, x: Array, y: Float64, weights: Float64 | None, linear: bool | None
) -> Candidate:
    """Return a kernel with the lengthscales of the largest evidence, from its own on: a factor, or one for each axis.

    The evidence is that of random features of the kernel, and of at most 2,048 rows that differ, each once with the
    mean of its targets: copies would pass for rows without noise. A digest picks them, so that order has no part in it.
    Targets are as if each had the mean 0 and a variance of 1. A line is beside the kernel where `linear` is True.
    """
    with threadpool_limits(*ONE_THREAD):
        found = _of_evidence(kernel, ard, _distinct(x, y, weights))
    return Candidate(found, line_of(x, weights) if linear else None)


def tune_by_folds(kernel: Stationary, x: Array, y: Float64, weights: Float64 | None, linear: bool | None) -> Candidate:
    """Return the candidate with the least squared error on rows left out.

    The evidence's lengthscale is tried, and 1, 2, 4, 8 and 16 times the kernel's own, on the rows, targets and features
    of `tune_by_evidence`. The evidence believes in normal noise: where targets have heavy tails, as counts have, it
    explains the largest by a short lengthscale. A line is beside the kernel unless `linear` is False; None tries it
    alone, too.
    """
    with threadpool_limits(*ONE_THREAD):
        seen = _distinct(x, y, weights)
        found = _of_evidence(kernel, False, seen)
        if found is kernel:
            return Candidate(kernel, line_of(x, weights) if linear else None)
        line = line_to_try(x, weights, linear)
        tried = [Candidate(each, line) for each in (found, *(times_longer(kernel, by) for by in FACTORS))]
        if linear is None and line is not None:
            tried.append(Candidate(None, line))
        return tried[int(np.argmin([_left_out(each, seen) for each in tried]))]


def _of_evidence(kernel: Stationary, ard: bool, seen: _Seen) -> Stationary:
    """Return the kernel of the largest evidence, or the one that is given where rows tell nothing."""
    if len(seen.rows) < FEW or not seen.targets.shape[1]:
        return kernel
    if ard:  # from each column's spread, so that units do not matter
        spread = seen.rows.std(axis=0)
        spread = np.where(spread > SAME * np.abs(seen.rows).max(axis=0), spread, 1.0)
        begin = np.clip(usual_lengthscale(seen.rows / spread) * spread, *MODERATE)
        kernel = replace(kernel, lengthscale=begin)  # type: ignore[type-var]
    search = Search(seen.map_of(Candidate(kernel)), seen.rows, seen.targets, OBJECTIVES["evidence"])
    try:
        return search_lengthscales(search, "evidence", ard, STEPS, quiet=True).kernel
    except KernattnError:  # features that are 0 or beyond their dtype at the first lengthscale
        return kernel


def _left_out(candidate: Candidate, seen: _Seen) -> float:
    """Return the squared error on rows of folds left out, at the penalties that a fit takes; infinity for none."""
    of = folds_of(seen.rows)
    try:
        phi = seen.map_of(candidate)
        folds = [moments(seen.rows[of == fold], phi, y=seen.targets[of == fold]) for fold in np.unique(of)]
        fit = choose(folds, "folds", True, lowest_ridge(add_folds(folds)))
        return float(np.trace(cross_validate(folds, fit.penalty).mse))
    except KernattnError:  # features that are 0 or beyond their dtype
        return np.inf


def _distinct(x: Array, y: Float64, weights: Float64 | None) -> _Seen:
    """Return rows that differ, 2,048 at most, and the means of their targets, of those that vary.

    Of sparse rows they are as many as 128 MiB hold dense.
    """
    most = min(ROWS, max(FEW, DENSE // x.shape[1])) if is_sparse(x) else ROWS
    first, which = distinct(x)
    columns = y.reshape(len(y), -1)
    shares = np.ones(len(y)) if weights is None else weights / weights.max()
    sums = np.stack([np.bincount(which, shares * column)[:most] for column in columns.T], axis=1)
    counts = np.bincount(which, shares)[:most, None]
    means = sums / counts
    rounding = np.sqrt(np.finfo(float).eps) * np.abs(means).max(axis=0)
    targets = means - means.mean(axis=0)
    spread = targets.std(axis=0)
    differs = spread > rounding
    rows = take_rows(x, first[:most])
    rounded = (targets[:, differs] / spread[differs]).astype(np.float32)  # sums in another order differ by rounding
    return _Seen(to_numpy64(rows.toarray() if is_sparse(x) else rows), rounded.astype(np.float64))
