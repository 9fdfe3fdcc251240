"""The table of estimators."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernattn.errors import ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.estimator import Estimator, Request
from kernattn.features._data import Data
from kernattn.features._deterministic.additive_chi2 import AdditiveChi2Features
from kernattn.features._exponential.asymmetric import AsymmetricExponential, balance
from kernattn.features._exponential.dense import DenseExponential
from kernattn.features._exponential.positive import Hyperbolic, OptimalPositive, Positive
from kernattn.features._exponential.tilts import best_tilt, best_tilts
from kernattn.features._neurons.arccosine import ArcCosineFeatures
from kernattn.features._polynomial.monomials import Monomials
from kernattn.features._polynomial.sketches import (
    ComplexToReal,
    GaussianSketch,
    RademacherSketch,
    TensorSketch,
    TensorSRHT,
)
from kernattn.features._sets.consistent import ConsistentSampling
from kernattn.features._sets.minwise import MinwiseHashing
from kernattn.features._spectral.spectra import has_normal_frequencies, has_spectrum
from kernattn.features._spectral.trigonometric import Phase, Trigonometric
from kernattn.kernels import AdditiveChi2, ArcCosine, Kernel, Polynomial, Tanimoto


def _only(kind: type[Kernel]) -> Callable[[Kernel], bool]:
    return lambda kernel: isinstance(kernel, kind)


def _of_minima(kernel: Kernel) -> bool:
    return isinstance(kernel, Tanimoto) and kernel.form == "minmax"


def _tilt(request: Request) -> dict[str, Any]:
    """Return the best tilt at E|q' + k'|^2 / d over independent queries and keys, or over standard normal rows."""
    scale = request.kernel.input_scale(request.dim)
    if request.data is None:
        return {"tilt": float(best_tilt(2 * np.mean(scale**2)))}
    q, k = request.data.queries * scale, request.data.keys * scale
    means = np.mean(q, axis=0) * np.mean(k, axis=0)
    return {"tilt": float(best_tilt(np.maximum(np.mean(q**2) + np.mean(k**2) + 2 * np.mean(means), 0.0)))}


def _tilts(request: Request) -> dict[str, Any]:
    data, scale = _data(request), request.kernel.input_scale(request.dim)
    tilt, basis = best_tilts(data.queries * scale, data.keys * scale)
    return {"tilt": tilt, "basis": basis}


def _balance(request: Request) -> dict[str, Any]:
    data, scale = _data(request), request.kernel.input_scale(request.dim)
    return {"balanced": balance(data.queries * scale, data.keys * scale)}


def _data(request: Request) -> Data:
    if request.data is None:
        raise ParameterError(f"data must be given for {request.estimator!r}: it shapes the features; got None")
    return request.data


def _grows_with_sums(more: str = "") -> Callable[[Kernel, float, float], str]:
    return lambda kernel, sums, differences: f"relative variance near e^(|x + y|^2) / m = {sums:.3g}{more}"


def _bounded_terms(more: str = "") -> Callable[[Kernel, float, float], str]:
    def reason(kernel: Kernel, sums: float, differences: float) -> str:
        if kernel.attention_weights:
            return f"relative variance near e^(|x - y|^2) / m = {differences:.3g}, signed"
        return "bounded terms" + more

    return reason


ESTIMATORS: dict[str, Estimator] = {
    "positive": Estimator(Positive, has_normal_frequencies, reason=_grows_with_sums()),
    "hyperbolic": Estimator(
        Hyperbolic,
        has_normal_frequencies,
        paired=True,
        reason=_grows_with_sums(", less by pairs of opposite signs"),
    ),
    "optimal_positive": Estimator(
        OptimalPositive,
        has_normal_frequencies,
        parameters=_tilt,
        reason=_grows_with_sums(", less by one tilt for all axes"),
    ),
    "favor_sharp": Estimator(
        DenseExponential,
        has_normal_frequencies,
        normal=True,
        parameters=_tilts,
        reason=_grows_with_sums(", less by tilts along the data's axes"),
    ),
    "favor_sharp_asymmetric": Estimator(
        AsymmetricExponential,
        has_normal_frequencies,
        normal=True,
        shared=False,
        parameters=_balance,
        reason=_grows_with_sums(", less by means and axes of queries and of keys"),
    ),
    "trigonometric": Estimator(Trigonometric, has_spectrum, paired=True, reason=_bounded_terms()),
    "phase": Estimator(Phase, has_spectrum, reason=_bounded_terms(", a random phase adds noise")),
    "arccosine": Estimator(ArcCosineFeatures, _only(ArcCosine)),
    "sampled": Estimator(AdditiveChi2Features, _only(AdditiveChi2), projected=False),
    "tensor_sketch": Estimator(TensorSketch, _only(Polynomial), projected=False),
    "tensor_srht": Estimator(TensorSRHT, _only(Polynomial), projected=False),
    "complex_to_real": Estimator(
        ComplexToReal,
        _only(Polynomial),
        paired=True,
        projected=False,
        parameters=lambda request: {"law": "rademacher"},
    ),
    "complex_to_real_gaussian": Estimator(
        ComplexToReal,
        _only(Polynomial),
        paired=True,
        projected=False,
        parameters=lambda request: {"law": "gaussian"},
    ),
    "rademacher_sketch": Estimator(RademacherSketch, _only(Polynomial), projected=False),
    "gaussian_sketch": Estimator(GaussianSketch, _only(Polynomial)),
    "exact": Estimator(Monomials, _only(Polynomial), projected=False),
    "minwise": Estimator(MinwiseHashing, _of_minima, projected=False),
    "consistent": Estimator(ConsistentSampling, _of_minima, projected=False),
}


def rows_of(kernel: Kernel) -> tuple[str, ...]:
    """Return the names of the rows that serve a kernel, in the table's order."""
    return tuple(name for name, row in ESTIMATORS.items() if row.serves(kernel))


def draw(request: Request, name: str) -> FeatureMap:
    """Draw the map of the estimator of that name."""
    return ESTIMATORS[name].draw(request._replace(estimator=name))
