"""Peers of forward and backward together: torch differentiating itself, and torch with the backward written by hand.

Each returns the output and the cotangents of q, k and v, and forms no other: gradients are asked for by
`torch.autograd.grad`, which adds to nothing, and a pass by hand records no graph at all. The whole forward runs before
the backward begins, as it does where there are layers above, so that what the backward needs is kept for every token.
As in `torch_lean_favor`, nothing is taken out of an exponent, and the norms of keys are factors of their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from bench.cpu.peers import elu1, torch_of
from bench.torch_chunks import CHUNK, projection
from kernattn._arrays.namespaces import Float64
from kernattn.bench._clock import Call

SPAN = 256  # tokens of all heads whose chunks are taken at once by hand


def torch_softmax_gradients(q: Any, k: Any, v: Any, g: Any, causal: bool) -> Call:
    """Exact attention by torch's fused kernels, forward and backward; both take (batch, heads, n, d) only."""
    torch, tensors = torch_of(q, k, v, g)
    q, k, v, g = (tensor[None] for tensor in tensors)
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def call() -> Any:
        out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
        return out.detach(), *torch.autograd.grad(out, leaves, g)

    return call


def torch_autograd(q: Any, k: Any, v: Any, g: Any, omega: Float64 | None) -> Call:
    """Chunks as whole-array torch, which autograd differentiates.

    A head at a time, since what autograd keeps of all heads leaves every cache; heads come by `unbind`, whose backward
    is one stack, where that of indexing writes zeros for all heads. Chunks of 64 beat those of 32 and of 128. A column
    of ones beside v saves the products and sums of a normaliser of its own.
    """
    torch, (q, k, v, g) = torch_of(q, k, v, g)
    mask = torch.tril(torch.ones(CHUNK, CHUNK, dtype=q.dtype))
    w, weight = (None, 0.0) if omega is None else projection(torch, omega, q)
    (n, e), leaves = v.shape[-2:], [x.requires_grad_() for x in (q, k, v)]

    def features(x: Any) -> Any:
        return x.clamp(max=0).exp() + x.clamp(min=0) if w is None else (x @ w).exp()

    def attend(q: Any, k: Any, v: Any) -> Any:
        c = v.new_ones(n, 1) if w is None else ((k * k).sum(-1, keepdim=True) * -weight).exp()
        values = torch.cat((v if w is None else v * c, c), -1)
        a, b, values = (x.view(-1, CHUNK, x.shape[-1]) for x in (features(q), features(k), values))
        turned = b.transpose(1, 2)
        sums = torch.bmm(turned, values)
        fraction = torch.baddbmm(torch.bmm(a, sums.cumsum(0) - sums), torch.bmm(a, turned) * mask, values)
        return (fraction[..., :e] / fraction[..., e:]).view(n, e)

    def call() -> Any:
        out = torch.stack([attend(*head) for head in zip(*(x.unbind() for x in leaves), strict=True)])
        return out.detach(), *torch.autograd.grad(out, leaves, g)

    return call


def torch_quadratic_gradients(q: Any, k: Any, v: Any, g: Any, omega: Float64 | None, causal: bool) -> Call:
    """All weights at once, which autograd differentiates: what one writes first, and what is best for few tokens."""
    torch, (q, k, v, g) = torch_of(q, k, v, g)
    w, weight = (None, 0.0) if omega is None else projection(torch, omega, q)
    mask = torch.tril(torch.ones(q.shape[1], k.shape[1], dtype=q.dtype))
    leaves, elu = [x.requires_grad_() for x in (q, k, v)], torch.nn.functional.elu

    def call() -> Any:
        q, k, v = leaves
        a, b = (elu(q) + 1, elu(k) + 1) if w is None else ((q @ w).exp(), (k @ w).exp())
        if w is not None:  # the norms of keys are factors of their weights
            b = b * ((k * k).sum(-1, keepdim=True) * -weight).exp()
        weights = a @ b.transpose(1, 2)
        weights = weights * mask if causal else weights
        out = weights @ v / weights.sum(-1, keepdim=True)
        return out.detach(), *torch.autograd.grad(out, leaves, g)

    return call


class _Map(NamedTuple):
    """A map with m features in torch, into buffers: of rows, back from a cotangent of theirs, and values of keys."""

    m: int
    features: Callable[[Any, Any], Any]  # rows, where their features go
    pulled: Callable[[Any, Any, Any], Any]  # features, their cotangent, which is lost, where that of the rows goes
    values: Callable[[Any, Any, Any], Any]  # k, v, where [c v, c] goes, c the factor that the features of k lack
    unweighted: Callable[[Any, Any, Any, Any, Any], Any]  # k, [c v, c], its cotangent, dk, which is added to, dv


