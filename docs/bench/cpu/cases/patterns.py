"""Exact attention over patterns: the rate of the loop, what plans cost, and peers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isqrt
from typing import Any

from bench.cpu import pattern_peers as rivals
from bench.cpu import peers, window_peers
from bench.cpu.cases import counts
from bench.cpu.cases.inputs import favor, fitted, heads
from bench.races import Case, Race
from bench.sizes import Sizes
from kernattn._gradients import vjp
from kernattn.attention import causal_linear_attention, patterns, softmax_attention, window_attention
from kernattn.attention.patterns import Pattern
from kernattn.attention.patterns._base import make_plan
from kernattn.bench import Work
from kernattn.bench._clock import Call

WINDOW, BLOCK, RANDOM = 256, 64, 3
MASKED = 4096  # tokens, up to which a mask (n, n) is raced
SPARSE = 1024  # tokens, from which transformers' BigBird leaves any out


def _square(n: int) -> tuple[int, int]:
    """Return a shape of n pixels, as nearly square as it can be."""
    side = next(side for side in range(isqrt(n), 0, -1) if n % side == 0)
    return n // side, side


KINDS: dict[str, Callable[[Sizes], Pattern]] = {
    "local": lambda o: patterns.local(WINDOW),
    "dilated": lambda o: patterns.local(WINDOW, 0, dilation=4),
    "strided": lambda o: patterns.strided(BLOCK, BLOCK),
    "fixed": lambda o: patterns.fixed(BLOCK, 8),
    "longformer": lambda o: patterns.longformer(WINDOW, [0, 1, 2, 3]),
    "bigbird": lambda o: patterns.bigbird(BLOCK, RANDOM, rng=o.seed, heads=o.heads),
    "streaming": lambda o: patterns.sinks(4) | patterns.local(WINDOW, 0),
    "image": lambda o: patterns.image_2d(_square(o.n), (8, 8), 4),
}


def over(o: Sizes, kind: str) -> Race:
    """Attention over a pattern, its plan alone, dense attention on as many pairs, and peers."""
    q, k, v = heads(o)
    pattern = KINDS[kind](o)
    plan = pattern.plan(o.n)
    length = max(1, round(plan.visited / o.n))
    calls = {
        "ours": partial(softmax_attention, q, k, v, pattern=pattern),
        "ours, plan alone": lambda: make_plan(pattern, o.n, o.n, False),
        "ours, dense, as many pairs": partial(softmax_attention, q, k[:, :length].copy(), v[:, :length].copy()),
        **_rivals(o, kind, (q, k, v)),
    }
    pairs, size = o.heads * float(plan.pairs), float(v.nbytes)
    works = {"ours, plan alone": Work(size, 0.0)}
    return Race(calls, Work(4 * size, 4.0 * pairs * o.dim, pairs, written=size), works=works)


Make = Callable[[Sizes], Any]


def windowed(o: Sizes, window: int, make: Make = favor) -> Race:
    """FAVOR+ or a fitted map behind a window of exact attention, under one normaliser, and each of the parts alone."""
    q, k, v = heads(o)
    phi, plan = make(o), patterns.local(window - 1, 0).plan(o.n)
    calls = {
        "ours": partial(window_attention, q, k, v, phi, window),
        "ours, window alone": partial(softmax_attention, q, k, v, pattern=plan),
        "ours, features alone": partial(causal_linear_attention, q, k, v, phi),
        **_by_torch(o, (q, k, v, phi, window)),
    }
    pairs, size = o.heads * float(plan.pairs), float(v.nbytes)
    exact, features = Work(4 * size, 4.0 * pairs * o.dim, pairs, written=size), counts.linear(o, o.features, True, True)
    works = {"ours, window alone": exact, "ours, features alone": features}
    both = Work(4 * size, exact.flops + features.flops, exact.functions + features.functions, written=size)
    return Race(calls, both, works=works)


def windowed_both_ways(o: Sizes, window: int, make: Make = favor) -> Race:
    """The same and its way back; the parts alone likewise."""
    q, k, v, g = heads(o, 4)
    phi, plan = make(o), patterns.local(window - 1, 0).plan(o.n)
    calls = {
        "ours": partial(_both_ways, (g, None), window_attention, q, k, v, phi, window),
        "ours, window alone": partial(_both_ways, g, softmax_attention, q, k, v, pattern=plan),
        "ours, features alone": partial(_both_ways, (g, None), causal_linear_attention, q, k, v, phi),
        **_by_torch_both_ways(o, (q, k, v, g, phi, window)),
    }
    pairs, size = o.heads * float(plan.pairs), float(v.nbytes)
    exact = Work(12 * size, 14.0 * pairs * o.dim, 2 * pairs, written=4 * size)
    given = o, o.features, True, True
    features = counts.both(counts.linear(*given), counts.linear_backward(*given))
    works = {"ours, window alone": exact, "ours, features alone": features}
    both = Work(12 * size, exact.flops + features.flops, exact.functions + features.functions, written=4 * size)
    return Race(calls, both, works=works)


def _by_torch(o: Sizes, given: tuple[Any, ...]) -> dict[str, Call]:
    """Return what torch does without us, by name: a window and features are its own products in blocks of a window."""
    if not peers.have("torch") or o.n % given[-1]:
        return {}
    calls = {
        "torch, blocks at once": window_peers.torch_whole(*given),
        "torch, a loop over blocks": window_peers.torch_lean(*given),
    }
    if o.n <= MASKED:
        calls["torch, all pairs"] = window_peers.torch_all_pairs(*given)
    if peers.compiles():
        calls["torch, blocks at once, compiled"] = window_peers.torch_whole(*given, compiled=True)
    return calls


def _by_torch_both_ways(o: Sizes, given: tuple[Any, ...]) -> dict[str, Call]:
    """Return the same and its way back, by autograd."""
    if not peers.have("torch") or o.n % given[-1]:
        return {}
    calls = {"torch, blocks at once, autograd": window_peers.torch_both_ways(*given)}
    if peers.compiles():
        calls["torch, blocks at once, autograd, compiled"] = window_peers.torch_both_ways(*given, compiled=True)
    return calls


def _both_ways(cotangent: Any, function: Any, *given: Any, **more: Any) -> Any:
    """Return the cotangents of a call."""
    return vjp(function, *given, **more)[1](cotangent)


def _rivals(o: Sizes, kind: str, given: tuple[Any, Any, Any]) -> dict[str, Call]:
    """Return peers of windows and of BigBird by name; the rest has none that runs on a CPU."""
    calls: dict[str, Call] = {}
    divides = o.n % (2 * WINDOW) == 0
    if kind == "local" and peers.have("torch") and divides:
        calls["torch's scaled_dot_product_attention, in chunks"] = rivals.sdpa_in_chunks(*given, WINDOW)
        if o.n <= MASKED:
            calls["torch's scaled_dot_product_attention, masked"] = rivals.sdpa_with_mask(*given, WINDOW)
        calls["torch's scaled_dot_product_attention, exact"] = peers.torch_softmax(*given, False)
        if peers.compiles():
            calls["torch's flex_attention, compiled"] = rivals.flex(*given, WINDOW)
        if peers.have("local_attention"):
            calls["local-attention"] = rivals.local_attention(*given, WINDOW)
        if peers.have("transformers"):
            calls["transformers' Longformer"] = rivals.longformer_hf(*given, WINDOW)
    if kind == "bigbird" and peers.have("torch") and peers.have("transformers") and o.n >= SPARSE and divides:
        calls["transformers' BigBird"] = rivals.bigbird_hf(*given, BLOCK, RANDOM)
    return calls


PATTERNS = {f"pattern-{kind}": Case(partial(over, kind=kind), told=kind) for kind in KINDS}
for w in (64, WINDOW):
    PATTERNS |= {
        f"window-{w}": Case(partial(windowed, window=w), told=f"{w} tokens"),
        f"window-{w}-both-ways": Case(partial(windowed_both_ways, window=w), told=f"{w} tokens, both ways"),
    }
PATTERNS |= {
    "window-64-fitted": Case(partial(windowed, window=64, make=fitted), told="64 tokens, a fitted map"),
    "window-64-fitted-both-ways": Case(
        partial(windowed_both_ways, window=64, make=fitted), told="64 tokens, a fitted map, both ways"
    ),
}
