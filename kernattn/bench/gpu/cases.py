"""What is raced on a GPU: for every case its sets of inputs, a pass of ours over them, the rivals' passes, the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kernattn._array import Array
from kernattn.attention import causal_linear_attention, initial_state, linear_attention_step, softmax_attention
from kernattn.bench.gpu import rivals, work
from kernattn.bench.gpu.clock import Pass, captured
from kernattn.bench.gpu.products import numpy_dtype
from kernattn.bench.gpu.work import Sizes, Work
from kernattn.features import FeatureMap, elu1, random_features
from kernattn.kernels import Gaussian, Softmax

__all__ = ["CASES", "Race"]

WIDE = 1024  # dimension of the rows of the case hadamard


@dataclass(frozen=True, eq=False)
class Race:
    """Passes over `sets` calls, ours first, and the work of one call."""

    ours: Mapping[str, Pass]
    rivals: Mapping[str, Pass]
    sets: int
    work: Work


def _over(inputs: Sequence[Any], call: Callable[..., Any]) -> Pass:
    """Return a pass: a call for every set of inputs, all outputs held until its end, so that none is written twice."""
    return lambda: [call(*x) for x in inputs]


def _arrays(sizes: Sizes, work: Work, shapes: Sequence[tuple[int, ...]], cache: int) -> list[list[Array]]:
    """Return as many sets of arrays, (batch, heads, *shape), as pass the cache; all heads of an array hold the same."""
    import cupy

    rng, dtype = np.random.default_rng(sizes.seed), numpy_dtype(sizes.array_dtype)
    lead = (sizes.batch, sizes.heads)

    def array(shape: tuple[int, ...]) -> Array:
        rows = cupy.asarray(rng.standard_normal(shape, dtype=np.float32).astype(dtype))
        return cupy.ascontiguousarray(cupy.broadcast_to(rows, (*lead, *shape)))

    count = _sets(work, cache)
    return [[array(shape) for shape in shapes] for _ in range(count)]


def _sets(count: Work, cache: int) -> int:
    """Return how many sets of inputs a pass cycles through."""
    return work.sets_to_pass_the_cache(count.bytes, cache)


def _favor(sizes: Sizes) -> Any:
    """Return the map of FAVOR+."""
    return random_features(Softmax(), sizes.dim, sizes.features, "positive", rng=sizes.seed)


def _causal(sizes: Sizes, cache: int, project: bool) -> Race:
    phi: Any = _favor(sizes) if project else elu1()
    omega, features = (phi.omega, sizes.features) if project else (None, sizes.dim)
    count = work.causal_work(sizes, features, project)
    inputs = _arrays(sizes, count, [(sizes.n, sizes.dim)] * 3, cache)
    found = {}
    if sizes.n % rivals.CHUNK == 0:
        found["cuBLAS and CuPy, chunked"] = _over(inputs, rivals.cupy_chunked(omega, sizes.dtype, sizes.dim))
    torch = rivals.torch_of(sizes.dtype)
    if torch is not None:
        given = [rivals.tensors(torch, x) for x in inputs]
        if sizes.n % rivals.CHUNK == 0:
            found["torch, chunked"] = _over(given, rivals.torch_chunked(torch, omega, given[0][0]))
        if not project:
            exact = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
            found["torch's exact attention"] = _over(given, exact)
        fla = rivals.fla_chunk(torch, features)
        if fla is not None:
            call, prepare = fla
            rows = [(sizes.n, features)] * 2 + [(sizes.n, sizes.dim)]
            ready = [[prepare(x) for x in rivals.tensors(torch, y)] for y in _arrays(sizes, count, rows, cache)]
            found["flash-linear-attention, no map, no normaliser"] = _over(ready, call)
    ours = _over(inputs, lambda q, k, v: causal_linear_attention(q, k, v, phi))
    return Race({"ours": ours}, found, len(inputs), count)


def _features(sizes: Sizes, cache: int) -> Race:
    """FAVOR+ features of every token."""
    phi = _favor(sizes)
    count = work.features_work(sizes.tokens, sizes.dim, sizes.features, sizes.itemsize)
    inputs = _arrays(sizes, count, [(sizes.n, sizes.dim)], cache)
    found = {"cuBLAS and CuPy": _over(inputs, rivals.cupy_features(phi.omega, sizes.dtype, sizes.dim))}
    torch = rivals.torch_of(sizes.dtype)
    if torch is not None:
        given = [rivals.tensors(torch, x) for x in inputs]
        found["torch"] = _over(given, rivals.torch_features(torch, phi.omega, given[0][0]))
    return Race({"ours": _over(inputs, phi)}, found, len(inputs), count)


def _step(sizes: Sizes, cache: int, project: bool) -> Race:
    import cupy

    phi: FeatureMap = _favor(sizes) if project else elu1()
    features = sizes.features if project else sizes.dim
    count = work.step_work(sizes, features, features if project else 1)
    inputs = _arrays(sizes, count, [(sizes.dim,)] * 3, cache)
    held, outs = [], []
    for q, k, v in inputs:
        state = initial_state(phi, (sizes.batch, sizes.heads), sizes.dim, like=q)
        held.append(linear_attention_step(state, q, k, v, phi)[1])
        outs.append(cupy.empty_like(v))

    def ours() -> list[Array]:
        for (q, k, v), state, out in zip(inputs, held, outs, strict=True):
            linear_attention_step(state, q, k, v, phi, reuse_state=True, out=out)
        return outs

    mine: dict[str, Pass] = {"ours": captured(ours), "ours, launched one by one": ours}
    found: dict[str, Pass] = {}
    torch = rivals.torch_of(sizes.dtype)
    if torch is not None and not project:
        sums = [rivals.tensors(torch, (state.s.copy(), state.z[..., None].copy())) for state in held]
        given = [[*rivals.tensors(torch, x), *y] for x, y in zip(inputs, sums, strict=True)]
        found["torch, in place"] = _over(given, rivals.torch_step(torch))
        found["torch, in place, in a graph"] = _torch_graph(torch, found["torch, in place"])
    return Race(mine, found, len(inputs), count)


def _torch_graph(torch: Any, work: Pass) -> Pass:
    """Return a pass that replays a graph, as torch's pages say: after a turn on another stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replay: Pass = graph.replay
    return replay


