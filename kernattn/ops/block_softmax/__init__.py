r"""Exact attention by an online softmax over blocks of keys: O(n) memory, never an n x l matrix.

``block_softmax(q, k, v, scale, plan, key_mask, key_bias, score_bias, keep)`` -> (out (..., n, e), lse (..., n)), and
if asked to `keep` what the pullback takes, out before it was rounded to 16 bits, without columns where nothing is. q
(..., n, d), k (..., l, d), v (..., l, e), scale a float, key_mask None or (..., l) bool, key_bias None or (..., l),
b_j, where -inf hides, score_bias None or (..., n, l), c_ij, which broadcasts to the leading axes of the outputs, and
hides alike. lse_i = log sum_j exp(scale q_i . k_j + b_j + c_ij) over the keys that row i sees, in the accumulation
dtype. Which these are, the :class:`kernattn._plans.plan.Plan` says. A row that sees nothing is 0, with lse -inf.
"""

from kernattn.ops.dispatch import Op

OP = Op("block_softmax", ("reference", "cpu", "gpu"))
