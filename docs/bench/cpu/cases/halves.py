"""Arrays of 16 bits beside the same call on float32: "ours" is the call on float32, so ratios are what 16 bits cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench.cpu import gradient_peers, peers
from bench.cpu.cases import counts
from bench.cpu.cases.inputs import elu1_map, favor, heads, normal
from bench.cpu.gated_lean import torch_delta
from bench.cpu.generate.ours import recurrent
from bench.races import Case, Race
from bench.sizes import Sizes
from bench.torch_chunks import CHUNK, bidirectional
from kernattn._arrays.precision import precision
from kernattn._gradients import vjp
from kernattn.attention import (
    causal_linear_attention,
    gated_linear_attention,
    key_state,
    linear_attention,
    linear_attention_step,
    softmax_attention,
)
from kernattn.bench import Work
from kernattn.bench._clock import Call
from kernattn.features import elu1
from kernattn.transformer import Config, cast_params, initial_params

LAYERS, WIDTH = 12, 96  # of the decoder: 85 million weights with 8 heads, more than caches hold
SOLVED = 16  # tokens of a chunk of the delta rule in torch

_Maps = Callable[[Sizes], Any]


def _formats() -> dict[str, Any]:
    """Return the dtypes of 16 bits by name; bfloat16 where its package is installed."""
    found = {"bfloat16": import_module("ml_dtypes").bfloat16} if peers.have("ml_dtypes") else {}
    return found | {"float16": np.float16}


def _beside(call: Callable[..., Any], *arrays: Any, by_unit: bool = False) -> dict[str, Call]:
    """Return a call on float32 arrays, and on the same arrays in each format of 16 bits.

    What the matrix unit serves, where there is one, is also called with weights of one bfloat16, which is asked for.
    """
    calls = {"ours": partial(call, *arrays)}
    for name, dtype in _formats().items():
        calls[f"ours, {name}"] = partial(call, *(x.astype(dtype) for x in arrays))
    if by_unit and "ours, bfloat16" in calls and import_module("kernattn.ops._numba.matrix.unit").why_not() is None:
        two_parts = calls["ours, bfloat16"]

        def one_part() -> Any:
            with precision("bfloat16"):
                return two_parts()

        calls["ours, bfloat16, one part"] = one_part
    return calls


def _linear(o: Sizes, make: _Maps, causal: bool, both: bool = False) -> Race:
    """Linear attention on arrays of 16 bits, beside float32."""
    q, k, v, g = heads(o, 4)
    phi = make(o)
    run: Any = causal_linear_attention if causal else linear_attention
    m, project = (o.features, True) if phi.dim else (o.dim, False)
    work = counts.linear(o, m, project, causal)
    if not both:
        others = _lean(q, k, v, getattr(phi, "omega", None), causal) if o.n % CHUNK == 0 else {}
        return Race(_beside(lambda *x: run(*x, phi), q, k, v, by_unit=True) | others, work)

    def back(q: Any, k: Any, v: Any, g: Any) -> Any:
        return vjp(run, q, k, v, phi)[1]((g, None) if causal else g)

    others: dict[str, Call] = {}
    if peers.have("torch") and o.n % CHUNK == 0 and causal:
        build = partial(gradient_peers.torch_autograd, omega=getattr(phi, "omega", None))
        others = _of_both("torch, autograd", build, q, k, v, g)
    return Race(_beside(back, q, k, v, g) | others, counts.both(work, counts.linear_backward(o, m, project, causal)))


def _lean(q: Any, k: Any, v: Any, omega: Any, causal: bool) -> dict[str, Call]:
    """Return torch's lean form by name: in bfloat16, with sums in bfloat16 too, and cast to float32."""
    if not peers.have("torch"):
        return {}

    def build(*rows: Any) -> Call:
        if causal:
            return peers.torch_lean_elu1(*rows) if omega is None else peers.torch_lean_favor(*rows, omega)
        if omega is not None:
            return peers.torch_lean_all(*rows, omega)
        torch, rows = peers.torch_of(*rows)
        return partial(torch.inference_mode()(bidirectional(torch, None, rows[0])), *rows)

    return _of_both("torch, lean", build, q, k, v)


