"""The layers of a transformer that take a token at a time: weights and maps, copied once, and one call a step."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._maps.spec import MapSpec
from kernattn.ops._decode.experts_loops import EXPERT_COLUMNS, Experts
from kernattn.ops._decode.gated_loops import MIXER_COLUMNS, Mixer
from kernattn.ops._decode.loops import Sizes, decode
from kernattn.ops._decode.memories import Memories
from kernattn.ops._decode.packing import HeadMaps, Pair, most_room, packed_maps, packed_weights
from kernattn.ops._decode.rows_loops import ACTIVATIONS
from kernattn.ops._numba.helper_threads import board_for

FEWEST = 16  # sequences that a thread is handed: it reads all weights for them
SECONDS_PER_WEIGHT = 2.5e-11  # and for each sequence; decides when to share


class Stack:
    """Layers whose weights lie in the order of their use."""

    def __init__(
        self,
        sizes: dict[str, Any],
        eps: float,
        pairs: Callable[[], Iterable[Pair]],
        maps: Sequence[tuple[MapSpec, MapSpec] | HeadMaps | None],
        mixers: Sequence[Mixer | None],
        experts: Sequence[Experts | None],
        kind: int = 0,
    ) -> None:
        """Copy weights (weight, bias) in the order of their use, and the maps (of queries, of keys) of all layers.

        `kind` is that of 16-bit weights, as loops know it; 0 for float32.

        `sizes` are those of `loops.Sizes`, the activation by its name, without what the widest layers need. None among
        mixers is attention, and then None among maps is exact attention; a pair is of maps that loops read as they are.
        """
        self._maps, self._mixers = packed_maps(maps, sizes["head_width"]), mixers
        some = [m for m in mixers if m], [each for each in experts if each]
        rooms = most_room(sizes, *some, not all(mixers), self._maps)
        self._sizes = Sizes(**sizes | rooms | {"activation": ACTIVATIONS.index(sizes["activation"]), "kind": kind})
        self._numbers, self._eps = np.array(self._sizes, np.int64), np.float32(eps)
        self._kinds = tuple(
            np.array([each or (0,) * columns for each in rows], np.int64).reshape(-1)
            for rows, columns in ((mixers, MIXER_COLUMNS), (experts, EXPERT_COLUMNS))
        )
        self.weights, self.count = packed_weights(pairs, kind)

    def memories(self, sequences: int, tokens: int) -> Memories:
        """Return room for what is remembered of so many sequences, with `tokens` tokens or fewer so far."""
        return Memories(self._maps, self._mixers, sequences, self._sizes.key_heads, self._sizes.head_width, tokens)

    def step(
        self, memories: Memories, lengths: NDArray[np.int64], turns: NDArray[np.float32], rows: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Take a token (B, dim) of every sequence, B have `lengths`, and return rows or logits (B, columns).

        `turns` are cosines and sines (B, turned), or nothing.
        """
        count = len(lengths)
        out = np.empty((count, self._sizes.columns), np.float32)
        decode(
            self._numbers, self._eps, self.weights, self._maps[:3], self._kinds, memories.room, memories.flat,
            memories.places, lengths, turns.reshape(-1), rows.reshape(-1), out.reshape(-1),
            *board_for(max(1, count // FEWEST), self.count * count * SECONDS_PER_WEIGHT),
        )  # fmt: skip
        return out
