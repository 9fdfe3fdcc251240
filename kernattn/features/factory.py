"""Random features of a kernel: estimator x projection x number of features, one function."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernattn._array import Array, Host
from kernattn._check import positive_integer
from kernattn._random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.features.base import FeatureMap
from kernattn.features.data import checked_data
from kernattn.features.exponential import Hyperbolic, OptimalPositive, Positive, optimal_tilt
from kernattn.features.polynomial_estimators import polynomial_features
from kernattn.features.random import RandomFeatureMap, row_exponent
from kernattn.features.trigonometric import Phase, Trigonometric
from kernattn.kernels import Kernel, Polynomial, Softmax
from kernattn.projections import Projection, resolve

__all__ = ["ESTIMATORS", "random_features"]

ESTIMATORS: dict[str, type[RandomFeatureMap]] = {
    "hyperbolic": Hyperbolic,
    "optimal_positive": OptimalPositive,
    "phase": Phase,
    "positive": Positive,
    "trigonometric": Trigonometric,
}
PAIRED = ("hyperbolic", "trigonometric")
SAMPLE = 64  # rows of data whose pairs decide for "auto"


def random_features(
    kernel: Kernel,
    dim: int,
    num_features: int,
    estimator: str = "auto",
    projection: str | Projection = "orthogonal",
    data: Array | None = None,
    rng: RNG = 0,
) -> FeatureMap:
    r"""Draw a feature map with :math:`E\,\phi(x)^T \phi(y) = k(x, y)`.

    Random Fourier features (Rahimi and Recht 2007), positive features (Choromanski et al. 2021) and optimal positive
    features (Likhosherstov et al. 2022), with iid or orthogonal frequencies (Yu et al. 2016).

    Parameters
    ----------
    kernel : Gaussian, Softmax or Polynomial
        The kernel to estimate.
    dim : int
        Input dimension d.
    num_features : int
        Output dimension M; a pair (cosine and sine, or the two signs of "hyperbolic") counts as two.
    estimator : str
        A name of `kernattn.features.ESTIMATORS`, for Polynomial of `kernattn.features.POLYNOMIAL_ESTIMATORS`, or
        "auto": without data "positive" for Softmax, "trigonometric" for Gaussian and "tensor_sketch" for Polynomial;
        with data the one whose predicted squared error, summed over pairs of rows of data, is smallest.
    projection : str or Projection
        A name of `kernattn.projections.PROJECTIONS`, or a spec that carries method and norms.
    data : (n, d) array, optional
        Inputs as they will come: they decide for "auto", and set the parameter of "optimal_positive", which without
        data is the best one for standard normal inputs.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the draw, in float64 on the host: every backend gets the same frequencies.

    Returns
    -------
    FeatureMap
        The frozen map: (..., n, d) -> (..., n, M).

    Raises
    ------
    ParameterError
        If an argument is outside of what is allowed, before anything is drawn.
    ShapeError
        If data is not (n, d).

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((6, 4))
    >>> kernel = ka.kernels.Gaussian(lengthscale=2.0)
    >>> phi = ka.random_features(kernel, dim=4, num_features=4096, rng=1)
    >>> bool(np.max(np.abs(phi(x) @ phi(x).T - kernel(x))) < 0.05)
    True
    """
    if isinstance(kernel, Polynomial):
        return polynomial_features(kernel, dim, num_features, estimator, projection, data, rng)
    row_exponent(kernel)
    if estimator != "auto" and estimator not in ESTIMATORS:
        raise ParameterError(f"estimator must be 'auto' or one of {', '.join(ESTIMATORS)}; got {estimator!r}")
    spec = resolve(projection)
    dim, num_features = positive_integer("dim", dim), positive_integer("num_features", num_features)
    kernel.input_scale(dim)
    sample = None if data is None else checked_data(data, dim)
    source = generator(rng)
    if estimator != "auto":
        return _draw(estimator, kernel, spec, dim, num_features, source, sample)
    if sample is None:
        name = "positive" if isinstance(kernel, Softmax) or num_features % 2 else "trigonometric"
        return _draw(name, kernel, spec, dim, num_features, source, None)
    names = [name for name in ESTIMATORS if name not in PAIRED or num_features % 2 == 0]
    maps = {name: _draw(name, kernel, spec, dim, num_features, source, sample) for name in names}
    return min(maps.values(), key=lambda phi: _predicted_error(phi, sample))


def _draw(
    name: str,
    kernel: Kernel,
    spec: Projection,
    dim: int,
    num_features: int,
    rng: np.random.Generator,
    data: Host | None,
) -> RandomFeatureMap:
    if name in PAIRED and num_features % 2:
        raise ParameterError(
            f"estimator {name!r} makes features in pairs: num_features must be even; got {num_features}"
        )
    frequencies = num_features // 2 if name in PAIRED else num_features
    parameters: dict[str, Any] = {}
    if name == "optimal_positive":
        parameters["tilt"] = optimal_tilt(_mean_square_sum(kernel.input_scale(dim), data))
    return ESTIMATORS[name].sample(kernel, spec, frequencies, dim, rng, **parameters)


def _mean_square_sum(scale: Host, data: Host | None) -> float:
    """Return E|x' + y'|^2 / d over independent rows of data, or over standard normal rows."""
    if data is None:
        return 2 * float(np.mean(scale**2))
    x = data * scale
    return 2 * float(np.mean(x**2) + np.mean(np.mean(x, axis=0) ** 2))


def _predicted_error(phi: RandomFeatureMap, data: Host) -> float:
    """Return the sum over pairs of variance and squared bias."""
    rows = data[np.linspace(0, len(data) - 1, min(len(data), SAMPLE)).astype(int)]
    x, y = rows[:, None, :], rows[None, :, :]
    with np.errstate(over="ignore", invalid="ignore"):
        error = float(np.sum(phi.variance(x, y) + phi.bias(x, y) ** 2))
    return error if np.isfinite(error) else np.inf
