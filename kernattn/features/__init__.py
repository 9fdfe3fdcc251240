"""Feature maps: what they are, random ones for a kernel, and deterministic ones."""

from kernattn.features._choose.combinations import Combination, combinations
from kernattn.features._choose.estimator import Estimator
from kernattn.features._choose.factory import random_features
from kernattn.features._choose.families import estimators
from kernattn.features._choose.recommend import Choice, Recommendation, recommend
from kernattn.features._choose.table import ESTIMATORS
from kernattn.features.arccosine import ArcCosineFeatures
from kernattn.features.asymmetric_exponential import AsymmetricExponential
from kernattn.features.base import FeatureMap
from kernattn.features.chi2 import AdditiveChi2Features, SkewedChi2Features
from kernattn.features.composite import Concatenated, Multiple, Tensor, concatenate, multiple, tensor
from kernattn.features.dense_exponential import DenseExponential, optimal_tilts
from kernattn.features.elementwise import Elementwise, elu1, exp, relu
from kernattn.features.exponential import Hyperbolic, OptimalPositive, Positive, optimal_tilt
from kernattn.features.files import load
from kernattn.features.generalized import FUNCTIONS, Generalized, generalized
from kernattn.features.nystrom import LANDMARKS, Nystrom, nystrom
from kernattn.features.polynomial import Polynomial, polynomial
from kernattn.features.quadrature import RULES, Quadrature, quadrature
from kernattn.features.random import RandomFeatureMap
from kernattn.features.sketches import (
    ComplexToReal,
    GaussianSketch,
    PolynomialSketch,
    RademacherSketch,
    TensorSketch,
    TensorSRHT,
)
from kernattn.features.taylor import Taylor2, taylor2
from kernattn.features.trigonometric import Phase, Trigonometric
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = [
    "ESTIMATORS",
    "FUNCTIONS",
    "LANDMARKS",
    "RULES",
    "AdditiveChi2Features",
    "ArcCosineFeatures",
    "AsymmetricExponential",
    "Choice",
    "Combination",
    "ComplexToReal",
    "Concatenated",
    "DenseExponential",
    "Elementwise",
    "Estimator",
    "FeatureMap",
    "GaussianSketch",
    "Generalized",
    "Hyperbolic",
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
    "ScaledFeatures",
    "SkewedChi2Features",
    "Taylor2",
    "Tensor",
    "TensorSRHT",
    "TensorSketch",
    "Trigonometric",
    "combinations",
    "concatenate",
    "elu1",
    "estimators",
    "exp",
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
]
