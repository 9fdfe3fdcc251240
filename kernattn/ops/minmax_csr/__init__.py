r"""Sums of minima over sums of maxima, of CSR rows with each other: only columns that both hold are met.

``minmax_csr(x, columns, x_sums, y_sums, out)``: x the CSR rows and columns the CSC columns of y, each as (values,
indices, starts), float64 and int64, sorted, without duplicates; x_sums (n,) and y_sums (k,) of the rows, float64; out
(n, k), floating, is written. Arrays of the host,

.. math:: o_{ij} = m_{ij} / (s_i + s_j - m_{ij}), \qquad m_{ij} = \sum_a \min(x_{ia}, y_{ja}),

and 1 where both are empty. A row of x walks over the columns that it holds, and adds to one float64 accumulator for
each row of y (Gustavson 1978): the time is that of the pairs of entries in a column, where a dense block takes d
minima for each pair of rows (`kernattn bench --cases tanimoto-csr`).
"""

from kernattn.ops.dispatch import Op

OP = Op("minmax_csr", ("reference", "cpu"))
