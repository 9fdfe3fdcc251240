r"""A short causal convolution of every channel: y_t = bias + sum_j w_j x_{t - K + 1 + j}.

``causal_conv(x, weight, bias, silu, segment_ids)`` -> out (..., n, c) in the dtype of x: y, or y / (1 + e^{-y}) with
`silu`. x (..., n, c); weight (c, K); bias (c,) or None. Before the first token there are zeros; with segment_ids (...,
n) integers, runs of equal ids do not see each other.
"""

from kernattn.ops.dispatch import Op

OP = Op("causal_conv", ("reference", "cpu", "gpu"))
