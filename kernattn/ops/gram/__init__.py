r"""Sums over rows of outer products of features: all that least squares and principal components need of the data.

``gram(x, y, spec, wide)``: x (..., n, d), or features (..., n, M) where spec is None; y (..., n, c) of the dtype of x
-> (phi^T phi (..., M, M), phi^T y (..., M, c)) in the accumulation dtype, or in float64 where `wide`, products too,

.. math:: G = \sum_i \phi(x_i) \phi(x_i)^T, \qquad B = \sum_i \phi(x_i) y_i^T.

c may be 0. Sums over parts of the rows add up. With few features the Numba sibling never writes phi and computes one
half of G; with many, BLAS adds blocks of phi to one triangle. `kernattn bench --cases gram` races it against features
and a symmetric product by BLAS, and `--features` says with how many.
"""

from kernattn.ops.dispatch import Op

OP = Op("gram", ("reference", "cpu", "gpu"))
