r"""Peers of a window of exact attention with features before it: torch has no such layer, so each is written by hand.

Weights are :math:`e^{s q^T k}` in the window and :math:`\phi(q)^T \phi(k)` before it, under one normaliser. Nothing is
taken out of an exponent, as in `peers.torch_lean_favor`. Tokens come in blocks of a window: a block's queries see some
of its own keys and of those of the block before exactly, and all others by features.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench.cpu.peers import fused, torch_of
from kernattn.bench._clock import Call
from kernattn.features import FeatureMap

SPAN = 256  # tokens whose features the loop takes at once

_Features = Callable[[Any], Any]


def _map(torch: Any, spec: Any, like: Any) -> _Features:
    """Return the features of a spec: positive ones of the softmax kernel, or the softmax of w x."""
    norm = -0.5 * like.shape[-1] ** -0.5
    w, log = torch.as_tensor(np.array(spec.omega).T.copy()).to(like.dtype), float(spec.log_amplitude)
    if spec.normalised:
        return lambda x: torch.softmax(x @ w, -1) * float(np.exp(log))
    return lambda x: (x @ w + ((x * x).sum(-1, keepdim=True) * norm + log)).exp()


def _whole(torch: Any, phi: FeatureMap, like: Any, window: int) -> Callable[[Any, Any, Any], Any]:
    """Return the layer as whole-array torch, all blocks at once."""
    of_queries, of_keys = _map(torch, phi.query_spec, like), _map(torch, phi.key_spec, like)
    seen = torch.tril(torch.ones(window, window, dtype=like.dtype))
    pad, scale = torch.nn.functional.pad, like.shape[-1] ** -0.5

    def run(q: Any, k: Any, v: Any) -> Any:
        (h, n, _), e = q.shape, v.shape[-1]
        rows = of_queries(q), of_keys(k), torch.cat((v, v.new_ones(h, n, 1)), -1), q * scale, k
        a, b, values, q, k = (x.view(h, n // window, window, x.shape[-1]) for x in rows)
        sums = (b[:, :-2].transpose(-1, -2) @ values[:, :-2]).cumsum(1)
        own = (q @ k.transpose(-1, -2)).exp() * seen
        near = (q[:, 1:] @ k[:, :-1].transpose(-1, -2)).exp() * (1 - seen)
        far = (a[:, 1:] @ b[:, :-1].transpose(-1, -2)) * seen
        before = pad((near + far) @ values[:, :-1], (0, 0, 0, 0, 1, 0)) + pad(a[:, 2:] @ sums, (0, 0, 0, 0, 2, 0))
        fraction = own @ values + before
        return (fraction[..., :e] / fraction[..., e:]).reshape(h, n, e)

    return run


def torch_whole(q: Any, k: Any, v: Any, phi: FeatureMap, window: int, compiled: bool = False) -> Call:
    """Blocks at once as whole-array torch: what one writes first; fused by Inductor where that is asked for."""
    torch, (q, k, v) = torch_of(q, k, v)
    run = _whole(torch, phi, q, window)
    return partial(fused(run) if compiled else torch.inference_mode()(run), q, k, v)


def torch_lean(q: Any, k: Any, v: Any, phi: FeatureMap, window: int) -> Call:
    """A loop over blocks of all heads, in place: the strongest torch we know."""
    torch, (q, k, v) = torch_of(q, k, v)
    of_queries, of_keys = _map(torch, phi.query_spec, q), _map(torch, phi.key_spec, q)
    seen = torch.tril(torch.ones(window, window, dtype=q.dtype))
    hidden, scale = 1 - seen, q.shape[-1] ** -0.5
    (heads, n, e), m = v.shape, phi.num_features_of(q.shape[-1])
    step = -(-SPAN // window) * window

    def call() -> Any:
        sums, out, last = v.new_zeros(heads, m, e + 1), torch.empty_like(v), None
        values = torch.cat((v, v.new_ones(heads, n, 1)), -1)
        for begin in range(0, n, step):
            span = slice(begin, begin + step)
            a, b, scaled = of_queries(q[:, span]), of_keys(k[:, span]), q[:, span] * scale
            for low in range(begin, min(n, begin + step), window):
                at, inside = slice(low, low + window), slice(low - begin, low - begin + window)
                x, mine = scaled[:, inside], (k[:, at], b[:, inside], values[:, at])
                fraction = torch.bmm(torch.bmm(x, mine[0].transpose(1, 2)).exp_().mul_(seen), mine[2])
                if last is not None:
                    near = torch.bmm(x, last[0].transpose(1, 2)).exp_().mul_(hidden)
                    turned = last[1].transpose(1, 2)
                    near.addcmul_(torch.bmm(a[:, inside], turned), seen)
                    fraction.baddbmm_(near, last[2]).baddbmm_(a[:, inside], sums)
                    sums.baddbmm_(turned, last[2])
                torch.div(fraction[..., :e], fraction[..., e:], out=out[:, at])
                last = mine
        return out

    return torch.inference_mode()(call)


def torch_all_pairs(q: Any, k: Any, v: Any, phi: FeatureMap, window: int) -> Call:
    """All pairs of tokens at once, as LoLCATs' published code trains, without the largest score that it takes out."""
    torch, (q, k, v) = torch_of(q, k, v)
    of_queries, of_keys = _map(torch, phi.query_spec, q), _map(torch, phi.key_spec, q)
    at, scale = torch.arange(q.shape[1]), q.shape[-1] ** -0.5
    back = at[:, None] - at
    unseen, before = (back < 0) | (back >= window), back >= window

    def call() -> Any:
        near = torch.bmm(q * scale, k.transpose(1, 2)).masked_fill_(unseen, -torch.inf).exp_()
        weights = near.addcmul_(torch.bmm(of_queries(q), of_keys(k).transpose(1, 2)), before)
        return torch.bmm(weights, v).div_(weights.sum(-1, keepdim=True))

    return torch.inference_mode()(call)


def torch_both_ways(q: Any, k: Any, v: Any, g: Any, phi: FeatureMap, window: int, compiled: bool = False) -> Call:
    """Whole-array torch and its way back by autograd, fused by Inductor where that is asked for."""
    torch, (q, k, v, g) = torch_of(q, k, v, g)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    run = _whole(torch, phi, q, window)
    run = torch.compile(run, dynamic=False) if compiled else run

    def call() -> Any:
        out = run(*leaves)
        return out.detach(), *torch.autograd.grad(out, leaves, g)

    return call
