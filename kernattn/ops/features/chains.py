"""Where chains of Hadamard transforms stand in for the product with the matrix that they make up."""

from __future__ import annotations

from kernattn._array import Float64
from kernattn.ops.chains import Chains

__all__ = ["FASTER_ABOVE", "FUSED_ABOVE", "fast"]

FASTER_ABOVE = {"cpu": 32, "gpu": 256, "reference": 256}
"""Dimension d above which features are those of the chains, and below of a product with their matrix.

On a CPU (one thread, 1 to 2000 rows, d from 4 to 4096) Numba's chains take as long as its products between
d = 33 and 64, in float32 and float64; those of the reference on NumPy between 256 and 512. On a GPU nothing was timed:
products run on tensor cores there, and counts of flops and bytes put it near 256.
"""

FUSED_ABOVE = 128
"""The same for the Numba loops that read features without writing them: projections by chains pass through memory.

On a CPU (one thread, one head of 4096 rows, D = d and 4 d, float32) causal attention by chains took 1.2 and 1.0 of the
time of the loop that reads their matrix at d = 128, 0.8 and 0.7 at 256, 0.3 and 0.4 at 1024; `kernattn bench --cases
causal-hadamard` races both at d = 256, and `--dim 256` at 1024.
"""


def fast(omega: Float64 | Chains | None, above: int) -> Chains | None:
    """Return the frequencies where they are chains of rows of more than so many dimensions."""
    return omega if isinstance(omega, Chains) and omega.dim > above else None
