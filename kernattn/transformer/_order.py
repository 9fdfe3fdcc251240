"""The parameters of a transformer in the order of their use."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._sums.units import decay_rate
from kernattn.attention import gates
from kernattn.transformer._config import Config
from kernattn.transformer._experts import Experts
from kernattn.transformer._halves import widen
from kernattn.transformer._members import Gated
from kernattn.transformer._parts import Params

Pair = tuple[NDArray[Any], NDArray[np.float32] | None]

SWIGLU = "gate", "up", "down"


def weights_in_order(params: Params, config: Config) -> Iterator[Pair]:
    """Yield (weight, bias) of each norm and matrix as a step uses them; the bias is None where there is none.

    The weight of a norm is its scale (dim,). Queries, keys and values are by one matrix. Matrices that multiply rows
    have their own dtype, all others are widened to float32.
    """
    for i in range(config.layers):
        mixer, feed = config.mixer(i), f"layers.{i}.feed_forward"
        name = f"layers.{i}.{'attention' if mixer is None else 'gated'}"
        first = _norm(params, f"{name}.norm")
        if config.norm_first:
            yield first
        if mixer is None:
            yield _linear(
                params, *(f"{name}.{part}" for part in ("q", "k", "v", "gate")[: 4 if config.head_gate else 3])
            )
            for part in "qk" if config.head_norm else "":
                yield _norm(params, f"{name}.{part}_norm")
            yield _linear(params, f"{name}.out")
        else:
            yield from _gated(params, mixer, name)
        if not config.norm_first:
            yield first
        experts = config.experts_of(i)
        if experts is None and not config.hidden_width:
            continue
        second = _norm(params, f"{feed}.norm")
        if config.norm_first:
            yield second
        if experts is not None:
            yield from _experts(params, experts, feed)
        else:
            yield from _feed_forward(params, feed, SWIGLU if config.activation == "swiglu" else SWIGLU[1:])
        if not config.norm_first:
            yield second
    if config.norm_first:
        yield _norm(params, "norm")
    if config.output == "tokens":
        yield _linear(params, "output")
    if config.output == "tied":
        yield params["embed.tokens"].T, None


def _norm(params: Params, name: str) -> Pair:
    return _vector(params, f"{name}.scale"), _vector(params, f"{name}.bias")


def _vector(params: Params, name: str) -> Any:
    """Return a vector, or None where there is none."""
    vector = params.get(name)
    return None if vector is None else widen(vector)


def _feed_forward(params: Params, name: str, parts: Sequence[str] = SWIGLU) -> Iterator[Pair]:
    for part in parts:
        yield _linear(params, f"{name}.{part}")


def _experts(params: Params, experts: Experts, name: str) -> Iterator[Pair]:
    # what chooses, each expert, and the shared one
    yield _linear(params, f"{name}.router")
    for i in range(experts.num_experts):
        for part in SWIGLU:
            yield params[f"{name}.experts.{part}"][i], None
    if experts.shared:
        yield _linear(params, f"{name}.shared")
        yield from _feed_forward(params, f"{name}.shared")


def _gated(params: Params, m: Gated, name: str) -> Iterator[Pair]:
    # a decay is e^(-c log(1 + e^x)), or e^-c
    decay: Pair | None = None
    if m.decays:
        weight, bias = params[f"{name}.decay.weight"], _vector(params, f"{name}.decay.bias")
        turned = m.kind.decay == "channel" and not m.kind.rate  # log sigmoid(x) = -log(1 + e^-x)
        decay = (-weight, -bias) if turned else (weight, bias)
    parts: list[Pair] = [_linear(params, f"{name}.{part}") for part in "qkv"]
    if m.kind.erases:
        parts.append(_linear(params, f"{name}.beta"))
    if decay is not None:
        parts.append(_linear(params, f"{name}.decay.low") if m.decay_rank else decay)
    if m.kind.gate is not None:
        parts.append(_linear(params, f"{name}.gate.low" if m.gate_rank else f"{name}.gate"))
    yield _beside(parts)
    if m.span:
        yield _vector(params, f"{name}.conv.weight"), _vector(params, f"{name}.conv.bias")
    if decay is not None and m.decay_rank:
        yield decay
    if m.gate_rank:
        yield _linear(params, f"{name}.gate")
    if m.kind.decay == "constant":
        yield -gates.retention(m.heads, like=np.zeros(0, np.float32))["g"][:, 0], None
    elif m.kind.decay is not None:
        rates = (
            decay_rate(_vector(params, f"{name}.decay.log_rate"))
            if m.kind.rate
            else np.full(m.groups, 1 / 16, np.float32)
        )
        yield np.repeat(rates, m.decays // len(rates)), _vector(params, f"{name}.skip")
    yield np.tile(_vector(params, f"{name}.out_norm.scale"), 1 if m.kind.gate_first else m.heads), None
    yield _linear(params, f"{name}.out")


def _linear(params: Params, *names: str) -> Pair:
    """Return matrices beside each other as one, and their biases."""
    return _beside([(params[f"{name}.weight"], _vector(params, f"{name}.bias")) for name in names])


def _beside(parts: Sequence[Pair]) -> Pair:
    biases = [np.zeros(weight.shape[1], np.float32) if bias is None else bias for weight, bias in parts]
    return np.concatenate([weight for weight, _ in parts], axis=1), np.concatenate(biases)
