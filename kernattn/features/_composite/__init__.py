"""Maps of sums, products and multiples of kernels: what ``phi1 + phi2``, ``phi1 * phi2`` and ``c * phi`` are."""

from kernattn.features._base.map import Algebra, FeatureMap
from kernattn.features._composite.multiples import ScaledMap
from kernattn.features._composite.products import TensorProduct
from kernattn.features._composite.sums import Concatenated

__all__ = ["Concatenated", "ScaledMap", "TensorProduct"]

FeatureMap._algebra = Algebra(Concatenated._of, TensorProduct._of, ScaledMap)
