r"""Causal linear attention: out_i = sum_{j<=i} phi(q_i)^T phi(k_j) v_j / sum_{j<=i} phi(q_i)^T phi(k_j).

``causal(q, k, v, spec, state, key_mask, segment_ids)`` -> (out (..., n, e), state). q, k (..., n, d), or their
:class:`kernattn.ops.spec.ScaledFeatures` where spec is None; v (..., n, e); state the
:class:`kernattn.ops.peaked.PeakedSum` of what came before, or None; key_mask None or (..., n) bool; segment_ids None
or (..., n) integers, whose runs of equal values do not see each other: the incoming state belongs to the first run,
the outgoing one to the last.
"""

from kernattn._dispatch import Op

__all__ = ["OP"]

OP = Op("causal", ("reference", "cpu", "gpu"))
