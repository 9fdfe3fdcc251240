"""What is remembered of tokens, as the loop reads it: one flat array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn.ops._decode.gated_loops import Mixer
from kernattn.ops._decode.heads_loops import FEATURES, FIRST_MAP, OWN_MAPS, PEAKS, PLACE_COLUMNS, WINDOW
from kernattn.ops._decode.loops import KEYS
from kernattn.ops._decode.packing import SINGLE, UNIT, Maps
from kernattn.ops._numba.tiles.packing import zeros_by_lines


class Memories:
    """What layers remember of all sequences: sums s, z and peaks, and windows; keys and values; states and inputs."""

    def __init__(
        self, maps: Maps, mixers: Sequence[Mixer | None], sequences: int, key_heads: int, d: int, tokens: int
    ) -> None:
        """Make room for so many sequences, and for keys and values of `tokens` tokens and one more."""
        self._maps, self._mixers, self._sequences, self._heads, self._d = maps, mixers, sequences, key_heads, d
        self._exact = [not features and m is None for features, m in zip(maps.features, mixers, strict=True)]
        self.room = KEYS if any(self._exact) else 0
        while 0 < self.room <= tokens:
            self.room *= 2  # whole panels of keys
        places = self._places = np.zeros((len(maps.features), PLACE_COLUMNS), np.int64)
        begin = 0
        for layer in range(len(places)):
            for part, size in enumerate(self._sizes(layer)):
                places[layer, part] = begin
                begin += -(-size // UNIT) * UNIT
        columns = {FEATURES: maps.features, PEAKS: maps.peaks, WINDOW: maps.windows, FIRST_MAP: maps.first}
        for column, numbers in (columns | {OWN_MAPS: maps.own}).items():
            places[:, column] = numbers
        self.places = places.reshape(-1)
        self.flat = zeros_by_lines(begin + UNIT, SINGLE)

    def _sizes(self, layer: int) -> tuple[int, ...]:
        """Return how many numbers the parts of a layer have."""
        if (m := self._mixers[layer]) is not None:
            past = max(0, m.span - 1) * (2 * m.groups * m.d + m.heads * m.e)
            return self._sequences * m.heads * m.d * m.e, self._sequences * past
        features, heads = self._maps.features[layer], self._sequences * self._heads
        if features:
            sums = heads * features * self._d, heads * features, heads * self._maps.peaks[layer]
            tokens = heads * self._maps.windows[layer]
            return sums if not tokens else (*sums, tokens * self._d, tokens * self._d, tokens)
        return (heads * self.room * self._d,) * 2

    def _parts(self, layer: int) -> list[NDArray[np.float32]]:
        """Return the parts of a layer, flat views."""
        begins, sizes = self._places[layer].tolist(), self._sizes(layer)
        return [self.flat[begin : begin + size] for begin, size in zip(begins, sizes, strict=False)]

    def keep(self, layer: int, rows: NDArray[np.int64], *sums: Any) -> None:
        """Write what a layer has of some sequences: sums s, z and peaks, and a window; or a state and last inputs."""
        for place, part in zip(self._parts(layer), sums, strict=True):
            place.reshape(self._sequences, -1)[rows] = np.asarray(part, np.float32).reshape(len(rows), -1)

    def keep_tokens(self, layer: int, rows: NDArray[np.int64], k: NDArray[Any], v: NDArray[Any]) -> None:
        """Write keys and values (heads, n, d) of some sequences' tokens so far, as many as there is room for."""
        heads = len(rows) * self._heads
        whole = np.zeros((heads, self.room, self._d), np.float32)
        keys, values = (part.reshape(self._sequences, -1) for part in self._parts(layer))
        whole[:, : k.shape[1]] = k[:, : self.room]
        keys[rows] = whole.reshape(heads, -1, KEYS, self._d).transpose(0, 1, 3, 2).reshape(len(rows), -1)
        whole[:, : v.shape[1]] = v[:, : self.room]
        values[rows] = whole.reshape(len(rows), -1)

    def of(self, layer: int, rows: NDArray[np.int64]) -> list[NDArray[np.float32]]:
        """Return the parts that a layer has of some sequences, (len(rows), ...) each, in the order of `keep`."""
        return [part.reshape(self._sequences, -1)[rows] for part in self._parts(layer)]

    def tokens_of(self, layer: int, rows: NDArray[np.int64], count: int) -> list[NDArray[np.float32]]:
        """Return keys and values (heads, count, d) of some sequences: of their first `count` tokens."""
        keys, values = self.of(layer, rows)
        heads = len(rows) * self._heads
        keys = keys.reshape(heads * self.room // KEYS, self._d, KEYS).swapaxes(-1, -2)
        return [part.reshape(heads, self.room, self._d)[:, :count] for part in (keys, values)]

    def with_room(self, tokens: int) -> Memories:
        """Return these memories, or where they have no room after so many tokens, larger ones of the same tokens."""
        if not 0 < self.room <= tokens:
            return self
        more = Memories(self._maps, self._mixers, self._sequences, self._heads, self._d, tokens)
        heads = self._sequences * self._heads
        for layer, exact in enumerate(self._exact):
            for x, y in zip(self._parts(layer), more._parts(layer), strict=True):
                if not exact:
                    y[:] = x
                else:  # keys lie in whole panels: those of a head are copied as they lie
                    y.reshape(heads, -1)[:, : x.size // heads] = x.reshape(heads, -1)
        return more
