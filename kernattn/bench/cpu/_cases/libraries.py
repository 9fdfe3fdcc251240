"""The same calls on arrays of NumPy, PyTorch and JAX, whose memory is lent to the same loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from kernattn.attention import (
    causal_linear_attention,
    key_state,
    linear_attention,
    linear_attention_step,
    softmax_attention,
)
from kernattn.bench._rates import Work
from kernattn.bench._rows import Race
from kernattn.bench._sizes import Sizes
from kernattn.bench.cpu import _peers as peers
from kernattn.bench.cpu._cases.inputs import normal
from kernattn.features import elu1, random_features
from kernattn.kernels import Softmax

__all__ = ["LIBRARIES"]

_Form = Callable[[Sizes, list[Any]], Callable[[], Any]]  # sizes and q, k, v of one library -> a call


def _favor(o: Sizes) -> Any:
    return random_features(Softmax(), o.dim, o.features, "positive", rng=o.seed)


def _of(function: Callable[..., Any], given: list[Any], phi: Any) -> Callable[[], Any]:
    return partial(function, *given, phi)


def _step(o: Sizes, given: list[Any], reuse: bool, make: Callable[[Sizes], Any] = _favor) -> Callable[[], Any]:
    q, k, v = given
    phi = make(o)
    state = key_state(k, v, phi)
    return partial(linear_attention_step, state, q[:, -1], k[:, -1], v[:, -1], phi, reuse_state=reuse)


_FORMS: dict[str, _Form] = {
    "causal-elu1": lambda o, given: _of(causal_linear_attention, given, elu1()),
    "causal-favor": lambda o, given: _of(causal_linear_attention, given, _favor(o)),
    "full-elu1": lambda o, given: _of(linear_attention, given, elu1()),
    "full-favor": lambda o, given: _of(linear_attention, given, _favor(o)),
    "features-elu1": lambda o, given: partial(elu1(), given[0]),
    "features": lambda o, given: partial(_favor(o), given[0]),
    "softmax": lambda o, given: partial(softmax_attention, *given),
    "step": partial(_step, reuse=False),
    "step-elu1": partial(_step, reuse=False, make=lambda o: elu1()),
    "step-in-place": partial(_step, reuse=True),
}


def _kinds(host: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    yield "ours", host
    if peers.have("torch"):
        yield "ours, tensors of torch", [import_module("torch").from_numpy(x) for x in host]
    if peers.have("jax") and host[0].dtype == np.float32:  # JAX has float64 only where it is asked for
        yield "ours, arrays of jax", [import_module("jax.numpy").asarray(x) for x in host]


def _race(o: Sizes, form: _Form) -> Race:
    """The same call on arrays of NumPy, PyTorch and JAX."""
    host = normal(o, *3 * [(o.heads, o.n, o.dim)])
    moved = 4.0 * host[0].nbytes
    return Race({name: form(o, given) for name, given in _kinds(host)}, Work(moved))


LIBRARIES: dict[str, Callable[[Sizes], Race]] = {
    f"libraries-{name}": partial(_race, form=form) for name, form in _FORMS.items()
}
