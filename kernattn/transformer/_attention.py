"""How the heads of a layer attend: exactly, by features, or by a function of one's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, final

from kernattn._arrays.namespaces import Array, namespace
from kernattn._runtime.checks import shown
from kernattn.attention import (
    LinearState,
    attend,
    causal_linear_attention,
    key_state,
    linear_attention,
    linear_attention_step,
    softmax_attention,
)
from kernattn.attention.patterns import Pattern
from kernattn.errors import DTypeError, ParameterError
from kernattn.features import FeatureMap

Kind: TypeAlias = Pattern | FeatureMap | Callable[..., Array] | None


class KeysValues(NamedTuple):
    """What exact attention remembers: all keys and values, and which of them are there."""

    k: Array  # (..., h, n, d)
    v: Array
    mask: Array | None  # (..., 1, n)


LayerState: TypeAlias = KeysValues | LinearState


class Memory(NamedTuple):
    """What the layers of a decoder need of an encoder's rows; `remember` makes it, once."""

    layers: tuple[LayerState, ...]


class Attends(ABC):
    """Attention of heads (..., h, n, d); masks are (..., 1, n)."""

    @abstractmethod
    def whole(self, q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Array:
        """Return the attention of whole sequences."""

    @abstractmethod
    def holds(self) -> type[LayerState]:
        """Return of which class that is which is remembered."""

    @abstractmethod
    def remembered(self, k: Array, v: Array, mask: Array | None) -> LayerState:
        """Return what later queries need of keys and values."""

    @abstractmethod
    def across(self, state: Any, q: Array) -> Array:
        """Return the attention of queries to all that is remembered."""

    @abstractmethod
    def begun(self, q: Array, k: Array, v: Array, mask: Array | None) -> tuple[Array, LayerState]:
        """Return the causal attention of whole sequences, and what later tokens need of them."""

    @abstractmethod
    def stepped(self, state: Any, q: Array, k: Array, v: Array) -> tuple[Array, LayerState]:
        """Return the attention of one further token, (..., h, 1, d), and what later ones need."""


@final
@dataclass(frozen=True)
class Exact(Attends):
    """Softmax attention, over a pattern where there is one."""

    pattern: Pattern | None = None

    def whole(self, q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Array:
        return softmax_attention(q, k, v, causal=causal, key_mask=mask, pattern=self.pattern)

    def holds(self) -> type[LayerState]:
        return KeysValues

    def remembered(self, k: Array, v: Array, mask: Array | None) -> LayerState:
        return KeysValues(k, v, mask)

    def across(self, state: KeysValues, q: Array) -> Array:
        return softmax_attention(q, state.k, state.v, key_mask=state.mask)

    def begun(self, q: Array, k: Array, v: Array, mask: Array | None) -> tuple[Array, LayerState]:
        return self.whole(q, k, v, mask, True), KeysValues(k, v, mask)

    def stepped(self, state: KeysValues, q: Array, k: Array, v: Array) -> tuple[Array, LayerState]:
        xp, mask = namespace(q=q), state.mask
        if mask is not None:
            mask = xp.concat([mask, xp.ones_like(mask[..., :1])], axis=-1)
        kept = KeysValues(xp.concat([state.k, k], axis=-2), xp.concat([state.v, v], axis=-2), mask)
        return softmax_attention(q, kept.k, kept.v, key_mask=mask, pattern=self.pattern), kept  # q is the last token


@final
@dataclass(frozen=True)
class Linear(Attends):
    """Attention by a feature map."""

    phi: FeatureMap

    def whole(self, q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Array:
        if causal:
            return causal_linear_attention(q, k, v, self.phi, key_mask=mask)[0]
        return linear_attention(q, k, v, self.phi, key_mask=mask)

    def holds(self) -> type[LayerState]:
        return LinearState

    def remembered(self, k: Array, v: Array, mask: Array | None) -> LayerState:
        return key_state(k, v, self.phi, key_mask=mask)

    def across(self, state: LinearState, q: Array) -> Array:
        return attend(state, q, self.phi)

    def begun(self, q: Array, k: Array, v: Array, mask: Array | None) -> tuple[Array, LayerState]:
        return causal_linear_attention(q, k, v, self.phi, key_mask=mask)

    def stepped(self, state: LinearState, q: Array, k: Array, v: Array) -> tuple[Array, LayerState]:
        out, state = linear_attention_step(state, q[..., 0, :], k[..., 0, :], v[..., 0, :], self.phi)
        return out[..., None, :], state


@final
@dataclass(frozen=True)
class Own(Attends):
    """A function of one's own, (q, k, v, causal=, key_mask=) -> out."""

    function: Callable[..., Array]

    def whole(self, q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Array:
        return self.function(q, k, v, causal=causal, key_mask=mask)

    def _refuse(self) -> ParameterError:
        return ParameterError(
            "attention by a function knows whole sequences only; prefill, step, generate and a memory take exact "
            f"attention, a causal pattern or a feature map; got {shown(self.function)}"
        )

    def holds(self) -> type[LayerState]:
        raise self._refuse()

    def remembered(self, k: Array, v: Array, mask: Array | None) -> LayerState:
        raise self._refuse()

    def across(self, state: Any, q: Array) -> Array:
        raise self._refuse()

    def begun(self, q: Array, k: Array, v: Array, mask: Array | None) -> tuple[Array, LayerState]:
        raise self._refuse()

    def stepped(self, state: Any, q: Array, k: Array, v: Array) -> tuple[Array, LayerState]:
        raise self._refuse()


def attends(attention: Kind | Sequence[Kind], layers: int) -> list[Attends]:
    """Return how each layer attends: all alike, or each as it is said."""
    if not isinstance(attention, list | tuple):
        return [_attends(attention)] * layers
    if len(attention) != layers:
        raise ParameterError(f"attention must be one for all layers or one for each of {layers}; got {len(attention)}")
    return [_attends(each) for each in attention]


def _attends(kind: Any) -> Attends:
    if kind is None or isinstance(kind, Pattern):
        return Exact(kind)
    if isinstance(kind, FeatureMap):
        return Linear(kind)
    if callable(kind):
        return Own(kind)
    raise DTypeError(f"attention must be None, a Pattern, a FeatureMap or a function; got {shown(kind)}")
