"""What the edges to other libraries cost, by calls that do little else, and pools of threads that take turns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench.cpu import peers
from bench.cpu.cases.inputs import elu1_map, favor, heads, normal
from bench.cpu.gradient_peers import torch_quadratic_by_hand, torch_quadratic_gradients, torch_softmax_gradients
from bench.races import Case, Race
from bench.sizes import Sizes
from kernattn._gradients import vjp
from kernattn.attention import (
    causal_linear_attention,
    initial_state,
    linear_attention,
    linear_attention_step,
    softmax_attention,
)
from kernattn.bench import Work
from kernattn.bench._clock import Call
from kernattn.features import elu1

FEW = (16, 64, 256)  # tokens
STEPS = 256
PRODUCT = 1024  # rows and columns of a product of torch

_Maps = Callable[[Sizes], tuple[Any, ...]]


def _first(out: Any) -> Any:
    return out[0] if isinstance(out, tuple) else out


def _few(o: Sizes, run: Any, maps: _Maps) -> Race:
    """Calls of a few tokens on NumPy's arrays, on tensors with and without gradients, and what torch does by itself."""
    host: list[Any] = heads(o)
    phi = maps(o)
    g = np.ones_like(host[2])
    of_causal = (g, None) if run is causal_linear_attention else g
    calls = {
        "ours": partial(run, *host, *phi),
        "ours, kept for gradients": partial(vjp, run, *host, *phi),
        "ours, both ways": lambda: vjp(run, *host, *phi)[1](of_causal),
    }
    if peers.have("torch"):
        torch = import_module("torch")
        plain = [torch.from_numpy(x) for x in host]
        leaves = [x.clone().requires_grad_() for x in plain]
        of_out = torch.from_numpy(g)
        calls |= {
            "tensors of torch": partial(run, *plain, *phi),
            "tensors of torch, kept for gradients": partial(run, *leaves, *phi),
            "tensors of torch, both ways": lambda: torch.autograd.grad(_first(run(*leaves, *phi)), leaves, of_out),
            **_by_torch(host, g, run, *phi),
        }
    return Race(calls, Work(4.0 * g.nbytes))


def _by_torch(host: list[Any], g: Any, run: Any, phi: Any = None) -> dict[str, Call]:
    """Return what torch does without us, forward and both ways, by name; exact attention by its fused kernel."""
    copies = [x.copy() for x in (*host, g)]  # of which those that are differentiated are told so
    if run is softmax_attention:
        name, ways = "torch's scaled_dot_product_attention", (peers.torch_softmax, torch_softmax_gradients)
        rest: tuple[Any, ...] = (False,)
    else:
        name, ways = "torch, quadratic", (peers.torch_quadratic, torch_quadratic_gradients)
        rest = getattr(phi, "omega", None), run is causal_linear_attention
    calls = {name: ways[0](*host, *rest), f"{name}, both ways": ways[1](*copies, *rest)}
    if run is causal_linear_attention:  # whoever trains has no use for the state
        calls[f"{name}, the output alone"] = peers.torch_quadratic(*host, *rest, state=False)
    elif run is not softmax_attention:
        calls["torch, sums"] = peers.torch_sums(*host, rest[0])
    if run is not softmax_attention and rest[0] is None:
        own = [x.copy() for x in (*host, g)]
        calls[f"{name}, both ways by hand"] = torch_quadratic_by_hand(*own, rest[1])
    return calls


def _steps(o: Sizes) -> Race:
    """256 decode steps of FAVOR+, one after the other: of NumPy, of torch, under jit of JAX, and in its scan."""
    host, phi = normal(o, *3 * [(STEPS, o.heads, o.dim)]), favor(o)

    def loop(x: list[Any], step: Any = None) -> Call:
        step = step or partial(linear_attention_step, phi=phi)
        start, tokens = initial_state(phi, (o.heads,), o.dim, like=x[2]), [tuple(y[i] for y in x) for i in range(STEPS)]

        def run() -> Any:
            state = start
            for q, k, v in tokens:
                out, state = step(state, q, k, v)
            return out

        return run

    calls = {"ours": loop(host)}
    if peers.have("torch"):
        calls["tensors of torch"] = loop([import_module("torch").from_numpy(x) for x in host])
    if peers.have("jax") and host[0].dtype == np.float32:  # JAX has float64 only where it is asked for
        jax = import_module("jax")
        moved = [jax.numpy.asarray(x) for x in host]
        start = initial_state(phi, (o.heads,), o.dim, like=moved[2])
        steps = loop(moved, jax.jit(partial(linear_attention_step, phi=phi)))

        def take(state: Any, token: Any) -> Any:
            out, state = linear_attention_step(state, *token, phi)
            return state, out

        scan = jax.jit(lambda tokens: jax.lax.scan(take, start, tokens)[1][-1])
        calls["arrays of jax, a step under jit"] = lambda: jax.block_until_ready(steps())
        calls["arrays of jax, a scan under jit"] = lambda: jax.block_until_ready(scan(moved))
    size = float(STEPS * o.heads * o.features * (o.dim + 1) * host[0].itemsize)
    return Race(calls, Work(2 * size, 4.0 * size / host[0].itemsize, written=size))


def _turns(o: Sizes, make: Callable[[Sizes], Any]) -> Race:
    """Causal attention of tensors and a product of torch, each alone and in turns, by the threads of both pools."""
    host: list[Any] = heads(o)
    run: Any = causal_linear_attention
    if not peers.have("torch"):
        return Race({"ours": partial(run, *host, make(o))}, Work(4.0 * host[0].nbytes))
    from_numpy = import_module("torch").from_numpy
    square = from_numpy(normal(o, (PRODUCT, PRODUCT))[0])
    ours = partial(run, *map(from_numpy, host), make(o))
    calls = {
        "ours": ours,
        "torch's product": lambda: square @ square,
        "both in turn": lambda: (ours(), square @ square),
    }
    return Race(calls, Work(4.0 * host[0].nbytes))


_FORMS: dict[str, tuple[str, Any, _Maps]] = {
    "causal-elu1": ("causal, elu + 1", causal_linear_attention, lambda o: (elu1(),)),
    "causal-favor": ("causal, FAVOR+", causal_linear_attention, lambda o: (favor(o),)),
    "full-elu1": ("bidirectional, elu + 1", linear_attention, lambda o: (elu1(),)),
    "full-favor": ("bidirectional, FAVOR+", linear_attention, lambda o: (favor(o),)),
    "softmax": ("exact attention", softmax_attention, lambda o: ()),
}

FEW_TOKENS = {n: {f"edges-{name}" + (f"-{n}" if n > min(FEW) else ""): name for name in _FORMS} for n in FEW}
"""The names of cases of few tokens, by their number, and what each is of."""


def _of_few(n: int, form: str) -> Case:
    told, run, maps = _FORMS[form]
    return Case(partial(_few, run=run, maps=maps), n=n, told=f"{told}, {n} tokens")


EDGES = {
    **{case: _of_few(n, form) for n, names in FEW_TOKENS.items() for case, form in names.items()},
    "edges-steps": Case(_steps, n=1),
    "turns-causal-elu1": Case(partial(_turns, make=elu1_map), told="elu + 1"),
    "turns-causal-favor": Case(partial(_turns, make=favor), told="FAVOR+"),
}
"""The cases by name."""
