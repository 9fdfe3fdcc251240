"""Peers on a GPU, as well as we can write them: torch, flash-linear-attention, and cuBLAS composed with CuPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from bench.gpu.products import matmul
from bench.torch_chunks import CHUNK, projection
from kernattn._arrays.namespaces import Array, Float64

Call = Callable[..., Any]


def torch_of(dtype: str) -> Any:
    """Return torch, told how to multiply float32, or None where it has no device."""
    if find_spec("torch") is None:
        return None
    torch = import_module("torch")
    if not torch.cuda.is_available():
        return None
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    return torch


def tensors(torch: Any, arrays: Sequence[Array]) -> list[Any]:
    """Return tensors that share the arrays' memory."""

    def shared(x: Array) -> Any:
        if x.dtype.name == "bfloat16":
            return torch.from_dlpack(x.view(np.int16)).view(torch.bfloat16)
        return torch.from_dlpack(x)

    return [shared(x) for x in arrays]


# ---- causal linear attention ----


def has_fla(features: int) -> bool:
    """Return whether flash-linear-attention is installed and takes so many features."""
    return find_spec("fla") is not None and features <= 256


def fla_chunk() -> tuple[Call, Callable[[Any], Any]]:
    """flash-linear-attention's chunk kernel on given features, without normaliser, and what prepares its inputs."""
    kernel = import_module("fla.ops.linear_attn").chunk_linear_attn
    return lambda q, k, v: kernel(q, k, v, normalize=False), lambda x: x.transpose(1, 2).contiguous()


def fla_gated(channels: bool) -> tuple[Call, Callable[[Any], Any]]:
    """flash-linear-attention's chunk kernel of the gated delta rule, or of KDA, and what prepares its inputs."""
    if channels:
        kernel = import_module("fla.ops.kda").chunk_kda
    else:
        kernel = import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
    return (
        lambda q, k, v, g, beta: kernel(q, k, v, g, beta, output_final_state=True),
        lambda x: x.transpose(1, 2).contiguous(),
    )


def cupy_chunked(omega: Float64 | None, dtype: str, dim: int) -> Call:
    """The same chunks by cuBLAS, with CuPy's array expressions in float32 around the products."""
    import cupy

    projection = None if omega is None else (omega * dim**-0.25).astype(np.float32)
    weight = np.float32(0.5 * dim**-0.5)
    mask = cupy.asarray(np.tri(CHUNK, dtype=np.float32))

    def maps(x: Array, query: bool) -> Array:
        wide = x.astype(cupy.float32)
        if projection is None:
            return (cupy.maximum(wide, 0) + cupy.exp(cupy.minimum(wide, 0))).astype(x.dtype)
        omega_t = cupy.asarray(projection).astype(x.dtype)
        u = matmul(x, omega_t, dtype, transpose_b=True).astype(cupy.float32)
        if not query:
            u -= weight * cupy.sum(wide * wide, axis=-1, keepdims=True)
        u -= cupy.max(u, axis=-1 if query else (-1, -2), keepdims=True)
        return cupy.exp(u).astype(x.dtype)

    def before(x: Array, axis: int) -> Array:
        wide = x.astype(cupy.float32)
        return (cupy.cumsum(wide, axis=axis) - wide).astype(x.dtype)

    def call(q: Array, k: Array, v: Array) -> Array:
        lead, n = q.shape[:-2], q.shape[-2]
        a, b = maps(q, True), maps(k, False)
        a, b, w = (x.reshape(*lead, n // CHUNK, CHUNK, x.shape[-1]) for x in (a, b, v))
        s = before(matmul(b, w, dtype, transpose_a=True), -3)
        z = before(cupy.sum(b.astype(cupy.float32), axis=-2), -2)
        inside = matmul(a, b, dtype, transpose_b=True).astype(cupy.float32) * mask
        numerator = matmul(a, s, dtype).astype(cupy.float32)
        numerator += matmul(inside.astype(a.dtype), w, dtype).astype(cupy.float32)
        denominator = matmul(a, cupy.ascontiguousarray(z[..., None]), dtype).astype(cupy.float32)
        denominator += cupy.sum(inside, axis=-1, keepdims=True)
        return (numerator / denominator).astype(v.dtype).reshape(*lead, n, v.shape[-1])

    return call


# ---- features ----


def torch_features(torch: Any, omega: Float64, like: Any) -> Call:
    """phi(x) = exp(omega x - |x|^2 / 2) / sqrt(m) of scaled rows: a product, and what is left in place."""
    omega_t, weight = projection(torch, omega, like)

    def call(x: Any) -> Any:
        u = (x @ omega_t).sub_((x * x).sum(-1, keepdim=True), alpha=weight)
        return u.exp_().mul_(omega.shape[0] ** -0.5)

    return call


def cupy_features(omega: Float64, dtype: str, dim: int) -> Call:
    """The same by cuBLAS and CuPy."""
    import cupy

    projection = (omega * dim**-0.25).astype(np.float32)
    weight, factor = np.float32(0.5 * dim**-0.5), np.float32(omega.shape[0] ** -0.5)

    def call(x: Array) -> Array:
        wide = x.astype(cupy.float32)
        u = matmul(x, cupy.asarray(projection).astype(x.dtype), dtype, transpose_b=True).astype(cupy.float32)
        u -= weight * cupy.sum(wide * wide, axis=-1, keepdims=True)
        return (factor * cupy.exp(u)).astype(x.dtype)

    return call


# ---- one token ----


def torch_step(torch: Any) -> Call:
    """One token in place on S (..., d, e) and z (..., d, 1), elu + 1, states in float32."""

    def call(q: Any, k: Any, v: Any, s: Any, z: Any) -> Any:
        a, b = (torch.nn.functional.elu(x.float()) + 1 for x in (q, k))
        s.add_(b.unsqueeze(-1) * v.float().unsqueeze(-2))
        z.add_(b.unsqueeze(-1))
        row = a.unsqueeze(-2)
        return ((row @ s) / (row @ z)).squeeze(-2).to(v.dtype)

    return call
