"""Linear attention with gates and the delta rule, against what else runs on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from bench.cpu import gated_peers as rivals
from bench.cpu import peers
from bench.cpu.cases.inputs import normal
from bench.races import Case, Race
from bench.sizes import Sizes
from kernattn._gradients import vjp
from kernattn.attention import (
    GatedState,
    causal_linear_attention,
    gated_linear_attention,
    gated_linear_attention_step,
    gates,
)
from kernattn.bench import Work
from kernattn.bench._clock import Call
from kernattn.features import elu1

LAYERS = 80  # of MiniMax-01, whose first layer is raced


def _inputs(o: Sizes) -> tuple[list[Any], dict[str, Any]]:
    q, k, v, g = normal(o, *3 * [(o.heads, o.n, o.dim)], (o.heads, o.n))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    return [q, k, v], {"g": -np.exp(g), "beta": 1 / (1 + np.exp(normal(o, (o.heads, o.n))[0]))}


def _race(o: Sizes, arrays: list[Any], options: Mapping[str, Any], both: bool, others: dict[str, Call]) -> Race:
    ones = np.ones_like(arrays[2])

    def back() -> Any:
        return vjp(gated_linear_attention, *arrays, **options)[1]((ones, None))

    calls: dict[str, Call] = {"ours": back if both else partial(gated_linear_attention, *arrays, **options)}
    area, short = o.dim * o.dim, 16.0 * o.dim
    if "beta" in options:
        flops = 16.0 * area + 11.0 * short if both else 6.0 * area + 4.0 * short
    else:
        flops = 10.0 * area + 5.0 * short if both else 4.0 * area + 2.0 * short
    size = 4.0 * arrays[0].itemsize * o.tokens * o.dim
    return Race(calls | others, Work(size * (2 if both else 1), o.tokens * flops))


def _delta(o: Sizes, both: bool) -> Race:
    """The gated delta rule, one decay a head: a layer of Qwen3-Next without its projections."""
    arrays, options = _inputs(o)
    return _race(o, arrays, options, both, rivals.delta(*arrays, options["g"], options["beta"], both))


def _decays(o: Sizes, channels: bool, delta: bool) -> Race:
    """Other members, beside causal attention with elu + 1 features, which has no gates."""
    arrays, options = _inputs(o)
    logs, beta = options.pop("g"), options["beta"]
    if channels:
        logs = -np.exp(normal(o, arrays[1].shape)[0])
    options["gk" if channels else "g"] = logs
    if not delta:
        del options["beta"]
    others: dict[str, Call] = {"elu + 1, no gates": partial(causal_linear_attention, *arrays, elu1())}
    others |= rivals.delta(*arrays, logs, beta) if delta else rivals.decays(*arrays, logs, o.dim**-0.5)
    return _race(o, arrays, options, False, others)


def _lightning(o: Sizes, both: bool) -> Race:
    """Lightning attention: a layer of MiniMax-01 without its projections."""
    arrays, _ = _inputs(o)
    options = gates.lightning(o.heads, 0, LAYERS, like=arrays[0])
    others = rivals.lightning(*arrays, LAYERS, both)
    logs = np.ascontiguousarray(np.broadcast_to(options["g"], (o.heads, o.n)))
    others |= rivals.decays(*arrays, logs, 1.0, both)
    return _race(o, arrays, options, both, others)


def _scan(o: Sizes, both: bool) -> Race:
    """The state space of Mamba-2: a layer without its projections and its convolution, one group of heads."""
    x, b, c, dt = normal(o, (o.heads, o.n, o.dim), *2 * [(1, o.n, o.dim)], (o.heads, o.n))
    dt, a = np.log1p(np.exp(dt)), -np.exp(normal(o, (o.heads,))[0])

    def ours() -> Any:
        return gated_linear_attention(**gates.mamba2(x, dt, a, b, c))

    def back() -> Any:
        given = gates.mamba2(x, dt, a, b, c)
        rows, logs = [given.pop(name) for name in "qkv"], given.pop("g")
        dq, dk, dv, dg, *_ = vjp(gated_linear_attention, *rows, g=logs, **given)[1]((np.ones_like(x), None))
        of_steps = np.linalg.vecdot(dv, x) + dg * a[:, None]
        dv *= dt[..., None]
        return dv, of_steps, dk, dq

    area, short = 4.0 * o.dim * o.dim, 2.0 * 16 * o.dim
    flops = o.tokens * (2.5 * area + 2.5 * short if both else area + short)
    work = Work((2.0 * x.nbytes + 2.0 * b.nbytes) * (2 if both else 1), flops)
    return Race({"ours": back if both else ours} | rivals.scan(x, dt, a, b, c, both), work)


def _step(o: Sizes) -> Race:
    """A token of the gated delta rule, the state renewed in its place; transformers makes a new one."""
    (q, k, v), options = _inputs(o)
    token = [np.ascontiguousarray(x[:, 0]) for x in (q, k, v, options["g"], options["beta"])]
    (s,) = normal(o, (o.heads, o.dim, o.dim))
    others = rivals.step(s, *token)

    def ours(state: Any, q: Any, k: Any, v: Any, g: Any, beta: Any) -> Call:
        held = GatedState(state)
        return lambda: gated_linear_attention_step(held, q, k, v, g=g, beta=beta, reuse_state=True)

    from kernattn.ops._numba.tiles.layout import room

    at_a_line = room(s.shape, s.dtype)  # as calls return states
    at_a_line[...] = s
    calls: dict[str, Call] = {"ours": ours(at_a_line, *token)}
    if peers.have("torch"):
        tensors = peers.torch_of(s, *token)[1]
        calls["ours, tensors"] = ours(tensors[0].clone(), *tensors[1:])
    work = Work(2.0 * s.nbytes, 7.0 * s.size, written=float(s.nbytes), in_place=True)
    return Race(calls | others, work)


GATED = {
    "gated-delta": Case(partial(_delta, both=False)),
    "gated-delta-both-ways": Case(partial(_delta, both=True)),
    "gated-decay": Case(partial(_decays, channels=False, delta=False), told="a decay for each head"),
    "gated-channels": Case(partial(_decays, channels=True, delta=False), told="a decay for each channel, GLA"),
    "gated-channels-delta": Case(partial(_decays, channels=True, delta=True), told="Kimi Delta Attention"),
    "gated-lightning": Case(partial(_lightning, both=False)),
    "gated-lightning-both-ways": Case(partial(_lightning, both=True)),
    "gated-scan": Case(partial(_scan, both=False)),
    "gated-scan-both-ways": Case(partial(_scan, both=True)),
    "gated-step": Case(_step, n=1),
}
"""The cases by name."""
