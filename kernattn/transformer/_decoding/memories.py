"""What is remembered of tokens, as the loop reads it: one flat array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn.attention import LinearState
from kernattn.ops._numba.codegen.registers import LINE
from kernattn.transformer._decoding.loops import KEYS
from kernattn.transformer._decoding.packing import Maps, empty


class Memories:
    """Sums s, z and peaks of layers with maps, and keys and values of exact ones, for all heads of all sequences."""

    def __init__(self, maps: Maps, heads: int, d: int, room: int) -> None:
        """Make room for sums, and for keys and values of `room` tokens, a multiple of KEYS."""
        self._maps, self._heads, self._d, self.room = maps, heads, d, room
        places = self._places = np.zeros((len(maps.features), 5), np.int64)  # three begins, features, peaks
        begin, unit = 0, LINE // 4
        for layer, sizes in enumerate(map(self._sizes, range(len(maps.features)))):
            for part, size in enumerate(sizes):
                places[layer, part] = begin
                begin += -(-heads * size // unit) * unit
        places[:, 3], places[:, 4] = maps.features, maps.peaks
        self.places = places.reshape(-1)
        self.flat = empty(begin + LINE)

    def _sizes(self, layer: int) -> tuple[int, ...]:
        """Return the sizes of a layer's parts, for one head."""
        features, peaks = self._maps.features[layer], self._maps.peaks[layer]
        return (features * self._d, features, peaks) if features else (self.room * self._d,) * 2

    def _parts(self, layer: int) -> list[NDArray[np.float32]]:
        begins, sizes = self._places[layer].tolist(), self._sizes(layer)
        return [self.flat[begin : begin + self._heads * size] for begin, size in zip(begins[:3], sizes, strict=False)]

    def keep_sums(self, layer: int, state: LinearState) -> None:
        """Write the sums of a layer."""
        for place, part in zip(self._parts(layer), (state.s, state.z, state.peak), strict=True):
            place[:] = np.asarray(part, np.float32).reshape(-1)

    def keep(self, layer: int, k: NDArray[Any], v: NDArray[Any]) -> None:
        """Write keys and values (heads, n, d) of the tokens so far."""
        whole = np.zeros((self._heads, self.room, self._d), np.float32)
        panels, values = self._parts(layer)
        whole[:, : k.shape[1]] = k
        panels[:] = whole.reshape(self._heads, -1, KEYS, self._d).transpose(0, 1, 3, 2).reshape(-1)
        whole[:, : v.shape[1]] = v
        values[:] = whole.reshape(-1)

    def grown(self) -> Memories:
        """Return memories of the same tokens, with twice the room for keys and values."""
        more = Memories(self._maps, self._heads, self._d, 2 * self.room)
        for layer, features in enumerate(self._maps.features):
            old, new = self._parts(layer), more._parts(layer)
            for x, y in zip(old, new, strict=True):  # whole panels of keys, so that these need not be read
                x = x if features else x.reshape(self._heads, -1)
                (y if features else y.reshape(self._heads, -1)[:, : x.shape[-1]])[...] = x
        return more
