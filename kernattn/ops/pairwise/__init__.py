r"""A function of a measure of every pair of rows: most of what a kernel matrix is.

``pairwise(x, y, form, dtype)``: x (..., n, d), y (..., k, d), of one of the accumulation dtypes, their squares floats;
form a `Form` -> (..., n, k) in that dtype, or rounded to the one that is given,

.. math:: K_{ij} = f(m(x_i, y_j)),

m one of :math:`x^T y`, :math:`|x - y|^2`, :math:`\sum_a |x_a - y_a|` and :math:`\sum_a \min(x_a, y_a)`; f one of
:math:`e^{c u}`, :math:`(u + c)^p`, and the Matern functions of smoothness 1/2, 3/2 and 5/2. The Numba sibling measures
a block in cache, takes the function there, and writes once (`kernattn bench --cases kernel-gaussian kernel-laplacian
kernel-polynomial`). It subtracts rows, where a product of matrices would expand the square: no bit of an entry depends
on other rows, or on which side its own are.
"""

from kernattn.ops.dispatch import Op

OP = Op("pairwise", ("reference", "cpu"))
