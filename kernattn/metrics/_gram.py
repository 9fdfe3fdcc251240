"""How far a Gram matrix is from the exact one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernattn._arrays.graphs import outside_graphs
from kernattn._arrays.namespaces import Array, namespace, to_numpy64, without_warnings
from kernattn._sums.units import shift_octaves
from kernattn.errors import ParameterError, ShapeError
from kernattn.metrics._check import check_filled, scale_down


class GramErrors(NamedTuple):
    """Errors of one estimated kernel matrix as `gram_errors` defines them, all host floats."""

    mse: float
    max: float
    frobenius: float
    spectral: float


@without_warnings
@outside_graphs
def gram_errors(estimate: Array, exact: Array) -> GramErrors:
    """Errors of a matrix: mean (K' - K)^2, ``max |K' - K|``, ``|K' - K|_F / |K|_F`` and ``|K' - K|_2 / |K|_2``.

    Source: the norms as defined. Computed on the host in float64; the spectral norms take two singular value
    decompositions, O(n^3).

    Parameters
    ----------
    estimate, exact : array (n, k)
        K', and K, which is not zero, of real floating dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import gram_errors
    >>> errors = gram_errors(np.diag([3.0, 3.0]), np.diag([3.0, 4.0]))
    >>> print(errors.mse, errors.max, errors.frobenius, errors.spectral)
    0.25 1.0 0.2 0.25
    """
    namespace(estimate=estimate, exact=exact)
    if estimate.ndim != 2 or tuple(estimate.shape) != tuple(exact.shape):
        raise ShapeError(
            f"estimate and exact must be matrices of one shape; got {tuple(estimate.shape)} and {tuple(exact.shape)}"
        )
    for name, array in (("estimate", estimate), ("exact", exact)):
        check_filled(name, array)
    (estimated, k), octaves = scale_down(np, to_numpy64(estimate), to_numpy64(exact), axis=(0, 1))
    size = float(np.linalg.norm(k))
    if size == 0:
        raise ParameterError("exact must not be the zero matrix: the errors are relative to it")
    difference = estimated - k
    return GramErrors(
        mse=float(shift_octaves(np, np.mean(difference**2), 2 * octaves)),
        max=float(shift_octaves(np, np.max(np.abs(difference)), octaves)),
        frobenius=float(np.linalg.norm(difference)) / size,
        spectral=float(np.linalg.norm(difference, 2) / np.linalg.norm(k, 2)),
    )
