"""The rows that a choice is made on: some of the data's, drawn by the seed, however many there are."""

from collections.abc import Iterator
from copy import deepcopy
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, Float64
from kernattn.errors import ParameterError, ShapeError
from kernattn.features._data import Data, checked_data

QUERIES, KEYS = 64, 512  # rows at most
REDRAWS = (8, 16, 32, 64, 128, 256, 512)  # of maps: more where fewer do not decide
BLOCK = 2**20  # numbers that the pairs of a block of rows take


class Sample(NamedTuple):
    """Queries (s, d), keys (t, d), their values (t, e) if there are, and what each query sees, (s, t), if not all."""

    queries: Float64
    keys: Float64
    values: Float64 | None = None
    visible: np.ndarray | None = None

    def pairs(self) -> Iterator[tuple[Float64, Float64]]:
        """Return rows of each query with each key, (b, 1, d) and (1, t, d), block by block of queries."""
        step = max(1, BLOCK // self.keys.size)
        for low in range(0, len(self.queries), step):
            yield self.queries[low : low + step, None], self.keys[None]


def check_values(values: Array | None, data: Data, causal: bool) -> Float64 | None:
    """Return values as float64 rows (l, e), one for each key; causal rows must be as many queries as keys."""
    if causal and len(data.queries) != len(data.keys):
        raise ShapeError(
            f"causal data must be as many queries as keys; got {len(data.queries)} queries and {len(data.keys)} keys"
        )
    if values is None:
        return None
    rows = checked_data(values, name="values")
    if len(rows) != len(data.keys):
        raise ShapeError(f"values must have a row for each of the {len(data.keys)} keys; got shape {rows.shape}")
    if not np.any(rows):
        raise ParameterError("values must not all be 0: every map's attention is exact then")
    return rows


def draw_sample(data: Data, rng: np.random.Generator, values: Float64 | None = None, causal: bool = False) -> Sample:
    """Return up to 64 queries and 512 keys. Rows that attend to themselves, or causally, are among their keys.

    The generator stays as it was.
    """
    source = np.random.default_rng(*_seeds(rng, (0,)))
    at = _some(len(data.keys), KEYS, source)
    if causal or np.array_equal(data.queries, data.keys):
        mine = at[_some(len(at), QUERIES, source)]
    else:
        mine = _some(len(data.queries), QUERIES, source)
    visible = mine[:, None] >= at if causal else None
    return Sample(data.queries[mine], data.keys[at], None if values is None else values[at], visible)


def redraw_seeds(rng: np.random.Generator) -> list[np.random.SeedSequence]:
    """Return the seeds of the redraws, the same for every map: they are compared on common draws."""
    return _seeds(rng, *((1, number) for number in range(REDRAWS[-1])))


def _seeds(rng: np.random.Generator, *keys: tuple[int, ...]) -> list[np.random.SeedSequence]:
    words = [int(word) for word in deepcopy(rng).integers(2**32, size=4)]
    return [np.random.SeedSequence(words, spawn_key=key) for key in keys]


def _some(count: int, most: int, source: np.random.Generator) -> np.ndarray:
    """Return the places of all rows, or of as many as `most`, in order."""
    return np.sort(source.choice(count, size=most, replace=False)) if count > most else np.arange(count)
