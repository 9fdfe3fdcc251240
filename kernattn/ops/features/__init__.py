r"""Features of rows: scale, project and nonlinearity in one go.

``features(x, spec)``: x (..., n, d) -> phi (..., n, M) in the dtype of x, as :class:`kernattn.ops.spec.MapSpec` says.
"""

from kernattn._dispatch import Op

__all__ = ["OP"]

OP = Op("features", ("reference", "cpu", "gpu"))
