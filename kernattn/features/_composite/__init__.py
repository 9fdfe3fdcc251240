"""Maps of sums, products and multiples of kernels, ``phi1 + phi2``, ``phi1 * phi2``, ``c * phi``; of rows x A."""

from kernattn.features._base.map import Algebra, FeatureMap
from kernattn.features._composite.multiples import ScaledMap
from kernattn.features._composite.products import TensorProduct
from kernattn.features._composite.sums import Concatenated
from kernattn.features._composite.transformed import Transformed

__all__ = ["Concatenated", "ScaledMap", "TensorProduct", "Transformed"]

FeatureMap._algebra = Algebra(Concatenated._of, TensorProduct._of, ScaledMap)
