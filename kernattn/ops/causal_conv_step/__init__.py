r"""One token of a short causal convolution, by the last tokens that each channel remembers.

``causal_conv_step(state, x, weight, bias, silu)`` -> (out (..., c) in the dtype of x, state). state (..., c, L) has the
last L tokens before, L at least the taps but one; x (..., c), weight, bias and silu as `causal_conv` has them. The
implementation may write the new state into the old one.
"""

from kernattn.ops.dispatch import Op

OP = Op("causal_conv_step", ("reference", "cpu", "gpu"))
