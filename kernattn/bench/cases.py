"""What is raced: for every case its inputs, our call, the peers' calls and the work that nobody can avoid."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from kernattn._parallel import VARIABLE
from kernattn.attention import (
    causal_linear_attention,
    key_state,
    linear_attention,
    linear_attention_step,
    softmax_attention,
)
from kernattn.bench import peers
from kernattn.bench.floor import Work
from kernattn.features import FeatureMap, elu1, random_features
from kernattn.kernels import Gaussian, Softmax

__all__ = ["CASES", "Options", "Race"]

CHUNK = 64
DRAWS = 20  # over which squared errors are averaged
Call = Callable[[], Any]


@dataclass(frozen=True)
class Options:
    """Sizes of the inputs."""

    n: int = 4096
    heads: int = 8
    dim: int = 64
    features: int = 256
    dtype: str = "float32"
    seed: int = 0


@dataclass
class Race:
    """Our call, the peers' calls, and the work."""

    ours: Call
    rivals: dict[str, Call]
    work: Work
    errors: dict[str, Callable[[], float]] = field(default_factory=dict)


def _inputs(o: Options) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(o.seed)
    q, k, v = (rng.standard_normal((o.heads, o.n, o.dim)).astype(o.dtype) for _ in range(3))
    return q, k, v


def _favor(o: Options) -> Any:
    return random_features(Softmax(), o.dim, o.features, "positive", rng=o.seed)


def _work(o: Options, features: int, project: bool, inside: bool) -> Work:
    tokens, size = o.heads * o.n, np.dtype(o.dtype).itemsize
    flops = 4.0 * features * o.dim + (4.0 * features * o.dim if project else 0.0)
    if inside:
        flops += 2.0 * CHUNK * (features + o.dim)
    return Work(tokens * flops, tokens * 2.0 * features, tokens * 4.0 * o.dim * size)


def _causal_elu1(o: Options) -> Race:
    """Causal linear attention with elu + 1."""
    q, k, v = _inputs(o)
    rivals: dict[str, Call] = {}
    if peers.have("torch"):
        rivals |= {"torch, lean loop": peers.torch_lean(q, k, v, None)}
        rivals |= {"torch, chunked": peers.torch_chunked(q, k, v, None)}
    return Race(partial(causal_linear_attention, q, k, v, elu1()), rivals, _work(o, o.dim, False, True))


def _causal_favor(o: Options) -> Race:
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


def _full_favor(o: Options) -> Race:
    """Bidirectional FAVOR+, maps included."""
    q, k, v = _inputs(o)
    phi = _favor(o)
    rivals: dict[str, Call] = {}
    if peers.have("torch"):
        rivals |= {"torch, lean": peers.torch_lean_all(q, k, v, phi.omega)}
    if peers.have("performer_pytorch"):
        rivals |= {"performer-pytorch": peers.performer(q, k, v, phi.omega, causal=False)}
    return Race(partial(linear_attention, q, k, v, phi), rivals, _work(o, o.features, True, False))


@contextmanager
def _one_thread() -> Iterator[None]:
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def _one_head(o: Options) -> Race:
    """One head of 8 n tokens, causal elu + 1: all threads against one."""
    o = Options(8 * o.n, 1, o.dim, o.features, o.dtype, o.seed)
    q, k, v = _inputs(o)

    def alone() -> None:
        with _one_thread():
            causal_linear_attention(q, k, v, elu1())

    return Race(
        partial(causal_linear_attention, q, k, v, elu1()), {"ours, one thread": alone}, _work(o, o.dim, False, True)
    )


def _step(o: Options, reuse: bool) -> Race:
    q, k, v = _inputs(Options(32, o.heads, o.dim, o.features, o.dtype, o.seed))
    phi: FeatureMap = elu1()
    state = key_state(k, v, phi)
    q, k, v = (np.ascontiguousarray(x[:, 0]) for x in (q, k, v))
    rivals: dict[str, Call] = {}
    if peers.have("torch"):
        name = "torch, lean, in place" if reuse else "torch, pure"
        rivals[name] = _torch_step(q, k, v, state.s.copy(), state.z.copy(), reuse)
    held = [type(state)(state.s.copy(), state.z.copy(), state.peak.copy(), state.draw) if reuse else state]

    def ours() -> None:
        _, after = linear_attention_step(held[0], q, k, v, phi, reuse_state=reuse)
        if reuse:
            held[0] = after

    size = state.s.nbytes + state.z.nbytes
    return Race(ours, rivals, Work(6.0 * state.s.size, 2.0 * o.heads * o.dim, 2.0 * size))


