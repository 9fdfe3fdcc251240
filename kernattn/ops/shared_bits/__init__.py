r"""Bits that two rows have in common: the products of rows of zeros and ones.

``shared_bits(x, y, out)``: x (n, w) and y (k, w), bits in words of 64, uint64; out (n, k), floating, is written. Arrays
of the host,

.. math:: o_{ij} = \sum_a \mathrm{popcount}(x_{ia} \wedge y_{ja}).

A word is an instruction or two, where products of matrices take 64 multiplications
(`kernattn bench --cases tanimoto-matrix`).
"""

from kernattn.ops.dispatch import Op

OP = Op("shared_bits", ("reference", "cpu"))
