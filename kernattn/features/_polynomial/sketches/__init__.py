"""Random sketches of polynomial kernels: each feature is a product of p random projections of the row."""

from kernattn.features._polynomial.sketches.base import PolynomialSketch
from kernattn.features._polynomial.sketches.complex_to_real import ComplexToReal
from kernattn.features._polynomial.sketches.product_sketch import GaussianSketch, ProductSketch, RademacherSketch
from kernattn.features._polynomial.sketches.tensor_sketch import TensorSketch
from kernattn.features._polynomial.sketches.tensor_srht import TensorSRHT

__all__ = [
    "ComplexToReal",
    "GaussianSketch",
    "PolynomialSketch",
    "ProductSketch",
    "RademacherSketch",
    "TensorSRHT",
    "TensorSketch",
]