def _of_both(name: str, build: Callable[..., Call], *arrays: Any) -> dict[str, Call]:
    """Return a peer on rows of bfloat16, and the same on float32 rows, cast in each call, as its results are back."""
    rows = [peers.in_bfloat16(x) for x in arrays]

    def cast() -> Any:
        out = build(*(x.float() for x in rows))()
        return tuple(x.bfloat16() for x in out) if isinstance(out, tuple) else out.bfloat16()

    return {f"{name}, bfloat16": build(*rows), f"{name}, bfloat16, cast to float32": cast}


def _softmax(o: Sizes, causal: bool, both: bool = False) -> Race:
    """Exact attention on arrays of 16 bits, beside float32."""
    q, k, v, g = heads(o, 4)
    work = counts.softmax(o, causal)
    others: dict[str, Call] = {}
    name, torch = "torch's scaled_dot_product_attention", peers.have("torch")
    if not both:
        if torch:
            others = _of_both(name, partial(peers.torch_softmax, causal=causal), q, k, v)
        return Race(_beside(partial(softmax_attention, causal=causal), q, k, v, by_unit=True) | others, work)

    def back(q: Any, k: Any, v: Any, g: Any) -> Any:
        return vjp(softmax_attention, q, k, v, causal=causal)[1](g)

    if torch:
        others = _of_both(name, partial(gradient_peers.torch_softmax_gradients, causal=causal), q, k, v, g)
    return Race(_beside(back, q, k, v, g) | others, counts.both(work, counts.softmax_backward(o, causal)))


def _by_products(*arrays: Any) -> Call:
    """Return two products of bfloat16 by PyTorch, and the softmax between them in float32."""
    q, k, v = (peers.in_bfloat16(x) for x in arrays)
    scale = q.shape[-1] ** -0.5
    return lambda: ((q @ k.transpose(-1, -2)).float() * scale).softmax(-1).to(v.dtype) @ v


def _queries(o: Sizes, rows: int) -> Race:
    """Exact attention of a few queries to n keys, as in decoding; PyTorch's also on float32 arrays."""
    q, k, v = heads(o, 3)
    q = np.ascontiguousarray(q[..., :rows, :])
    name, others = "torch's scaled_dot_product_attention", dict[str, Call]()
    if peers.have("torch"):
        others = {name: peers.torch_softmax(q, k, v, False)}
        others |= _of_both(name, partial(peers.torch_softmax, causal=False), q, k, v)
        others["torch's products, bfloat16"] = _by_products(q, k, v)
    size = float(q.itemsize * o.dim * o.heads)
    pairs = float(rows * o.heads * o.n)
    work = Work(size * 2 * (o.n + rows), 4.0 * o.dim * pairs, pairs, written=size * rows)
    return Race(_beside(softmax_attention, q, k, v) | others, work)


def _features(o: Sizes) -> Race:
    """Positive features of rows of 16 bits, beside float32."""
    (x,) = normal(o, (o.heads, o.n, o.dim))
    phi, m = favor(o), o.features
    size = x.itemsize * float(o.tokens)
    work = Work(size * (o.dim + m), 2.0 * m * o.dim * o.tokens, o.tokens * float(m), written=size * m)
    return Race(_beside(phi, x), work)


