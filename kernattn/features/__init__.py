"""Feature maps: what they are, random ones for a kernel, and deterministic ones."""

from kernattn._maps.spec import MapSpec, QuadraticForm, ScaledFeatures
from kernattn._runtime.deprecated import old_names
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.combinations import Combination, combinations
from kernattn.features._choose.estimator import Estimator
from kernattn.features._choose.factory import random_features
from kernattn.features._choose.families import estimators
from kernattn.features._choose.fit import fit
from kernattn.features._choose.recommend import Choice, Recommendation, recommend
from kernattn.features._choose.table import ESTIMATORS
from kernattn.features._composite import Concatenated, ScaledMap, TensorProduct, Transformed
from kernattn.features._deterministic.additive_chi2 import AdditiveChi2Features
from kernattn.features._deterministic.cosformer import Cosformer, cosformer
from kernattn.features._deterministic.elementwise import Elementwise, elu1, exp, relu
from kernattn.features._deterministic.linear import Linear, linear
from kernattn.features._deterministic.quadrature import RULES, Quadrature, quadrature
from kernattn.features._exponential import tilts as _tilts
from kernattn.features._exponential.asymmetric import AsymmetricExponential
from kernattn.features._exponential.dense import DenseExponential
from kernattn.features._exponential.positive import Hyperbolic, OptimalPositive, Positive
from kernattn.features._files import load
from kernattn.features._fitted.map import Fitted
from kernattn.features._hilbert.choose import hilbert
from kernattn.features._hilbert.map import Hilbert
from kernattn.features._learnt import LearntMap, with_numbers
from kernattn.features._neurons.arccosine import ArcCosineFeatures
from kernattn.features._neurons.generalized import FUNCTIONS, ROW_FACTORS, Generalized, generalized
from kernattn.features._neurons.own import FromFunction, from_function
from kernattn.features._nystrom.choose import LANDMARKS, nystrom
from kernattn.features._nystrom.map import Nystrom
from kernattn.features._polynomial.monomials import Monomials, polynomial
from kernattn.features._polynomial.sketches import (
    ComplexToReal,
    GaussianSketch,
    PolynomialSketch,
    RademacherSketch,
    TensorSketch,
    TensorSRHT,
)
from kernattn.features._polynomial.taylor import Taylor2, taylor2
from kernattn.features._sets.consistent import ConsistentSampling
from kernattn.features._sets.minwise import MinwiseHashing
from kernattn.features._spectral.map import RandomFeatureMap
from kernattn.features._spectral.skewed_chi2 import SkewedChi2Features
from kernattn.features._spectral.trigonometric import Phase, Trigonometric
from kernattn.features._transform_file import transform_file

__all__ = [
    "ESTIMATORS",
    "FUNCTIONS",
    "LANDMARKS",
    "ROW_FACTORS",
    "RULES",
    "AdditiveChi2Features",
    "ArcCosineFeatures",
    "AsymmetricExponential",
    "Choice",
    "Combination",
    "ComplexToReal",
    "Concatenated",
    "ConsistentSampling",
    "Cosformer",
    "DenseExponential",
    "Elementwise",
    "Estimator",
    "FeatureMap",
    "Fitted",
    "FromFunction",
    "GaussianSketch",
    "Generalized",
    "Hilbert",
    "Hyperbolic",
    "LearntMap",
    "Linear",
    "MapSpec",
    "MinwiseHashing",
    "Monomials",
    "Nystrom",
    "OptimalPositive",
    "Phase",
    "PolynomialSketch",
    "Positive",
    "QuadraticForm",
    "Quadrature",
    "RademacherSketch",
    "RandomFeatureMap",
    "Recommendation",
    "ScaledFeatures",
    "ScaledMap",
    "SkewedChi2Features",
    "Taylor2",
    "TensorProduct",
    "TensorSRHT",
    "TensorSketch",
    "Transformed",
    "Trigonometric",
    "combinations",
    "cosformer",
    "elu1",
    "estimators",
    "exp",
    "fit",
    "from_function",
    "generalized",
    "hilbert",
    "linear",
    "load",
    "nystrom",
    "polynomial",
    "quadrature",
    "random_features",
    "recommend",
    "relu",
    "taylor2",
    "transform_file",
    "with_numbers",
]


__getattr__ = old_names(
    __name__,
    {
        "Multiple": f"{__name__}.ScaledMap",
        "Polynomial": f"{__name__}.Monomials",
        "RowForm": f"{__name__}.QuadraticForm",
        "Tensor": f"{__name__}.TensorProduct",
        "concatenate": ("phi1 + phi2", lambda *maps: Concatenated(maps)),
        "multiple": ("c * phi", lambda factor, phi: factor * phi),
        "optimal_tilt": ("what random_features(kernel, ..., 'optimal_positive', data=) takes", _tilts.best_tilt),
        "optimal_tilts": (
            "what random_features(kernel, ..., 'favor_sharp', data=) takes",
            lambda rows, keys=None: _tilts.best_tilts(rows, rows if keys is None else keys),
        ),
        "tensor": ("phi1 * phi2", lambda *maps: TensorProduct(maps)),
    },
)


def __dir__() -> list[str]:
    return __all__
