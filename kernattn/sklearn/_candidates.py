"""What the map of an estimator may be made of: a kernel, a line beside it, or the line alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from kernattn._arrays.csr import dense_blocks, is_sparse, numbers_of
from kernattn._arrays.namespaces import Array, Float64, to_numpy64
from kernattn._arrays.units import in_units, unit_of
from kernattn._runtime.checks import MODERATE
from kernattn._runtime.lazy_scipy import linalg
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, Linear, Transformed, random_features
from kernattn.features._spectral.spectra import is_by_axes
from kernattn.kernels import Kernel, Stationary, usual_lengthscale

FEATURES = 256  # of the map by which a search judges a kernel
SPANNED = 256  # columns, beyond which a line has no more features than there are rows
WIDE = 1024  # columns of sparse rows, beyond which to make them dense takes far longer than what they hold
SAME = 1e-13  # of a column's mean: a deviation of less is rounding


def on_one_thread() -> Any:
    """Return a context in which BLAS has one thread: of small eigenproblems, two wait for each other."""
    return _libraries().limit(limits=1, user_api="blas")


@cache
def _libraries() -> ThreadpoolController:
    """Return the libraries of this process, which take some milliseconds to find."""
    return ThreadpoolController()


class Candidate(NamedTuple):
    """A kernel, with a line beside it or not; no kernel stands for the line alone."""

    kernel: Kernel | None
    line: FeatureMap | None = None

    def make_map(self, draw: Callable[[Kernel], FeatureMap]) -> FeatureMap:
        """Return the map, of which `draw` makes the features of the kernel."""
        if self.kernel is None:
            assert self.line is not None
            return self.line
        phi = draw(self.kernel)
        return phi if self.line is None else phi + self.line

    def small_map(self, dim: int, features: int = FEATURES) -> FeatureMap:
        """Return the map of so many random features by which a search judges the candidate."""
        return self.make_map(
            lambda kernel: random_features(kernel, dim, features, projection=usual_projection(kernel), rng=0)
        )


def line_of(x: Array, weights: Float64 | None, in_span: bool = False) -> FeatureMap:
    """Return the map of a line, in units of the columns' deviations, of a mean squared norm of 1 over the rows.

    Of more columns than rows it may be `in_span`: a feature for each row, in which penalised fits to these rows are
    the same. The variance of a Gaussian process is not.
    """
    mean, deviation = _mean_and_deviation(x, weights)
    size = np.maximum(np.abs(mean), np.finfo(float).tiny)
    unit = np.where(deviation > SAME * size, deviation, np.maximum(size, 1.0))
    n, d = x.shape
    line = Linear(unit * np.sqrt(d), mean)
    return _in_span(line, to_numpy64(x.toarray() if is_sparse(x) else x)) if in_span and n < d > SPANNED else line


def _mean_and_deviation(x: Array, weights: Float64 | None) -> tuple[Float64, Float64]:
    """Return the mean and the deviation of each column (d,), of sparse rows a dense block at a time."""
    by = unit_of(to_numpy64(numbers_of(x)))  # squares may be beyond float64
    weights = None if weights is None else in_units(weights, unit_of(weights))  # and so may sums
    if not is_sparse(x):
        rows = to_numpy64(x)
        mean = np.average(rows, axis=0, weights=weights)
        return mean, by * np.sqrt(np.average(((rows - mean) / by) ** 2, axis=0, weights=weights))
    shares = np.full(x.shape[0], 1 / x.shape[0]) if weights is None else weights / weights.sum()
    mean = sum(shares[here] @ rows for here, rows in dense_blocks(x))
    square = sum(shares[here] @ ((rows - mean) / by) ** 2 for here, rows in dense_blocks(x))
    return mean, by * np.sqrt(square)


def _in_span(line: Linear, rows: Float64) -> Transformed:
    r"""Return the map :math:`\phi(x)\, Q` of a line, where Q (d, n) is an orthonormal basis of the features of rows.

    The weights of a penalised fit are in their span, so that it is the same, from n numbers in place of d.
    """
    span = linalg.qr(line(rows).T, mode="economic")[0] / line.lengthscale[:, None]
    return Transformed(Linear(np.ones(len(rows)), line.center @ span), span)


def line_to_try(x: Array, weights: Float64 | None, linear: bool | None, in_span: bool = True) -> FeatureMap | None:
    """Return the line that candidates may have; None where it is not wanted.

    Of sparse rows of many columns it must be asked for: sums take the square of the columns.
    """
    wide = is_sparse(x) and x.shape[1] > WIDE
    return None if linear is False or (linear is None and wide) else line_of(x, weights, in_span)


def times_longer(kernel: Stationary, by: float) -> Stationary:
    """Return a kernel whose lengthscale is so many times that of another, or the longest that kernels take."""
    longer = np.minimum(by * np.asarray(kernel.lengthscale), MODERATE[1])
    return replace(kernel, lengthscale=longer)  # type: ignore[type-var]


def usual_of(x: Array, weights: Array | None) -> float:
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
    return "iid" if is_by_axes(kernel) else "orthogonal"
