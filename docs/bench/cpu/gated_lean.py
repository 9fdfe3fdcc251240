"""Gated linear attention as we would write it in torch and in JAX, by chunks of all heads at once.

Decays are e to differences of sums, as everywhere but here: strong gates lose digits. No power of e is above 1, so none
overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from bench.cpu import peers
from kernattn.bench._clock import Call


def torch_delta(arrays: Sequence[Any], size: int) -> Call:
    """The gated delta rule: a triangular system a chunk, solved with columns side by side, which LAPACK likes more."""
    torch, (q, k, v, logs, beta) = peers.torch_of(*arrays)
    (heads, n, d), e = q.shape, v.shape[-1]
    chunks, flat = n // size, heads * (n // size)

    def call() -> Any:
        between, since, left, decay = _torch_decays(torch, logs, size)
        weak, queries = k * beta[..., None], q * d**-0.5
        turned = k.reshape(flat, size, d).mT
        system = torch.bmm(weak.view(flat, size, d), turned).mul_(between)
        scores = torch.bmm(queries.view(flat, size, d), turned).mul_(between).view(heads, chunks, size, size)
        sides = torch.cat([v * beta[..., None], (weak.view(heads, chunks, size, d) * since).view(heads, n, d)], -1)
        how = {"upper": True, "left": False, "unitriangular": True}
        solved = torch.linalg.solve_triangular(system.mT, sides.view(flat, size, -1).mT, **how).mT
        values, reads = solved.view(heads, chunks, size, -1).split([e, d], -1)
        queries, keys = queries.view(heads, chunks, size, d).mul_(since), k.view(heads, chunks, size, d) * left
        state, out = v.new_zeros(heads, d, e), v.new_empty(heads, chunks, size, e)
        for i in range(chunks):
            written = torch.baddbmm(values[:, i], reads[:, i], state, alpha=-1)
            out[:, i] = torch.bmm(scores[:, i], written).baddbmm_(queries[:, i], state)
            state.mul_(decay[:, i]).baddbmm_(keys[:, i].mT, written)
        return out.view(heads, n, e)

    return torch.inference_mode()(call)


def torch_decays(arrays: Sequence[Any], size: int, scale: float) -> Call:
    """Decays of heads: what is within chunks at once, the state in its place."""
    torch, (q, k, v, logs) = peers.torch_of(*arrays)
    (heads, n, d), e = q.shape, v.shape[-1]
    chunks, flat = n // size, heads * (n // size)

    def call() -> Any:
        between, since, left, decay = _torch_decays(torch, logs, size)
        scores = torch.bmm(q.reshape(flat, size, d), k.reshape(flat, size, d).mT).mul_(between.mul_(scale))
        queries = (q.view(heads, chunks, size, d) * since.mul_(scale)).view(heads, n, d)
        keys = (k.view(heads, chunks, size, d) * left).view(heads, n, d)
        out, state = torch.bmm(scores, v.reshape(flat, size, e)).view(heads, n, e), v.new_zeros(heads, d, e)
        for i in range(chunks):
            at = slice(i * size, (i + 1) * size)
            out[:, at].baddbmm_(queries[:, at], state)
            state.mul_(decay[:, i]).baddbmm_(keys[:, at].mT, v[:, at])
        return out

    return torch.inference_mode()(call)


def torch_channels(arrays: Sequence[Any], size: int, scale: float) -> Call:
    """Decays of channels of q, k, v and logs (heads, n, d), and the delta rule where a beta follows them."""
    torch, (q, k, v, logs, *beta) = peers.torch_of(*arrays)
    (heads, n, d), e = q.shape, v.shape[-1]
    chunks, flat = n // size, heads * (n // size)
    how = {"upper": True, "left": False, "unitriangular": True}

    def call() -> Any:
        queries, keys, total = q.reshape(flat, size, d) * scale, k.reshape(flat, size, d), logs.reshape(flat, size, d)
        values, betas, total = v.reshape(flat, size, e), [x.reshape(flat, size, 1) for x in beta], total.cumsum(1)
        weak = [keys * x for x in betas]
        scores, *system = _torch_scores(torch, [queries, *weak], keys, total)
        since = total.exp()
        queries.mul_(since)
        if betas:
            sides = torch.cat([values * betas[0], weak[0].mul_(since)], -1)
            solved = torch.linalg.solve_triangular(system[0].mT, sides.mT, **how).mT
            values, reads = solved.split([e, d], -1)
            reads = reads.view(heads, chunks, size, d)
        keys = keys * (total[:, -1:] - total).exp_()
        decay = since[:, -1].clone().view(heads, chunks, d, 1)
        queries, keys, values, scores = (x.view(heads, chunks, size, -1) for x in (queries, keys, values, scores))
        state, out = v.new_zeros(heads, d, e), v.new_empty(heads, chunks, size, e)
        for i in range(chunks):
            written = torch.baddbmm(values[:, i], reads[:, i], state, alpha=-1) if betas else values[:, i]
            out[:, i] = torch.bmm(scores[:, i], written).baddbmm_(queries[:, i], state)
            state.mul_(decay[:, i]).baddbmm_(keys[:, i].mT, written)
        return out.view(heads, n, e)

    return torch.inference_mode()(call)


def _torch_scores(torch: Any, rows: Sequence[Any], keys: Any, total: Any) -> list[Any]:
    """Return sums over d of rows_i keys_j e^(total_i - total_j), for j up to i, in chunks, for each of the rows.

    Halves meet at the end of the first, and so do the halves of halves.
    """
    flat, size, d = keys.shape
    scores = [keys.new_zeros(flat, size, size) for _ in rows]
    for x, made in zip(rows, scores, strict=True):
        made.diagonal(dim1=1, dim2=2).copy_(torch.linalg.vecdot(x, keys))
    half = size // 2
    while half:
        blocks = size // (2 * half)
        early, late = total.view(-1, 2, half, d).unbind(1)
        end = early[:, -1:]
        columns = (keys.view(-1, 2, half, d)[:, 0] * (end - early).exp_()).mT
        fade = (late - end).exp_()
        for x, made in zip(rows, scores, strict=True):
            product = torch.bmm(x.view(-1, 2, half, d)[:, 1] * fade, columns).view(flat, blocks, half, half)
            inside = made.view(flat, blocks, 2, half, blocks, 2, half)[:, :, 1, :, :, 0]
            inside.diagonal(dim1=1, dim2=3).copy_(product.permute(0, 2, 3, 1))
        half //= 2
    return scores


def _torch_decays(torch: Any, logs: Any, size: int) -> tuple[Any, Any, Any, Any]:
    """Return decays between the tokens of a chunk, from its start, to its end, and of a whole chunk."""
    total = logs.reshape(len(logs), -1, size).cumsum(-1)
    ahead = torch.full((size, size), -torch.inf).triu_(1)
    between = (total[..., None] - total[..., None, :]).add_(ahead).exp_().view(-1, size, size)
    since, left = total.exp()[..., None], (total[..., -1:] - total).exp_()[..., None]
    return between, since, left, since[:, :, -1:].clone()


def torch_scan(x: Any, dt: Any, a: Any, b: Any, c: Any, size: int) -> Call:
    """Mamba-2's scan of one group: products with the states have the columns of all heads, scores serve all heads."""
    torch, (x, dt, a, b, c) = peers.torch_of(x, dt, a, b, c)
    (heads, n, e), d, chunks = x.shape, b.shape[-1], x.shape[1] // size
    x, dt = x.transpose(0, 1).contiguous(), dt.T.contiguous()  # as layers have them
    b, c = (y[0].view(chunks, size, d) for y in (b, c))
    ahead = torch.full((size, size), -torch.inf).triu_(1)

    def call() -> Any:
        values = (x * dt[..., None]).view(chunks, size, heads, e)
        total = (dt * a).view(chunks, size, heads).cumsum(1)
        left = values * (total[:, -1:] - total).exp_()[..., None]
        states = torch.bmm(b.mT, left.view(chunks, size, -1)).view(chunks, d, heads, e)
        decay = total[:, -1].exp()
        for i in range(1, chunks):
            states[i].addcmul_(states[i - 1], decay[i, None, :, None])
        turned = total.mT
        scores = (turned[..., None] - turned[..., None, :]).add_(ahead).exp_().mul_(torch.bmm(c, b.mT)[:, None])
        out = torch.matmul(scores, values.transpose(1, 2)).transpose(1, 2)
        read = torch.bmm(c[1:], states[:-1].view(chunks - 1, d, -1)).view(-1, size, heads, e)
        out[1:].add_(read.mul_(total[1:].exp()[..., None]))
        return out.reshape(n, heads, e).transpose(0, 1)

    return torch.inference_mode()(call)


