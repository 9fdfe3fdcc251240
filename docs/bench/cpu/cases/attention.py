"""Attention over whole sequences, maps included."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bench.cpu import peers
from bench.cpu.cases import counts
from bench.cpu.cases.inputs import favor, heads, normal, one_thread
from bench.races import Race
from bench.sizes import Sizes
from bench.torch_chunks import CHUNK
from kernattn.attention import causal_linear_attention, linear_attention, softmax_attention
from kernattn.attention.patterns import from_mask
from kernattn.bench import Work
from kernattn.bench._clock import Call
from kernattn.features import elu1, random_features
from kernattn.kernels import Softmax

SHORT = 256  # tokens, up to which torch's quadratic form runs too


def _quadratic(q: Any, k: Any, v: Any, omega: Any, causal: bool) -> dict[str, Call]:
    """Return torch's quadratic form by name, where there is torch and sequences are short."""
    if q.shape[1] > SHORT or not peers.have("torch"):
        return {}
    return {"torch, quadratic": peers.torch_quadratic(q, k, v, omega, causal)}


def causal_elu1(o: Sizes) -> Race:
    """Causal linear attention with elu + 1."""
    q, k, v = heads(o)
    others = _quadratic(q, k, v, None, True)
    if peers.have("torch") and o.n % CHUNK == 0:
        others |= {"torch, lean loop": peers.torch_lean_elu1(q, k, v)}
        others |= {"torch, chunked": peers.torch_chunked(q, k, v, None)}
    return Race(
        {"ours": partial(causal_linear_attention, q, k, v, elu1()), **others}, counts.linear(o, o.dim, False, True)
    )


def causal_favor(o: Sizes) -> Race:
    """Causal FAVOR+: positive orthogonal features, maps included."""
    q, k, v = heads(o)
    phi = favor(o)
    others = _quadratic(q, k, v, phi.omega, True)
    if peers.have("torch") and o.n % CHUNK == 0:
        others |= {"torch, lean loop": peers.torch_lean_favor(q, k, v, phi.omega)}
        others |= {"torch, chunked": peers.torch_chunked(q, k, v, phi.omega)}
    if peers.have("performer_pytorch") and o.n % CHUNK == 0:
        others |= {"performer-pytorch's maps, chunked": peers.performer_maps_and_chunks(q, k, v, phi.omega)}
        others |= {"performer-pytorch": peers.performer(q, k, v, phi.omega, causal=True)}
    return Race(
        {"ours": partial(causal_linear_attention, q, k, v, phi), **others}, counts.linear(o, o.features, True, True)
    )


def causal_hadamard(o: Sizes) -> Race:
    """Causal FAVOR+ by Hadamard chains, against the loop that reads their matrix: 4 d -> 16 d, one head."""
    from kernattn.ops.causal.cpu import CHUNK

    q, k, v = normal(o, (o.n, 4 * o.dim), (o.n, 4 * o.dim), (o.n, o.dim))
    chains: Any = random_features(Softmax(), 4 * o.dim, 16 * o.dim, "positive", "hadamard", rng=o.seed)
    dense = replace(chains, omega=np.asarray(chains.omega))
    maps = {"ours": chains, "ours, dense": dense}
    calls = {name: partial(causal_linear_attention, q, k, v, phi) for name, phi in maps.items()}
    m, sums = 16.0 * o.dim, 6.0 * np.ceil(np.log2(4 * o.dim))
    flops = m * sums + 4.0 * m * o.dim + (CHUNK + 1.0) * (m + o.dim)
    work = Work(o.n * 10.0 * o.dim * q.itemsize, o.n * flops, o.n * 2.0 * m, written=float(v.nbytes))
    return Race(calls, work)


def asymmetric(o: Sizes, causal: bool) -> Race:
    """FAVOR# with a map for queries and another one for keys, against FAVOR+ of one map."""
    q, k, v = heads(o)
    data = q[0, : 4 * o.dim], k[0, : 4 * o.dim]
    phi = random_features(Softmax(), o.dim, o.features, "favor_sharp_asymmetric", data=data, rng=o.seed)
    run: Any = causal_linear_attention if causal else linear_attention
    calls = {name: partial(run, q, k, v, each) for name, each in (("ours", phi), ("ours, one map", favor(o)))}
    return Race(calls, counts.linear(o, o.features, True, causal))


def full_favor(o: Sizes) -> Race:
    """Bidirectional FAVOR+, maps included."""
    q, k, v = heads(o)
    phi = favor(o)
    others = _quadratic(q, k, v, phi.omega, False)
    if peers.have("torch"):
        others |= {"torch, lean": peers.torch_lean_all(q, k, v, phi.omega)}
    if peers.have("performer_pytorch"):
        others |= {"performer-pytorch": peers.performer(q, k, v, phi.omega, causal=False)}
    return Race({"ours": partial(linear_attention, q, k, v, phi), **others}, counts.linear(o, o.features, True, False))


