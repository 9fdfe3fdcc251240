r"""Features of rows under chains of Hadamard transforms, without the dense matrix that they make up.

``hadamard(x, chains, spec)``: x (..., n, d) -> (..., n, M) in the dtype of x: the features of
:class:`kernattn.ops.spec.MapSpec` with

.. math:: u = R\, [H D_k \cdots H D_1 (x, 0)]_{\text{blocks}},

with the factors of :class:`kernattn.ops.chains.Chains`, in place of :math:`\Omega x`, or u itself where spec is None; a
spec here has no frequencies of its own. Source: Yu et al. (2016). p log p operations for p frequencies: from 1024
columns to 8192 features the Numba sibling took 0.09 of the time of the dense map (2000 rows, float32, one thread).
"""

from kernattn._dispatch import Op

__all__ = ["FASTER_ABOVE", "OP"]

OP = Op("hadamard", ("reference", "cpu", "gpu"))

FASTER_ABOVE = {"cpu": 32, "gpu": 256, "reference": 256}
"""Dimension d above which maps of chains are evaluated by these, and below by a product with their matrix.

On a CPU (one thread, 1 to 2000 rows, d from 4 to 4096) Numba's chains take as long as its products between
d = 33 and 64, in float32 and float64; those of the reference on NumPy between 256 and 512. On a GPU nothing was timed:
products run on tensor cores there, and counts of flops and bytes put it near 256.
"""
