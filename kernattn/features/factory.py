"""Random features of a kernel: estimator x projection x number of features, one function."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernattn._array import Array, Host
from kernattn._check import positive_integer
from kernattn._random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.features.arccosine import ArcCosineFeatures
from kernattn.features.asymmetric_exponential import AsymmetricExponential
from kernattn.features.base import FeatureMap
from kernattn.features.chi2 import SkewedChi2Features, sampled_chi2
from kernattn.features.composite import composite_features
from kernattn.features.data import checked_pair, pooled_data
from kernattn.features.dense_exponential import DenseExponential, check_normal, optimal_tilts
from kernattn.features.exponential import Hyperbolic, OptimalPositive, Positive, optimal_tilt
from kernattn.features.polynomial_estimators import polynomial_features
from kernattn.features.prediction import predict
from kernattn.features.random import RandomFeatureMap
from kernattn.features.spectra import check_axes, is_convolution, spectrum
from kernattn.features.trigonometric import Phase, Trigonometric
from kernattn.kernels import (
    AdditiveChi2,
    ArcCosine,
    Gaussian,
    Kernel,
    Polynomial,
    Product,
    Scaled,
    Sech,
    SkewedChi2,
    Softmax,
    Sum,
)
from kernattn.projections import NORM_LAWS, Projection, resolve

__all__ = ["ESTIMATORS", "EXPONENTIAL", "candidates", "estimators_of", "random_features"]

RANDOM: dict[str, type[RandomFeatureMap]] = {
    "favor_sharp": DenseExponential,
    "hyperbolic": Hyperbolic,
    "optimal_positive": OptimalPositive,
    "phase": Phase,
    "positive": Positive,
    "trigonometric": Trigonometric,
}
ASYMMETRIC = "favor_sharp_asymmetric"  # queries and keys have maps of their own: "auto" never takes it
ESTIMATORS: dict[str, type[FeatureMap]] = {**RANDOM, ASYMMETRIC: AsymmetricExponential}
EXPONENTIAL = ("favor_sharp", ASYMMETRIC, "hyperbolic", "optimal_positive", "positive")
PAIRED = ("hyperbolic", "trigonometric")


def random_features(
    kernel: Kernel,
    dim: int,
    num_features: int,
    estimator: str = "auto",
    projection: str | Projection = "orthogonal",
    data: Array | tuple[Array, Array] | None = None,
    rng: RNG = 0,
) -> FeatureMap:
    r"""Draw a feature map with :math:`E\,\phi(x)^T \phi(y) = k(x, y)`.

    Random Fourier features (Rahimi and Recht 2007), positive features (Choromanski et al. 2021), optimal positive
    features (Likhosherstov et al. 2022) and dense-exponential ones (Likhosherstov et al. 2023), with iid or orthogonal
    frequencies (Yu et al. 2016); random neurons (Cho and Saul 2009); sampled and random features of chi-squared kernels
    (Vedaldi and Zisserman 2012, Li et al. 2010).

    Parameters
    ----------
    kernel : Kernel
        The kernel to estimate. Sums, products and multiples are estimated by concatenations, tensor products and
        multiples of their members' maps, which all get the other arguments; but of a product of kernels of x - y the
        frequencies add, and it needs no tensor product.
    dim : int
        Input dimension d.
    num_features : int
        Output dimension M; a pair (cosine and sine, or the two signs of "hyperbolic") counts as two. The terms of a sum
        share it equally; for a tensor product it is the product of its factors' numbers, as equal as can be.
    estimator : str
        "auto", or a name of an estimator that the kernel has, see the notes. "auto" with data is the one whose
        predicted squared error over pairs of rows of data is smallest (that of iid frequencies, where the projection's
        is not known), as `kernattn.features.recommend` tells; where num_features is odd it is none of pairs.
    projection : str or Projection
        A name of `kernattn.projections.PROJECTIONS`, or a spec that carries method and norms; norms "chi" are those of
        the kernel's own frequencies, whatever their law. Laplacian, Cauchy, Sech and SkewedChi2 have frequencies drawn
        axis by axis and take "iid" only; AdditiveChi2 has none and leaves it at its default.
    data : (n, d) array or pair of such, optional
        Inputs as they will come, or a tuple (queries, keys) of them: they decide for "auto", shape "favor_sharp" and
        "favor_sharp_asymmetric", which cannot do without, and set the parameter of "optimal_positive", which without
        data is the best one for standard normal inputs. All but "favor_sharp_asymmetric" take the rows of both
        together, and that one takes an array for both.
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
        If data is not (n, d), or a pair of such.

    Notes
    -----
    The estimators of each kernel; the first one is "auto" without data.

    - Softmax: positive, hyperbolic, optimal_positive, favor_sharp, favor_sharp_asymmetric, trigonometric, phase.
    - Gaussian: trigonometric, phase, positive, hyperbolic, optimal_positive, favor_sharp, favor_sharp_asymmetric. The
      last one has maps of its own for queries and for keys, ``phi.query(x) @ phi.key(y).T``; "auto" never takes it.
    - Matern, RationalQuadratic, Laplacian, Cauchy, Sech, products of these or Gaussian ones, and SkewedChi2:
      trigonometric, phase.
    - ArcCosine: arccosine.
    - AdditiveChi2: sampled, with num_features an odd multiple of dim.
    - Polynomial: tensor_sketch and the other names in `kernattn.features.POLYNOMIAL_ESTIMATORS`.

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
    if not isinstance(kernel, Kernel):
        raise ParameterError(f"kernel must be one of kernattn.kernels, such as Gaussian() or Softmax(); got {kernel!r}")
    if isinstance(kernel, Polynomial):
        rows = pooled_data(data) if isinstance(data, tuple) else data
        return polynomial_features(kernel, dim, num_features, estimator, projection, rows, rng)
    spec = resolve(projection)
    dim, num_features = positive_integer("dim", dim), positive_integer("num_features", num_features)
    source = generator(rng)
    if isinstance(kernel, Sum | Product | Scaled) and not is_convolution(kernel):
        return composite_features(
            kernel, num_features, source, lambda k, m: random_features(k, dim, m, estimator, spec, data, source)
        )
    _check_estimator(kernel, estimator)
    sample = None if data is None else pooled_data(data, dim)
    if isinstance(kernel, AdditiveChi2):
        if spec != resolve("orthogonal"):
            raise ParameterError(f"AdditiveChi2 draws no frequencies: leave projection at its default; got {spec!r}")
        return sampled_chi2(dim, num_features)
    if isinstance(kernel, ArcCosine):
        return ArcCosineFeatures(kernel, spec, spec.factors(num_features, dim, source))
    if isinstance(kernel, SkewedChi2):
        check_axes(kernel, spec)
        if sample is not None:
            kernel.check_domain("data", sample)
            sample = np.log(sample + kernel.skewedness)
        return SkewedChi2Features(kernel, _spectral(Sech(), spec, dim, num_features, estimator, source, sample))
    if estimator == ASYMMETRIC:
        if data is None:
            raise ParameterError(f"data must be given for {ASYMMETRIC!r}: it shapes the features; got None")
        return AsymmetricExponential.sample(kernel, spec, num_features, *checked_pair(data, dim), source)
    return _spectral(kernel, spec, dim, num_features, estimator, source, sample)


