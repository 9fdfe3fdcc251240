"""Peers, written as well as we can write them: torch loops, and the public packages where these are installed."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import numpy as np

from kernattn._array import Float64
from kernattn._parallel import threads
from kernattn.bench._races import Call
from kernattn.bench._torch import CHUNK, chunked, projection, whole

__all__ = [
    "have",
    "performer",
    "performer_maps_and_chunks",
    "torch_chunked",
    "torch_lean",
    "torch_lean_all",
    "torch_of",
]

LEAN = 32  # tokens of a chunk of the causal lean loop


def have(package: str) -> bool:
    """Whether a peer's package is installed."""
    return find_spec(package) is not None


def torch_of(*arrays: Any) -> Any:
    """Return torch, set to as many threads as ours, and tensors that share the arrays' memory."""
    torch = import_module("torch")
    torch.set_num_threads(threads())
    return torch, [torch.from_numpy(x) for x in arrays]


def torch_chunked(q: Any, k: Any, v: Any, omega: Float64 | None) -> Call:
    """Chunked causal attention as whole-array torch."""
    torch, (q, k, v) = torch_of(q, k, v)
    return partial(whole(torch, omega, q), q, k, v)


def _lean_features(torch: Any, omega: Float64 | None, like: Any) -> Callable[[Any, bool], Any]:
    """Maps of a block, in place.

    They take no maximum of the keys out, which is unsafe at large norms and saves a pass. elu + 1 is put together,
    2^min(x log2 e, 0) + max(x, 0): torch's elu and a sum take twice the time.
    """
    if omega is None:
        base = float(np.log2(np.e))
        return lambda x, _: x.clamp(max=0).mul_(base).exp2_().add_(x.clamp(min=0))
    w, weight = projection(torch, omega, like)

    def features(x: Any, query: bool) -> Any:
        u = torch.matmul(x, w)
        if query:
            u.sub_(u.amax(-1, keepdim=True))
        else:
            u.sub_((x * x).sum(-1, keepdim=True), alpha=weight)
        return u.exp2_()

    return features


def torch_lean(q: Any, k: Any, v: Any, omega: Float64 | None) -> Call:
    """The strongest causal torch we know: a loop over chunks, maps and sums in place, nothing but the output written.

    Chunks of 32 beat those of 64, 128 and 256, heads at once beat a loop over heads, and `out=` into buffers of one's
    own gains nothing over torch's allocator.
    """
    torch, (q, k, v) = torch_of(q, k, v)
    heads, n, dim = q.shape
    mask = torch.tril(torch.ones(LEAN, LEAN, dtype=q.dtype))
    m = dim if omega is None else omega.shape[0]
    features = _lean_features(torch, omega, q)

    def call() -> Any:
        s = torch.zeros(heads, m, v.shape[-1], dtype=q.dtype)
        z = torch.zeros(heads, m, 1, dtype=q.dtype)
        out = torch.empty_like(v)
        for low in range(0, n, LEAN):
            a, b = features(q[:, low : low + LEAN], True), features(k[:, low : low + LEAN], False)
            w = v[:, low : low + LEAN]
            inside = torch.bmm(a, b.transpose(1, 2)).mul_(mask)
            numerator = torch.bmm(a, s).baddbmm_(inside, w)
            denominator = torch.bmm(a, z).add_(inside.sum(-1, keepdim=True))
            torch.div(numerator, denominator, out=out[:, low : low + LEAN])
            s.baddbmm_(b.transpose(1, 2), w)
            z.add_(b.sum(1).unsqueeze(-1))
        return out

    return cast(Call, torch.inference_mode()(call))


def torch_lean_all(q: Any, k: Any, v: Any, omega: Float64) -> Call:
    """The strongest bidirectional torch we know: blocks whose features stay in cache, where whole arrays leave it."""
    torch, (q, k, v) = torch_of(q, k, v)
    features = _lean_features(torch, omega, q)

    def call() -> Any:
        s = torch.zeros(q.shape[0], omega.shape[0], v.shape[-1], dtype=q.dtype)
        z = torch.zeros(q.shape[0], omega.shape[0], 1, dtype=q.dtype)
        out = torch.empty_like(v)
        blocks = [slice(low, low + CHUNK) for low in range(0, q.shape[1], CHUNK)]
        for block in blocks:
            b = features(k[:, block], False)
            s.baddbmm_(b.transpose(1, 2), v[:, block])
            z.add_(b.sum(1).unsqueeze(-1))
        for block in blocks:
            a = features(q[:, block], True)
            torch.div(torch.bmm(a, s), torch.bmm(a, z), out=out[:, block])
        return out

    return cast(Call, torch.inference_mode()(call))


def _performer_pytorch() -> Any:
    with warnings.catch_warnings():  # its import uses what setuptools has deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_module("performer_pytorch.performer_pytorch")


def performer(q: Any, k: Any, v: Any, omega: Float64, causal: bool) -> Call:
    """Attention of performer-pytorch as its users call it."""
    torch, tensors = torch_of(q, k, v)
    module = _performer_pytorch()
    with contextlib.redirect_stdout(io.StringIO()):
        attention = module.FastAttention(q.shape[-1], omega.shape[0], causal=causal)
    attention.projection_matrix.copy_(torch.from_numpy(np.array(omega)))
    q, k, v = (x[None] for x in tensors)
    return lambda: attention(q, k, v)


def performer_maps_and_chunks(q: Any, k: Any, v: Any, omega: Float64) -> Call:
    """Feature maps of performer-pytorch, with chunked torch in place of its slow causal sum."""
    torch, tensors = torch_of(q, k, v)
    module = _performer_pytorch()
    omega_t = torch.from_numpy(np.array(omega)).to(tensors[0].dtype)
    q, k, v = (x[None] for x in tensors)
    mask = torch.tril(torch.ones(CHUNK, CHUNK, dtype=q.dtype))

    def call() -> Any:
        a = module.softmax_kernel(q, projection_matrix=omega_t, is_query=True)
        b = module.softmax_kernel(k, projection_matrix=omega_t, is_query=False)
        return chunked(torch, a, b, v, mask)

    return call
