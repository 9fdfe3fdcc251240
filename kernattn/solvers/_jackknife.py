"""Intervals of new rows from the residuals of rows that are left out, without a refit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import numbers_of
from kernattn._arrays.namespaces import Array, Float64, check_floating, namespace, to_numpy64, without_flags
from kernattn._arrays.shapes import strips
from kernattn._runtime.checks import finite_number, instance_of, shown
from kernattn._runtime.elsewhere import told_keywords
from kernattn.errors import ParameterError, ShapeError
from kernattn.solvers._check import check_beside, check_finite, check_map_takes
from kernattn.solvers._ridge import Ridge
from kernattn.solvers._spectrum import BLOCK, cast_as, project

SAME = 1e-3  # of the coordinates of the targets: rows that differ from those that were fitted by less are theirs
EPS = float(np.finfo(float).eps)
ROUNDING = 1e-9  # of products of leverages
TOGETHER = 1024  # new rows of similar leverages, whose ends are among the same residuals


class Interval(NamedTuple):
    """Intervals of rows.

    Attributes
    ----------
    low, high : (m,) or (m, c) array
        Their ends, of the kind and dtype of the rows.
    """

    low: Array
    high: Array


@told_keywords
@without_flags
def jackknife(
    fit: Ridge, new: Array, *, x: Array, y: Array, coverage: float = 0.9, backend: str | None = None
) -> Interval:
    r"""Return jackknife+ intervals of new rows (Barber, Candes, Ramdas and Tibshirani 2021).

    A fit without row i has the residual :math:`R_i = (y_i - \hat y_i) / (1 - h_i)` there, and predicts
    :math:`\hat\mu_{-i}(x) = \hat\mu(x) - h(x, x_i) R_i`. An interval is from the quantile 1 - coverage of
    :math:`\hat\mu_{-i}(x) - |R_i|` over i to the quantile coverage of :math:`\hat\mu_{-i}(x) + |R_i|`. The leverages h
    are those of the fit, so nothing is fitted again. Since :math:`h(x, x_i)^2 \le h(x, x)\, h_i`, most rows are known
    to be above or below the quantile: the products of m new rows with the k others cost O(m k M).

    Intervals hold new targets with a probability of 2 coverage - 1 at least, whatever their law, and near coverage
    where fits are stable, if map and penalty were chosen without the targets: a choice on them is not made again
    without row i.

    Parameters
    ----------
    fit : Ridge
        The fit, of rows without weights.
    new : (m, d) array
        New rows, or a CSR matrix of SciPy.
    x : (n, d) array
        The rows that were fitted, or a CSR matrix.
    y : (n,) or (n, c) array
        Their targets.
    coverage : float
        The probability, between 0.5 and 1.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation makes the features.

    Returns
    -------
    Interval
        The ends, (m,) or (m, c).

    Raises
    ------
    ParameterError
        If x and y are not the rows that were fitted, or too few for the coverage: 1 / (1 - coverage) - 1 are enough.
    ShapeError, DTypeError, EmptyInputError
        If arrays do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (1000, 1))
    >>> y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(1000)
    >>> phi = ka.random_features(ka.kernels.Gaussian(0.5), dim=1, num_features=64, rng=0)
    >>> fit = ka.solvers.ridge(ka.solvers.moments(x[:500], phi, y=y[:500]))
    >>> low, high = ka.solvers.jackknife(fit, x[500:], x=x[:500], y=y[:500])
    >>> bool(0.87 < np.mean((low <= y[500:]) & (y[500:] <= high)) < 0.93)
    True
    """
    instance_of("fit", fit, Ridge)
    if not 0.5 < (part := finite_number("coverage", coverage)) < 1:
        raise ParameterError(f"coverage must be between 0.5 and 1; got {shown(coverage)}")
    spectrum = fit._spectrum
    rank = rank_of(part, spectrum.count)
    for name, rows in (("x", x), ("new", new)):
        numbers = numbers_of(rows)
        namespace(**{name: numbers})
        check_floating(name, numbers)
        if rows.ndim != 2:
            raise ShapeError(f"{name} must be (n, d); got shape {tuple(rows.shape)}")
        check_map_takes(fit.phi, rows, name)
        check_finite(name, rows)
    n = x.shape[0]
    check_beside("y", y, n, columns=True)
    check_finite("y", y)
    targets = to_numpy64(y).reshape(n, -1) - spectrum.y_mean
    mine = spectrum.mean @ spectrum.vectors
    turned, there = (to_numpy64(project(fit.phi, rows, spectrum.vectors, mine, backend)) for rows in (x, new))
    if n != spectrum.count or not are_of(spectrum.coordinates, turned, targets, spectrum.y_mean):
        raise ParameterError("x and y must be the rows that were fitted, all of them, and without weights")
    ends = [_ends(fit, turned, there, targets, column, rank) for column in range(targets.shape[1])]
    low, high = (np.stack(each, axis=-1) + spectrum.y_mean for each in zip(*ends, strict=True))
    return Interval(*(cast_as(fit._shape(each), new) for each in (low, high)))


def rank_of(coverage: float, count: int) -> int:
    """Return which of the sizes of so many errors holds this part of them and of one more, from 1 on."""
    rank = int(np.ceil(coverage * (count + 1) * (1 - 2 * EPS)))  # .55 of 100 rows are 55, and not 55.00000000000001
    if rank > count:
        raise ParameterError(f"coverage must be at most {count / (count + 1):.6g} with {count} rows; got {coverage}")
    return rank


def are_of(coordinates: Float64, turned: Float64, targets: Float64, level: Float64) -> bool:
    """Return whether each target (n, c) has the coordinates (M, c) that were fitted, but for rounding about a level."""
    if targets.shape[1] != coordinates.shape[1]:
        return False
    rounding = len(targets) * EPS * np.abs(level) * np.linalg.norm(turned)
    off = np.linalg.norm(turned.T @ targets - coordinates, axis=0)
    return bool(np.all(off <= SAME * np.linalg.norm(coordinates, axis=0) + rounding))


def _ends(
    fit: Ridge, turned: Float64, there: Float64, targets: Float64, column: int, rank: int
) -> tuple[Float64, Float64]:
    """Return the ends of the intervals for one target, less its mean."""
    spectrum = fit._spectrum
    scales = 1 / np.sqrt(spectrum.values + fit.penalty[column])
    mine, coordinates = turned * scales, spectrum.coordinates[:, column] * scales
    leverage = np.sum(mine * mine, axis=1) + spectrum.share
    reach = np.sqrt((there * there) @ (scales * scales) + spectrum.share)
    residual = (targets[:, column] - mine @ coordinates) / np.maximum(1 - leverage, EPS)
    low, high = np.empty(len(there)), np.empty(len(there))
    order = np.argsort(reach)
    for some in strips(len(there), TOGETHER):
        near, below = _near(np.abs(residual), reach[order[some.stop - 1]] * np.sqrt(leverage), rank)
        rows, of, size, at = mine[near], residual[near], np.abs(residual[near]), rank - 1 - below
        for part in strips(len(order[some]), BLOCK // len(near)):
            here = order[some][part]
            new = there[here] * scales
            centre, moved = new @ coordinates, (new @ rows.T + spectrum.share) * of
            low[here] = centre - np.partition(size + moved, at, axis=1)[:, at]
            high[here] = centre + np.partition(size - moved, at, axis=1)[:, at]
    return low, high


def _near(size: Float64, most: Float64, rank: int) -> tuple[NDArray[np.intp], int]:
    r"""Return which of :math:`|R_i| (1 \pm h_i)` may be the one of a rank, and how many are below it for certain.

    The products :math:`|h_i|` are at most `most` (n,): by Cauchy and Schwarz, the root of two leverages.
    """
    most = most * (1 + ROUNDING)
    least, largest = size * (1 - most), size * (1 + most)
    start, end = (np.partition(each, rank - 1)[rank - 1] for each in (least, largest))
    below = largest < start
    return np.flatnonzero(~(below | (least > end))), int(np.count_nonzero(below))
