r"""Features of rows under chains of Hadamard transforms, without the dense matrix that they make up.

``hadamard(x, diagonals, norms, spec)``: x (..., n, d); diagonals (blocks, k, p), p >= d a power of two, and norms (m,),
m <= blocks p, float64 host arrays -> (..., n, M) in the dtype of x: the features of :class:`kernattn.ops.spec.MapSpec`
with

.. math:: u = R\, [H D_k \cdots H D_1 (x, 0)]_{\text{blocks}},

in place of :math:`\Omega x`, or u itself where spec is None; H is the Walsh-Hadamard matrix over :math:`\sqrt p` in
Sylvester's order, R the diagonal of the norms. An input scale goes into the first diagonal. Source: Yu et al. (2016).
p log p operations for p frequencies: from 1024 columns to 8192 features the Numba sibling took 0.12 of the time of the
dense map (2000 rows, float32, one thread).
"""

from kernattn._dispatch import Op

__all__ = ["OP"]

OP = Op("hadamard", ("reference", "cpu", "gpu"))
