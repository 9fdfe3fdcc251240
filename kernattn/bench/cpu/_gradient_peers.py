"""Peers of forward and backward together: torch differentiating itself, and torch with the backward written by hand.

Each returns the output and the cotangents of q, k and v, and forms no other: gradients are asked for by
`torch.autograd.grad`, which adds to nothing, and a pass by hand records no graph at all. The whole forward runs before
the backward begins, as it does where there are layers above, so that what the backward needs is kept for every token.
As in `torch_lean_favor`, nothing is taken out of an exponent, and the norms of keys are factors of their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, cast

from kernattn._array import Float64
from kernattn.bench._races import Call
from kernattn.bench._torch import CHUNK, projection
from kernattn.bench.cpu._peers import elu1, torch_of, weighted

__all__ = ["torch_autograd", "torch_batched_by_hand", "torch_loop_by_hand", "torch_softmax_gradients"]

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
        found = torch.baddbmm(torch.bmm(a, sums.cumsum(0) - sums), torch.bmm(a, turned) * mask, values)
        return (found[..., :e] / found[..., e:]).view(n, e)

    def call() -> Any:
        out = torch.stack([attend(*head) for head in zip(*(x.unbind() for x in leaves), strict=True)])
        return out.detach(), *torch.autograd.grad(out, leaves, g)

    return call


class _Map(NamedTuple):
    """A map with m features in torch: of rows, back from a cotangent that it may write to, and the values of keys."""

    m: int
    features: Callable[[Any], Any]
    pulled: Callable[[Any, Any], Any]  # features and their cotangent -> that of the rows
    values: Callable[[Any, Any], Any]  # k and v -> [c v, c], c the factor that the features of k lack
    unweighted: Callable[[Any, Any, Any, Any], Any]  # k, [c v, c], its cotangent, dk, which is added to -> dv


def _map(torch: Any, omega: Float64 | None, like: Any) -> _Map:
    if omega is None:
        ones = like.new_ones(like.shape[0], SPAN, 1)
        return _Map(
            like.shape[-1],
            elu1,
            lambda f, df: df.mul_(f.clamp(max=1)),
            lambda k, v: torch.cat((v, ones[:, : v.shape[1]]), -1),
            lambda k, values, of_values, dk: of_values[..., :-1],
        )
    w, weight = projection(torch, omega, like)

    def unweighted(k: Any, values: Any, of_values: Any, dk: Any) -> Any:
        dk.addcmul_(k, (of_values * values).sum(-1, keepdim=True), value=-2 * weight)
        return of_values[..., :-1] * values[..., -1:]

    return _Map(
        w.shape[-1],
        lambda x: torch.matmul(x, w).exp_(),
        lambda f, df: torch.matmul(df.mul_(f), w.t()),
        lambda k, v: weighted(torch, k, v, weight),
        unweighted,
    )


def torch_loop_by_hand(q: Any, k: Any, v: Any, g: Any, omega: Float64 | None) -> Call:
    """A loop over chunks of all heads, and one backwards, in place.

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
    """Return forward and backward, `span` tokens at once."""
    torch, (q, k, v, g) = torch_of(q, k, v, g)
    phi, (heads, n, e) = _map(torch, omega, q), v.shape
    mask = torch.tril(torch.ones(CHUNK, CHUNK, dtype=q.dtype))
    spans = [slice(low, min(low + span, n)) for low in range(0, n, span)]

    def chunks(x: Any) -> Any:
        return x.view(heads * (x.shape[1] // CHUNK), CHUNK, x.shape[-1])

    def rows(x: Any) -> Any:
        return x.view(heads, -1, x.shape[-1])

    def sums(total: Any, left: Any, right: Any, order: Iterable[int]) -> Any:
        """Return what was summed before each chunk, in that order; add left^T right of all chunks to the total."""
        left, right = (x.view(heads, -1, *x.shape[1:]) for x in (left, right))
        found = total.new_empty(heads, left.shape[1], phi.m, e + 1)
        for chunk in order:
            found[:, chunk] = total
            total.baddbmm_(left[:, chunk].transpose(1, 2), right[:, chunk])
        return found.view(-1, phi.m, e + 1)

    def forward(out: Any) -> list[tuple[Any, ...]]:
        kept, total = [], v.new_zeros(heads, phi.m, e + 1)
        for at in spans:
            a, b = (chunks(phi.features(x[:, at])) for x in (q, k))
            values = chunks(phi.values(k[:, at], v[:, at]))
            before = sums(total, b, values, range(len(a) // heads))
            inside = torch.bmm(a, b.transpose(1, 2)).mul_(mask)
            found = rows(torch.bmm(a, before).baddbmm_(inside, values))
            torch.div(found[..., :e], found[..., e:], out=out[:, at])
            kept.append((a, b, values, before, inside, found[..., e:]))
        return kept

    def call() -> Any:
        out, dq, dk, dv = (torch.empty_like(x) for x in (v, q, k, v))
        kept, total = forward(out), v.new_zeros(heads, phi.m, e + 1)
        for at, (a, b, values, before, inside, z) in zip(reversed(spans), reversed(kept), strict=True):
            of_found = v.new_empty(heads, z.shape[1], e + 1)
            torch.div(g[:, at], z, out=of_found[..., :e])
            of_found[..., e] = (out[:, at] * of_found[..., :e]).sum(-1).neg_()
            of_found = chunks(of_found)
            behind = sums(total, a, of_found, reversed(range(len(a) // heads)))
            of_inside = torch.bmm(of_found, values.transpose(1, 2)).mul_(mask)
            da = torch.bmm(of_found, before.transpose(1, 2)).baddbmm_(of_inside, b)
            db = torch.bmm(values, behind.transpose(1, 2)).baddbmm_(of_inside.transpose(1, 2), a)
            of_values = torch.bmm(b, behind).baddbmm_(inside.transpose(1, 2), of_found)
            dq[:, at] = rows(phi.pulled(a, da))
            of_keys = rows(phi.pulled(b, db))
            dv[:, at] = phi.unweighted(k[:, at], rows(values), rows(of_values), of_keys)
            dk[:, at] = of_keys
        return out, dq, dk, dv

    return cast(Call, partial(torch.inference_mode()(call)))
