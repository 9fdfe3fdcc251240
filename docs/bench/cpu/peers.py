"""Peers of attention, written as well as we can: torch loops, and the public packages where these are installed."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from shutil import which
from typing import Any

import numpy as np

from bench.torch_chunks import CHUNK, bidirectional, chunked, projection, whole
from kernattn._arrays.namespaces import Float64
from kernattn._runtime.parallel import threads
from kernattn.bench._clock import Call

LEAN = 32  # tokens of a chunk of the causal lean loop
SPAN = 256  # tokens whose elu + 1 it takes at once
BLOCK = 512  # rows of a block of the bidirectional lean form


def have(package: str) -> bool:
    """Tell whether a peer's package is installed."""
    return find_spec(package) is not None


def limit_blas() -> None:
    """Give the BLAS of NumPy and SciPy as many threads as ours, where threadpoolctl can be had."""
    if have("threadpoolctl"):
        import_module("threadpoolctl").threadpool_limits(threads(), "blas")


def torch_of(*arrays: Any) -> Any:
    """Return torch, set to as many threads as ours, and tensors that share the arrays' memory; tensors stay."""
    torch = import_module("torch")
    torch.set_num_threads(threads())
    return torch, [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in arrays]


def in_bfloat16(array: Any) -> Any:
    """Return an array as a tensor of torch in bfloat16, which every peer here takes."""
    return import_module("torch").from_numpy(array).bfloat16()


def torch_chunked(q: Any, k: Any, v: Any, omega: Float64 | None) -> Call:
    """Chunked causal attention as whole-array torch: what one writes first, and what leaves the cache."""
    torch, (q, k, v) = torch_of(q, k, v)
    return partial(torch.inference_mode()(whole(torch, omega, q)), q, k, v)


def compiles() -> bool:
    """Tell whether torch can compile here: it calls a C++ compiler."""
    return have("torch") and which(os.environ.get("CXX", "g++")) is not None


