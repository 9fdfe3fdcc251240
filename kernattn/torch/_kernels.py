"""What the ops of `torch.ops.kernattn` run on tensors.

A forward op takes tensors, the tensors that stand for numbers of a map, maps, and a backend. Its pullback, `_vjp`,
takes the same, outputs, and cotangents, None where there are none; it returns a list: the cotangents of the floating
inputs that there are, in order. A state is three tensors.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from kernattn._arrays.bridge import Kept, library_of
from kernattn._gradients import pairs
from kernattn._sums.cotangents import MapCotangent
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.errors import BackendUnavailable
from kernattn.ops.dispatch import Op, missing
from kernattn.ops.step import OP as STEP
from kernattn.torch._plans import plan_of
from kernattn.torch._specs import NUMBERS, resolved

Maybe: TypeAlias = Tensor | None
Tensors: TypeAlias = tuple[Tensor, ...]


def features(x: Tensor, *tail: Any) -> Tensor:
    return _plain(pairs.features(_way(tail[-1]), _specs(tail), x))[0]


def features_vjp(x: Tensor, *rest: Any) -> list[Tensor]:
    *tail, g, learn = rest
    dx = pairs.features_vjp(_back(tail), _specs(tail), learn, (x,), g)
    return _plain(dx.x, *_numbers(tail, learn, dx))


def key_state(k: Tensor, v: Tensor, key_mask: Maybe, *tail: Any) -> Tensors:
    return (*_plain(*pairs.key_state(_way(tail[-1]), _specs(tail), k, v, key_mask)),)


def key_state_vjp(k: Tensor, v: Tensor, key_mask: Maybe, *rest: Any) -> list[Tensor]:
    *tail, peak, gs, gz, learn = rest
    sums = _cotangents(v, gs, gz, peak)
    dk, dv = pairs.key_state_vjp(_back(tail), _specs(tail), learn, (k, v, key_mask), sums)
    return _plain(dk.x, dv, *_numbers(tail, learn, dk))


def attend(s: Tensor, z: Tensor, peak: Tensor, q: Tensor, *tail: Any) -> Tensors:
    out, normaliser = pairs.attend(_way(tail[-1]), _specs(tail), PeakedSum(s, z, peak), q)
    return (*_plain(out, *normaliser),)


def attend_vjp(s: Tensor, z: Tensor, peak: Tensor, q: Tensor, *rest: Any) -> list[Tensor]:
    *tail, out, row_peak, row_z, g, learn = rest
    given, kept = (PeakedSum(s, z, peak), q), Normaliser(row_peak, row_z)
    sums, dq = pairs.attend_vjp(_back(tail), _specs(tail), learn, given, out, kept, g)
    return _plain(sums.s, sums.z, dq.x, *_numbers(tail, learn, dq))


def linear_attention(q: Tensor, k: Tensor, v: Tensor, key_mask: Maybe, *tail: Any) -> Tensors:
    out, (sums, normaliser) = pairs.linear_attention(_way(tail[-1]), _specs(tail), q, k, v, key_mask)
    return (*_plain(out, *normaliser, *sums),)


def linear_attention_vjp(q: Tensor, k: Tensor, v: Tensor, key_mask: Maybe, *rest: Any) -> list[Tensor]:
    *tail, out, row_peak, row_z, s, z, peak, g, learn = rest
    given, kept = (q, k, v, key_mask), (PeakedSum(s, z, peak), Normaliser(row_peak, row_z))
    dq, dk, dv = pairs.linear_attention_vjp(_back(tail), _specs(tail), learn, given, out, kept, g)
    return _plain(dq.x, dk.x, dv, *_numbers(tail, learn, dq, dk))


def causal(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensors:
    s, z, peak, key_mask, segment_ids, *tail = rest
    given = q, k, v, _sums(s, z, peak), key_mask, segment_ids
    (out, after), normaliser = pairs.causal(_way(tail[-1]), _specs(tail), *given)
    return (*_plain(out, *normaliser, *after),)


def causal_vjp(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> list[Tensor]:
    s, z, peak, key_mask, segment_ids, *tail, out, row_peak, row_z, last, g, gs, gz, learn = rest
    of_after = None if gs is gz is None else _cotangents(v, gs, gz, last)
    given = q, k, v, _sums(s, z, peak), key_mask, segment_ids
    kept = out, Normaliser(row_peak, row_z)
    dq, dk, dv, before = pairs.causal_vjp(_back(tail), _specs(tail), learn, given, *kept, g, of_after)
    of_state = () if before is None else before[:2]
    return _plain(dq.x, dk.x, dv, *of_state, *_numbers(tail, learn, dq, dk))


def step(s: Tensor, z: Tensor, peak: Tensor, *rest: Any) -> Tensors:
    q, k, v, key_mask, *tail = rest
    out, after = _run(STEP, v, tail[-1], PeakedSum(s, z, peak), q, k, v, *_specs(tail), key_mask, False, None)
    return (*_plain(out, *after),)


def step_(s: Tensor, z: Tensor, peak: Tensor, *rest: Any) -> Tensor:
    """Write the state after the token into that before it."""
    q, k, v, key_mask, *tail = rest
    before = PeakedSum(s, z, peak)
    out, after = _run(STEP, v, tail[-1], before, q, k, v, *_specs(tail), key_mask, True, None)
    for old, new in zip(before, after, strict=True):
        if new is not old:
            old.copy_(new)
    plain: Tensor = out.contiguous()
    return plain


def block_softmax(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensors:
    key_mask, key_bias, scale, plan, backend = rest
    given = q, k, v, scale, plan_of(plan), key_mask, key_bias
    return (*_plain(*pairs.block_softmax(_way(backend), *given)),)


def block_softmax_vjp(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> list[Tensor]:
    key_mask, key_bias, scale, plan, backend, out, lse, g, of_lse, _ = rest
    given = q, k, v, scale, plan_of(plan), key_mask, key_bias
    dq, dk, dv, _, db = pairs.block_softmax_vjp(_back([backend]), given, out, lse, g, of_lse)
    return _plain(dq, dk, dv, *([] if db is None else [db]))


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


def _way(backend: str | None) -> pairs.Way:
    """Return the way of a backend, None for the fastest that there is."""
    return lambda op, like: partial(_run, op, like, backend)


def _back(tail: Any) -> pairs.Way:
    """Return the way of a pullback: where another one than the reference ran before, the fastest that there is."""
    return _way("reference" if tail[-1] == "reference" else None)


def _specs(tail: Any) -> pairs.Specs:
    """Return the specs of queries and keys of a tail, which ends with a backend; one stands for both."""
    omega, offset, row_weights, first, *others, _ = tail
    spec = resolved(first, omega, offset, row_weights)
    return spec, spec if others in ([], [first]) else resolved(others[0])


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
