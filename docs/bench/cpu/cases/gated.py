"""Linear attention with gates and the delta rule, against the functions that transformers falls back to."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench.cpu import peers
from bench.cpu.cases.inputs import normal
from bench.races import Case, Race
from bench.sizes import Sizes
from kernattn._gradients import vjp
from kernattn.attention import causal_linear_attention, gated_linear_attention
from kernattn.bench import Work
from kernattn.bench._clock import Call
from kernattn.features import elu1

CHUNKS = 16, 32, 64


def _inputs(o: Sizes) -> tuple[list[Any], dict[str, Any]]:
    q, k, v, g = normal(o, *3 * [(o.heads, o.n, o.dim)], (o.heads, o.n))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    return [q, k, v], {"g": -np.exp(g), "beta": 1 / (1 + np.exp(normal(o, (o.heads, o.n))[0]))}


def _transformers(chunk: int, arrays: list[Any], options: dict[str, Any], both: bool) -> Call:
    """Call Qwen3-Next's function, which takes (batch, n, heads, d); with its gradients where `both` is asked for."""
    module = import_module("transformers.models.qwen3_next.modeling_qwen3_next")
    run = getattr(module.torch_chunk_gated_delta_rule, "__wrapped__", module.torch_chunk_gated_delta_rule)
    torch, tensors = peers.torch_of(*arrays, options["g"], options["beta"])
    tensors = [x.transpose(0, 1)[None].contiguous().requires_grad_(both) for x in tensors]

    def forward() -> Any:
        return run(*tensors, chunk_size=chunk, output_final_state=True)[0]

    def back() -> Any:
        return torch.autograd.grad(forward().sum(), tensors)

    return back if both else torch.inference_mode()(forward)


def _delta(o: Sizes, both: bool) -> Race:
    """The gated delta rule, one decay a head: a layer of Qwen3-Next without its projections."""
    arrays, options = _inputs(o)
    ones = np.ones_like(arrays[2])

    def back() -> Any:
        return vjp(gated_linear_attention, *arrays, **options)[1]((ones, None))

    calls: dict[str, Call] = {"ours": back if both else partial(gated_linear_attention, *arrays, **options)}
    if peers.have("torch") and peers.have("transformers"):
        calls |= {f"transformers, chunks of {c}": _transformers(c, arrays, options, both) for c in CHUNKS}
    size, area, short = 4.0 * arrays[0].itemsize, o.dim * o.dim, 16.0 * o.dim
    flops = o.tokens * (16.0 * area + 11.0 * short if both else 6.0 * area + 4.0 * short)
    return Race(calls, Work(size * o.tokens * o.dim * (2 if both else 1), flops))


def _decays(o: Sizes, channels: bool, delta: bool) -> Race:
    """Other members, beside causal attention with elu + 1 features, which has no gates."""
    arrays, options = _inputs(o)
    if channels:
        (logs,) = normal(o, arrays[1].shape)
        options["gk"] = -np.exp(logs)
        del options["g"]
    if not delta:
        del options["beta"]
    calls: dict[str, Call] = {
        "ours": partial(gated_linear_attention, *arrays, **options),
        "elu + 1, no gates": partial(causal_linear_attention, *arrays, elu1()),
    }
    flops = o.tokens * ((6.0 if delta else 4.0) * o.dim * o.dim + (4.0 if delta else 2.0) * 16 * o.dim)
    return Race(calls, Work(4.0 * arrays[0].itemsize * o.tokens * o.dim, flops))


GATED = {
    "gated-delta": Case(partial(_delta, both=False)),
    "gated-delta-both-ways": Case(partial(_delta, both=True)),
    "gated-decay": Case(partial(_decays, channels=False, delta=False), told="a decay for each head"),
    "gated-channels": Case(partial(_decays, channels=True, delta=False), told="a decay for each channel, GLA"),
    "gated-channels-delta": Case(partial(_decays, channels=True, delta=True), told="Kimi Delta Attention"),
}
"""The cases by name."""
