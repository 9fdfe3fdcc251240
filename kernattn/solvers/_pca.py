"""Principal components of features, and whitening by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.graphs import outside_graphs
from kernattn._arrays.namespaces import Array, Float64, frozen, without_flags
from kernattn._arrays.plain import quiet
from kernattn._runtime.checks import positive_integer
from kernattn._runtime.deprecated import old_arguments
from kernattn._runtime.elsewhere import told_keywords
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap
from kernattn.solvers._moments import Moments
from kernattn.solvers._spectrum import Spectrum, cast_as, decompose, project


@final
@quiet
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
        return f"Components({len(self.variances)} directions, explained={self.explained.sum():.3f}, phi={self.phi!r})"

    @outside_graphs
    def transform(self, x: Array, *, backend: str | None = None) -> Array:
        """Return the coordinates (phi(x) - mean)^T directions scales of rows, (..., n, k) in the dtype of x."""
        matrix = self.directions * self.scales
        return cast_as(project(self.phi, x, matrix, self.mean @ matrix, backend), x)


@told_keywords
@old_arguments(m="moments", k="num_components")
@without_flags
def pca(moments: Moments, num_components: int) -> Components:
    r"""Return principal components, eigenvectors of :math:`\sum_i w_i (\phi_i - \bar\phi)(\phi_i - \bar\phi)^T`.

    This is kernel PCA (Schoelkopf, Smola & Mueller 1998) of the map's kernel, in O(M^3) whatever the number of rows.

    Parameters
    ----------
    moments : Moments
        Sums over the rows.
    num_components : int
        Number of components, up to M.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((1000, 3))
    >>> phi = ka.random_features(ka.kernels.Gaussian(2.0), dim=3, num_features=64, rng=0)
    >>> ka.solvers.pca(ka.solvers.moments(x, phi), 2).transform(x).shape
    (1000, 2)
    """
    k = positive_integer("num_components", num_components)
    spectrum = decompose(moments, True)
    if k > len(spectrum.values):
        raise ParameterError(f"num_components must be {len(spectrum.values)} at most, the number of features; got {k}")
    return _make_components(moments, spectrum, np.ones(k))


@old_arguments(m="moments", k="num_components")
@without_flags
def whiten(moments: Moments, num_components: int | None = None) -> Components:
    """Return components whose coordinates have variance 1 and covariance 0 over the rows: (phi - mean)^T U s^(-1/2).

    Parameters
    ----------
    moments : Moments
        Sums over the rows.
    num_components : int, optional
        Number of components. None takes all whose variance is above rounding: 4 M epsilons of the largest.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((1000, 3))
    >>> phi = ka.random_features(ka.kernels.Gaussian(2.0), dim=3, num_features=64, rng=0)
    >>> white = ka.solvers.whiten(ka.solvers.moments(x, phi), 5).transform(x)
    >>> np.allclose(white.T @ white / 1000, np.eye(5))
    True
    """
    given = None if num_components is None else positive_integer("num_components", num_components)
    spectrum = decompose(moments, True)
    rank = int(np.sum(spectrum.values > spectrum.lowest))
    k = rank if given is None else given
    if k > rank or not rank:
        raise ParameterError(f"num_components must be {rank} at most, the number of variances above rounding; got {k}")
    return _make_components(moments, spectrum, (spectrum.values[:k] / moments.weight) ** -0.5)


def _make_components(moments: Moments, spectrum: Spectrum, scales: Float64) -> Components:
    """Return as many leading components as there are scales."""
    vectors, values = spectrum.basis.vectors(len(scales)), spectrum.values[: len(scales)]
    tops = np.take_along_axis(vectors, np.argmax(np.abs(vectors), axis=0)[None], axis=0)
    shares = values / np.sum(spectrum.values)
    arrays = (spectrum.mean, vectors * np.sign(tops), values / moments.weight, shares, scales)
    return Components(moments.phi, *map(frozen, arrays))
