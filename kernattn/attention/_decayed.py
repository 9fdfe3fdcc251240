"""Causal linear attention whose keys fade, and the state of a token whose keys have faded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kernattn._arrays.bridge import stop_gradient
from kernattn._arrays.namespaces import Array, namespace
from kernattn._arrays.shapes import broadcast
from kernattn._sums.peaked import LinearState, PeakedSum
from kernattn.attention._check_gates import check_gates
from kernattn.attention._check_states import check_state
from kernattn.attention._lowering import lowered, state_of, sums_of
from kernattn.errors import ShapeError
from kernattn.features import FeatureMap
from kernattn.ops.decayed import OP, decayed, in_units
from kernattn.ops.dispatch import Op
from kernattn.ops.gated.reference import log_decays


def with_leads(k: Array, g: Array | None, gk: Array | None) -> Array:
    """Return the key of a token with the leading axes of its decays, g (...) and gk (..., M), too."""
    gates = {name: x for name, x in (("g", g), ("gk", gk)) if x is not None}
    xp, own = namespace(k=k, **gates), tuple(k.shape[:-1])
    if k.ndim < 1 or (gk is not None and gk.ndim < 1):
        shapes = {name: tuple(x.shape) for name, x in {"k": k, **gates}.items()}
        raise ShapeError(f"k must be (..., d), and gk (..., M); got shapes {shapes}")
    leads = {name: tuple(x.shape if name == "g" else x.shape[:-1]) for name, x in gates.items()}
    lead = broadcast(k=own, **leads)
    return k if lead == own else xp.broadcast_to(k, (*lead, *k.shape[-1:]))


def decayed_causal(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    g: Array | None,
    gk: Array | None,
    state: LinearState | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    backend: str | None,
) -> tuple[Array, LinearState]:
    """Return outputs and the last state of arguments that have passed but for the decays and the state."""
    check_decays(q, k, v, phi, g, gk, state)
    queries, keys, q_spec, k_spec = lowered(phi, q, k, key_mask)
    before = None if state is None else sums_of(state)
    run: Callable[..., Any] = OP.implementation(v, backend)
    if q_spec is None or k_spec is None:  # features that somebody computed: the sums over them are gated attention

        def way(op: Op, like: Array) -> Callable[..., Any]:
            return op.implementation(like, backend)

        run = partial(decayed, way)
    out, _, after = run(queries, keys, v, q_spec, k_spec, before, key_mask, segment_ids, g, gk)
    return out, state_of(after, phi.fingerprint)


def check_decays(
    q: Array, k: Array, v: Array, phi: FeatureMap, g: Array | None, gk: Array | None, state: LinearState | None
) -> None:
    """Raise unless decays, and a state beside them, fit."""
    leads = check_gates({"g": g, "gk": gk}, q, phi.num_features_of(k.shape[-1]))
    lead = broadcast(k=tuple(k.shape[:-2]), v=tuple(v.shape[:-2]), **leads)
    broadcast(q=tuple(q.shape[:-2]), keys=lead)
    if state is not None:
        check_state(state, phi, q, namespace(k=k).broadcast_to(k, (*lead, *k.shape[-2:])), v, 2)


@np.errstate(over="ignore", under="ignore")  # of decays that leave nothing
def decayed_state(
    state: LinearState, q: Array, g: Array | None, gk: Array | None, key_mask: Array | None
) -> LinearState:
    """Return the state of a token q whose keys have faded, by e^g (...) and by e^gk (..., M) for each feature."""
    xp = namespace(s=state.s)
    rows = {"g": None if g is None else g[..., None], "gk": None if gk is None else gk[..., None, :]}
    check_gates(rows, q[..., None, :], state.z.shape[-1])
    decay = log_decays(xp, g, gk, key_mask, xp.zeros_like(state.z[..., :1]))
    lead = broadcast(decay=tuple(decay.shape[:-1]), z=tuple(state.z.shape[:-1]))
    s, z, held = state.s, state.z, stop_gradient(decay)
    if held is not decay:  # peaks are held: what comes back to a decay comes by way of the sums, times a factor of 1
        one = xp.exp(xp.where(xp.isfinite(held), decay - held, xp.zeros_like(held)))
        s, z = one[..., None] * s, one * z
    sums = PeakedSum(
        xp.broadcast_to(s, (*lead, *s.shape[-2:])),
        xp.broadcast_to(z, (*lead, *z.shape[-1:])),
        xp.broadcast_to(state.peak + held, (*lead, max(state.peak.shape[-1], decay.shape[-1]))),
    )
    return LinearState(*in_units(xp, sums, state.peak.shape[-1]), state.fingerprint)
