r"""One token of gated linear attention: S_t and out_t = scale S_t^T q_t.

``gated_step(state, q, k, v, g, gk, beta, read, write, scale, l2_normalise, key_mask, reuse_state, out)`` -> (out (...,
e), state). Arguments are those of the op `gated` without the axis of tokens. With `reuse_state` the implementation may
write the new state into the array of the old one. An `out` that is given, (..., e), C-contiguous, of v's dtype and
overlapping nothing else, is filled and returned.
"""

from kernattn.ops.dispatch import Op

OP = Op("gated_step", ("reference", "cpu", "gpu"))