def _gated(o: Sizes) -> Race:
    """The gated delta rule on arrays of 16 bits, beside float32."""
    q, k, v, g, beta = normal(o, *3 * [(o.heads, o.n, o.dim)], *2 * [(o.heads, o.n)])
    k /= np.linalg.norm(k, axis=-1, keepdims=True)

    def call(q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
        return gated_linear_attention(q, k, v, g=g, beta=beta)

    size = 4.0 * q.itemsize * o.tokens * o.dim
    flops = o.tokens * (6.0 * o.dim * o.dim + 64.0 * o.dim)
    arrays = q, k, v, -np.exp(g), 1 / (1 + np.exp(beta))
    others: dict[str, Call] = {}
    if peers.have("torch") and o.n % SOLVED == 0:
        rows = [peers.in_bfloat16(x) for x in arrays]

        def cast() -> Any:
            return torch_delta([x.float() for x in rows], SOLVED)().bfloat16()

        others["torch, lean, bfloat16, cast to float32"] = cast  # of bfloat16 torch solves no system
    return Race(_beside(call, *arrays) | others, Work(size, flops))


def _step(o: Sizes, make: _Maps) -> Race:
    """A token of every head in 16 bits, beside float32, against a state of 32 in float32."""
    q, k, v = normal(o, *3 * [(o.heads, 32, o.dim)])
    phi = make(o)
    state = key_state(k, v, phi)
    tokens = [np.ascontiguousarray(x[:, 0]) for x in (q, k, v)]
    work = counts.step(state, getattr(phi, "omega", None))
    return Race(_beside(lambda q, k, v: linear_attention_step(state, q, k, v, phi), *tokens), work)


def _decoded(o: Sizes, batch: int) -> Race:
    """A token of every sequence through a transformer whose weights have 16 bits, beside float32."""
    config = Config(dim=WIDTH * o.heads, layers=LAYERS, heads=o.heads, vocab=512, positions=None, bias=False)
    params = initial_params(config, rng=o.seed)
    tokens = np.random.default_rng(o.seed).integers(512, size=batch)
    calls = {"ours": recurrent(params, config, tokens, elu1())}
    for name in _formats():
        calls[f"ours, {name}"] = recurrent(cast_params(params, name), config, tokens, elu1())
    if peers.have("torch"):
        calls |= _products(params, batch)
    weights = float(sum(x.size for name, x in params.items() if not name.startswith("embed")))
    return Race(calls, Work(4.0 * weights, 2.0 * batch * weights), dim=WIDTH)


def _products(params: Any, batch: int) -> dict[str, Call]:
    """The products of a step by torch, in bfloat16, matrix by matrix: as `linear` has them, and of packed weights.

    Packed is how `torch.compile` leaves frozen weights to oneDNN, in the order of their use, which takes AVX-512.
    """
    matrices = [x for name, x in params.items() if x.ndim == 2 and not name.startswith("embed")]
    torch, weights = peers.torch_of(*(peers.in_bfloat16(np.ascontiguousarray(x.T)) for x in matrices))
    rows = [torch.ones(batch, weight.shape[1], dtype=weight.dtype) for weight in weights]

    def call() -> Any:
        return [torch.nn.functional.linear(x, weight) for x, weight in zip(rows, weights, strict=True)][-1]

    calls = {"torch, its products alone, bfloat16": torch.inference_mode()(call)}
    if torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        packed = [torch.ops.mkldnn._reorder_linear_weight(weight, batch) for weight in weights]
        multiply = torch.ops.mkldnn._linear_pointwise

        def of_packed() -> Any:
            return [multiply(x, w, None, "none", [], "") for x, w in zip(rows, packed, strict=True)][-1]

        calls["torch, its products alone, packed, bfloat16"] = torch.inference_mode()(of_packed)
    return calls


_MAPS: dict[str, tuple[str, _Maps]] = {"elu1": ("elu + 1", elu1_map), "favor": ("FAVOR+", favor)}

HALVES = {
    **{
        f"half-{way}-{name}": Case(partial(_linear, make=make, causal=causal), told=f"{said}, {told}")
        for name, (told, make) in _MAPS.items()
        for way, said, causal in (("causal", "causal", True), ("full", "bidirectional", False))
    },
    "half-softmax": Case(partial(_softmax, causal=False)),
    "half-softmax-causal": Case(partial(_softmax, causal=True)),
    **{f"half-softmax-{rows}": Case(partial(_queries, rows=rows), told=f"queries: {rows}") for rows in (1, 4, 16)},
    **{
        f"half-causal-{name}-both-ways": Case(
            partial(_linear, make=make, causal=True, both=True), told=f"causal, {told}, both ways"
        )
        for name, (told, make) in _MAPS.items()
    },
    "half-softmax-causal-both-ways": Case(partial(_softmax, causal=True, both=True)),
    "half-features": Case(_features),
    "half-gated": Case(_gated),
    **{f"half-step-{name}": Case(partial(_step, make=make), n=1, told=told) for name, (told, make) in _MAPS.items()},
    **{
        f"half-decode-{batch}": Case(partial(_decoded, batch=batch), n=1, told=f"sequences: {batch}")
        for batch in (1, 16, 32)
    },
}
"""The cases by name."""