def compiled(o: Sizes, causal: bool) -> Race:
    """Causal elu + 1, or bidirectional FAVOR+, against whole-array torch, compiled; apart: that takes long."""
    q, k, v = heads(o)
    phi: Any = elu1() if causal else favor(o)
    omega = None if causal else phi.omega
    run: Any = causal_linear_attention if causal else linear_attention
    calls = {"ours": partial(run, q, k, v, phi)}
    if peers.compiles() and o.n % CHUNK == 0:
        calls["torch, compiled"] = peers.torch_compiled(q, k, v, omega, causal)
    return Race(calls, counts.linear(o, o.dim if causal else o.features, not causal, causal))


def one_head(o: Sizes) -> Race:
    """One head of 8 n tokens, causal elu + 1: all threads against one."""
    o = o.but(n=8 * o.n, heads=1)
    q, k, v = heads(o)

    call = partial(causal_linear_attention, q, k, v, elu1())
    return Race({"ours": call, "ours, one thread": one_thread(call)}, counts.linear(o, o.dim, False, True))


def strided(o: Sizes) -> Race:
    """Causal FAVOR+ of views of (n, heads, d), as projections of a layer leave them, against (heads, n, d)."""
    q, k, v = (x.transpose(1, 0, 2) for x in normal(o, *3 * [(o.n, o.heads, o.dim)]))
    phi, copies = favor(o), [np.ascontiguousarray(x) for x in (q, k, v)]
    calls = {
        "ours": partial(causal_linear_attention, q, k, v, phi),
        "ours, contiguous": lambda: causal_linear_attention(copies[0], copies[1], copies[2], phi),
    }
    if peers.have("torch") and o.n % CHUNK == 0:
        calls["torch, lean loop"] = peers.torch_lean_favor(q, k, v, phi.omega)
    return Race(calls, counts.linear(o, o.features, True, True))


def softmax(o: Sizes, causal: bool) -> Race:
    """Exact attention, full or causal."""
    q, k, v = heads(o)
    others = {}
    if peers.have("torch"):
        others["torch's scaled_dot_product_attention"] = peers.torch_softmax(q, k, v, causal)
    return Race({"ours": partial(softmax_attention, q, k, v, causal=causal), **others}, counts.softmax(o, causal))


def softmax_token(o: Sizes) -> Race:
    """Exact attention of one query of each head to all keys, as where keys are kept and a token follows."""
    q, k, v = heads(o)
    q = np.ascontiguousarray(q[:, :1])
    others = {}
    if peers.have("torch"):
        others["torch's scaled_dot_product_attention"] = peers.torch_softmax(q, k, v, False)
    pairs, size = float(o.heads * o.n), float(k.nbytes + v.nbytes)
    work = Work(size, 4.0 * pairs * o.dim, pairs, written=float(q.nbytes))
    return Race({"ours": partial(softmax_attention, q, k, v), "NumPy": partial(_by_products, q, k, v), **others}, work)


def softmax_beside(o: Sizes, what: str, token: bool = False) -> Race:
    """Exact attention with a bias of every score, or a random mask of half: of all queries, or of one."""
    q, k, v = heads(o)
    q = np.ascontiguousarray(q[:, :1]) if token else q
    scores = np.random.default_rng(o.seed + 1).standard_normal((q.shape[1], o.n), np.float32).astype(q.dtype)
    beside = scores if what == "bias" else scores > 0
    if what == "bias":
        calls: dict[str, Call] = {"ours": partial(softmax_attention, q, k, v, score_bias=beside)}
    else:
        calls = {
            "ours": partial(softmax_attention, q, k, v, pattern=from_mask(beside)),
            "ours, a new pattern each call": lambda: softmax_attention(q, k, v, pattern=from_mask(beside)),
        }
    if peers.have("torch"):
        calls["torch's scaled_dot_product_attention"] = peers.torch_softmax(q, k, v, False, beside)
    pairs, size = float(o.heads) * beside.size, float(k.nbytes + v.nbytes + beside.nbytes)
    return Race(calls, Work(size, 4.0 * pairs * o.dim, pairs, written=float(q.nbytes)))


def _by_products(q: Any, k: Any, v: Any) -> Any:
    """Two products by NumPy, and the softmax between them in whole arrays."""
    scores = q @ k.swapaxes(-1, -2)
    scores *= q.shape[-1] ** -0.5
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    return scores @ v / scores.sum(axis=-1, keepdims=True)