def fused(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a peer compiled by Inductor, which fuses what stands between the products, where it can.

    Under no_grad: constants made outside of inference_mode fail the guards of graphs that are made inside.
    """
    torch = import_module("torch")
    return torch.no_grad()(torch.compile(run, dynamic=False) if compiles() else run)


def torch_compiled(q: Any, k: Any, v: Any, omega: Float64 | None, causal: bool) -> Call:
    """Whole-array torch compiled by Inductor, which fuses what stands between the products; a loop it would unroll."""
    torch, (q, k, v) = torch_of(q, k, v)
    run = whole(torch, omega, q) if causal else bidirectional(torch, omega, q)
    return partial(torch.inference_mode()(torch.compile(run, fullgraph=True, dynamic=False)), q, k, v)


def torch_softmax(q: Any, k: Any, v: Any, causal: bool, beside: Any = None) -> Call:
    """Exact attention by torch's fused kernel, which takes (batch, heads, n, d) only: three dimensions leave it.

    `beside` is a bias of scores, or a mask of bool.
    """
    torch, tensors = torch_of(q, k, v)
    attention = torch.inference_mode()(torch.nn.functional.scaled_dot_product_attention)
    given = {} if beside is None else {"attn_mask": torch_of(beside)[1][0]}
    return partial(attention, *(tensor[None] for tensor in tensors), is_causal=causal, **given)


def elu1(x: Any) -> Any:
    """elu + 1, put together as exp(min(x, 0)) + max(x, 0): torch's elu and a sum are slower."""
    return x.clamp(max=0).exp_().add_(x.clamp(min=0))


def torch_lean_elu1(q: Any, k: Any, v: Any) -> Call:
    """The strongest causal torch we know for elu + 1: a loop over chunks, all in place, only the output written.

    Chunks of 32 beat those of 16, 64 and 128, heads at once beat a loop over heads, a column of ones beside v in place
    of z gains little, and `out=` into buffers of one's own nothing. Elementwise maps are taken of several chunks
    at once, which saves calls.
    """
    torch, (q, k, v) = torch_of(q, k, v)
    heads, n, dim = q.shape
    mask = torch.tril(torch.ones(LEAN, LEAN, dtype=q.dtype))

    def call() -> Any:
        s = torch.zeros(heads, dim, v.shape[-1], dtype=q.dtype)
        z = torch.zeros(heads, dim, 1, dtype=q.dtype)
        out = torch.empty_like(v)
        for begin in range(0, n, SPAN):
            of_queries, of_keys = (elu1(x[:, begin : begin + SPAN]) for x in (q, k))
            for low in range(begin, min(n, begin + SPAN), LEAN):
                chunk = slice(low, low + LEAN)
                a, b = (x[:, low - begin : low - begin + LEAN] for x in (of_queries, of_keys))
                inside = torch.bmm(a, b.transpose(1, 2)).mul_(mask)
                numerator = torch.bmm(a, s).baddbmm_(inside, v[:, chunk])
                denominator = torch.bmm(a, z).add_(inside.sum(-1, keepdim=True))
                torch.div(numerator, denominator, out=out[:, chunk])
                s.baddbmm_(b.transpose(1, 2), v[:, chunk])
                z.add_(b.sum(1).unsqueeze(-1))
        return out

    return torch.inference_mode()(call)


def weighted(torch: Any, k: Any, v: Any, weight: float) -> Any:
    """Return [c v, c] with c = exp(-weight |k|^2): keys' norms cost e + 1 columns here, in the features all m."""
    c = (k * k).sum(-1, keepdim=True).mul_(-weight).exp_()
    return torch.cat((v * c, c), -1)


def torch_lean_favor(q: Any, k: Any, v: Any, omega: Float64) -> Call:
    """The strongest causal torch we know for FAVOR+: a loop over chunks of all heads, all in place.

    Nothing is taken out of an exponent, which is unsafe at large norms and saves passes over m features. Heads at once
    beat a loop over heads.
    """
    torch, (q, k, v) = torch_of(q, k, v)
    (heads, n, _), e = q.shape, v.shape[-1]
    mask = torch.tril(torch.ones(LEAN, LEAN, dtype=q.dtype))
    w, weight = projection(torch, omega, q)
    w = w.expand(heads, *w.shape)

    def call() -> Any:
        s = torch.zeros(heads, w.shape[-1], e + 1, dtype=q.dtype)
        out = torch.empty_like(v)
        for low in range(0, n, LEAN):
            chunk = slice(low, low + LEAN)
            values = weighted(torch, k[:, chunk], v[:, chunk], weight)
            a, b = (torch.bmm(x[:, chunk], w).exp_() for x in (q, k))
            inside = torch.bmm(a, b.transpose(1, 2)).mul_(mask)
            fraction = torch.bmm(a, s).baddbmm_(inside, values)
            torch.div(fraction[..., :e], fraction[..., e:], out=out[:, chunk])
            s.baddbmm_(b.transpose(1, 2), values)
        return out

    return torch.inference_mode()(call)


def torch_lean_all(q: Any, k: Any, v: Any, omega: Float64) -> Call:
    """The strongest bidirectional torch we know: a head and a block at a time, whose features stay in cache.

    Nothing is taken out of an exponent, as in `torch_lean_favor`. Blocks of 512 rows beat those of 128 and 256.
    """
    torch, (q, k, v) = torch_of(q, k, v)
    e = v.shape[-1]
    w, weight = projection(torch, omega, q)

    def call() -> Any:
        out = torch.empty_like(v)
        blocks = [slice(low, low + BLOCK) for low in range(0, q.shape[1], BLOCK)]
        for of_queries, of_keys, of_values, rows in zip(q, k, v, out, strict=True):
            s = torch.zeros(w.shape[-1], e + 1, dtype=q.dtype)
            values = weighted(torch, of_keys, of_values, weight)
            for block in blocks:
                s.addmm_(torch.mm(of_keys[block], w).exp_().t(), values[block])
            for block in blocks:
                fraction = torch.mm(torch.mm(of_queries[block], w).exp_(), s)
                torch.div(fraction[:, :e], fraction[:, e:], out=rows[block])
        return out

    return torch.inference_mode()(call)


def torch_quadratic(q: Any, k: Any, v: Any, omega: Float64 | None, causal: bool, state: bool = True) -> Call:
    """All weights at once: what is best for short sequences, whose n^2 is less than the sums' n m.

    Causal, it returns the state too, as ours does, unless told otherwise.
    """
    torch, (q, k, v) = torch_of(q, k, v)
    mask = torch.tril(torch.ones(q.shape[1], q.shape[1], dtype=q.dtype))
    e = v.shape[-1]
    w, weight = (None, 0.0) if omega is None else projection(torch, omega, q)

    def with_elu1() -> Any:
        a, b = elu1(q), elu1(k)
        turned = b.transpose(1, 2)
        weights = torch.bmm(a, turned)
        if causal:
            weights.mul_(mask)
        out = torch.bmm(weights, v).div_(weights.sum(-1, keepdim=True))
        return (out, torch.bmm(turned, v), b.sum(1)) if causal and state else out

    def with_favor() -> Any:
        a, turned = torch.matmul(q, w).exp_(), torch.matmul(k, w).exp_().transpose(1, 2)
        weights, values = torch.bmm(a, turned), weighted(torch, k, v, weight)
        if causal:
            weights.mul_(mask)
        fraction = torch.bmm(weights, values)
        out = fraction[..., :e] / fraction[..., e:]
        if not (causal and state):
            return out
        sums = torch.bmm(turned, values)
        return out, sums[..., :e], sums[..., e]

    return torch.inference_mode()(with_elu1 if omega is None else with_favor)


def torch_sums(q: Any, k: Any, v: Any, omega: Float64 | None) -> Call:
    """Bidirectional, the sums over keys first, of all heads at once: fewer products where tokens outnumber features."""
    torch, (q, k, v) = torch_of(q, k, v)
    e = v.shape[-1]
    w, weight = (None, 0.0) if omega is None else projection(torch, omega, q)

    def with_elu1() -> Any:
        a, b = elu1(q), elu1(k)
        return torch.bmm(a, torch.bmm(b.transpose(1, 2), v)).div_(torch.bmm(a, b.sum(1).unsqueeze(-1)))

    def with_favor() -> Any:
        a, b = torch.matmul(q, w).exp_(), torch.matmul(k, w).exp_()
        fraction = torch.bmm(a, torch.bmm(b.transpose(1, 2), weighted(torch, k, v, weight)))
        return fraction[..., :e] / fraction[..., e:]

    return torch.inference_mode()(with_elu1 if omega is None else with_favor)


def _performer_pytorch() -> Any:
    with warnings.catch_warnings():  # its import uses what setuptools has deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_module("performer_pytorch.performer_pytorch")


def performer(q: Any, k: Any, v: Any, omega: Float64, causal: bool) -> Call:
    """Attention of performer-pytorch; causal in as many chunks as leave its running sums in cache, 4 tokens in each.

    Its own number, 128 chunks for any length, is several times slower on long sequences.
    """
    torch, tensors = torch_of(q, k, v)
    module = _performer_pytorch()
    with contextlib.redirect_stdout(io.StringIO()):
        attention = module.FastAttention(q.shape[-1], omega.shape[0], causal=causal)
    attention.projection_matrix.copy_(torch.from_numpy(np.array(omega)))
    if causal:
        chunks = -(-q.shape[-2] // 4)
        attention.causal_linear_fn = partial(module.causal_linear_attention_noncuda, chunk_size=chunks)
    return partial(torch.inference_mode()(attention), *(x[None] for x in tensors))


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

    return torch.inference_mode()(call)
