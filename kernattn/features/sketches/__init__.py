"""Random sketches of polynomial kernels: each feature is a product of p random projections of the row."""

from kernattn.features.sketches.base import PolynomialSketch
from kernattn.features.sketches.complex_to_real import ComplexToReal
from kernattn.features.sketches.product_sketch import GaussianSketch, ProductSketch, RademacherSketch
from kernattn.features.sketches.tensor_sketch import TensorSketch
from kernattn.features.sketches.tensor_srht import TensorSRHT

__all__ = [
    "ComplexToReal",
    "GaussianSketch",
    "PolynomialSketch",
    "ProductSketch",
    "RademacherSketch",
    "TensorSRHT",
    "TensorSketch",
]
