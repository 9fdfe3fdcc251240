"""How far a Gram matrix is from the exact one for whoever adds a penalty to its diagonal."""

from __future__ import annotations

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, namespace, to_numpy64, without_warnings
from kernattn._runtime.checks import positive_number
from kernattn._runtime.deprecated import old_arguments
from kernattn._sums.units import shift_octaves
from kernattn.errors import ParameterError, ShapeError
from kernattn.metrics._check import check_filled, scale_down

ROUNDING = 1e-3  # of the size, up to which a matrix counts as symmetric and positive semidefinite


@old_arguments(ridge="penalty")
@without_warnings
def effective_dimension(exact: Array, penalty: float) -> float:
    r"""Statistical dimension of a kernel matrix, :math:`s_\lambda = \mathrm{tr}\, K (K + \lambda I)^{-1}`.

    Source: Zhang (2005); Avron et al. (2017), section 2. It lies between 0 and n, and counts the directions that a
    penalty leaves standing. Computed on the host in float64 from the eigenvalues, O(n^3).

    Parameters
    ----------
    exact : array (n, n)
        K, symmetric and positive semidefinite up to rounding, of real floating dtype.
    penalty : float
        :math:`\lambda`, above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import effective_dimension
    >>> effective_dimension(np.diag([3.0, 1.0, 0.0]), penalty=1.0)
    1.25
    """
    namespace(exact=exact)
    _check_square("exact", exact)
    penalty = positive_number("penalty", penalty)
    (k,), octaves = scale_down(np, to_numpy64(exact), axis=(0, 1))
    values = _clip_eigenvalues("exact", np.asarray(np.linalg.eigvalsh(_symmetrise("exact", k)), np.float64))
    return float(np.sum(values / (values + _scale_penalty(penalty, octaves))))


@old_arguments(ridge="penalty")
@without_warnings
def spectral_delta(estimate: Array, exact: Array, penalty: float) -> float:
    r"""Spectral approximation: the least :math:`\Delta` with :math:`(1 - \Delta) A \preceq B \preceq (1 + \Delta) A`.

    Here :math:`A = K + \lambda I` and :math:`B = K' + \lambda I`; it is :math:`|A^{-1/2} (K' - K) A^{-1/2}|_2`. Source:
    Avron et al. (2017), definition 1. Below 1 it bounds the risk of ridge regression with K' in place of K, and B
    preconditions A with condition number :math:`(1 + \Delta) / (1 - \Delta)`. Computed on the host in float64 by two
    decompositions, O(n^3); a penalty near the rounding of the largest eigenvalue, 1e-16 of it, drowns in that.

    Parameters
    ----------
    estimate : array (n, n)
        K', symmetric up to rounding, of real floating dtype.
    exact : array (n, n)
        K, symmetric and positive semidefinite up to rounding.
    penalty : float
        :math:`\lambda`, above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import spectral_delta
    >>> print(f"{spectral_delta(np.diag([3.5, 0.5]), np.diag([3.0, 1.0]), penalty=1.0):.3f}")
    0.250
    """
    namespace(estimate=estimate, exact=exact)
    for name, matrix in (("estimate", estimate), ("exact", exact)):
        _check_square(name, matrix)
    if tuple(estimate.shape) != tuple(exact.shape):
        raise ShapeError(
            f"estimate and exact must have one shape; got {tuple(estimate.shape)} and {tuple(exact.shape)}"
        )
    penalty = positive_number("penalty", penalty)
    (estimated, k), octaves = scale_down(np, to_numpy64(estimate), to_numpy64(exact), axis=(0, 1))
    difference = _symmetrise("estimate", estimated) - _symmetrise("exact", k)
    values, vectors = np.linalg.eigh(_symmetrise("exact", k))
    white = vectors / np.sqrt(_clip_eigenvalues("exact", values) + _scale_penalty(penalty, octaves))
    return float(np.max(np.abs(np.linalg.eigvalsh(white.T @ difference @ white))))


def _check_square(name: str, matrix: Array) -> None:
    """Raise unless the matrix is square and not empty."""
    check_filled(name, matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(f"{name} must be a square matrix (n, n); got shape {tuple(matrix.shape)}")


def _symmetrise(name: str, matrix: Float64) -> Float64:
    """Return the symmetric part, which must be nearly all of it."""
    if not np.all(np.isfinite(matrix)):
        raise ParameterError(f"{name} must be finite")
    if np.max(np.abs(matrix - matrix.T)) > ROUNDING * np.max(np.abs(matrix)):
        raise ParameterError(f"{name} must be symmetric; entries differ from their mirror images beyond rounding")
    return np.asarray((matrix + matrix.T) / 2)


def _clip_eigenvalues(name: str, values: Float64) -> Float64:
    """Return eigenvalues, ascending, without the rounding below 0."""
    if values[0] < -ROUNDING * abs(values[-1]):
        raise ParameterError(
            f"{name} must be positive semidefinite; its eigenvalues go from {values[0]:.3g} to {values[-1]:.3g} of its "
            "own size"
        )
    return np.maximum(values, 0.0)


def _scale_penalty(penalty: float, octaves: Array) -> Float64:
    """Return the penalty in the units of a matrix, above 0: eigenvalues of 0 stay so."""
    return np.asarray(np.maximum(shift_octaves(np, np.asarray(penalty), -octaves), np.finfo(np.float64).tiny))
