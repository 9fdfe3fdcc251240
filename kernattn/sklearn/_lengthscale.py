"""The lengthscale that targets or labels prefer, and whether a line beside the kernel, or alone, does better."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from kernattn._arrays.csr import is_sparse, take_rows
from kernattn._arrays.namespaces import Array, Float64, to_numpy64
from kernattn._runtime.checks import MODERATE, boolean
from kernattn.errors import KernattnError, ParameterError
from kernattn.features import FeatureMap, Linear, random_features
from kernattn.features._spectral.spectra import PRODUCT
from kernattn.kernels import Kernel, Product, Scaled, SkewedChi2, Stationary, Sum, usual_lengthscale
from kernattn.sklearn._inputs import lowest_ridge
from kernattn.solvers import cross_validate, moments
from kernattn.solvers._digests import distinct, folds_of
from kernattn.solvers._folds import add_folds
from kernattn.solvers._losses.logistic_penalty import hold_out
from kernattn.solvers._ridge import choose
from kernattn.solvers._tune import OBJECTIVES, Search, search_lengthscales

BY_AXES: tuple[type[Kernel], ...] = (*PRODUCT, SkewedChi2)  # kernels whose frequencies are drawn axis by axis
ROWS, FEATURES = 2048, 256  # that a search looks at
DENSE = 2**24  # numbers of sparse rows that a search makes dense
FEW = 25  # rows that differ, below which the evidence tells nothing
STEPS = 30
FACTORS = (1.0, 2.0, 4.0, 8.0)  # of the usual lengthscale, which labels choose among
SAME = 1e-13  # of a column's mean: a deviation of less is rounding
ONE_THREAD = 1, "blas"  # of small eigenproblems, two threads wait for each other
LINE = 16.0  # times it, functions are nearly lines
BESIDE_LINE = (1.0, 2.0, 4.0)  # of the usual lengthscale, which labels choose among where a line is beside


class _Seen(NamedTuple):
    """Rows that a search looks at, and their targets, of mean 0 and variance 1."""

    rows: Float64  # (r, d)
    targets: Float64  # (r, c)


class Found(NamedTuple):
    """What a search prefers: a kernel, with a line beside it or not; or the line alone."""

    kernel: Stationary
    line: Linear | None = None
    alone: bool = False


def line_of(x: Array, weights: Float64 | None) -> Linear:
    """Return the map of a line, in units of the columns' deviations, of a mean squared norm of 1 over the rows."""
    if is_sparse(x):
        raise ParameterError("linear must be False or None for sparse rows: a line takes the columns' means off")
    rows = to_numpy64(x)
    shares = None if weights is None else weights
    mean = np.average(rows, axis=0, weights=shares)
    deviation = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=shares))
    size = np.maximum(np.abs(mean), np.finfo(float).tiny)
    unit = np.where(deviation > SAME * size, deviation, np.maximum(size, 1.0))
    return Linear(unit * np.sqrt(rows.shape[1]), mean)


def usual_of(x: Array, weights: Array | None = None) -> float:
    """Return the usual lengthscale of rows, which must be one that kernels take."""
    usual, (low, high) = usual_lengthscale(x, weights), MODERATE
    if not low <= usual <= high:
        raise ParameterError(
            f"X must be in other units for a lengthscale of its own: half the root mean square distance of its rows "
            f"is {usual:g}, and kernels take lengthscales from {low:g} to {high:g}"
        )
    return usual


def usual_projection(kernel: Kernel) -> str:
    """Return the arrangement of frequencies that has the least variance for a kernel."""
    return "iid" if _by_axes(kernel) else "orthogonal"


def _by_axes(kernel: Kernel) -> bool:
    """Return whether the frequencies of a kernel, or of a member of its sum or product, are drawn axis by axis."""
    if isinstance(kernel, Scaled):
        return _by_axes(kernel.kernel)
    if isinstance(kernel, Product | Sum):
        return any(map(_by_axes, kernel.kernels))
    return isinstance(kernel, BY_AXES)


