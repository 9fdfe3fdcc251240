r"""One token of Mamba-2's state space: S <- e^{dt A} S + dt x b^T, out = S c + D x.

``selective_step(state, x, dt, a, b, c, d)`` -> (out (..., heads, p) in the dtype of x, state). state (..., heads, p,
n) is the transpose of that of `gated`; x (..., heads, p); dt (..., heads), above 0; a (heads,), below 0; b, c (...,
groups, n), each for heads / groups heads that follow one another; d (heads,) or None. dt, a and state have the dtype
in which sums run. The implementation may write the new state into the old one.
"""

from kernattn.ops.dispatch import Op

OP = Op("selective_step", ("reference", "cpu", "gpu"))
