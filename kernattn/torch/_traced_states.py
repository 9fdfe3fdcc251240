"""States where `torch.compile` traces them: of nothing, of keys, and what is read from them; log normalisers."""

from operator import index
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernattn import attention
from kernattn._arrays.graphs import in_a_graph
from kernattn._sums.peaked import PeakedSum, merge
from kernattn.attention import GatedState, GatedStretch, LinearState, LogNormaliser, WindowState
from kernattn.errors import DTypeError, ParameterError, StateMismatchError
from kernattn.features import FeatureMap
from kernattn.torch._in_graphs import autocast, sums_dtype
from kernattn.torch._specs import map_of
from kernattn.torch._traced_below import admit_drawn, leaves_of, one_draw, run_op, state_of, trace_composed
from kernattn.torch._traced_gated import XP, merge_gated


def initial_state(phi: FeatureMap, batch_shape: Any, value_dim: Any, like: Tensor) -> LinearState:
    (like,) = autocast(like)
    if not isinstance(batch_shape, tuple | list):
        raise ParameterError("batch_shape must be a tuple of positive integers")
    if any(size < 1 for size in (*batch_shape, value_dim)):
        raise ParameterError("batch_shape and value_dim must be positive integers")
    draw = admit_drawn(phi)
    rows, peaks = _sizes("" + draw._content[2], index(like.shape[-1]))
    wide = sums_dtype(like)
    s, z = (like.new_zeros((*batch_shape, rows, *own), dtype=wide) for own in ((value_dim,), ()))
    empty: LinearState = state_of(draw, (s, z, like.new_full((*batch_shape, peaks), -torch.inf, dtype=wide)))
    return empty


@in_a_graph
def _sizes(draw: str, d: int) -> tuple[int, int]:
    """Return how many features and peaks a state has."""
    state = attention.initial_state(map_of(draw), (), 1, np.zeros(d))
    return state.s.shape[0], state.peak.shape[0]


def initial_window_state(phi: FeatureMap, window: Any, batch_shape: Any, value_dim: Any, like: Tensor) -> WindowState:
    (like,) = autocast(like)
    if window < 0:
        raise ParameterError("window must be an integer of at least 0")
    s, z, peak, draw = initial_state(phi, batch_shape, value_dim, like)
    lead = (*batch_shape, window)
    k, v = (like.new_zeros((*lead, size)) for size in (like.shape[-1], value_dim))
    return WindowState(s, z, peak, k, v, like.new_zeros(lead, dtype=torch.bool), draw)


def key_state(
    k: Tensor, v: Tensor, phi: FeatureMap, *, key_mask: Tensor | None = None, backend: str | None = None
) -> Any:
    k, v = autocast(k, v)
    made = run_op("key_state", False, phi, backend, {"k": k, "v": v, "key_mask": key_mask})
    if made is None:
        made = trace_composed("key_state", phi, k, v, key_mask=key_mask, backend=backend)
    return state_of(admit_drawn(phi), (made[0], made[1], made[2]))


def attend(state: LinearState, q: Tensor, phi: FeatureMap, *, backend: str | None = None) -> Tensor:
    one_draw(state.fingerprint, admit_drawn(phi).fingerprint)
    (q,) = autocast(q)
    made = run_op("attend", False, phi, backend, {"q": q, **leaves_of(state)})
    if made is None:
        return trace_composed("attend", phi, (state.s, state.z, state.peak), q, backend=backend)
    return made[0]


def merge_states(a: Any, b: Any) -> Any:
    if isinstance(a, GatedState | GatedStretch):
        if not isinstance(b, GatedStretch):
            raise StateMismatchError("after a gated state comes a GatedStretch, as gated_state returns it")
        return merge_gated(a, b)
    if not (isinstance(a, LinearState) and isinstance(b, LinearState)):
        raise DTypeError("a and b must be a LinearState, as functions of kernattn return it")
    one_draw(a.fingerprint, b.fingerprint)
    if a.s.shape != b.s.shape or a.s.dtype != b.s.dtype or a.peak.shape != b.peak.shape:
        raise StateMismatchError("states to merge must have one shape and dtype")
    return state_of(a, tuple(merge(XP, *(PeakedSum(x.s, x.z, x.peak) for x in (a, b)))))


def attend_with_lse(state: LinearState, q: Tensor, phi: FeatureMap, **options: Any) -> tuple[Tensor, LogNormaliser]:
    one_draw(state.fingerprint, admit_drawn(phi).fingerprint)
    out, normaliser = trace_composed("attend_with_lse", phi, (state.s, state.z, state.peak), q, **options)
    return out, LogNormaliser(*normaliser)


def causal_with_lse(
    q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, *, state: LinearState | None = None, **options: Any
) -> tuple[Tensor, LogNormaliser, LinearState]:
    if state is not None:
        one_draw(state.fingerprint, admit_drawn(phi).fingerprint)
        options["state"] = state.s, state.z, state.peak
    out, normaliser, sums = trace_composed("causal_with_lse", phi, q, k, v, **options)
    return out, LogNormaliser(*normaliser), state_of(admit_drawn(phi), sums)
