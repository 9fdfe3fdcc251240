r"""Linear attention with gates: S_t = diag(e^{g_t}) S_{t-1} + b_t (S_{t-1}^T a_t)^T + k_t v_t^T.

``gated(q, k, v, g, gk, beta, read, write, scale, l2_normalise, state, key_mask, segment_ids)`` -> (out (..., n, e) in
the dtype of v, state (..., d, e) in the accumulation dtype), out_t = scale S_t^T q_t. q, k (..., n, d); v (..., n, e).
The log decay of a token is the sum of g (..., n) and gk (..., n, d), at most 0 each, -inf allowed, None for 0. With
beta (..., n) the decayed state forgets along k, S_t = (I - beta k k^T) diag(e^g) S_{t-1} + beta k v^T; in its place a
and b are read and write (..., n, d), and a reads before the decay. With `l2_normalise`, q and k are divided by
sqrt(x^T x + 1e-6). state is what came before, or None; key_mask (..., n) bool or None: a token without a key changes no
state; segment_ids (..., n) integers or None: runs of equal ids do not see each other, and the incoming state belongs to
the first.

Every decay is e to a *sum* of logs over a segment of tokens, or a product of a few: a number of at most 1, right to a
few units in its last place, and 0 where a log is -inf. No sum is taken from another, and nothing is divided by a decay
below e^-.5.
"""

from kernattn.ops.dispatch import Op

OP = Op("gated", ("reference", "cpu", "gpu"))
