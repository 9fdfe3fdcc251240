"""How the heads of a layer attend: exactly, by features, or by a function of one's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias, final

import numpy as np

from kernattn._arrays.namespaces import Array, namespace, placement
from kernattn._runtime.checks import shown
from kernattn.attention import (
    LinearState,
    WindowState,
    attend,
    causal_linear_attention,
    key_state,
    linear_attention,
    linear_attention_step,
    softmax_attention,
)
from kernattn.attention._mechanisms.window_states import put_in_order
from kernattn.attention._state_parts import holds_states
from kernattn.attention.patterns import Pattern
from kernattn.errors import DTypeError, ParameterError
from kernattn.features import FeatureMap
from kernattn.transfer import Heads, Transfer
from kernattn.transformer._gated import GatedLayer

Kind: TypeAlias = Pattern | FeatureMap | Heads | Callable[..., Array] | None


@holds_states
class KeysValues(NamedTuple):
    """What exact attention remembers: all keys and values, and which of them are there."""

    k: Array  # (..., h, n, d)
    v: Array
    mask: Array | None  # (..., 1, n)


LayerState: TypeAlias = KeysValues | LinearState | WindowState | GatedLayer


@holds_states
class Memory(NamedTuple):
    """What the layers of a decoder need of an encoder's rows; `prepare_memory` makes it, once."""

    layers: tuple[LayerState, ...]


