r"""Attention that is exact on a plan and by features elsewhere, under one normaliser.

out_i = [e^b sum_{j on the plan} e^(scale q_i.k_j) v_j + sum_{j off it} phi(q_i)^T phi(k_j) v_j] / [the same of ones].

``hybrid(q, k, v, q_spec, k_spec, scale, plan, within, causal, state, key_mask, segment_ids, near_bias, keep)`` ->
(out (..., n, e), normaliser, after, near, near_lse, unrounded), or without `keep` (out, None, after). q (..., n, d),
the last n of the l tokens of k (..., l, d) and v (..., l, e); the specs of their maps, or the
:class:`kernattn._maps.spec.ScaledFeatures` that somebody computed; plan a :class:`kernattn._plans.plan.Plan` that has
`streams_of`, and within what is left of it where rows see no other segment, or the plan itself; causal whether
nothing behind a row counts; state the :class:`kernattn._sums.peaked.PeakedSum` of features of what came before all
keys, or None; key_mask None or (..., l) bool; segment_ids None or (..., l) integers; near_bias b, None or (...), of
the leading axes of out. `normaliser` is the :class:`kernattn._sums.peaked.Normaliser` of rows, with the row's log
scale in it; `after` the sums of the keys before the stretch of the last row; near and near_lse the exact part alone,
without b; unrounded is out before it was rounded to 16 bits, without columns where nothing is.

Keys on the plan are never summed with the others: nothing is taken off, and no digit is lost.
"""

from kernattn.ops.dispatch import Op

OP = Op("hybrid", ("reference", "cpu", "gpu"))
