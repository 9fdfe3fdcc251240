r"""Cotangents of what `hybrid` takes from those of what it gives.

``hybrid_vjp(q, k, v, q_spec, k_spec, scale, plan, within, causal, state, key_mask, segment_ids, near_bias, out,
normaliser, near, near_lse, g, after, learn)`` -> (q, k, v, state, near_bias). The first thirteen are what the op
took, the next four what it gave; g is the cotangent of out, after None or those of the outgoing sums beside their
peak. Those of q and k are :class:`kernattn._sums.cotangents.MapCotangent`; those of state and near_bias None where
there was none.

Over the one normaliser of both parts, the weights of each are those of its own op, and so is its way back: it is handed
the outputs and normalisers of the whole. What is left is the log scale that a query's features share. Cotangents of a
row's logs sum to 0 over both parts, so that of the features' part is minus that of the exact one.
"""

from kernattn.ops.dispatch import Op

OP = Op("hybrid_vjp", ("reference", "cpu", "gpu"))
