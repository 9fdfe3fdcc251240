"""The lengthscale to begin with."""

from __future__ import annotations

import numpy as np

from kernattn._arrays.csr import check_csr, dense_blocks, is_sparse
from kernattn._arrays.graphs import outside_graphs
from kernattn._arrays.namespaces import Array, Float64, check_floating, namespace, to_numpy64, without_flags
from kernattn.errors import EmptyInputError, ParameterError, ShapeError

CENTRE = 4096  # rows at most whose medians are the centre
MOST, FAR = 0.9, 4.0  # of ten rows, nine have a distance from the centre; rows beyond four times that count as there
LITTLE, NEAR_BY = 1e-200, 2.0**700  # squares that lose digits, and what their rows are multiplied by


@without_flags
@outside_graphs
def usual_lengthscale(x: Array, weights: Array | None = None) -> float:
    r"""Return half the root mean square distance of two rows, :math:`\ell^2 = \frac{1}{2} \sum_j \mathrm{Var}\, x_j`.

    A Gaussian kernel of this lengthscale is :math:`e^{-|x - y|^2 / \sum_j \mathrm{Var}\, x_j}`: scikit-learn's
    ``gamma="scale"``, where columns have the same mean. It is a start, and the best one is for data to tell.

    Rows of heavy tails have no variance: those more than four times as far from the medians of the columns as nine rows
    of ten are count as if they were four times as far, in the same direction.

    Parameters
    ----------
    x : (n, d) array
        Rows, or a CSR matrix of them.
    weights : (n,) array, optional
        How often each row counts.

    Returns
    -------
    float
        The lengthscale; 1 where all rows are the same.

    Raises
    ------
    ShapeError, EmptyInputError, DTypeError, MixedLibraryError
        If an argument does not fit.
    ParameterError
        If rows hold NaN or infinity, or weights are not 0 or more with a positive sum.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((1000, 8))
    >>> round(ka.kernels.usual_lengthscale(x), 1)
    2.0
    """
    given = {"x": x} if weights is None else {"x": x, "weights": weights}
    if is_sparse(x):
        check_csr("x", given.pop("x"))
    if given:
        namespace(**given)
    for name, array in given.items():
        check_floating(name, array)
    if x.ndim != 2 or (weights is not None and tuple(weights.shape) != (x.shape[0],)):
        shapes = tuple(x.shape) if weights is None else (tuple(x.shape), tuple(weights.shape))
        raise ShapeError(f"x must be (n, d), and weights (n,); got {shapes}")
    if 0 in tuple(x.shape):
        raise EmptyInputError(f"x must not be empty; got shape {tuple(x.shape)}")
    n, d = x.shape
    shares = np.ones(n) if weights is None else to_numpy64(weights)
    total = float(np.sum(shares))
    if not (np.min(shares) >= 0 and 0 < total < np.inf):
        raise ParameterError("weights must be 0 or more, and not 0 in all rows")
    shares = np.ldexp(shares, -int(np.frexp(np.max(shares))[1]))  # whose products with squares do not overflow
    total = float(np.sum(shares))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        origin, by = _centre(x), 1.0
        squares = _squares(x, origin, by)
        if np.max(squares) < LITTLE:
            by = NEAR_BY
            squares = _squares(x, origin, by)
        if not np.isfinite(np.sum(squares)):
            raise ParameterError(
                "x must be finite; it holds NaN or infinity, or numbers whose squares are beyond float64"
            )
    most = FAR**2 * _quantile(squares, shares)
    factors = np.sqrt(np.minimum(1.0, most / np.maximum(squares, most))) if most > 0 else np.ones(n)
    first = np.zeros(d)
    for here, rows in dense_blocks(x):
        first += (shares[here] * factors[here]) @ (by * (to_numpy64(rows) - origin))
    variance = float(shares @ (squares * factors**2)) / total - float(np.sum((first / total) ** 2))
    return float(np.sqrt(variance / 2)) / by if variance > 0 else 1.0


def _squares(x: Array, origin: Float64, by: float) -> Float64:
    """Return squared distances of rows from the origin (n,), in a unit."""
    squares = np.empty(x.shape[0])
    for here, rows in dense_blocks(x):
        squares[here] = np.sum((by * (to_numpy64(rows) - origin)) ** 2, axis=1)
    return squares


def _centre(x: Array) -> Float64:
    """Return the medians of the columns, of rows evenly spaced where there are many."""
    step = -(-x.shape[0] // CENTRE)
    if not is_sparse(x):
        centre: Float64 = np.median(to_numpy64(x[::step, ...]), axis=0)
        return centre
    columns = x[::step].T.tocsr()  # (d, rows)
    return np.concatenate([np.median(to_numpy64(block), axis=1) for _, block in dense_blocks(columns)])


def _quantile(values: Float64, shares: Float64) -> float:
    """Return the least value up to which nine tenths of the shares lie."""
    order = np.argsort(values)
    up_to = np.cumsum(shares[order])
    return float(values[order[np.searchsorted(up_to, MOST * up_to[-1])]])
