r"""Cotangents of queries, keys, values, the scale and the biases from those of exact attention.

``block_softmax_vjp(q, k, v, scale, plan, key_mask, key_bias, score_bias, out, lse, g, g_lse)`` -> (q, k, v, scale,
key_bias, score_bias). The first eight are what the op `block_softmax` took, out and lse what it gave; g
(..., n, e) is the cotangent of out, g_lse that of lse, or None. That of the scale is () in the accumulation dtype,
those of biases None without one. A row whose cotangents are 0, or whose lse is -inf, has no gradient and gives none,
whatever stands there.
"""

from kernattn.ops.dispatch import Op

OP = Op("block_softmax_vjp", ("reference", "cpu", "gpu"))
