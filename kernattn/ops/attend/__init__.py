r"""Queries against a summary of keys: out_i = phi(q_i)^T S / phi(q_i)^T z.

``attend(state, q, q_spec, dtype, normaliser)`` -> (out (..., n, e) of `dtype`, normaliser); q (..., n, d), or its
:class:`kernattn._maps.spec.ScaledFeatures` where q_spec is None. A row whose normaliser is exactly 0 is 0. With
`normaliser` the :class:`kernattn._sums.peaked.Normaliser`, phi(q_i)^T z, in the accumulation dtype, else None.
"""

from kernattn.ops.dispatch import Op

OP = Op("attend", ("reference", "cpu", "gpu"))
