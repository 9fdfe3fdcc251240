"""What is raced on a GPU: for every case its sets of inputs, the contestants' passes over them, the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from bench.gpu import counts, peers
from bench.gpu.clock import captured
from bench.gpu.products import numpy_dtype
from bench.races import Case, Race
from bench.sizes import Sizes
from bench.torch_chunks import CHUNK, whole
from kernattn._arrays.namespaces import Array
from kernattn.attention import (
    causal_linear_attention,
    gated_linear_attention,
    initial_state,
    linear_attention_step,
    softmax_attention,
)
from kernattn.bench import Work
from kernattn.bench._clock import Call
from kernattn.features import FeatureMap, elu1, random_features
from kernattn.kernels import Gaussian, Softmax

WIDE = 1024  # dimension of the rows of the case hadamard


def _over(inputs: Sequence[Any], call: Callable[..., Any]) -> Call:
    """Return a pass: a call for every set of inputs, all outputs held until its end, so that none is written twice."""
    return lambda: [call(*x) for x in inputs]


def _arrays(sizes: Sizes, work: Work, shapes: Sequence[tuple[int, ...]]) -> list[list[Array]]:
    """Return as many sets of arrays, (batch, heads, *shape), as pass the cache; all heads of an array hold the same."""
    import cupy

    rng, dtype = np.random.default_rng(sizes.seed), numpy_dtype(sizes.array_dtype)
    lead = (sizes.batch, sizes.heads)

    def array(shape: tuple[int, ...]) -> Array:
        rows = cupy.asarray(rng.standard_normal(shape, dtype=np.float32).astype(dtype))
        return cupy.ascontiguousarray(cupy.broadcast_to(rows, (*lead, *shape)))

    return [[array(shape) for shape in shapes] for _ in range(_sets(work))]


def _rival(make: Callable[[], Call]) -> Call:
    """Return the pass of a rival, or where it cannot be made one that says why, in the rival's row."""
    try:
        return make()
    except Exception as error:
        why = error

        def fails() -> Any:
            raise why

        return fails


def _sets(work: Work) -> int:
    """Return how many sets of inputs a pass cycles through, to pass the device's largest cache."""
    import cupy

    return counts.sets_to_pass_the_cache(work.bytes, int(cupy.cuda.Device().attributes["L2CacheSize"]))


def _favor(sizes: Sizes) -> Any:
    """Return the map of FAVOR+."""
    return random_features(Softmax(), sizes.dim, sizes.features, "positive", rng=sizes.seed)


def _causal(sizes: Sizes, project: bool) -> Race:
    """Causal FAVOR+ where rows are projected, else elu + 1; maps included."""
    phi: Any = _favor(sizes) if project else elu1()
    omega, features = (phi.omega, sizes.features) if project else (None, sizes.dim)
    work = counts.causal_work(sizes, features, project)
    inputs = _arrays(sizes, work, [(sizes.n, sizes.dim)] * 3)
    others = {}
    if sizes.n % CHUNK == 0:
        composed = partial(peers.cupy_chunked, omega, sizes.dtype, sizes.dim)
        others["cuBLAS and CuPy, chunked"] = _rival(lambda: _over(inputs, composed()))
    torch = peers.torch_of(sizes.dtype)
    if torch is not None:
        given = [peers.tensors(torch, x) for x in inputs]
        if sizes.n % CHUNK == 0:
            others["torch, chunked"] = _rival(lambda: _over(given, whole(torch, omega, given[0][0])))
        if not project:
            exact = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
            others["torch's exact attention"] = _over(given, exact)
        if peers.has_fla(features):
            rows = [(sizes.n, features)] * 2 + [(sizes.n, sizes.dim)]

            def fla() -> Call:
                call, prepare = peers.fla_chunk()
                return _over([[prepare(x) for x in peers.tensors(torch, y)] for y in _arrays(sizes, work, rows)], call)

            others["flash-linear-attention, no map, no normaliser"] = _rival(fla)
    ours = _over(inputs, lambda q, k, v: causal_linear_attention(q, k, v, phi))
    return Race({"ours": ours, **others}, work, len(inputs))


