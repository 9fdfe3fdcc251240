"""The lengthscale that targets or labels prefer."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, Float64, to_numpy64
from kernattn.errors import KernattnError
from kernattn.features import FeatureMap, random_features
from kernattn.kernels import Cauchy, Kernel, Laplacian, Periodic, Sech, SkewedChi2
from kernattn.kernels._stationary import Stationary
from kernattn.solvers._check import take_rows
from kernattn.solvers._digests import digests_of
from kernattn.solvers._penalty import hold_out
from kernattn.solvers._tune import OBJECTIVES, Search, search_lengthscales

BY_AXES = (Cauchy, Laplacian, Periodic, Sech, SkewedChi2)
ROWS, FEATURES = 2048, 256  # that a search looks at
FEW = 25  # rows that differ, below which the evidence tells nothing
STEPS = 30
FACTORS = (1.0, 2.0, 4.0, 8.0)  # of the usual lengthscale, which labels choose among


def usual_projection(kernel: Kernel) -> str:
    """Return the arrangement of frequencies that has the least variance for a kernel."""
    return "iid" if isinstance(kernel, BY_AXES) else "orthogonal"


def tune_by_evidence(kernel: Stationary, ard: bool, x: Array, y: Float64, weights: Float64 | None) -> Stationary:
    """Return a kernel with the lengthscales of the largest evidence, from its own on: a factor, or one for each axis.

    The evidence is that of random features of the kernel, and of at most 2,048 rows that differ, each once with the
    mean of its targets: copies would pass for rows without noise. A digest picks them, so that order has no part in it.
    Targets are as if each had the mean 0 and a variance of 1.
    """
    rows, targets = _distinct(x, y, weights)
    rounding = np.sqrt(np.finfo(float).eps) * np.abs(targets).max(axis=0)
    targets = targets - targets.mean(axis=0)
    spread = targets.std(axis=0)
    told = spread > rounding
    if len(rows) < FEW or not told.any():
        return kernel
    phi = _draw(kernel, rows.shape[1], min(FEATURES, 2 * len(rows)))
    search = Search(phi, rows, targets[:, told] / spread[told], OBJECTIVES["evidence"])
    try:
        return search_lengthscales(search, "evidence", ard, STEPS, quiet=True).kernel
    except KernattnError:  # features that are 0 or beyond their dtype at the first lengthscale
        return kernel


def _distinct(x: Array, y: Float64, weights: Float64 | None) -> tuple[Float64, Float64]:
    """Return rows (r, d) that differ, 2,048 at most, and the means of their targets (r, c)."""
    _, first, which = np.unique(digests_of(x), return_index=True, return_inverse=True)
    columns = y.reshape(len(y), -1)
    shares = np.ones(len(y)) if weights is None else weights / weights.max()
    sums = np.stack([np.bincount(which, shares * column)[:ROWS] for column in columns.T], axis=1)
    counts = np.bincount(which, shares)[:ROWS, None]
    return to_numpy64(take_rows(x, first[:ROWS])), sums / counts


def tune_by_log_loss(
    kernel: Stationary, x: Array, labels: NDArray[Any], weights: Float64 | None, intercept: bool
) -> Stationary:
    """Return a kernel with the lengthscale, 1, 2, 4 or 8 times its own, of the least log loss on rows left out."""
    classes = np.unique(labels)
    tried = [replace(kernel, lengthscale=by * np.asarray(kernel.lengthscale)) for by in FACTORS]  # type: ignore[type-var]
    maps = [_draw(each, x.shape[1], FEATURES) for each in tried]
    losses = [hold_out(x, labels, weights, phi, classes, intercept).loss for phi in maps]
    return tried[int(np.argmin(losses))]  # NaN of all stands for the first


def _draw(kernel: Stationary, dim: int, features: int) -> FeatureMap:
    return random_features(kernel, dim, features, projection=usual_projection(kernel), rng=0)
