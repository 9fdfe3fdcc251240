"""Gradients: the backward beside the forward of the same run, and both together against torch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.cpu import gradient_peers, peers
from bench.cpu.cases import counts
from bench.cpu.cases.inputs import elu1_map, favor, heads, normal
from bench.races import Case, Race
from bench.sizes import Sizes
from bench.torch_chunks import CHUNK
from kernattn._gradients import vjp
from kernattn.attention import causal_linear_attention, linear_attention, softmax_attention
from kernattn.bench import Work
from kernattn.bench._clock import Call
from kernattn.features import with_numbers


def _backward(
    works: tuple[Work, Work],
    cotangent: Any,
    function: Callable[..., Any],
    *given: Any,
    **more: Any,
) -> Race:
    """Race a call, the same call by `vjp`, and the pullback, which has work of its own."""
    forward = partial(vjp, function, *given, **more)
    _, pullback = forward()
    calls = {
        "ours": partial(function, *given, **more),
        "ours, forward by vjp": forward,
        "ours, backward": partial(pullback, cotangent),
    }
    return Race(calls, works[0], works={"ours, backward": works[1]})


def _linear(o: Sizes, make: Callable[[Sizes], Any], causal: bool, learn: bool = False) -> Race:
    """The backward of linear attention, beside its forward."""
    q, k, v, g = heads(o, 4)
    phi = make(o)
    m, project = (o.features, True) if phi.dim else (o.dim, False)
    works = (
        counts.linear(o, m, project, causal),
        counts.linear_backward(o, m, project, causal, learn),
    )
    if learn:
        phi = with_numbers(phi, omega=phi.spec.omega)
    run: Any = causal_linear_attention if causal else linear_attention
    return _backward(works, (g, None) if causal else g, run, q, k, v, phi)


def _softmax(o: Sizes, causal: bool) -> Race:
    """The backward of exact attention, beside its forward."""
    q, k, v, g = heads(o, 4)
    works = counts.softmax(o, causal), counts.softmax_backward(o, causal)
    return _backward(works, g, softmax_attention, q, k, v, causal=causal)


def _features(o: Sizes) -> Race:
    """The backward of positive features, beside their forward."""
    x, g = normal(o, (o.heads, o.n, o.dim), (o.heads, o.n, o.features))
    m, size, flops = o.features, x.itemsize * float(o.tokens), 2.0 * o.features * o.dim * o.tokens
    work = Work(size * (o.dim + m), flops, o.tokens * float(m), written=size * m)
    backward = Work(size * (2 * o.dim + m), 2 * flops, o.tokens * float(m), written=size * o.dim)
    return _backward((work, backward), g, favor(o), x)


def _whole(function: Any, *given: Any, cotangent: Any, **more: Any) -> tuple[Any, ...]:
    """Return the output, and the cotangents of q, k and v."""
    out, pullback = vjp(function, *given, **more)
    cotangents = pullback(cotangent)
    return out[0] if isinstance(out, tuple) else out, cotangents.q, cotangents.k, cotangents.v


def _causal_against_torch(o: Sizes, make: Callable[[Sizes], Any]) -> Race:
    """Forward and backward of causal linear attention, against torch's: by autograd, and by hand."""
    q, k, v, g = heads(o, 4)
    phi, others = make(o), {}
    omega = phi.omega if phi.dim else None
    if peers.have("torch") and o.n % CHUNK == 0:
        others = {
            "torch, autograd through chunks": gradient_peers.torch_autograd(q, k, v, g, omega),
            "torch, loop by hand": gradient_peers.torch_loop_by_hand(q, k, v, g, omega),
            "torch, batched by hand": gradient_peers.torch_batched_by_hand(q, k, v, g, omega),
        }
    return Race({"ours": _causal(q, k, v, g, phi), **others}, _causal_work(o, phi))


def _causal(q: Any, k: Any, v: Any, g: Any, phi: Any) -> Call:
    return partial(_whole, causal_linear_attention, q, k, v, phi, cotangent=(g, None))


def _causal_work(o: Sizes, phi: Any) -> Work:
    given = (o, o.features, True, True) if phi.dim else (o, o.dim, False, True)
    return counts.both(counts.linear(*given), counts.linear_backward(*given))


def _softmax_against_torch(o: Sizes, causal: bool) -> Race:
    """Forward and backward of exact attention, against torch's."""
    q, k, v, g = heads(o, 4)
    ours = partial(_whole, softmax_attention, q, k, v, causal=causal, cotangent=g)
    work = counts.both(counts.softmax(o, causal), counts.softmax_backward(o, causal))
    return Race({"ours": ours, **_exact(q, k, v, g, causal)}, work)


def _causal_for_softmax(o: Sizes, make: Callable[[Sizes], Any]) -> Race:
    """Forward and backward of causal linear attention, beside torch's of exact attention, which is another function."""
    q, k, v, g = heads(o, 4)
    phi = make(o)
    return Race({"ours": _causal(q, k, v, g, phi), **_exact(q, k, v, g, True)}, _causal_work(o, phi))


def _exact(q: Any, k: Any, v: Any, g: Any, causal: bool) -> dict[str, Call]:
    if not peers.have("torch"):
        return {}
    return {"torch's scaled_dot_product_attention": gradient_peers.torch_softmax_gradients(q, k, v, g, causal)}


GRADIENTS = {
    "backward-causal-elu1": Case(partial(_linear, make=elu1_map, causal=True), told="causal, elu + 1"),
    "backward-causal-favor": Case(partial(_linear, make=favor, causal=True), told="causal, FAVOR+"),
    "backward-causal-favor-omega": Case(
        partial(_linear, make=favor, causal=True, learn=True), told="causal, FAVOR+, omega learnt"
    ),
    "backward-full-favor": Case(partial(_linear, make=favor, causal=False), told="bidirectional, FAVOR+"),
    "backward-softmax": Case(partial(_softmax, causal=False)),
    "backward-softmax-causal": Case(partial(_softmax, causal=True)),
    "backward-features": Case(_features),
    "gradients-causal-elu1": Case(partial(_causal_against_torch, make=elu1_map), told="elu + 1"),
    "gradients-causal-favor": Case(partial(_causal_against_torch, make=favor), told="FAVOR+"),
    "gradients-softmax": Case(partial(_softmax_against_torch, causal=False)),
    "gradients-softmax-causal": Case(partial(_softmax_against_torch, causal=True)),
    "gradients-elu1-for-softmax": Case(partial(_causal_for_softmax, make=elu1_map), told="elu + 1"),
    "gradients-favor-for-softmax": Case(partial(_causal_for_softmax, make=favor), told="FAVOR+"),
}
