r"""Orthonormal rows of many blocks at once.

``orthogonalize(blocks, method)``: blocks (..., r, d), r <= d, floating; method "gram_schmidt" or "qr" -> (..., r, d) in
the dtype of blocks: the rows q of :math:`A = L Q`, L lower triangular with a positive diagonal,

.. math:: q_i = \frac{a_i - \sum_{j<i} (a_i^T q_j) q_j}{|a_i - \sum_{j<i} (a_i^T q_j) q_j|}.

A row that the second of two projections still halves, and one of which nothing is left, is NaN with all the rows after
it; what is not NaN is orthonormal to rounding. Source: Giraud, Langou and Rozloznik (2005). `kernattn bench --cases
orthogonalize --dtype float64` races the Numba sibling against Gram-Schmidt in NumPy and NumPy's QR.
"""

from kernattn.ops.dispatch import Op

OP = Op("orthogonalize", ("reference", "cpu", "gpu"))
