"""Feature maps: what they are, random ones for a kernel, and deterministic ones."""

from kernattn._maps.spec import MapSpec, RowForm, ScaledFeatures
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.combinations import Combination, combinations
from kernattn.features._choose.estimator import Estimator
from kernattn.features._choose.factory import random_features
from kernattn.features._choose.families import estimators
from kernattn.features._choose.recommend import Choice, Recommendation, recommend
from kernattn.features._choose.table import ESTIMATORS
from kernattn.features._composite.multiples import Multiple, multiple
from kernattn.features._composite.products import Tensor, tensor
from kernattn.features._composite.sums import Concatenated, concatenate
from kernattn.features._deterministic.additive_chi2 import AdditiveChi2Features
from kernattn.features._deterministic.cosformer import Cosformer, cosformer
from kernattn.features._deterministic.elementwise import Elementwise, elu1, exp, relu
from kernattn.features._deterministic.quadrature import RULES, Quadrature, quadrature
from kernattn.features._exponential.asymmetric import AsymmetricExponential
from kernattn.features._exponential.dense import DenseExponential, optimal_tilts
from kernattn.features._exponential.positive import Hyperbolic, OptimalPositive, Positive, optimal_tilt
from kernattn.features._files import load
from kernattn.features._learnt import LearntMap, with_numbers
from kernattn.features._neurons.arccosine import ArcCosineFeatures
from kernattn.features._neurons.generalized import FUNCTIONS, ROW_FACTORS, Generalized, generalized
from kernattn.features._neurons.own import FromFunction, from_function
from kernattn.features._nystrom import LANDMARKS, Nystrom, nystrom
from kernattn.features._polynomial.monomials import Polynomial, polynomial
from kernattn.features._polynomial.sketches import (
    ComplexToReal,
    GaussianSketch,
    PolynomialSketch,
    RademacherSketch,
    TensorSketch,
    TensorSRHT,
)
from kernattn.features._polynomial.taylor import Taylor2, taylor2
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
    "Cosformer",
    "DenseExponential",
    "Elementwise",
    "Estimator",
    "FeatureMap",
    "FromFunction",
    "GaussianSketch",
    "Generalized",
    "Hyperbolic",
    "LearntMap",
    "MapSpec",
    "Multiple",
    "Nystrom",
    "OptimalPositive",
    "Phase",
    "Polynomial",
    "PolynomialSketch",
    "Positive",
    "Quadrature",
    "RademacherSketch",
    "RandomFeatureMap",
    "Recommendation",
    "RowForm",
    "ScaledFeatures",
    "SkewedChi2Features",
    "Taylor2",
    "Tensor",
    "TensorSRHT",
    "TensorSketch",
    "Trigonometric",
    "combinations",
    "concatenate",
    "cosformer",
    "elu1",
    "estimators",
    "exp",
    "from_function",
    "generalized",
    "load",
    "multiple",
    "nystrom",
    "optimal_tilt",
    "optimal_tilts",
    "polynomial",
    "quadrature",
    "random_features",
    "recommend",
    "relu",
    "taylor2",
    "tensor",
    "transform_file",
    "with_numbers",
]


def __dir__() -> list[str]:
    return __all__
