r"""Products of a kernel matrix and columns of numbers, without the matrix.

``pairwise_product(x, y, v, form)``: x (n, d), y (k, d) or None for y = x, of one of the accumulation dtypes; form a
`Form` of `ops/pairwise`; v (k, c) -> (n, c) in that dtype,

.. math:: o_i = \sum_j f(m(x_i, y_j))\, v_j.

The Numba sibling measures a block in cache, takes the function there, and multiplies: entries are never written. With
y = x every two panels of rows meet once, for the rows of both. Squared distances are taken from products of rows where
that rounds no more than differences do to speak of, and from differences elsewhere
(`kernattn bench --cases kernel-products`).
"""

from kernattn.ops.dispatch import Op

OP = Op("pairwise_product", ("reference", "cpu"))