def _torch_step(q: Any, k: Any, v: Any, s: Any, z: Any, reuse: bool) -> Call:
    torch, (q, k, v, s, z) = peers.torch_of(q, k, v, s, z)
    elu = torch.nn.functional.elu

    def pure() -> Any:
        a, b = elu(q) + 1, elu(k) + 1
        s_new, z_new = s + b[:, :, None] * v[:, None, :], z + b
        out = (a[:, None] @ s_new)[:, 0] / (a * z_new).sum(-1, keepdim=True)
        return out, s_new, z_new

    def in_place() -> Any:
        a, b = elu(q).add_(1), elu(k).add_(1)
        s.baddbmm_(b[:, :, None], v[:, None, :])
        z.add_(b)
        return torch.bmm(a[:, None], s)[:, 0].div_((a * z).sum(-1, keepdim=True))

    return in_place if reuse else pure


def _gaussian_features(o: Options) -> Race:
    """Cosine and sine features of the Gaussian kernel: 5000 x d -> 1024."""
    x = np.random.default_rng(o.seed).standard_normal((5000, o.dim)).astype(o.dtype)
    kernel = Gaussian(lengthscale=float(np.sqrt(o.dim)))
    phi = random_features(kernel, o.dim, 1024, "trigonometric", rng=o.seed)
    race = Race(
        partial(phi, x),
        {},
        Work(2.0 * 5000 * o.dim * 512, 5000 * 1024.0, x.nbytes + 5000 * 1024.0 * x.itemsize),
    )
    rows = x[:300].astype(np.float64)
    exact = kernel(rows)
    race.errors["ours"] = lambda: _squared_error((phi.redraw(seed)(rows) for seed in range(DRAWS)), exact)
    if peers.have("sklearn"):
        rbf_sampler = partial(
            import_module("sklearn.kernel_approximation").RBFSampler, gamma=0.5 / o.dim, n_components=1024
        )
        sampler = rbf_sampler(random_state=o.seed).fit(x)
        race.rivals["scikit-learn's RBFSampler"] = partial(sampler.transform, x)
        race.errors["scikit-learn's RBFSampler"] = lambda: _squared_error(
            (rbf_sampler(random_state=seed).fit_transform(rows) for seed in range(DRAWS)), exact
        )
    return race


def _squared_error(draws: Iterable[Any], exact: Any) -> float:
    return float(np.mean([np.mean((phi @ phi.T - exact) ** 2) for phi in draws]))


def _softmax(o: Options, causal: bool) -> Race:
    q, k, v = _inputs(o)
    rivals: dict[str, Call] = {}
    if peers.have("torch"):
        torch, tensors = peers.torch_of(q, k, v)
        attention = torch.nn.functional.scaled_dot_product_attention
        rivals["torch's scaled_dot_product_attention"] = partial(attention, *tensors, is_causal=causal)
    pairs = o.heads * o.n * (o.n + 1) / 2 if causal else o.heads * o.n * float(o.n)
    work = Work(4.0 * pairs * o.dim, pairs, 4.0 * q.nbytes)
    return Race(partial(softmax_attention, q, k, v, causal=causal), rivals, work)


CASES: dict[str, Callable[[Options], Race]] = {
    "causal-elu1": _causal_elu1,
    "causal-favor": _causal_favor,
    "full-favor": _full_favor,
    "one-head": _one_head,
    "step": partial(_step, reuse=False),
    "step-in-place": partial(_step, reuse=True),
    "gaussian-features": _gaussian_features,
    "softmax": partial(_softmax, causal=False),
    "softmax-causal": partial(_softmax, causal=True),
}
