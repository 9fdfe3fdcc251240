r"""Causal linear attention: out_i = sum_{j<=i} phi(q_i)^T phi(k_j) v_j / sum_{j<=i} phi(q_i)^T phi(k_j).

``causal(q, k, v, q_spec, k_spec, state, key_mask, segment_ids, normaliser)`` -> (out (..., n, e), normaliser, state).
q (..., n, d_q) and k (..., n, d_k), or their :class:`kernattn._maps.spec.ScaledFeatures` where the spec is None; v
(..., n, e); state the :class:`kernattn._sums.peaked.PeakedSum` of what came before, or None; key_mask None or (..., n)
bool; segment_ids None or (..., n) integers, whose runs of equal values do not see each other: the incoming state
belongs to the first run, the outgoing one to the last. With `normaliser` the
:class:`kernattn._sums.peaked.Normaliser` of every row's denominator in the accumulation dtype, else None.
"""

from kernattn.ops.dispatch import Op

OP = Op("causal", ("reference", "cpu", "gpu"))