def tune_by_evidence(kernel: Stationary, ard: bool, x: Array, y: Float64, weights: Float64 | None) -> Stationary:
    """Return a kernel with the lengthscales of the largest evidence, from its own on: a factor, or one for each axis.

    The evidence is that of random features of the kernel, and of at most 2,048 rows that differ, each once with the
    mean of its targets: copies would pass for rows without noise. A digest picks them, so that order has no part in it.
    Targets are as if each had the mean 0 and a variance of 1.
    """
    with threadpool_limits(*ONE_THREAD):
        return _of_evidence(kernel, ard, _distinct(x, y, weights))


def tune_by_folds(kernel: Stationary, x: Array, y: Float64, weights: Float64 | None, linear: bool | None) -> Found:
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
            return Found(kernel, line_of(x, weights) if linear else None)
        linear = False if is_sparse(x) and linear is None else linear
        line = None if linear is False else line_of(x, weights)
        tried = [Found(each, line) for each in (found, *(_longer(kernel, by) for by in (*FACTORS, LINE)))]
        tried += [Found(kernel, line, True)] if linear is None else []
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
    search = Search(_draw_for(kernel, seen), seen.rows, seen.targets, OBJECTIVES["evidence"])
    try:
        return search_lengthscales(search, "evidence", ard, STEPS, quiet=True).kernel
    except KernattnError:  # features that are 0 or beyond their dtype at the first lengthscale
        return kernel


def _left_out(found: Found, seen: _Seen) -> float:
    """Return the squared error on rows of folds left out, at the penalties that a fit takes; infinity for none."""
    of = folds_of(seen.rows)
    try:
        phi = _map(found, seen.rows, min(FEATURES, 2 * len(seen.rows)))
        folds = [moments(seen.rows[of == fold], phi, y=seen.targets[of == fold]) for fold in np.unique(of)]
        fit = choose(folds, "folds", True, lowest_ridge(add_folds(folds)))
        return float(np.trace(cross_validate(folds, fit.penalty).mse))
    except KernattnError:  # features that are 0 or beyond their dtype
        return np.inf


def _draw_for(kernel: Stationary, seen: _Seen) -> FeatureMap:
    return _draw(kernel, seen.rows.shape[1], min(FEATURES, 2 * len(seen.rows)))


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
    return _Seen(to_numpy64(rows.toarray() if is_sparse(x) else rows), targets[:, differs] / spread[differs])


def tune_by_log_loss(
    kernel: Stationary,
    x: Array,
    labels: NDArray[Any],
    weights: Float64 | None,
    intercept: bool,
    linear: bool | None,
) -> Found:
    """Return the candidate with the least log loss on rows left out: 1, 2, 4 or 8 times the kernel's own lengthscale.

    A line is beside the kernel where `linear` says so. None tries both, and the line alone.
    """
    classes = np.unique(labels)
    linear = False if is_sparse(x) and linear is None else linear
    line = None if linear is False else line_of(x, weights)
    tried = [Found(_longer(kernel, by), line if linear else None) for by in FACTORS]
    if linear is None:
        tried += [*(Found(_longer(kernel, by), line) for by in BESIDE_LINE), Found(kernel, line, True)]
    with threadpool_limits(*ONE_THREAD):
        losses = [hold_out(x, labels, weights, _map(each, x), classes, intercept).loss for each in tried]
    return tried[int(np.argmin(losses))]  # NaN of all stands for the first


def _map(found: Found, x: Array, features: int = FEATURES) -> FeatureMap:
    if found.alone:
        assert found.line is not None
        return found.line
    phi = _draw(found.kernel, x.shape[1], features)
    return phi if found.line is None else phi + found.line


def with_line(
    found: Found | None, linear: bool | None, x: Array, weights: Float64 | None, draw: Callable[[], FeatureMap]
) -> FeatureMap:
    """Return the map that a search found, or the drawn one, with a line beside it where that is asked for."""
    if linear is not None:
        boolean("linear", linear)
    if found is not None and found.alone:
        assert found.line is not None
        return found.line
    line = found.line if found is not None else line_of(x, weights) if linear else None
    return draw() if line is None else draw() + line


def _longer(kernel: Stationary, by: float) -> Stationary:
    longer = np.minimum(by * np.asarray(kernel.lengthscale), MODERATE[1])
    return replace(kernel, lengthscale=longer)  # type: ignore[type-var]


def _draw(kernel: Stationary, dim: int, features: int) -> FeatureMap:
    return random_features(kernel, dim, features, projection=usual_projection(kernel), rng=0)
