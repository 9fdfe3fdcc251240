r"""Cotangents of queries, keys, values and the incoming state from those of causal linear attention.

``causal_vjp(q, k, v, q_spec, k_spec, state, key_mask, segment_ids, out, normaliser, g, after, learn)`` -> (q, k, v,
state). The first eight are what the op `causal` took, for a q_spec without log scales of rows, which cancel
(`MapSpec.unscaled`); out and normaliser, a :class:`kernattn._sums.peaked.Normaliser` with Z = z e^peak, what it gave; g
(..., n, e) is the cotangent of out; after is None, or a :class:`kernattn._sums.peaked.PeakedSum` of the cotangents of s
and z of the outgoing state beside its peak. Those of q and k are :class:`kernattn._sums.cotangents.MapCotangent`; that
of the state, None where there was none, has 0 for its peak.
"""

from kernattn.ops.dispatch import Op

OP = Op("causal_vjp", ("reference", "cpu", "gpu"))
