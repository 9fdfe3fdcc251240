"""What the ops of `torch.ops.kernattn` run on tensors.

A forward op takes tensors, the tensors that stand for numbers of a map, maps, and a backend. Its pullback, `_vjp`,
takes the same, outputs, and cotangents, None where there are none; it returns a list: the cotangents of the floating
inputs that there are, in order. A state is three tensors.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

from kernattn._bridge import Kept, library_of
from kernattn._dispatch import Op, missing
from kernattn.errors import BackendUnavailable
from kernattn.ops.attend import OP as ATTEND
from kernattn.ops.attend_vjp import OP as ATTEND_VJP
from kernattn.ops.block_softmax import OP as SOFTMAX
from kernattn.ops.block_softmax_vjp import OP as SOFTMAX_VJP
from kernattn.ops.causal import OP as CAUSAL
from kernattn.ops.causal_vjp import OP as CAUSAL_VJP
from kernattn.ops.cotangents import MapCotangent, in_units_of
from kernattn.ops.features import OP as FEATURES
from kernattn.ops.features_vjp import OP as FEATURES_VJP
from kernattn.ops.key_state import OP as KEY_STATE
from kernattn.ops.key_state_vjp import OP as KEY_STATE_VJP
from kernattn.ops.peaked import Normaliser, PeakedSum
from kernattn.ops.plan import ALL
from kernattn.ops.plan import CAUSAL as UPTO
from kernattn.ops.step import OP as STEP
from kernattn.torch._specs import NUMBERS, resolved

__all__ = [
    "attend",
    "attend_vjp",
    "block_softmax",
    "block_softmax_vjp",
    "causal",
    "causal_vjp",
    "features",
    "features_vjp",
    "key_state",
    "key_state_vjp",
    "linear_attention",
    "linear_attention_vjp",
    "step",
    "step_",
]

Maybe: TypeAlias = Tensor | None
Tensors: TypeAlias = tuple[Tensor, ...]


def features(x: Tensor, *tail: Any) -> Tensor:
    out: Tensor = _run(FEATURES, x, tail[-1], x, *_maps(*tail)).contiguous()
    return out


def features_vjp(x: Tensor, *rest: Any) -> list[Tensor]:
    *tail, g, learn = rest
    dx = _run(FEATURES_VJP, x, _way(tail), x, *_maps(*tail), g, learn)
    return _plain(dx.x, *_numbers(tail, learn, dx))


def key_state(k: Tensor, v: Tensor, key_mask: Maybe, *tail: Any) -> Tensors:
    return (*_plain(*_run(KEY_STATE, v, tail[-1], k, v, *_maps(*tail), key_mask)),)


def key_state_vjp(k: Tensor, v: Tensor, key_mask: Maybe, *rest: Any) -> list[Tensor]:
    *tail, peak, gs, gz, learn = rest
    sums = _cotangents(v, gs, gz, peak)
    dk, dv = _run(KEY_STATE_VJP, v, _way(tail), k, v, *_maps(*tail), key_mask, sums, learn)
    return _plain(dk.x, dv, *_numbers(tail, learn, dk))


def attend(s: Tensor, z: Tensor, peak: Tensor, q: Tensor, *tail: Any) -> Tensors:
    (spec,) = _maps(*tail)
    out, normaliser = _run(ATTEND, q, tail[-1], PeakedSum(s, z, peak), q, spec.unscaled, q.dtype, True)
    return (*_plain(out, *normaliser),)


def attend_vjp(s: Tensor, z: Tensor, peak: Tensor, q: Tensor, *rest: Any) -> list[Tensor]:
    *tail, out, row_peak, row_z, g, learn = rest
    (spec,), state = _maps(*tail), PeakedSum(s, z, peak)
    normaliser = Normaliser(row_peak, row_z)
    found, dq = _run(ATTEND_VJP, q, _way(tail), state, q, spec.unscaled, out, normaliser, g, learn)
    sums = in_units_of(state, found)
    return _plain(sums.s, sums.z, dq.x, *_numbers(tail, learn, dq))


def linear_attention(q: Tensor, k: Tensor, v: Tensor, key_mask: Maybe, *tail: Any) -> Tensors:
    """Return what `attend` does of `key_state`, and what this one gave."""
    q_spec, k_spec = _maps(*tail)
    sums = _run(KEY_STATE, v, tail[-1], k, v, k_spec, key_mask)
    out, normaliser = _run(ATTEND, q, tail[-1], sums, q, q_spec.unscaled, q.dtype, True)
    return (*_plain(out, *normaliser, *sums),)


def linear_attention_vjp(q: Tensor, k: Tensor, v: Tensor, key_mask: Maybe, *rest: Any) -> list[Tensor]:
    *tail, out, row_peak, row_z, s, z, peak, g, learn = rest
    q_spec, k_spec = _maps(*tail)
    way, normaliser = _way(tail), Normaliser(row_peak, row_z)
    found, dq = _run(ATTEND_VJP, q, way, PeakedSum(s, z, peak), q, q_spec.unscaled, out, normaliser, g, learn)
    dk, dv = _run(KEY_STATE_VJP, v, way, k, v, k_spec, key_mask, found, learn)
    return _plain(dq.x, dk.x, dv, *_numbers(tail, learn, dq, dk))


def causal(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensors:
    s, z, peak, key_mask, segment_ids, *tail = rest
    (q_spec, k_spec), state = _maps(*tail), _sums(s, z, peak)
    given = q, k, v, q_spec.unscaled, k_spec, state, key_mask, segment_ids
    out, normaliser, after = _run(CAUSAL, v, tail[-1], *given, True)
    return (*_plain(out, *normaliser, *after),)


def causal_vjp(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> list[Tensor]:
    s, z, peak, key_mask, segment_ids, *tail, out, row_peak, row_z, last, g, gs, gz, learn = rest
    g = torch.zeros_like(out) if g is None else g
    after = None if gs is gz is None else _cotangents(v, gs, gz, last)
    (q_spec, k_spec), state = _maps(*tail), _sums(s, z, peak)
    given = q, k, v, q_spec.unscaled, k_spec, state, key_mask, segment_ids
    normaliser = Normaliser(row_peak, row_z)
    dq, dk, dv, before = _run(CAUSAL_VJP, v, _way(tail), *given, out, normaliser, g, after, learn)
    of_state = () if before is None else before[:2]
    return _plain(dq.x, dk.x, dv, *of_state, *_numbers(tail, learn, dq, dk))


def step(s: Tensor, z: Tensor, peak: Tensor, *rest: Any) -> Tensors:
    q, k, v, key_mask, *tail = rest
    out, after = _run(STEP, v, tail[-1], PeakedSum(s, z, peak), q, k, v, *_maps(*tail), key_mask, False, None)
    return (*_plain(out, *after),)


def step_(s: Tensor, z: Tensor, peak: Tensor, *rest: Any) -> Tensor:
    """Write the state after the token into that before it."""
    q, k, v, key_mask, *tail = rest
    before = PeakedSum(s, z, peak)
    out, after = _run(STEP, v, tail[-1], before, q, k, v, *_maps(*tail), key_mask, True, None)
    for old, new in zip(before, after, strict=True):
        if new is not old:
            old.copy_(new)
    plain: Tensor = out.contiguous()
    return plain


def block_softmax(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Maybe, scale: float, causal: bool, backend: str | None
) -> Tensors:
    return (*_plain(*_run(SOFTMAX, q, backend, q, k, v, scale, UPTO if causal else ALL, key_mask, None)),)


def block_softmax_vjp(q: Tensor, k: Tensor, v: Tensor, key_mask: Maybe, *rest: Any) -> list[Tensor]:
    """With h, the cotangent of lse, a score counts as a value of 1 whose output is held at 0."""
    scale, causal, backend, out, lse, g, h, _ = rest
    g, values = torch.zeros_like(out) if g is None else g, v
    if h is not None:
        one, none = torch.ones_like(v[..., :1]), torch.zeros_like(out[..., :1])
        values, out, g = (torch.cat(pair, -1) for pair in ((v, one), (out, none), (g, h[..., None].to(g.dtype))))
    plan = UPTO if causal else ALL
    dq, dk, dv, _ = _run(SOFTMAX_VJP, q, _way([backend]), q, k, values, scale, plan, key_mask, out, lse, g)
    return _plain(dq, dk, dv[..., : v.shape[-1]])


def _run(op: Op, like: Tensor, backend: str | None, *arguments: Any) -> Any:
    """Return what an op makes of tensors that nobody differentiates or traces any more."""
    library, why = library_of(like), None if backend is None else missing(backend)
    with torch.no_grad():
        if library is not None and op.can_lend(library, backend):
            try:
                return library.run(op.function(library.backend), like, arguments)
            except Kept as kept:
                why = str(kept)
        if backend not in (None, "reference"):
            raise BackendUnavailable(
                f"backend {backend!r} cannot take the tensors of this {op.name}: {why}; backend='reference' takes it"
            )
        return op.function("reference")(*arguments)


def _way(tail: Any) -> str | None:
    """Return the backend of a pullback: where another one ran before, the fastest that there is."""
    return "reference" if tail[-1] == "reference" else None


def _maps(omega: Maybe, offset: Maybe, row_weights: Maybe, *specs: Any) -> list[Any]:
    """Return the maps of a tail, which ends with a backend."""
    *given, _ = specs
    first = resolved(given[0], omega, offset, row_weights)
    return [first if spec == given[0] else resolved(spec) for spec in given]


def _numbers(tail: Any, learn: bool, *sides: MapCotangent) -> list[Tensor]:
    """Return the cotangents of the numbers that are tensors, in their dtypes, of one map on all sides."""
    found = []
    for name, number in zip(NUMBERS, tail[:3], strict=True):
        if learn and number is not None:
            parts = [getattr(side, name) for side in sides]
            found.append(sum((part for part in parts if part is not None), torch.zeros_like(number)))
    return [x.to(number.dtype) for x, number in zip(found, (y for y in tail[:3] if y is not None), strict=False)]


def _cotangents(v: Tensor, gs: Maybe, gz: Maybe, peak: Tensor) -> PeakedSum:
    """Return cotangents of sums beside their peak, zeros for one that there is not."""
    if gs is None:
        assert gz is not None
        gs = gz.new_zeros((*gz.shape, v.shape[-1]))
    return PeakedSum(gs, torch.zeros_like(gs[..., 0]) if gz is None else gz, peak)


def _sums(s: Maybe, z: Maybe, peak: Maybe) -> PeakedSum | None:
    return None if s is None else PeakedSum(s, z, peak)


def _plain(*tensors: Tensor) -> list[Tensor]:
    return [x.contiguous() for x in tensors]
