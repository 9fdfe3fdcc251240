"""Cotangents of queries against a summary of keys by Numba: a walk reads the summary, and one writes its own."""

from __future__ import annotations

import numpy as np

from kernattn._arrays.namespaces import Array, without_flags
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent
from kernattn._sums.peaked import Normaliser, PeakedSum, quotient, read, row_normaliser
from kernattn.ops.attend_vjp import reference
from kernattn.ops.features.reference import relative
from kernattn.ops.key_state_vjp.far import told, wide
from kernattn.ops.key_state_vjp.walks import fused, onto_state, queries, walked


def attend_vjp(
    state: PeakedSum, q: Array, q_spec: MapSpec, out: Array, normaliser: Normaliser, g: Array, learn: bool
) -> tuple[PeakedSum, MapCotangent]:
    """Return the cotangents of the sums, and of the queries.

    Maps that the loops do not take, and in float64 what is far from ordinary, are left to array operations.
    """
    dtype = state.s.dtype
    if fused(q_spec):
        side, lead, heads = queries(q, q_spec, out, normaliser, g, dtype), state.s.shape[:-2], g.shape[:-2]
        asked = walked(None, side, lead, heads, state, learn=learn)
        written = None if asked is None else walked(side.again(), None, lead, heads, None, keeps=True, checks=False)
        if asked is not None and written is not None:
            return onto_state(state, written), asked.told(q, q_spec)
        dtype = np.dtype(np.float64)
    sums, dq = _anew(*wide(dtype, state, q, q_spec, g, learn))
    return sums, told(dq, q)


@without_flags
def _anew(state: PeakedSum, q: Array, q_spec: MapSpec, g: Array, learn: bool) -> tuple[PeakedSum, MapCotangent]:
    """Return the same by array operations, outputs and normalisers included."""
    weights, own = relative(q, q_spec, False)
    total = read(np, weights, state)
    out, normaliser = quotient(np, total, q.dtype), row_normaliser(np, total.z, total.peak, own)
    return reference.attend_vjp(state, q, q_spec, out, normaliser, g, learn)