def _gated(sizes: Sizes, channels: bool) -> Race:
    """The gated delta rule, one decay a head; or a decay a channel, as Kimi Delta Attention has it."""
    import cupy

    work = counts.gated_work(sizes, channels)
    inputs = _arrays(sizes, work, [(sizes.n, sizes.dim)] * 3)
    rng, shape = np.random.default_rng(sizes.seed), (sizes.batch, sizes.heads, sizes.n)
    logs = -np.exp(rng.standard_normal((*shape, sizes.dim) if channels else shape, dtype=np.float32))
    decay, beta = cupy.asarray(logs), cupy.asarray(rng.random(shape, dtype=np.float32))
    short = np.asarray(sizes.dim**-0.5, inputs[0][1].dtype)  # keys of about unit norm
    given = [[q, k * cupy.asarray(short), v, decay, beta] for q, k, v in inputs]

    def ours(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Any:
        return gated_linear_attention(q, k, v, beta=beta, **{"gk" if channels else "g": g})

    calls: dict[str, Call] = {"ours": _over(given, ours)}
    torch = peers.torch_of(sizes.dtype)
    if torch is not None and peers.has_fla(sizes.dim):

        def fla() -> Call:
            call, prepare = peers.fla_gated(channels)
            return _over([[prepare(x) for x in peers.tensors(torch, y)] for y in given], call)

        calls["flash-linear-attention"] = _rival(fla)
    return Race(calls, work, len(given))


def _features(sizes: Sizes) -> Race:
    """FAVOR+ features of every token."""
    phi = _favor(sizes)
    work = counts.features_work(sizes.tokens, sizes.dim, sizes.features, sizes.itemsize)
    inputs = _arrays(sizes, work, [(sizes.n, sizes.dim)])
    composed = partial(peers.cupy_features, phi.omega, sizes.dtype, sizes.dim)
    others = {"cuBLAS and CuPy": _rival(lambda: _over(inputs, composed()))}
    torch = peers.torch_of(sizes.dtype)
    if torch is not None:
        given = [peers.tensors(torch, x) for x in inputs]
        others["torch"] = _rival(lambda: _over(given, peers.torch_features(torch, phi.omega, given[0][0])))
    return Race({"ours": _over(inputs, phi), **others}, work, len(inputs))


def _step(sizes: Sizes, project: bool) -> Race:
    """A token of every head, in place: FAVOR+ where it is projected, else elu + 1."""
    import cupy

    phi: FeatureMap = _favor(sizes) if project else elu1()
    features = sizes.features if project else sizes.dim
    work = counts.step_work(sizes, features, features if project else 1)
    inputs = _arrays(sizes, work, [(sizes.dim,)] * 3)
    held, outs = [], []
    for q, k, v in inputs:
        state = initial_state(phi, (sizes.batch, sizes.heads), sizes.dim, like=q)
        held.append(linear_attention_step(state, q, k, v, phi)[1])
        outs.append(cupy.empty_like(v))

    def ours() -> list[Array]:
        for (q, k, v), state, out in zip(inputs, held, outs, strict=True):
            linear_attention_step(state, q, k, v, phi, reuse_state=True, out=out)
        return outs

    calls: dict[str, Call] = {"ours": captured(ours), "ours, launched one by one": ours}
    torch = peers.torch_of(sizes.dtype)
    if torch is not None and not project:
        sums = [peers.tensors(torch, (state.s.copy(), state.z[..., None].copy())) for state in held]
        given = [[*peers.tensors(torch, x), *y] for x, y in zip(inputs, sums, strict=True)]
        calls["torch, in place"] = _over(given, peers.torch_step(torch))
        calls["torch, in place, in a graph"] = _rival(lambda: _torch_graph(torch, calls["torch, in place"]))
    return Race(calls, work, len(inputs))


def _torch_graph(torch: Any, call: Call) -> Call:
    """Return a pass that replays a graph, as torch's pages say: after a turn on another stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    replay: Call = graph.replay
    return replay


def _softmax(sizes: Sizes, causal: bool) -> Race:
    """Exact attention, full or causal."""
    work = counts.attention_work(sizes, causal)
    inputs = _arrays(sizes, work, [(sizes.n, sizes.dim)] * 3)
    others = {}
    torch = peers.torch_of(sizes.dtype)
    if torch is not None:
        exact = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=causal)
        others["torch's scaled_dot_product_attention"] = _over([peers.tensors(torch, x) for x in inputs], exact)
    ours = _over(inputs, partial(softmax_attention, causal=causal))
    return Race({"ours": ours, **others}, work, len(inputs))


def _hadamard(sizes: Sizes) -> Race:
    """Cosine and sine features of rows of 1024 numbers, as many numbers as q has, under chains of transforms."""
    n = max(1, sizes.n * sizes.dim // WIDE)
    work = counts.hadamard_work(sizes.sequences * n, WIDE, 2 * WIDE, sizes.itemsize)
    inputs = _arrays(sizes, work, [(n, WIDE)])
    kernel = Gaussian(lengthscale=float(np.sqrt(WIDE)))
    draw = partial(random_features, kernel, WIDE, 2 * WIDE, "trigonometric", rng=sizes.seed)
    chains, dense = draw(projection="hadamard"), draw(projection="iid")
    calls = {"ours": _over(inputs, chains), "ours, dense frequencies": _over(inputs, dense)}
    return Race(calls, work, len(inputs))


CASES = {
    "causal-elu1": Case(partial(_causal, project=False)),
    "causal-favor": Case(partial(_causal, project=True)),
    "gated-delta": Case(partial(_gated, channels=False)),
    "gated-channels-delta": Case(partial(_gated, channels=True), told="a decay for each channel"),
    "features": Case(_features),
    "step-elu1": Case(partial(_step, project=False), n=1),
    "step-favor": Case(partial(_step, project=True), n=1),
    "softmax": Case(partial(_softmax, causal=False)),
    "softmax-causal": Case(partial(_softmax, causal=True)),
    "hadamard": Case(_hadamard),
}
