"""Cotangents of queries against a summary of keys by Numba: a walk reads the summary, and one writes its own."""

from __future__ import annotations

import numpy as np

from kernattn._array import Array, without_flags
from kernattn.ops._numba.layout import narrowed
from kernattn.ops.attend_vjp import reference
from kernattn.ops.cotangents import MapCotangent, onto
from kernattn.ops.key_state_vjp.walks import fused, onto_state, queries, walked
from kernattn.ops.peaked import Normaliser, PeakedSum
from kernattn.ops.spec import MapSpec

__all__ = ["attend_vjp"]


def attend_vjp(
    state: PeakedSum, q: Array, q_spec: MapSpec, out: Array, normaliser: Normaliser, g: Array, learn: bool
) -> tuple[PeakedSum, MapCotangent]:
    """Return the cotangents of the sums, and of the queries.

    What is learnt, and what is far from ordinary, is left to array operations.
    """
    found = None
    if not learn and fused(q_spec):
        found = _walked(state, q, q_spec, out, normaliser, g)
    if found is None:
        found = without_flags(reference.attend_vjp)(state, q, q_spec, out, normaliser, g, learn)
    return found


def _walked(
    state: PeakedSum, q: Array, q_spec: MapSpec, out: Array, normaliser: Normaliser, g: Array
) -> tuple[PeakedSum, MapCotangent] | None:
    """Return the cotangents, None where a number is too large or too small for the loops."""
    side, lead, heads = queries(q, q_spec, out, normaliser, g, state.s.dtype), state.s.shape[:-2], g.shape[:-2]
    asked = walked(None, side, lead, heads, state)
    told = None if asked is None else walked(side, None, lead, heads, None, keeps=True)
    if asked is None or told is None:
        return None
    return onto_state(state, told), MapCotangent(narrowed(onto(np, asked.dx, q.shape), q.dtype))
