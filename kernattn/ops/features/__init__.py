r"""Features of rows: scale, project and nonlinearity in one go.

``features(x, spec)``: x (..., n, d) -> phi (..., n, M) in the dtype of x, as :class:`kernattn._maps.spec.MapSpec` says.
Frequencies that are chains of Hadamard transforms are applied as such where that is faster than a product with their
matrix. Maps have `scaled`, the features with their log scale apart, and `project` of any library's arrays.
"""

from kernattn.ops.dispatch import Op
from kernattn.ops.features.reference import project, scaled

__all__ = ["OP", "project", "scaled"]

OP = Op("features", ("reference", "cpu", "gpu"))