class HeadAttention(ABC):
    """Attention of heads (..., h, n, d); masks are (..., 1, n)."""

    @abstractmethod
    def attend(self, q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Array:
        """Return the attention of whole sequences."""

    @abstractmethod
    def state_type(self) -> type[LayerState]:
        """Return the class of what is remembered."""

    @abstractmethod
    def summarise(self, k: Array, v: Array, mask: Array | None) -> LayerState:
        """Return a summary of keys and values, from which queries can `read`."""

    @abstractmethod
    def read(self, state: Any, q: Array) -> Array:
        """Return the attention of queries to all keys of a summary."""

    @abstractmethod
    def prefill(self, q: Array, k: Array, v: Array, mask: Array | None) -> tuple[Array, LayerState]:
        """Return the causal attention of whole sequences, and the state from which `step` goes on."""

    @abstractmethod
    def step(self, state: Any, q: Array, k: Array, v: Array) -> tuple[Array, LayerState]:
        """Return the attention of one further token, (..., h, 1, d), and the state after it."""


@final
@dataclass(frozen=True)
class Exact(HeadAttention):
    """Softmax attention, over a pattern where there is one."""

    pattern: Pattern | None = None

    def attend(self, q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Array:
        turned = None if mask is None or self.pattern is None else _from_first(mask)
        if mask is None or turned is None:
            return softmax_attention(q, k, v, causal=causal, key_mask=mask, pattern=self.pattern)
        there, back = turned
        q, k, v, mask = (put_in_order(x, there) for x in (q, k, v, mask[..., None]))
        out = softmax_attention(q, k, v, causal=causal, key_mask=mask[..., 0], pattern=self.pattern)
        return put_in_order(out, back)

    def state_type(self) -> type[LayerState]:
        return KeysValues

    def summarise(self, k: Array, v: Array, mask: Array | None) -> LayerState:
        return KeysValues(k, v, mask)

    def read(self, state: KeysValues, q: Array) -> Array:
        return softmax_attention(q, state.k, state.v, key_mask=state.mask)

    def prefill(self, q: Array, k: Array, v: Array, mask: Array | None) -> tuple[Array, LayerState]:
        return self.attend(q, k, v, mask, True), KeysValues(k, v, mask)

    def step(self, state: KeysValues, q: Array, k: Array, v: Array) -> tuple[Array, LayerState]:
        xp, mask = namespace(q=q), state.mask
        if mask is not None:
            mask = xp.concat([mask, xp.ones_like(mask[..., :1])], axis=-1)
        kept = KeysValues(xp.concat([state.k, k], axis=-2), xp.concat([state.v, v], axis=-2), mask)
        return softmax_attention(q, kept.k, kept.v, key_mask=mask, pattern=self.pattern), kept  # q is the last token


def _from_first(mask: Array) -> tuple[Array, Array] | None:
    """Return the order (..., n) in which the first token that is there stands first, and the order back; None of none.

    A pattern counts tokens from it, and what pads a sequence before it stands behind.
    """
    xp = namespace(mask=mask)
    first = xp.argmax(xp.astype(mask, xp.int32), axis=-1, keepdims=True)
    if isinstance(first, np.ndarray) and not first.any():
        return None
    n = mask.shape[-1]
    at = xp.arange(n, **placement(mask))
    return (at + first) % n, (at - first) % n


@final
@dataclass(frozen=True)
class Linear(HeadAttention):
    """Attention by a feature map."""

    phi: FeatureMap

    def attend(self, q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Array:
        if causal:
            return causal_linear_attention(q, k, v, self.phi, key_mask=mask)[0]
        return linear_attention(q, k, v, self.phi, key_mask=mask)

    def state_type(self) -> type[LayerState]:
        return LinearState

    def summarise(self, k: Array, v: Array, mask: Array | None) -> LayerState:
        return key_state(k, v, self.phi, key_mask=mask)

    def read(self, state: LinearState, q: Array) -> Array:
        return attend(state, q, self.phi)

    def prefill(self, q: Array, k: Array, v: Array, mask: Array | None) -> tuple[Array, LayerState]:
        return causal_linear_attention(q, k, v, self.phi, key_mask=mask)

    def step(self, state: LinearState, q: Array, k: Array, v: Array) -> tuple[Array, LayerState]:
        out, state = linear_attention_step(state, q[..., 0, :], k[..., 0, :], v[..., 0, :], self.phi)
        return out[..., None, :], state


@final
@dataclass(frozen=True)
class ByHeads(HeadAttention):
    """Attention whose heads have maps of their own, or a window."""

    heads: Heads

    def attend(self, q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Array:
        return self.heads.attend(q, k, v, causal=causal, key_mask=mask)

    def state_type(self) -> type[LayerState]:
        return WindowState if self.heads.window else LinearState

    def summarise(self, k: Array, v: Array, mask: Array | None) -> LayerState:
        return self.heads.summarise(k, v, key_mask=mask)

    def read(self, state: LinearState, q: Array) -> Array:
        return self.heads.read(state, q)

    def prefill(self, q: Array, k: Array, v: Array, mask: Array | None) -> tuple[Array, LayerState]:
        return self.heads.prefill(q, k, v, key_mask=mask)

    def step(self, state: Any, q: Array, k: Array, v: Array) -> tuple[Array, LayerState]:
        return self.heads.step(state, q, k, v)


@final
@dataclass(frozen=True)
class Own(HeadAttention):
    """A function of one's own, (q, k, v, causal=, key_mask=) -> out."""

    function: Callable[..., Array]

    def attend(self, q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Array:
        return self.function(q, k, v, causal=causal, key_mask=mask)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ParameterError(
            "attention by a function knows whole sequences only; prefill, step, generate and a memory take exact "
            f"attention, a causal pattern or a feature map; got {shown(self.function)}"
        )

    state_type = summarise = read = prefill = step = _refuse


def layer_name(layer: int) -> str:
    """Return the name of a layer in a transfer."""
    return f"layers.{layer}"


def resolve_attention(attention: Kind | Transfer | Sequence[Kind], layers: int) -> list[HeadAttention]:
    """Return the attention of each layer, from one for all, a list of them, or a transfer."""
    if isinstance(attention, Transfer):
        maps = {layer.name: layer.heads for layer in attention.layers}
        names = [layer_name(layer) for layer in range(layers)]
        if not maps.keys() <= set(names):
            raise ParameterError(f"attention must be a transfer of a model of {layers} layers; got {[*maps]}")
        return [_resolve_one(maps.get(name)) for name in names]
    if not isinstance(attention, list | tuple):
        return [_resolve_one(attention)] * layers
    if len(attention) != layers:
        raise ParameterError(f"attention must be one for all layers or one for each of {layers}; got {len(attention)}")
    return [_resolve_one(each) for each in attention]


def _resolve_one(kind: Any) -> HeadAttention:
    if kind is None or isinstance(kind, Pattern):
        return Exact(kind)
    if isinstance(kind, FeatureMap):
        return Linear(kind)
    if isinstance(kind, Heads):
        return ByHeads(kind)
    if callable(kind):
        return Own(kind)
    raise DTypeError(
        f"attention must be None, a Pattern, a FeatureMap, Heads, a function, or a Transfer; got {shown(kind)}"
    )