def _map(torch: Any, omega: Float64 | None, like: Any) -> _Map:
    if omega is None:
        return _elu1(torch, like)
    w, weight = projection(torch, omega, like)
    back, spare = w.t().contiguous(), like.new_empty(0)

    def features(x: Any, room: Any) -> None:
        rows = spare.resize_(x.shape).copy_(x).view(-1, x.shape[-1])
        torch.mm(rows, w, out=room.view(-1, w.shape[-1])).exp_()

    def pulled(f: Any, df: Any, room: Any) -> None:
        rows = spare.resize_(room.shape)
        torch.mm(df.mul_(f).view(-1, f.shape[-1]), back, out=rows.view(-1, room.shape[-1]))
        room.copy_(rows)

    def values(k: Any, v: Any, room: Any) -> None:
        c = (k * k).sum(-1, keepdim=True).mul_(-weight).exp_()
        torch.mul(v, c, out=room[..., :-1])
        room[..., -1:] = c

    def unweighted(k: Any, values: Any, of_values: Any, dk: Any, dv: Any) -> None:
        dk.addcmul_(k, (of_values * values).sum(-1, keepdim=True), value=-2 * weight)
        torch.mul(of_values[..., :-1], values[..., -1:], out=dv)

    return _Map(w.shape[-1], features, pulled, values, unweighted)


def _elu1(torch: Any, like: Any) -> _Map:
    spare = like.new_empty(0)

    def features(x: Any, room: Any) -> None:
        torch.clamp(x, max=0, out=room).exp_().add_(torch.clamp(x, min=0, out=spare.resize_(x.shape)))

    def pulled(f: Any, df: Any, room: Any) -> None:
        torch.mul(df, torch.clamp(f, max=1, out=spare.resize_(f.shape)), out=room)

    def values(k: Any, v: Any, room: Any) -> None:
        room[..., :-1] = v  # the ones beside them stay

    def unweighted(k: Any, values: Any, of_values: Any, dk: Any, dv: Any) -> None:
        dv.copy_(of_values[..., :-1])

    return _Map(like.shape[-1], features, pulled, values, unweighted)


def torch_loop_by_hand(q: Any, k: Any, v: Any, g: Any, omega: Float64 | None) -> Call:
    """A loop over chunks of all heads, and one backwards.

    The forward keeps features, scores and the sums before each chunk: to form them again in the backward takes longer.
    Chunks of 64 beat those of 128; those of 32 are no faster.
    """
    return _by_hand(q, k, v, g, omega, CHUNK)


def torch_batched_by_hand(q: Any, k: Any, v: Any, g: Any, omega: Float64 | None) -> Call:
    """Chunks at once, forward and backward: the strongest torch we know for both together.

    Those of 256 tokens of all heads, which takes fewer calls than the loop; only the sums go chunk by chunk, where
    `baddbmm` beats `cumsum` on products of all chunks. More tokens at once leave the cache. What is kept is what the
    loop keeps.
    """
    return _by_hand(q, k, v, g, omega, SPAN)


