r"""Exact kernels: the functions k(x, y) that feature maps estimate.

Every kernel scales its inputs once, x' = c x with `Kernel.input_scale`, and is then a fixed function of x' and y'.
Arrays of any array-API library come back as their own kind, on their device, in their dtype; float16 and bfloat16 are
computed in float32. Matrices are computed in blocks of rows, and nothing of size n x k x d is ever made.
"""

from typing import NoReturn as _NoReturn

from kernattn._runtime.elsewhere import hint_at as _hint_at
from kernattn.kernels._arccosine import ArcCosine
from kernattn.kernels._base import Kernel, Product, Scaled, Sum
from kernattn.kernels._cauchy import Cauchy
from kernattn.kernels._chi2 import AdditiveChi2, Sech, SkewedChi2
from kernattn.kernels._gaussian import Gaussian
from kernattn.kernels._laplacian import Laplacian
from kernattn.kernels._matern import Matern
from kernattn.kernels._own import from_function
from kernattn.kernels._periodic import Periodic
from kernattn.kernels._polynomial import Polynomial
from kernattn.kernels._rational_quadratic import RationalQuadratic
from kernattn.kernels._rows import Rows
from kernattn.kernels._softmax import Softmax
from kernattn.kernels._stationary import Stationary
from kernattn.kernels._tanimoto import Tanimoto
from kernattn.kernels._usual import usual_lengthscale

__all__ = [
    "ALGEBRA",
    "KERNELS",
    "AdditiveChi2",
    "ArcCosine",
    "Cauchy",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Matern",
    "Periodic",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "Rows",
    "Scaled",
    "Sech",
    "SkewedChi2",
    "Softmax",
    "Stationary",
    "Sum",
    "Tanimoto",
    "from_function",
    "usual_lengthscale",
]

KERNELS: dict[str, type[Kernel]] = {
    "additive_chi2": AdditiveChi2,
    "arccosine": ArcCosine,
    "cauchy": Cauchy,
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "matern": Matern,
    "periodic": Periodic,
    "polynomial": Polynomial,
    "rational_quadratic": RationalQuadratic,
    "sech": Sech,
    "skewed_chi2": SkewedChi2,
    "softmax": Softmax,
    "tanimoto": Tanimoto,
}
ALGEBRA: dict[str, type[Kernel]] = {"product": Product, "scaled": Scaled, "sum": Sum}


def __getattr__(name: str) -> _NoReturn:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint_at('kernel', name)}")


def __dir__() -> list[str]:
    return __all__
