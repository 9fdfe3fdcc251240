"""Maps of the polynomial kernel by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernattn._array import Array, Host
from kernattn._check import positive_integer
from kernattn._random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.features.data import checked_data
from kernattn.features.polynomial import Polynomial
from kernattn.features.polynomial_inputs import pair_sums
from kernattn.features.sketches import (
    ComplexToReal,
    GaussianSketch,
    PolynomialSketch,
    RademacherSketch,
    TensorSketch,
    TensorSRHT,
)
from kernattn.kernels import Polynomial as PolynomialKernel
from kernattn.projections import Projection, resolve

__all__ = ["POLYNOMIAL_ESTIMATORS", "polynomial_features"]

SAMPLE = 64  # rows of data whose pairs decide for "auto"


@dataclass(frozen=True)
class _Sketch:
    """A sketch, what it is drawn with, and whether its features come in pairs."""

    cls: type[PolynomialSketch]
    paired: bool = False
    projected: bool = False
    law: str | None = None


_SKETCHES = {
    "complex_to_real": _Sketch(ComplexToReal, paired=True, law="rademacher"),
    "complex_to_real_gaussian": _Sketch(ComplexToReal, paired=True, law="gaussian"),
    "gaussian_sketch": _Sketch(GaussianSketch, projected=True),
    "rademacher_sketch": _Sketch(RademacherSketch),
    "tensor_sketch": _Sketch(TensorSketch),
    "tensor_srht": _Sketch(TensorSRHT),
}
POLYNOMIAL_ESTIMATORS: dict[str, type[Polynomial | PolynomialSketch]] = {
    "exact": Polynomial,
    **{name: sketch.cls for name, sketch in _SKETCHES.items()},
}


def polynomial_features(
    kernel: PolynomialKernel,
    dim: int,
    num_features: int,
    estimator: str = "auto",
    projection: str | Projection = "orthogonal",
    data: Array | None = None,
    rng: RNG = 0,
) -> Polynomial | PolynomialSketch:
    r"""Return a map with :math:`E\,\phi(x)^T \phi(y) = (\gamma x^T y + c_0)^p`; the body of `random_features` for this
    kernel.

    Parameters
    ----------
    kernel : kernattn.kernels.Polynomial
        The kernel.
    dim : int
        Input dimension d.
    num_features : int
        Output dimension M; even for the complex-to-real sketches, the number of monomials for "exact".
    estimator : str
        A name of `POLYNOMIAL_ESTIMATORS`, or "auto": without data "tensor_sketch", with data the one whose variance,
        summed over pairs of rows of data, is smallest ("exact" where num_features is the number of monomials).
    projection : str or Projection
        How "gaussian_sketch" draws its weights: iid or orthogonal, with norms "chi" or "sqrt_d". The other estimators
        have no such weights and take the default alone.
    data : (n, d) array, optional
        Inputs as they will come, which decide for "auto".
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the draw.

    Returns
    -------
    Polynomial or PolynomialSketch
        The frozen map.

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
    >>> x = np.random.default_rng(0).standard_normal((5, 6)) / 3
    >>> kernel = ka.kernels.Polynomial(degree=3, coef0=1.0)
    >>> phi = ka.random_features(kernel, dim=6, num_features=4096, estimator="tensor_sketch", rng=1)
    >>> bool(np.max(np.abs(phi(x) @ phi(x).T - kernel(x))) < 5 * np.max(phi.variance(x, x)) ** 0.5)
    True
    """
    if estimator != "auto" and estimator not in POLYNOMIAL_ESTIMATORS:
        raise ParameterError(
            f"estimator must be 'auto' or one of {', '.join(POLYNOMIAL_ESTIMATORS)} for {kernel!r}; got {estimator!r}"
        )
    spec = resolve(projection)
    dim, num_features = positive_integer("dim", dim), positive_integer("num_features", num_features)
    sample = None if data is None else checked_data(data, dim)
    exact, source = Polynomial(kernel), generator(rng)
    if estimator == "exact":
        _check_no_projection(estimator, spec)
        if num_features != exact.features_of(dim):
            raise ParameterError(
                f"estimator 'exact' has {exact.features_of(dim)} features for {kernel!r} at dim = {dim}; "
                f"got num_features = {num_features}"
            )
        return exact
    if estimator == "auto" and sample is not None:
        if num_features == exact.features_of(dim):
            return exact
        return _draw(_least_variance(kernel, spec, num_features, sample), kernel, spec, dim, num_features, source)
    name = "tensor_sketch" if estimator == "auto" else estimator
    if not _SKETCHES[name].projected:
        _check_no_projection(name, spec)
    return _draw(name, kernel, spec, dim, num_features, source)


def _draw(
    name: str, kernel: PolynomialKernel, spec: Projection, dim: int, num_features: int, rng: np.random.Generator
) -> PolynomialSketch:
    sketch = _SKETCHES[name]
    if sketch.paired and num_features % 2:
        raise ParameterError(
            f"estimator {name!r} makes features in pairs: num_features must be even; got {num_features}"
        )
    parameters: dict[str, Any] = {"law": sketch.law} if sketch.law else {"projection": spec} if sketch.projected else {}
    return sketch.cls.sample(kernel, dim, num_features, rng, **parameters)


def _check_no_projection(name: str, spec: Projection) -> None:
    if spec != resolve("orthogonal"):
        raise ParameterError(
            f"estimator {name!r} draws no frequencies that a projection could arrange: leave projection at its "
            f"default; got {spec!r}"
        )


def _least_variance(kernel: PolynomialKernel, spec: Projection, num_features: int, data: Host) -> str:
    """Return the sketch with the least sum of variances over pairs, by maps of two features that know their law."""
    rows, dim = data[np.linspace(0, len(data) - 1, min(len(data), SAMPLE)).astype(int)], data.shape[1]
    pairs = pair_sums(kernel, dim, rows[:, None, :], rows[None, :, :])

    def predicted(name: str) -> float:
        law = _draw(name, kernel, spec, dim, 2, generator(0))
        return float(np.sum(np.maximum(law.pair_variance(pairs, num_features), 0.0)))

    return min(
        (name for name, sketch in _SKETCHES.items() if num_features % 2 == 0 or not sketch.paired), key=predicted
    )
