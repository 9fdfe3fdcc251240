r"""Cotangents of queries, keys, values and the scale from those of exact attention.

``block_softmax_vjp(q, k, v, scale, plan, key_mask, out, lse, g)`` -> (q, k, v, scale). The first six are what the op
`block_softmax` took, out and lse what it gave; g (..., n, e) is the cotangent of out. That of the scale is () in the
accumulation dtype. A row whose g is 0, or whose lse is -inf, has no gradient and gives none, whatever stands there.
"""

from kernattn._dispatch import Op

__all__ = ["OP"]

OP = Op("block_softmax_vjp", ("reference", "cpu", "gpu"))
