"""What is remembered of tokens, as the loop reads it: one flat array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn.ops._decode.loops import FEATURES, KEYS, PEAKS, PLACE_COLUMNS
from kernattn.ops._decode.packing import SINGLE, UNIT, Maps
from kernattn.ops._numba.tiles.packing import zeros_by_lines


class Memories:
    """Sums s, z and peaks of layers with maps, and keys and values of exact ones, for all heads of all sequences."""

    def __init__(self, maps: Maps, heads: int, d: int, tokens: int) -> None:
        """Make room for sums, and for keys and values of `tokens` tokens and one more, where a layer is exact."""
        self._maps, self._heads, self._d, self.room = maps, heads, d, 0 if all(maps.features) else KEYS
        while 0 < self.room <= tokens:
            self.room *= 2  # whole panels of keys
        places = self._places = np.zeros((len(maps.features), PLACE_COLUMNS), np.int64)
        begin = 0
        for layer in range(len(places)):
            for part, size in enumerate(self._sizes(layer)):
                places[layer, part] = begin
                begin += -(-heads * size // UNIT) * UNIT
        places[:, FEATURES], places[:, PEAKS] = maps.features, maps.peaks
        self.places = places.reshape(-1)
        self.flat = zeros_by_lines(begin + UNIT, SINGLE)

    def _sizes(self, layer: int) -> tuple[int, ...]:
        """Return how many numbers the parts of a layer have for one head."""
        features, peaks = self._maps.features[layer], self._maps.peaks[layer]
        return (features * self._d, features, peaks) if features else (self.room * self._d,) * 2

    def _parts(self, layer: int) -> list[NDArray[np.float32]]:
        """Return the parts of a layer, flat views for all heads: s, z and peaks, or keys and values."""
        begins, sizes = self._places[layer].tolist(), self._sizes(layer)
        return [self.flat[begin : begin + self._heads * size] for begin, size in zip(begins, sizes, strict=False)]

    def keep_sums(self, layer: int, *sums: Any) -> None:
        """Write the sums s, z and peaks of a layer."""
        for place, part in zip(self._parts(layer), sums, strict=True):
            place[:] = np.asarray(part, np.float32).reshape(-1)

    def keep_tokens(self, layer: int, k: NDArray[Any], v: NDArray[Any]) -> None:
        """Write keys and values (heads, n, d) of the tokens so far, as many as there is room for."""
        whole = np.zeros((self._heads, self.room, self._d), np.float32)
        keys, values = self._parts(layer)
        whole[:, : k.shape[1]] = k[:, : self.room]
        keys[:] = whole.reshape(self._heads, -1, KEYS, self._d).transpose(0, 1, 3, 2).reshape(-1)
        whole[:, : v.shape[1]] = v[:, : self.room]
        values[:] = whole.reshape(-1)

    def with_room(self, tokens: int) -> Memories:
        """Return these memories, or where they have no room after so many tokens, larger ones of the same tokens."""
        if not 0 < self.room <= tokens:
            return self
        more = Memories(self._maps, self._heads, self._d, tokens)
        for layer, features in enumerate(self._maps.features):
            for x, y in zip(self._parts(layer), more._parts(layer), strict=True):
                if features:
                    y[:] = x
                else:  # keys lie in whole panels: those of a head are copied as they lie
                    y.reshape(self._heads, -1)[:, : x.size // self._heads] = x.reshape(self._heads, -1)
        return more