def _softmax(sizes: Sizes, cache: int, causal: bool) -> Race:
    count = work.attention_work(sizes, causal)
    inputs = _arrays(sizes, count, [(sizes.n, sizes.dim)] * 3, cache)
    found = {}
    torch = rivals.torch_of(sizes.dtype)
    if torch is not None:
        exact = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=causal)
        found["torch's scaled_dot_product_attention"] = _over([rivals.tensors(torch, x) for x in inputs], exact)
    return Race({"ours": _over(inputs, partial(softmax_attention, causal=causal))}, found, len(inputs), count)


def _hadamard(sizes: Sizes, cache: int) -> Race:
    """Cosine and sine features of rows of 1024 numbers, as many numbers as q has, under chains of transforms."""
    n = max(1, sizes.n * sizes.dim // WIDE)
    count = work.hadamard_work(sizes.sequences * n, WIDE, 2 * WIDE, sizes.itemsize)
    inputs = _arrays(sizes, count, [(n, WIDE)], cache)
    kernel = Gaussian(lengthscale=float(np.sqrt(WIDE)))
    draw = partial(random_features, kernel, WIDE, 2 * WIDE, "trigonometric", rng=sizes.seed)
    chains, dense = draw(projection="hadamard"), draw(projection="iid")
    return Race({"ours": _over(inputs, chains)}, {"ours, dense frequencies": _over(inputs, dense)}, len(inputs), count)


CASES: dict[str, Callable[[Sizes, int], Race]] = {
    "causal-elu1": partial(_causal, project=False),
    "causal-favor": partial(_causal, project=True),
    "features": _features,
    "step-elu1": partial(_step, project=False),
    "step-favor": partial(_step, project=True),
    "softmax": partial(_softmax, causal=False),
    "softmax-causal": partial(_softmax, causal=True),
    "hadamard": _hadamard,
}