def _by_hand(q: Any, k: Any, v: Any, g: Any, omega: Float64 | None, span: int) -> Call:
    """Return forward and backward, `span` tokens at once.

    All that lies between the inputs and what is returned is written to buffers that outlive the calls: memory that was
    just handed out has to be cleared by the system first.
    """
    torch, (q, k, v, g) = torch_of(q, k, v, g)
    phi, (heads, n, e) = _map(torch, omega, q), v.shape
    mask = torch.tril(torch.ones(CHUNK, CHUNK, dtype=q.dtype))
    spans = [slice(low, min(low + span, n)) for low in range(0, n, span)]

    def room(at: slice, *sizes: int) -> list[Any]:
        """Return buffers, (heads, tokens, size)."""
        return [v.new_ones(heads, at.stop - at.start, size) for size in sizes]

    def tables(at: slice, count: int) -> list[Any]:
        """Return buffers for sums before the chunks, (heads, chunks, m, e + 1)."""
        return [v.new_empty(heads, (at.stop - at.start) // CHUNK, phi.m, e + 1) for _ in range(count)]

    kept = [(*room(at, phi.m, phi.m, e + 1, e + 1, CHUNK), *tables(at, 1)) for at in spans]
    spare = [(*room(at, e + 1, CHUNK, phi.m, e + 1, e), *tables(at, 1)) for at in (spans[0], spans[-1])]
    total = v.new_empty(heads, phi.m, e + 1)

    def chunks(*parts: Any) -> list[Any]:
        return [x.view(-1, CHUNK, x.shape[-1]) for x in parts]

    def sums(table: Any, left: Any, right: Any, order: Iterable[int]) -> Any:
        """Find what was summed before each chunk, in that order; add left^T right of all chunks to the total."""
        left, right = (x.view(heads, -1, CHUNK, x.shape[-1]) for x in (left, right))
        for chunk in order:
            table[:, chunk] = total
            total.baddbmm_(left[:, chunk].transpose(1, 2), right[:, chunk])
        return table.view(-1, phi.m, e + 1)

    def forward(out: Any) -> None:
        total.zero_()
        for at, (f_q, f_k, kv, fraction, scores, table) in zip(spans, kept, strict=True):
            phi.features(q[:, at], f_q)
            phi.features(k[:, at], f_k)
            phi.values(k[:, at], v[:, at], kv)
            before = sums(table, f_k, kv, range(table.shape[1]))
            a, b, values, read, inside = chunks(f_q, f_k, kv, fraction, scores)
            torch.bmm(a, b.transpose(1, 2), out=inside).mul_(mask)
            torch.bmm(a, before, out=read).baddbmm_(inside, values)
            torch.div(fraction[..., :e], fraction[..., e:], out=out[:, at])

    def call() -> Any:
        out, dq, dk, dv = (torch.empty_like(x) for x in (v, q, k, v))
        forward(out)
        total.zero_()
        for at, (f_q, f_k, kv, fraction, scores, table) in zip(reversed(spans), reversed(kept), strict=True):
            of_fraction, of_scores, of_features, of_kv, products, behind = spare[at is spans[-1]]
            torch.div(g[:, at], fraction[..., e:], out=of_fraction[..., :e])
            torch.mul(out[:, at], of_fraction[..., :e], out=products)
            torch.sum(products, -1, out=of_fraction[..., e]).neg_()
            after = sums(behind, f_q, of_fraction, reversed(range(table.shape[1])))
            a, b, values, inside, of_read, of_inside, df, of_values = chunks(
                f_q, f_k, kv, scores, of_fraction, of_scores, of_features, of_kv
            )
            before = table.view(-1, phi.m, e + 1)
            torch.bmm(of_read, values.transpose(1, 2), out=of_inside).mul_(mask)
            torch.bmm(of_read, before.transpose(1, 2), out=df).baddbmm_(of_inside, b)
            phi.pulled(f_q, of_features, dq[:, at])
            torch.bmm(values, after.transpose(1, 2), out=df).baddbmm_(of_inside.transpose(1, 2), a)
            torch.bmm(b, after, out=of_values).baddbmm_(inside.transpose(1, 2), of_read)
            phi.pulled(f_k, of_features, dk[:, at])
            phi.unweighted(k[:, at], kv, of_kv, dk[:, at], dv[:, at])
        return out, dq, dk, dv

    return partial(torch.inference_mode()(call))


def torch_quadratic_by_hand(q: Any, k: Any, v: Any, g: Any, causal: bool) -> Call:
    """All weights of elu + 1 at once, with the backward written by hand in a Function of autograd's."""
    torch, (q, k, v, g) = torch_of(q, k, v, g)
    mask = torch.tril(torch.ones(q.shape[1], k.shape[1], dtype=q.dtype))
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
        a, b = elu1(q), elu1(k)
        weights = torch.bmm(a, b.transpose(1, 2))
        if causal:
            weights.mul_(mask)
        share = weights.sum(-1, keepdim=True).reciprocal_()
        out = torch.bmm(weights, v).mul_(share)
        ctx.save_for_backward(a, b, v, weights, share, out)
        return out

    def backward(ctx: Any, g: Any) -> Any:
        a, b, v, weights, share, out = ctx.saved_tensors
        g = g * share
        of_weights = torch.baddbmm((g * out).sum(-1, keepdim=True), g, v.transpose(1, 2), beta=-1)
        if causal:
            of_weights.mul_(mask)
        of_q = torch.bmm(of_weights, b).mul_(a.clamp(max=1))  # the slope of elu + 1 is its value up to 1
        of_k = torch.bmm(of_weights.transpose(1, 2), a).mul_(b.clamp(max=1))
        return of_q, of_k, torch.bmm(weights.transpose(1, 2), g)

    made = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function: Any = type("Quadratic", (torch.autograd.Function,), made)

    def call() -> Any:
        out = function.apply(*leaves)
        return out.detach(), *torch.autograd.grad(out, leaves, g)

    return call
