"""What the loop of a Decoder remembers of sequences, as states of the model, and the other way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn.attention import LinearState, WindowState
from kernattn.attention._mechanisms.window_states import window_of
from kernattn.errors import StateMismatchError
from kernattn.transformer._attention import ByHeads, Exact, HeadAttention, KeysValues, LayerState, Linear
from kernattn.transformer._config import Config
from kernattn.transformer._gated import GatedLayer

if TYPE_CHECKING:  # what it stands on loads Numba
    from kernattn.ops._decode.memories import Memories


def layer_state(
    config: Config,
    how: HeadAttention,
    memories: Memories,
    layer: int,
    rows: NDArray[np.int64],
    lengths: NDArray[np.int64],
    lead: tuple[int, ...],
) -> LayerState:
    """Return the state of a layer for some rows, which have seen so many tokens, with these leading axes."""
    if (m := config.mixer(layer)) is not None:
        s, past = memories.of(layer, rows)
        s = s.reshape(*lead, m.groups, m.heads // m.groups, m.key_dim, m.value_dim)
        return GatedLayer(s, past.reshape(*lead, m.span - 1, m.channels) if m.span else None)
    heads = (*lead, config.key_heads) if config.key_heads == config.heads else (*lead, config.key_heads, 1)
    d = config.head_width
    if isinstance(how, Exact):
        longest = int(lengths.max(initial=0))
        k, v = (x.reshape(*heads, longest, d).copy() for x in memories.tokens_of(layer, rows, longest))
        there = np.arange(longest) < lengths[:, None]
        mask = None if there.all() else there.reshape(*lead, *(1,) * (len(heads) - len(lead)), longest)
        return KeysValues(k, v, mask)
    parts = memories.of(layer, rows)
    numbers = [part.shape[-1] // config.key_heads for part in parts]  # of a head
    s, z, peak = (
        x.reshape(*heads, *own)
        for x, own in zip(parts, ((numbers[0] // d, d), numbers[1:2], numbers[2:3]), strict=False)
    )
    maps: Any = how.phi if isinstance(how, Linear) else how.heads  # type: ignore[attr-defined]
    if len(parts) == 3:
        return LinearState(s, z, peak, maps.fingerprint)
    k, v, absent = (
        _in_order(part.reshape(len(rows), config.key_heads, maps.window, own), lengths)
        for part, own in zip(parts[3:], (d, d, 1), strict=True)
    )
    return WindowState(
        s, z, peak, k.reshape(*heads, maps.window, d), v.reshape(*heads, maps.window, d),
        absent.reshape(*heads, maps.window) == 0, maps.fingerprint,
    )  # fmt: skip


def taken_over(config: Config, how: HeadAttention, layer: int, state: Any, lead: tuple[int, ...], count: int) -> Any:
    """Return sums or a state, or keys and values (B h, n, d) with those that are there first, and how many (B,)."""
    heads = config.key_heads
    if isinstance(state, GatedLayer):
        return state
    if isinstance(how, Linear | ByHeads):
        maps: Any = how.phi if isinstance(how, Linear) else how.heads
        if state.fingerprint != maps.fingerprint:
            raise StateMismatchError(f"layer {layer} must hold sums of {maps!r}; got those of another map")
        if isinstance(state, WindowState) and window_of(state) != maps.window:
            raise StateMismatchError(f"layer {layer} must hold {maps.window} tokens; got {window_of(state)}")
        return state
    n, d = state.k.shape[-2:]
    k, v = (np.ascontiguousarray(part, np.float32).reshape(count * heads, n, d) for part in (state.k, state.v))
    if state.mask is None:
        return k, v, np.full(count, n)
    shape = (*lead, n)
    there = np.broadcast_to(np.asarray(state.mask).reshape(*shape), shape).reshape(count, n)
    order = np.repeat(np.argsort(~there, axis=-1, kind="stable"), heads, axis=0)[..., None]
    return np.take_along_axis(k, order, axis=1), np.take_along_axis(v, order, axis=1), there.sum(axis=-1)


def _in_order(ring: NDArray[Any], lengths: NDArray[np.int64]) -> NDArray[Any]:
    """Return the tokens of rings (B, h, size, ...), of which token t stands at place t modulo size, oldest first."""
    places = (np.arange(ring.shape[-2]) + lengths[:, None]) % ring.shape[-2]
    return np.take_along_axis(ring, places[:, None, :, None], axis=-2)


def ring_of(state: WindowState, lengths: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
    """Return keys, values and 0 or -inf (B, h, size, ...) of a window: token t of a sequence at place t modulo size."""
    size = state.k.shape[-2]
    absent = np.where(state.present, np.float32(0), np.float32(-np.inf))[..., None]
    at_place = (np.arange(size) - lengths[:, None]) % size  # of the window's tokens, which begin with the oldest

    def turn(x: Array) -> NDArray[Any]:
        rows = np.asarray(x).reshape(len(lengths), -1, size, x.shape[-1])
        return np.take_along_axis(rows, at_place[:, None, :, None], axis=-2)

    return turn(state.k), turn(state.v), turn(absent)
