r"""Cotangents of gated linear attention's inputs from those of its outputs and of the state after them.

``gated_vjp(q, k, v, g, gk, beta, read, write, scale, l2_normalise, state, key_mask, segment_ids, out, after)`` -> (q,
k, v, g, gk, beta, read, write, state). The first thirteen are what the op `gated` took; out (..., n, e) and after
(..., d, e) are the cotangents of what it gave, or None. Those of arguments that were None are None.

The cotangent of a log decay is a sum over all that it decays: of reads of the state at the chunk's start, of what was
written before it and is read, or left, after it. No sum is taken from another: what autograd of differences of
cumulative sums makes of strong decays is noise.
"""

from kernattn.ops.dispatch import Op

OP = Op("gated_vjp", ("reference", "cpu", "gpu"))