def estimators_of(kernel: Kernel) -> tuple[str, ...]:
    """Return the names of the kernel's estimators."""
    if isinstance(kernel, ArcCosine):
        return ("arccosine",)
    if isinstance(kernel, AdditiveChi2):
        return ("sampled",)
    exponential = isinstance(kernel, Gaussian | Softmax)
    return tuple(name for name in ESTIMATORS if exponential or name not in EXPONENTIAL)


def _check_estimator(kernel: Kernel, estimator: str) -> None:
    names = estimators_of(kernel)
    if estimator != "auto" and estimator not in names:
        raise ParameterError(f"estimator must be 'auto' or one of {', '.join(names)} for {kernel!r}; got {estimator!r}")


def _spectral(
    kernel: Kernel,
    spec: Projection,
    dim: int,
    num_features: int,
    estimator: str,
    rng: np.random.Generator,
    data: Host | None,
) -> RandomFeatureMap:
    """Return the map of a kernel that has a spectral measure."""
    spectrum(kernel, spec)
    kernel.input_scale(dim)
    if estimator != "auto":
        return _draw(estimator, kernel, spec, dim, num_features, rng, data)
    if data is None:
        names = _possible(kernel, spec, dim, num_features)
        usual = ("positive",) if isinstance(kernel, Softmax) else ("trigonometric", "positive", "phase")
        return _draw(next(name for name in usual if name in names), kernel, spec, dim, num_features, rng, None)
    maps = candidates(kernel, spec, dim, num_features, rng, data)
    return min(maps.values(), key=lambda phi: predict(phi, data).error)


def candidates(
    kernel: Kernel, spec: Projection, dim: int, num_features: int, rng: np.random.Generator, data: Host
) -> dict[str, RandomFeatureMap]:
    """Draw a map of every estimator that the kernel, the projection and the number of features allow."""
    spectrum(kernel, spec)
    names = _possible(kernel, spec, dim, num_features)
    return {name: _draw(name, kernel, spec, dim, num_features, rng, data) for name in names}


def _possible(kernel: Kernel, spec: Projection, dim: int, num_features: int) -> list[str]:
    """Return the names that the number of features and the projection allow; raise where there is none."""
    symmetric = (name for name in estimators_of(kernel) if name in RANDOM)
    names = [name for name in symmetric if name not in PAIRED or num_features % 2 == 0]
    names = [name for name in names if name != "favor_sharp" or spec.law() == NORM_LAWS["chi"]]
    possible = [name for name in names if _has_size(spec, _frequencies(name, num_features), dim)]
    if not possible:
        spec.blocks(num_features, dim)
    return possible


def _has_size(spec: Projection, frequencies: int, dim: int) -> bool:
    try:
        return bool(spec.blocks(frequencies, dim))
    except ParameterError:
        return False


def _frequencies(name: str, num_features: int) -> int:
    return num_features // 2 if name in PAIRED else num_features


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
    parameters: dict[str, Any] = {}
    if name == "optimal_positive":
        parameters["tilt"] = optimal_tilt(_mean_square_sum(kernel.input_scale(dim), data))
    if name == "favor_sharp":
        check_normal(spec)
        if data is None:
            raise ParameterError("data must be given for 'favor_sharp': it shapes the features; got None")
        parameters["tilt"], parameters["basis"] = optimal_tilts(data * kernel.input_scale(dim))
    return RANDOM[name].sample(kernel, spec, _frequencies(name, num_features), dim, rng, **parameters)


def _mean_square_sum(scale: Host, data: Host | None) -> float:
    """Return E|x' + y'|^2 / d over independent rows of data, or over standard normal rows."""
    if data is None:
        return 2 * float(np.mean(scale**2))
    x = data * scale
    return 2 * float(np.mean(x**2) + np.mean(np.mean(x, axis=0) ** 2))
