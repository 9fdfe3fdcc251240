"""Causal attention as whole-array torch, which both devices race: maps, then every chunk at once.

On a CPU torch's exp of a contiguous array is MKL's. On its fastest path (`cpu/mkl.py`) that beats torch's own exp2, by
AVX2 and by AVX-512; as installed it is far slower on a processor of another maker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64

CHUNK = 64


def projection(torch: Any, omega: Float64, like: Any) -> tuple[Any, float]:
    """Return w, (d, m) on the device of `like`, and a weight: exp(omega x - |x|^2 / 2) is exp(x w - weight |x|^2).

    x is scaled by d^(-1/4) first.
    """
    dim = like.shape[-1]
    scaled = np.ascontiguousarray((omega * dim**-0.25).T)
    return torch.as_tensor(scaled).to(like.device, like.dtype), 0.5 * dim**-0.5


def maps(torch: Any, omega: Float64 | None, like: Any) -> Callable[[Any, bool], Any]:
    """elu(x) + 1; or positive features without an epsilon, each query's largest and the keys' largest taken out."""
    if omega is None:
        return lambda x, _: torch.nn.functional.elu(x) + 1
    omega_t, weight = projection(torch, omega, like)

    def features(x: Any, query: bool) -> Any:
        u = x @ omega_t
        if not query:
            u.sub_((x * x).sum(-1, keepdim=True), alpha=weight)
        u.sub_(u.amax(-1, keepdim=True) if query else u.amax((-1, -2), keepdim=True))
        return u.exp_()

    return features


def chunked(torch: Any, a: Any, b: Any, v: Any, mask: Any) -> Any:
    """Attend with features a and b, (..., n, m): chunks at once, states by a cumulative sum in float32 at least."""
    wide = torch.promote_types(v.dtype, torch.float32)
    lead, n = a.shape[:-2], a.shape[-2]
    a, b, w = (x.reshape(*lead, n // CHUNK, CHUNK, x.shape[-1]) for x in (a, b, v))
    s = (b.transpose(-1, -2) @ w).to(wide)
    s = (s.cumsum(-3) - s).to(v.dtype)
    z = b.sum(-2, dtype=wide)
    z = (z.cumsum(-2) - z).to(v.dtype)
    inside = (a @ b.transpose(-1, -2)) * mask
    numerator = a @ s + inside @ w
    denominator = a @ z.unsqueeze(-1) + inside.sum(-1, keepdim=True)
    return (numerator / denominator).reshape(*lead, n, v.shape[-1])


def whole(torch: Any, omega: Float64 | None, like: Any) -> Callable[[Any, Any, Any], Any]:
    """Return causal attention of q, k and v, maps included."""
    mask = torch.tril(torch.ones(CHUNK, CHUNK, dtype=like.dtype, device=like.device))
    features = maps(torch, omega, like)
    return lambda q, k, v: chunked(torch, features(q, True), features(k, False), v, mask)


def bidirectional(torch: Any, omega: Float64 | None, like: Any) -> Callable[[Any, Any, Any], Any]:
    """Return attention of all queries to all keys, maps included."""
    features = maps(torch, omega, like)

    def call(q: Any, k: Any, v: Any) -> Any:
        a, b = features(q, True), features(k, False)
        return (a @ (b.transpose(-1, -2) @ v)) / (a @ b.sum(-2).unsqueeze(-1))

    return call
