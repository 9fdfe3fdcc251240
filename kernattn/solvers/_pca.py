"""Principal components of features, and whitening by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, frozen
from kernattn._runtime.checks import positive_integer
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap
from kernattn.solvers._moments import Moments
from kernattn.solvers._spectrum import Spectrum, in_dtype_of, projections, spectrum


@final
@dataclass(frozen=True, eq=False, repr=False)
class Components:
    """Directions of features, and the linear map onto them.

    Attributes
    ----------
    phi : FeatureMap
        The map.
    mean : (M,) numpy.ndarray
        Mean of the features.
    directions : (M, k) numpy.ndarray
        Orthonormal directions, the one of most variance first; the largest entry of each is positive.
    variances : (k,) numpy.ndarray
        Variances of the features along them, sums of squares over the sum of weights.
    explained : (k,) numpy.ndarray
        The same over the variance of all features.
    scales : (k,) numpy.ndarray
        What coordinates are multiplied by: 1, or one over a standard deviation.
    """

    phi: FeatureMap
    mean: Float64
    directions: Float64
    variances: Float64
    explained: Float64
    scales: Float64

    def __repr__(self) -> str:
        """Return the number of directions and the map."""
        return f"Components(k={len(self.variances)}, explained={self.explained.sum():.3f}, phi={self.phi!r})"

    def transform(self, x: Array, *, backend: str | None = None) -> Array:
        """Return the coordinates (phi(x) - mean)^T directions scales, (..., n, k) in the dtype of x.

        Parameters
        ----------
        x : (..., n, d) array
            Rows.
        backend : {None, "reference", "cpu", "gpu"}
            Which implementation makes the features.

        Returns
        -------
        array
            The coordinates.
        """
        matrix = self.directions * self.scales
        values = projections(self.phi, x, matrix, self.mean @ matrix, backend)
        return in_dtype_of(values, x)


def pca(m: Moments, k: int) -> Components:
    r"""Return k principal components, eigenvectors of :math:`\sum_i w_i (\phi_i - \bar\phi)(\phi_i - \bar\phi)^T`.

    This is kernel PCA (Schoelkopf, Smola & Mueller 1998) of the map's kernel, in O(M^3) whatever the number of rows.

    Parameters
    ----------
    m : Moments
        Sums over the rows.
    k : int
        Number of components, up to M.

    Returns
    -------
    Components
        The directions.

    Raises
    ------
    DTypeError, EmptyInputError, ParameterError
        If an argument does not fit, there are fewer than two rows, or features are the same in all of them.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((1000, 3))
    >>> phi = ka.random_features(ka.kernels.Gaussian(2.0), dim=3, num_features=64, rng=0)
    >>> ka.solvers.pca(ka.solvers.moments(phi, x), 2).transform(x).shape
    (1000, 2)
    """
    found = spectrum(m, True)
    if positive_integer("k", k) > len(found.values):
        raise ParameterError(f"k must be {len(found.values)} at most, the number of features; got {k}")
    return _components(m, found, k, np.ones(k))


def whiten(m: Moments, k: int | None = None) -> Components:
    """Return components whose coordinates have variance 1 and covariance 0 over the rows: (phi - mean)^T U s^(-1/2).

    Parameters
    ----------
    m : Moments
        Sums over the rows.
    k : int, optional
        Number of components. None takes all whose variance is above rounding: 4 M epsilons of the largest.

    Returns
    -------
    Components
        The directions.

    Raises
    ------
    DTypeError, EmptyInputError, ParameterError
        As `pca`; or if a variance is not above rounding.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((1000, 3))
    >>> phi = ka.random_features(ka.kernels.Gaussian(2.0), dim=3, num_features=64, rng=0)
    >>> white = ka.solvers.whiten(ka.solvers.moments(phi, x), 5).transform(x)
    >>> np.allclose(white.T @ white / 1000, np.eye(5))
    True
    """
    found = spectrum(m, True)
    rank = int(np.sum(found.values > found.lowest))
    k = rank if k is None else positive_integer("k", k)
    if k > rank or not rank:
        raise ParameterError(f"k must be {rank} at most, the number of variances above rounding; got {k}")
    return _components(m, found, k, (found.values[:k] / m.weight) ** -0.5)


def _components(m: Moments, found: Spectrum, k: int, scales: Float64) -> Components:
    vectors = found.basis.vectors(k)
    tops = np.take_along_axis(vectors, np.argmax(np.abs(vectors), axis=0)[None], axis=0)
    shares = found.values[:k] / np.sum(found.values)
    arrays = (found.mean, vectors * np.sign(tops), found.values[:k] / m.weight, shares, scales)
    return Components(m.phi, *map(frozen, arrays))
