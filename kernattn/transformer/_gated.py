"""Layers of gated linear attention, for whole sequences and single tokens alike: a step is a sequence of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, placement, zero_masked, zeros
from kernattn._sums.units import decay_rate
from kernattn.attention import GatedState, gated_linear_attention, gates
from kernattn.attention._state_parts import holds_states
from kernattn.ops.causal_conv import OP as CONV
from kernattn.transformer._halves import widen
from kernattn.transformer._members import Gated
from kernattn.transformer._parts import Params, linear, sigmoid, silu, standardise


@holds_states
class GatedLayer(NamedTuple):
    """What a layer of gated linear attention remembers: its state, and the inputs that its convolution still needs."""

    s: Array  # (..., groups, heads / groups, d, e)
    window: Array | None  # (..., span - 1, channels)


Mix: TypeAlias = Callable[[GatedLayer | None, Array | None], tuple[Array, GatedLayer]]  # before, mask -> out, after


def mix(
    params: Params, eps: float, m: Gated, name: str, x: Array, before: GatedLayer | None, mask: Array | None
) -> tuple[Array, GatedLayer]:
    """Return the layer's output for rows (..., n, dim), and its state after them; the mask is (..., n)."""
    xp, kind = namespace(x=x), m.kind
    mixed = zero_masked(xp.concat([linear(params, f"{name}.{part}", x) for part in "qkv"], axis=-1), mask)
    window = None
    if m.span:
        mixed, window = _convolve(params, m, f"{name}.conv", mixed, before, mask)
    q, k = (_group(mixed[..., i * m.keys : (i + 1) * m.keys], m.groups, 1) for i in range(2))
    v = _group(mixed[..., 2 * m.keys :], m.groups, m.heads // m.groups)
    g, gk, step = _decays(params, m, name, x)
    values = v if step is None else xp.astype(v * step[..., None], v.dtype, copy=False)
    beta = None
    if kind.erases:
        beta = sigmoid(_of_heads(m, linear(params, f"{name}.beta", x)))
    out, state = gated_linear_attention(
        q, k, values, g=g, gk=gk, beta=beta, scale=1.0 if kind.state_space else None, l2_normalise=kind.erases,
        state=None if before is None else GatedState(before.s),
        key_mask=None if mask is None else mask[..., None, None, :],
    )  # fmt: skip
    if kind.state_space:
        out = out + v * xp.reshape(widen(params[f"{name}.skip"]), (m.groups, -1, 1, 1))
    rows = _rows(m, out)
    gate = None if kind.gate is None else _through(params, f"{name}.gate", x, m.gate_rank)
    rows = _gate_and_normalise(m, rows, gate, eps, widen(params[f"{name}.out_norm.scale"]))
    return linear(params, f"{name}.out", rows), GatedLayer(state.s, window)


def _convolve(
    params: Params, m: Gated, name: str, x: Array, before: GatedLayer | None, mask: Array | None
) -> tuple[Array, Array]:
    """Return SiLU of the convolution of columns (..., n, channels) with those before, and the last inputs of it."""
    xp, n, past = namespace(x=x), x.shape[-2], m.span - 1
    begun = None if before is None else before.window
    if begun is None:
        begun = zeros(xp, (*x.shape[:-2], past, m.channels), x.dtype, x)
    whole = xp.concat([begun, x], axis=-2)
    weight, bias = xp.matrix_transpose(widen(params[f"{name}.weight"])), params.get(f"{name}.bias")
    bias = None if bias is None else widen(bias)
    y = CONV.implementation(whole)(whole, weight, bias, True, None)[..., past:, :]
    if mask is None:
        last = begun[..., n:, :], x[..., max(n - past, 0) :, :]
        return y, xp.concat(last, axis=-2)  # no view: a state would hold all rows of its prompt
    ends = n - xp.argmax(xp.astype(xp.flip(mask, axis=-1), xp.int32), axis=-1)  # after the last token that is there
    at = (ends[..., None] + xp.arange(past, **placement(x)))[..., None]
    return y, xp.take_along_axis(whole, xp.broadcast_to(at, (*begun.shape[:-1], m.channels)), axis=-2)


def _decays(params: Params, m: Gated, name: str, x: Array) -> tuple[Array | None, Array | None, Array | None]:
    """Return logs of decays g (groups, heads / groups, n) and gk (groups, 1, n, d), and the steps of a state space."""
    xp, kind = namespace(x=x), m.kind
    if kind.decay == "constant":
        logs = gates.retention(m.heads, like=x)["g"]
        return xp.reshape(logs, (m.groups, -1, 1)), None, None
    if kind.decay is None:
        return None, None, None
    logits = _through(params, f"{name}.decay", x, m.decay_rank)
    logits = xp.astype(logits, accumulation_dtype(xp, x), copy=False)
    if not kind.rate:
        return None, gates.gla(_group(logits, m.groups, 1))["gk"], None
    step = xp.logaddexp(logits, xp.zeros_like(logits))
    rate = -decay_rate(xp.astype(params[f"{name}.decay.log_rate"], logits.dtype))
    if kind.decay == "channel":
        return None, _group(step, m.groups, 1) * xp.reshape(rate, (m.groups, 1, 1, 1)), None
    step = _of_heads(m, step)
    return step * xp.reshape(rate, (m.groups, -1, 1)), None, step if kind.state_space else None


def _gate_and_normalise(m: Gated, rows: Array, gate: Array | None, eps: float, scale: Array) -> Array:
    """Return rows (..., n, values) whose heads, or groups of heads, have mean square 1, and that a gate multiplies."""
    xp, kind = namespace(rows=rows), m.kind
    if gate is not None:
        gate = silu(gate) if kind.gate == "silu" else sigmoid(gate)
    if gate is not None and kind.gate_first:
        rows = rows * gate
    heads = xp.reshape(rows, (*rows.shape[:-1], m.groups if kind.gate_first else m.heads, -1))
    heads = standardise(heads, eps)
    if kind.gate_first:
        return xp.reshape(heads, rows.shape) * scale
    rows = xp.reshape(heads * scale, rows.shape)
    return rows if gate is None else rows * gate


def _through(params: Params, name: str, x: Array, rank: int) -> Array:
    """Return x W + b, for a W of low rank by its two factors."""
    return linear(params, name, linear(params, f"{name}.low", x) if rank else x)


def _group(x: Array, groups: int, each: int) -> Array:
    """Return columns (..., n, groups each d) as heads (..., groups, each, n, d)."""
    xp = namespace(x=x)
    return xp.moveaxis(xp.reshape(x, (*x.shape[:-1], groups, each, -1)), -4, -2)


def _of_heads(m: Gated, x: Array) -> Array:
    """Return numbers of heads (..., n, heads) as (..., groups, heads / groups, n)."""
    xp = namespace(x=x)
    return xp.moveaxis(xp.reshape(x, (*x.shape[:-1], m.groups, -1)), -3, -1)


def _rows(m: Gated, out: Array) -> Array:
    """Return heads (..., groups, heads / groups, n, e) as rows (..., n, values)."""
    xp = namespace(out=out)
    out = xp.moveaxis(out, -2, -4)
    return xp.reshape(out, (*out.shape[:-3], m.values))
