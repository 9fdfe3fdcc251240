"""Peers, written as well as we can write them: torch loops, and the public packages where these are installed."""

from __future__ import annotations

import contextlib
import io
import warnings
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from kernattn._array import Host
from kernattn._parallel import threads
from kernattn.bench._races import Call
from kernattn.bench._torch import CHUNK, chunked, maps, projection, whole

__all__ = [
    "have",
    "performer",
    "performer_maps_and_chunks",
    "torch_chunked",
    "torch_lean",
    "torch_lean_all",
    "torch_of",
]


def have(package: str) -> bool:
    """Whether a peer's package is installed."""
    return find_spec(package) is not None


def torch_of(*arrays: Any) -> Any:
    """Return torch, set to as many threads as ours, and tensors that share the arrays' memory."""
    torch = import_module("torch")
    torch.set_num_threads(threads())
    return torch, [torch.from_numpy(x) for x in arrays]


def torch_chunked(q: Any, k: Any, v: Any, omega: Host | None) -> Call:
    """Chunked causal attention as whole-array torch."""
    torch, (q, k, v) = torch_of(q, k, v)
    return partial(whole(torch, omega, q), q, k, v)


def torch_lean(q: Any, k: Any, v: Any, omega: Host | None) -> Call:
    """The strongest causal torch we know: a loop over chunks, maps and sums in place, nothing but the output written.

    Its positive features take no maximum of the keys out, which is unsafe at large norms and saves it a pass.
    """
    torch, (q, k, v) = torch_of(q, k, v)
    heads, n, dim = q.shape
    mask = torch.tril(torch.ones(CHUNK, CHUNK, dtype=q.dtype))
    features = dim if omega is None else omega.shape[0]
    omega_t, weight = (None, 0.0) if omega is None else projection(torch, omega, q)

    def feature(x: Any, query: bool) -> Any:
        if omega_t is None:
            return torch.nn.functional.elu(x).add_(1)
        u = torch.matmul(x, omega_t)
        if query:
            u.sub_(u.amax(-1, keepdim=True))
        else:
            u.sub_((x * x).sum(-1, keepdim=True), alpha=weight)
        return u.exp_()

    def call() -> Any:
        s = torch.zeros(heads, features, v.shape[-1], dtype=q.dtype)
        z = torch.zeros(heads, features, 1, dtype=q.dtype)
        out = torch.empty_like(v)
        for low in range(0, n, CHUNK):
            a, b = feature(q[:, low : low + CHUNK], True), feature(k[:, low : low + CHUNK], False)
            w = v[:, low : low + CHUNK]
            inside = torch.bmm(a, b.transpose(1, 2)).mul_(mask)
            numerator = torch.bmm(a, s).baddbmm_(inside, w)
            denominator = torch.bmm(a, z).add_(inside.sum(-1, keepdim=True))
            torch.div(numerator, denominator, out=out[:, low : low + CHUNK])
            s.baddbmm_(b.transpose(1, 2), w)
            z.add_(b.sum(1).unsqueeze(-1))
        return out

    return call


def torch_lean_all(q: Any, k: Any, v: Any, omega: Host) -> Call:
    """The strongest bidirectional torch we know: positive features in place, two products."""
    torch, (q, k, v) = torch_of(q, k, v)
    features = maps(torch, omega, q)

    def call() -> Any:
        b = features(k, False)
        s, z = torch.bmm(b.transpose(1, 2), v), b.sum(1).unsqueeze(-1)
        a = features(q, True)
        return torch.bmm(a, s).div_(torch.bmm(a, z))

    return call


def _performer_pytorch() -> Any:
    with warnings.catch_warnings():  # its import uses what setuptools has deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_module("performer_pytorch.performer_pytorch")


def performer(q: Any, k: Any, v: Any, omega: Host, causal: bool) -> Call:
    """Attention of performer-pytorch as its users call it."""
    torch, tensors = torch_of(q, k, v)
    module = _performer_pytorch()
    with contextlib.redirect_stdout(io.StringIO()):
        attention = module.FastAttention(q.shape[-1], omega.shape[0], causal=causal)
    attention.projection_matrix.copy_(torch.from_numpy(np.array(omega)))
    q, k, v = (x[None] for x in tensors)
    return lambda: attention(q, k, v)


def performer_maps_and_chunks(q: Any, k: Any, v: Any, omega: Host) -> Call:
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
