"""Cross-validation without a second look at the data: the moments of all folds but one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, Float64, without_flags
from kernattn._runtime.checks import as_numbers, boolean, instance_of, shown
from kernattn._runtime.deprecated import old_arguments, read_old
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.lazy import lazy
from kernattn._runtime.lazy_scipy import linalg
from kernattn.errors import EmptyInputError, ParameterError
from kernattn.solvers._eigenbasis import tridiagonal
from kernattn.solvers._held import are_even
from kernattn.solvers._moments import Moments
from kernattn.solvers._spectrum import centre, check_penalties

COLUMNS = 512  # weights of so many penalties and targets are made at a time
MANY = 4  # times the features: of more weights, eigenvectors save more than they take


class CrossValidation(NamedTuple):
    """Errors of penalties on rows that were left out; a last axis for targets (n, c), none for targets (n,).

    Attributes
    ----------
    penalty : (L,) numpy.ndarray
        The penalties.
    mse : (L, ...) numpy.ndarray
        Mean squared error over all rows, each left out once.
    fold_mse : (k, L, ...) numpy.ndarray
        The same of each fold.
    best : () or (c,) numpy.ndarray
        The penalty of the least error.
    """

    penalty: Float64
    mse: Float64
    fold_mse: Float64
    best: Float64

    @property
    def ridge(self) -> Float64:
        """Old name of `penalty`."""
        return read_old(self, "ridge", "penalty")  # type: ignore[no-any-return]


@told_keywords
@old_arguments(ridges="penalties")
@without_flags
def cross_validate(folds: Sequence[Moments], penalties: Array, *, intercept: bool = True) -> CrossValidation:
    r"""Return the errors :math:`\sum_i w_i |y_i - \hat y_{-f(i)}(x_i)|^2 / \sum_i w_i` of penalties, fold by fold.

    Row i is in fold f(i). The errors are exact: the moments of the other folds give the fit, those of the fold the
    error. It costs an eigendecomposition a fold. A penalty is the same on the sums of all folds but one.

    Parameters
    ----------
    folds : sequence of Moments
        Of disjoint rows, two at least.
    penalties : (L,) array
        The penalties, as in `ridge`.
    intercept : bool
        As in `ridge`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((300, 2))
    >>> y = x[:, 0] * x[:, 1] + 0.1 * rng.standard_normal(300)
    >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=2, num_features=64, rng=0)
    >>> folds = [ka.solvers.moments(x[i::5], phi, y=y[i::5]) for i in range(5)]
    >>> errors = ka.solvers.cross_validate(folds, np.geomspace(1e-4, 1e2, 13))
    >>> bool(1e-4 < errors.best < 1e2)
    True
    """
    boolean("intercept", intercept)
    total = add_folds(folds)
    sums = np.stack([left.sum_errors(penalties) for left in leave_each_out(folds, intercept)])  # (k, L, c)
    weights = np.array([fold.weight for fold in folds])
    mse, each = sums.sum(axis=0) / total.weight, sums / weights[:, None, None]
    values = np.asarray(penalties, dtype=np.float64)
    best = values[np.argmin(mse, axis=0)]
    if total.vector:
        mse, each, best = mse[..., 0], each[..., 0], best[0]
    return CrossValidation(values, mse, each, best)


def add_folds(folds: Sequence[Moments]) -> Moments:
    """Return the moments of all folds, which must be two or more, of rows and targets each."""
    given: object = folds
    if not isinstance(given, Sequence) or len(given) < 2:
        raise ParameterError(f"folds must be a sequence of two moments or more; got {shown(given)}")
    for fold in folds:
        instance_of("a fold", fold, Moments)
        if not len(fold._targets.total) or not fold.n:
            raise EmptyInputError(f"a fold must hold rows and targets; got {fold!r}")
    return reduce(add, folds)


def _leave_each_out(folds: Sequence[Moments], others: Moments | None = None) -> Iterator[Moments]:
    """Yield the moments of all folds but one, for each in turn, by k log k additions: a difference would round."""
    if len(folds) == 1 and others is not None:
        yield others
        return
    half = len(folds) // 2
    halves = folds[:half], folds[half:]
    for here, rest in (halves, halves[::-1]):
        yield from _leave_each_out(here, reduce(add, rest if others is None else [others, *rest]))


class LeftOut:
    """A fold, and the fits to all others: one matrix of three diagonals for any number of penalties."""

    def __init__(self, others: Moments, fold: Moments, intercept: bool) -> None:
        sums = centre(others, intercept)
        self._outer = tridiagonal(sums.gram)
        self._above, _ = sums.find_floor(self._outer.bound)  # the floor, which takes all eigenvalues, is not
        self._others, self._turned = sums, self._outer.turn(sums.cross)
        mean, targets = sums.mean, fold._targets.about(sums.y_mean, fold.s, fold.weight)
        self._gram, self._beside = fold.gram, 2 * fold.s - fold.weight * mean
        self._cross, self._energy = targets.cross - np.outer(mean, targets.total), np.diagonal(targets.gram)

    @lazy
    def _floor(self) -> float:
        return self._others.find_floor(self._outer.largest)[0]

    def sum_errors(self, penalties: Array, wanted: NDArray[np.bool_] | None = None) -> Float64:
        """Return the sums of squared errors (L, c) on the fold; those that are not `wanted` (L, c) may be infinite.

        With m the features' mean over the others and w a fit, features of the fold less m have the Gram matrix
        G - m s^T - s m^T + n m m^T, which w takes from both sides.
        """
        values = as_numbers("penalty", penalties)
        known = values.size and np.min(values) >= self._above
        check_penalties(values, self._above if known else self._floor, (1,))
        if len(values) * len(self._energy) > MANY * len(self._beside):
            return self._turn_once(values, wanted)
        sums = np.empty((len(values), len(self._energy)))
        count = max(1, COLUMNS // len(self._energy))
        for low in range(0, len(values), count):  # many penalties at once: products of matrices, not of vectors
            here = slice(low, low + count)
            w = self._weights(values[here])
            flat = w.reshape(len(w), -1)
            squares = np.sum(flat * (self._gram @ flat), axis=0)
            squares -= (self._others.mean @ flat) * (self._beside @ flat)
            sums[here] = self._energy - 2 * np.sum(w * self._cross[:, None], axis=0) + squares.reshape(w.shape[1:])
        return np.maximum(sums, 0.0)

    def _turn_once(self, penalties: Float64, wanted: NDArray[np.bool_] | None) -> Float64:
        """Return the same by eigenvectors of the others, in which a fit to a target is a product of numbers."""
        values, coordinates, half, cross = self._in_eigenvectors
        sums: Float64 = np.full((len(penalties), len(self._energy)), np.inf)
        multiply = linalg.blas.dtrmm
        for at, penalty in enumerate(penalties):
            some = slice(None) if wanted is None else np.flatnonzero(wanted[at])
            shrunk = coordinates[some] / (values + penalty)  # (some, M)
            squares = 2 * np.einsum("im,im->i", shrunk, multiply(1.0, half, shrunk.T, lower=1).T)
            sums[at, some] = self._energy[some] - 2 * np.einsum("im,im->i", shrunk, cross[some]) + squares
        return np.maximum(sums, 0.0, out=sums)

    @lazy
    def _in_eigenvectors(self) -> tuple[Float64, Float64, Float64, Float64]:
        """The others' eigenvalues, and in their eigenvectors targets (c, M), half the fold's Gram matrix, its cross.

        That half is a lower triangle, L + L^T the matrix.
        """
        values, inner = self._outer.decompose()
        vectors = self._outer.turn(inner, back=True)
        mean = self._others.mean
        across = np.outer(mean, self._beside) / 2
        matrix = vectors.T @ ((self._gram - across - across.T) @ vectors)
        half = np.tril(matrix)
        half[np.diag_indices(len(half))] /= 2
        coordinates, cross = (
            np.ascontiguousarray(part.T) for part in (inner.T @ self._turned, vectors.T @ self._cross)
        )
        return np.maximum(values, 0.0), coordinates, np.asfortranarray(half), cross

    def _weights(self, penalties: Float64) -> Float64:
        """Return w (M, L, c), of L penalties for every target."""
        z = self._outer.solve(self._turned, penalties)
        return self._outer.turn(z.reshape(len(z), -1), back=True).reshape(z.shape)


class LeftOutRows:
    r"""The same of no more rows than features, by their products :math:`\Phi \Phi^T`, times the roots of weights."""

    def __init__(
        self,
        products: Float64,
        targets: Float64,
        roots: Float64,
        fold: NDArray[np.intp],
        intercept: bool,
        floor: Callable[[float], float] = lambda largest: 0.0,
    ) -> None:
        left = np.ones(len(roots), bool)
        left[fold] = False
        kernel, across = products[np.ix_(left, left)], products[np.ix_(fold, left)]
        y, out, roots, beside = targets[left], targets[fold], roots[left], roots[fold]
        if intercept:
            total = roots @ roots
            mean, of_fold = kernel @ roots / total, across @ roots / total  # products with the others' mean
            level, square = roots @ y / total, float(roots @ mean) / total
            kernel -= np.outer(roots, mean - square * roots) + np.outer(mean, roots)
            across = across - np.outer(beside, mean - square * roots) - np.outer(of_fold, roots)
            y, out = y - np.outer(roots, level), out - np.outer(beside, level)
        self._outer, self._across, self._out = tridiagonal(kernel), across, out
        self._turned, self._floor = self._outer.turn(y), floor(self._outer.largest)

    def sum_errors(self, penalties: Array, wanted: NDArray[np.bool_] | None = None) -> Float64:
        """Return the sums of squared errors (L, c) on the fold, whichever are `wanted`."""
        values = check_penalties(penalties, self._floor, (1,))
        sums = np.empty((len(values), self._out.shape[1]))
        count = max(1, COLUMNS // self._out.shape[1])
        for low in range(0, len(values), count):
            z = self._outer.solve(self._turned, values[low : low + count])
            fitted = self._across @ self._outer.turn(z.reshape(len(z), -1), back=True)
            sums[low : low + count] = np.sum((self._out[:, None] - fitted.reshape(-1, *z.shape[1:])) ** 2, axis=0)
        return sums


def leave_each_out(folds: Sequence[Moments], intercept: bool) -> Sequence[LeftOut | LeftOutRows]:
    """Return what is left out for each fold in turn, by rows where these are held and even."""
    total = add_folds(folds)
    sums = centre(total, intercept)
    if sums.rows is not None:
        features, targets = sums.rows
        products = features @ features.T
    if sums.rows is None or not are_even(products):
        return [LeftOut(others, fold, intercept) for others, fold in zip(_leave_each_out(folds), folds, strict=True)]
    assert total._held is not None
    roots = total._held.roots
    sizes = [len(fold._held.roots) for fold in folds if fold._held is not None]

    def floor(largest: float) -> float:
        return sums.find_floor(largest)[0]

    each = (np.arange(*ends) for ends in pairwise(np.cumsum([0, *sizes]).tolist()))
    return [LeftOutRows(products, targets, roots, fold, intercept, floor) for fold in each]
