r"""One token: S <- S + phi(k) v^T, z <- z + phi(k), out = phi(q)^T S / phi(q)^T z.

``step(state, q, k, v, q_spec, k_spec, key_mask, reuse_state, out)`` -> (out (..., e), state). q (..., d_q) and k (...,
d_k), or their :class:`kernattn._maps.spec.ScaledFeatures`, (..., M) and (..., 1) without an axis of tokens, where the
spec is None; v (..., e); key_mask None or (...) bool. With `reuse_state` the implementation may write the new state
into the arrays of the old one. Where an `out` is given, (..., e), C-contiguous, of v's dtype and overlapping nothing
else, it is filled and returned.
"""

from kernattn.ops.dispatch import Op

OP = Op("step", ("reference", "cpu", "gpu"))
