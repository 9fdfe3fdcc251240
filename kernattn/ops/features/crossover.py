"""Where chains of Hadamard transforms stand in for the product with the matrix that they make up."""

from kernattn._arrays.namespaces import Float64
from kernattn._maps.chains import Chains

FASTER_ABOVE = {"cpu": 64, "gpu": 256, "reference": 384}
"""Dimension d above which features are those of the chains, and below of a product with their matrix.

`kernattn bench --cases chains`, on one thread and with a `--dim` of 64, 128 or more, races both by Numba and by the
reference; transforms are of powers of two, so that any d above one takes as long as the next. On a GPU nothing was
timed: products run on tensor cores there, and counts of flops and bytes put it near 256.
"""

FUSED_ABOVE = 128
"""The same for the Numba loops that read features without writing them: projections by chains pass through memory.

`kernattn bench --cases causal-hadamard`, on one thread, races both at d = 256, and with `--dim 128` at 512.
"""


def fast(omega: Float64 | Chains | None, above: int) -> Chains | None:
    """Return the frequencies where they are chains of rows of more than so many dimensions."""
    return omega if isinstance(omega, Chains) and omega.dim > above else None
