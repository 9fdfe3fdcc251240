"""The same calls on arrays of NumPy, PyTorch and JAX, whose memory is lent to the same loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench.cpu import peers
from bench.cpu.cases.inputs import elu1_map, favor, heads
from bench.races import Case, Race
from bench.sizes import Sizes
from kernattn.attention import (
    causal_linear_attention,
    key_state,
    linear_attention,
    linear_attention_step,
    softmax_attention,
)
from kernattn.bench import Work
from kernattn.features import elu1

_Form = Callable[[Sizes, list[Any]], Callable[[], Any]]  # sizes and q, k, v of one library -> a call


def _of(function: Callable[..., Any], given: list[Any], phi: Any) -> Callable[[], Any]:
    return partial(function, *given, phi)


def _step(o: Sizes, given: list[Any], reuse: bool, make: Callable[[Sizes], Any] = favor) -> Callable[[], Any]:
    q, k, v = given
    phi = make(o)
    state = key_state(k, v, phi)
    return partial(linear_attention_step, state, q[:, -1], k[:, -1], v[:, -1], phi, reuse_state=reuse)


_FORMS: dict[str, tuple[str, _Form]] = {
    "causal-elu1": ("causal, elu + 1", lambda o, given: _of(causal_linear_attention, given, elu1())),
    "causal-favor": ("causal, FAVOR+", lambda o, given: _of(causal_linear_attention, given, favor(o))),
    "full-elu1": ("bidirectional, elu + 1", lambda o, given: _of(linear_attention, given, elu1())),
    "full-favor": ("bidirectional, FAVOR+", lambda o, given: _of(linear_attention, given, favor(o))),
    "features-elu1": ("features of elu + 1", lambda o, given: partial(elu1(), given[0])),
    "features": ("positive features", lambda o, given: partial(favor(o), given[0])),
    "softmax": ("exact attention", lambda o, given: partial(softmax_attention, *given)),
    "step": ("a decode step, FAVOR+", partial(_step, reuse=False)),
    "step-elu1": ("a decode step, elu + 1", partial(_step, reuse=False, make=elu1_map)),
    "step-in-place": ("a decode step in place, FAVOR+", partial(_step, reuse=True)),
}


def _kinds(host: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    yield "ours", host
    if peers.have("torch"):
        yield "ours, tensors of torch", [import_module("torch").from_numpy(x) for x in host]
    if peers.have("jax") and host[0].dtype == np.float32:  # JAX has float64 only where it is asked for
        yield "ours, arrays of jax", [import_module("jax.numpy").asarray(x) for x in host]


def _race(o: Sizes, form: _Form) -> Race:
    """The same call on arrays of NumPy, PyTorch and JAX."""
    host = heads(o)
    moved = 4.0 * host[0].nbytes
    return Race({name: form(o, given) for name, given in _kinds(host)}, Work(moved))


LIBRARIES = {f"libraries-{name}": Case(partial(_race, form=form), told=told) for name, (told, form) in _FORMS.items()}