def jax_decays(arrays: Sequence[Any], size: int, scale: float) -> Call:
    """Gradients of decays of heads, jitted: one scan."""
    jax = import_module("jax")
    heads, n, d = arrays[0].shape

    def forward(*arrays: Any) -> Any:
        q, k, v, logs = (x.reshape(heads, n // size, size, -1).swapaxes(0, 1) for x in arrays)
        total = jax.numpy.cumsum(logs, -2)
        since, left = jax.numpy.exp(total), jax.numpy.exp(total[..., -1:, :] - total)
        q = q * scale
        inside = ((q @ k.swapaxes(-1, -2)) * _jax_between(total[..., 0])) @ v

        def chunk(state: Any, given: Any) -> Any:
            queries, keys, values, decay, inside = given
            return state * decay + keys.swapaxes(-1, -2) @ values, inside + queries @ state

        given = q * since, k * left, v, since[..., -1:, :], inside
        out = jax.lax.scan(chunk, jax.numpy.zeros((heads, d, v.shape[-1]), v.dtype), given)[1]
        return out.swapaxes(0, 1).reshape(arrays[2].shape)

    return _gradients(forward, arrays)


def jax_scan(x: Any, dt: Any, a: Any, b: Any, c: Any, size: int) -> Call:
    """Gradients of Mamba-2's scan of one group, jitted: products with the state have the columns of all heads."""
    jax = import_module("jax")
    (heads, n, e), d = x.shape, b.shape[-1]

    def forward(x: Any, dt: Any, b: Any, c: Any) -> Any:
        values, total = (y.reshape(n // size, size, heads, -1) for y in (x * dt[..., None], dt * a))
        total = jax.numpy.cumsum(total, 1)
        b, c = (y.reshape(n // size, size, d) for y in (b, c))
        scores = (c @ b.swapaxes(-1, -2))[:, None] * _jax_between(total[..., 0].swapaxes(1, 2))
        inside = (scores @ values.swapaxes(1, 2)).swapaxes(1, 2)
        left = (values * jax.numpy.exp(total[:, -1:] - total)).reshape(n // size, size, -1)
        since = jax.numpy.exp(total)

        def chunk(state: Any, given: Any) -> Any:
            c, new, since = given
            read = (c @ state.reshape(d, -1)).reshape(size, heads, e) * since
            return state * since[-1] + new.reshape(state.shape), read

        states = jax.numpy.zeros((d, heads, e), x.dtype)
        read = jax.lax.scan(chunk, states, (c, b.swapaxes(-1, -2) @ left, since))[1]
        return (inside + read).reshape(n, heads, e)

    given = [x.swapaxes(0, 1), dt.T, b[0], c[0]]  # as layers have them

    call = _gradients(forward, given)

    def in_our_layout() -> Any:
        dx, steps, db, dc = call()
        return dx.swapaxes(0, 1), steps.T, db[None], dc[None]

    return in_our_layout


def _jax_between(total: Any) -> Any:
    """Return decays between tokens of sums of logs (..., size)."""
    jnp = import_module("jax.numpy")
    low = jnp.tril(jnp.ones((total.shape[-1],) * 2, bool))
    return jnp.exp(jnp.where(low, total[..., :, None] - total[..., None, :], -jnp.inf))


def _gradients(forward: Callable[..., Any], arrays: Sequence[Any]) -> Call:
    """Return a call of the jitted gradients of the sum of a function's outputs."""
    jax = import_module("jax")
    run = jax.jit(jax.grad(lambda *arrays: forward(*arrays).sum(), tuple(range(len(arrays)))))
    given = [jax.device_put(np.ascontiguousarray(x)) for x in arrays]
    return lambda: tuple(jax.block_until_ready(run(*given)))
