"""Attention over whole sequences, maps included."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kernattn.attention import causal_linear_attention, linear_attention, softmax_attention
from kernattn.bench import peers
from kernattn.bench.cases.race import Call, Options, Race, normal, one_thread
from kernattn.bench.floor import Work
from kernattn.features import elu1, random_features
from kernattn.kernels import Softmax
from kernattn.ops.causal.cpu import CHUNK

__all__ = ["causal_elu1", "causal_favor", "full_favor", "one_head", "softmax"]


def _inputs(o: Options) -> list[Any]:
    return normal(o, *3 * [(o.heads, o.n, o.dim)])


def _favor(o: Options) -> Any:
    return random_features(Softmax(), o.dim, o.features, "positive", rng=o.seed)


def _work(o: Options, features: int, project: bool, inside: bool) -> Work:
    """Return the work of maps and sums; inside chunks whole products, though the loop leaves half of them out."""
    tokens, size = o.heads * o.n, np.dtype(o.dtype).itemsize
    flops = 4.0 * features * o.dim + (4.0 * features * o.dim if project else 0.0)
    if inside:
        flops += 2.0 * CHUNK * (features + o.dim)
    return Work(tokens * flops, tokens * 2.0 * features, tokens * 4.0 * o.dim * size)


def causal_elu1(o: Options) -> Race:
    """Causal linear attention with elu + 1."""
    q, k, v = _inputs(o)
    rivals: dict[str, Call] = {}
    if peers.have("torch"):
        rivals |= {"torch, lean loop": peers.torch_lean(q, k, v, None)}
        rivals |= {"torch, chunked": peers.torch_chunked(q, k, v, None)}
    return Race(partial(causal_linear_attention, q, k, v, elu1()), rivals, _work(o, o.dim, False, True))


def causal_favor(o: Options) -> Race:
    """Causal FAVOR+: positive orthogonal features, maps included."""
    q, k, v = _inputs(o)
    phi = _favor(o)
    rivals: dict[str, Call] = {}
    if peers.have("torch"):
        rivals |= {"torch, lean loop": peers.torch_lean(q, k, v, phi.omega)}
        rivals |= {"torch, chunked": peers.torch_chunked(q, k, v, phi.omega)}
    if peers.have("performer_pytorch"):
        rivals |= {"performer-pytorch's maps, chunked": peers.performer_maps_and_chunks(q, k, v, phi.omega)}
        rivals |= {"performer-pytorch": peers.performer(q, k, v, phi.omega, causal=True)}
    return Race(partial(causal_linear_attention, q, k, v, phi), rivals, _work(o, o.features, True, True))


def full_favor(o: Options) -> Race:
    """Bidirectional FAVOR+, maps included."""
    q, k, v = _inputs(o)
    phi = _favor(o)
    rivals: dict[str, Call] = {}
    if peers.have("torch"):
        rivals |= {"torch, lean": peers.torch_lean_all(q, k, v, phi.omega)}
    if peers.have("performer_pytorch"):
        rivals |= {"performer-pytorch": peers.performer(q, k, v, phi.omega, causal=False)}
    return Race(partial(linear_attention, q, k, v, phi), rivals, _work(o, o.features, True, False))


def one_head(o: Options) -> Race:
    """One head of 8 n tokens, causal elu + 1: all threads against one."""
    o = replace(o, n=8 * o.n, heads=1)
    q, k, v = _inputs(o)

    call = partial(causal_linear_attention, q, k, v, elu1())
    return Race(call, {"ours, one thread": one_thread(call)}, _work(o, o.dim, False, True))


def softmax(o: Options, causal: bool) -> Race:
    """Exact attention, full or causal."""
    q, k, v = _inputs(o)
    rivals: dict[str, Call] = {}
    if peers.have("torch"):
        torch, tensors = peers.torch_of(q, k, v)
        attention = torch.nn.functional.scaled_dot_product_attention
        rivals["torch's scaled_dot_product_attention"] = partial(attention, *tensors, is_causal=causal)
    pairs = o.heads * o.n * (o.n + 1) / 2 if causal else o.heads * o.n * float(o.n)
    work = Work(4.0 * pairs * o.dim, pairs, 4.0 * q.nbytes)
    return Race(partial(softmax_attention, q, k, v, causal=causal), rivals, work)
