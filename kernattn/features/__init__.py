"""Feature maps: what they are, random ones for a kernel, and deterministic ones."""

from kernattn.features.base import FeatureMap
from kernattn.features.elementwise import Elementwise, elu1, exp, relu
from kernattn.features.exponential import Hyperbolic, OptimalPositive, Positive, optimal_tilt
from kernattn.features.factory import ESTIMATORS, random_features
from kernattn.features.files import load
from kernattn.features.generalized import FUNCTIONS, Generalized, generalized
from kernattn.features.polynomial import Polynomial, polynomial
from kernattn.features.polynomial_estimators import POLYNOMIAL_ESTIMATORS
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
    "POLYNOMIAL_ESTIMATORS",
    "ComplexToReal",
    "Elementwise",
    "FeatureMap",
    "GaussianSketch",
    "Generalized",
    "Hyperbolic",
    "MapSpec",
    "OptimalPositive",
    "Phase",
    "Polynomial",
    "PolynomialSketch",
    "Positive",
    "RademacherSketch",
    "RandomFeatureMap",
    "ScaledFeatures",
    "Taylor2",
    "TensorSRHT",
    "TensorSketch",
    "Trigonometric",
    "elu1",
    "exp",
    "generalized",
    "load",
    "optimal_tilt",
    "polynomial",
    "random_features",
    "relu",
    "taylor2",
]
