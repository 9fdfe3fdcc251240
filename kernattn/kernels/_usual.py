"""The lengthscale to begin with."""

from __future__ import annotations

import numpy as np

from kernattn._arrays.namespaces import Array, check_floating, namespace, to_numpy64
from kernattn.errors import EmptyInputError, ParameterError, ShapeError

STRIP = 8192  # rows that are looked at together


def usual_lengthscale(x: Array, weights: Array | None = None) -> float:
    r"""Return half the root mean square distance of two rows, :math:`\ell^2 = \frac{1}{2} \sum_j \mathrm{Var}\, x_j`.

    A Gaussian kernel of this lengthscale is :math:`e^{-|x - y|^2 / \sum_j \mathrm{Var}\, x_j}`: scikit-learn's
    ``gamma="scale"``, where columns have the same mean. It is a start, and the best one is for data to tell.

    Parameters
    ----------
    x : (n, d) array
        Rows.
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
    origin, first, second = to_numpy64(x[0, ...]), np.zeros(d), 0.0
    for start in range(0, n, STRIP):
        here = slice(start, min(start + STRIP, n))
        rows = to_numpy64(x[here, ...]) - origin
        first += shares[here] @ rows
        with np.errstate(over="ignore", invalid="ignore"):
            second += float(shares[here] @ np.sum(rows**2, axis=1))
    with np.errstate(over="ignore", invalid="ignore"):
        variance = second / total - float(np.sum((first / total) ** 2))
    if not np.isfinite(variance):
        raise ParameterError("x must be finite; it holds NaN or infinity, or numbers whose squares are beyond float64")
    return float(np.sqrt(variance / 2)) if variance > 0 else 1.0
