"""Cotangents of queries against a summary of keys by Numba: a walk reads the summary, and one writes its own."""

import numpy as np

from kernattn._arrays.namespaces import Array, without_flags
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent
from kernattn._sums.peaked import Normaliser, PeakedSum, quotient, read, row_normaliser
from kernattn.ops.attend_vjp import reference
from kernattn.ops.features.reference import relative
from kernattn.ops.key_state_vjp.walks import loops_take, onto_state, queries, walk_tokens, whole
from kernattn.ops.recast import narrow_cotangents, widen


def attend_vjp(
    state: PeakedSum, q: Array, q_spec: MapSpec, out: Array, normaliser: Normaliser, g: Array, learn: bool
) -> tuple[PeakedSum, MapCotangent]:
    """Leave maps that the loops do not take, and in float64 what is far from ordinary, to array operations."""
    dtype = state.s.dtype
    if loops_take(q_spec):
        side = queries(q, q_spec, whole(out, dtype), normaliser, g, dtype)
        lead, heads = state.s.shape[:-2], g.shape[:-2]
        asked = walk_tokens(None, side, lead, heads, state, learn=learn)
        if asked is not None:
            side = side.without_outputs()
            written = walk_tokens(side, None, lead, heads, None, keeps=True, checks=False)
            if written is not None:
                return onto_state(state, written), asked.cotangent(q, q_spec)
        dtype = np.dtype(np.float64)
    sums, dq = _recompute(*widen(dtype, state, q, q_spec, g, learn))
    return sums, narrow_cotangents(dq, q)


@without_flags
def _recompute(state: PeakedSum, q: Array, q_spec: MapSpec, g: Array, learn: bool) -> tuple[PeakedSum, MapCotangent]:
    """Return the cotangents by array operations, from outputs and normalisers that are computed once more."""
    weights, own = relative(q, q_spec, False)
    total = read(np, weights, state)
    out, normaliser = quotient(np, total, q.dtype), row_normaliser(np, total.z, total.peak, own)
    return reference.attend_vjp(state, q, q_spec, out, normaliser, g, learn)
