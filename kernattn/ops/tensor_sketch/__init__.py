r"""Tensor sketches of rows: the count sketch of the p-fold outer product, in a Fourier basis.

``tensor_sketch(x, index, weight, num_features, dtype)``: x (..., n, d), a floating array or a SciPy CSR matrix; index
(p, d) integers below M = num_features; weight (p, d), float64 host arrays -> (..., n, M) in the accumulation dtype of
x, or rounded to the one that is given. With
the p count sketches :math:`c_i` of a row (see :mod:`kernattn.ops.countsketch`) and
:math:`P = \prod_i \mathrm{FFT}(c_i)` the features are

.. math:: M^{-1/2} [P_0, P_{M/2}, \sqrt2\,\mathrm{Re} P_f, \sqrt2\,\mathrm{Im} P_f, \dots],

without :math:`P_{M/2}` where M is odd, whose inner products are those of the inverse transform of P, by Parseval's
theorem. The frequencies f below M / 2 ascend, except where M is a power of two: then they come as a fast transform
leaves them (:mod:`kernattn.ops.tensor_sketch.order`).

Source: Pham and Pagh (2013).
"""

from kernattn.ops.dispatch import Op

OP = Op("tensor_sketch", ("reference", "cpu", "gpu"))
