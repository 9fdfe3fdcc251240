r"""Queries against a summary of keys: out_i = phi(q_i)^T S / phi(q_i)^T z.

``attend(state, q, spec, dtype)`` -> out (..., n, e) of `dtype`; q (..., n, d), or its
:class:`kernattn.ops.spec.ScaledFeatures` where spec is None. A row whose normaliser is exactly 0 is 0.
"""

from kernattn._dispatch import Op

__all__ = ["OP"]

OP = Op("attend", ("reference", "cpu", "gpu"))
