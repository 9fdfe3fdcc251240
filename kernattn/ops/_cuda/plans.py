"""Plans on a device: the tables that kernels read, uploaded once and kept for as long as the plan lives."""

from itertools import zip_longest
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kernattn._plans.parts import Part
from kernattn._plans.plan import Plan
from kernattn.ops._cuda import cupy
from kernattn.ops._cuda.constants import NULL, upload


class Level(NamedTuple):
    """A part of every head that has one, answered by one launch; plans.cuh says what the tables hold."""

    tiles: Any
    visits: Any
    words: Any
    tokens: Any
    blocks: int  # a tile each
    whole: bool  # are all rows of every head in it?


_levels: WeakKeyDictionary[Plan, dict[tuple[int, int], tuple[Level, ...]]] = WeakKeyDictionary()


def levels(plan: Plan, rows: int) -> tuple[Level, ...]:
    """Return a plan's levels on the current device, in tiles of so many rows at most; a level joins those before it."""
    key = (int(cupy.cuda.Device().id), rows)
    known = _levels.setdefault(plan, {})
    if key not in known:
        heads = [sorted(parts, key=lambda part: not _whole(part, plan.n)) for parts in plan.heads]
        known[key] = tuple(_level(parts, plan.n, rows) for parts in zip_longest(*heads))
    return known[key]


def _whole(part: Part | None, n: int) -> bool:
    """Has a part all n rows?"""
    return part is not None and (part.queries is None or len(part.queries) == n)


def _level(parts: tuple[Part | None, ...], n: int, rows: int) -> Level:
    """Upload a part of each head, one after the other, the tiles that visit most first."""
    tiles, visits, words, tokens = [], [], [], [np.zeros(0, np.int64)]
    visits_before = words_before = 0
    for head, part in enumerate(parts):
        if part is None:
            continue
        lists = []
        for numbers in (part.queries, part.keys):
            lists.append(-1 if numbers is None else sum(map(len, tokens)))
            tokens += [] if numbers is None else [numbers]
        tiles.append(_cut(part, rows, visits_before, [head, *lists]))
        visits.append(part.visits + np.where(part.visits < 0, 0, [0, 0, words_before]))
        words.append(part.words)
        visits_before += len(part.visits)
        words_before += len(part.words)
    every, whole = np.concatenate(tiles), all(_whole(part, n) for part in parts)
    tables = every[np.argsort(-every[:, 0], kind="stable"), 1:], np.concatenate(visits), np.concatenate(tokens)
    of_tiles, of_visits, of_tokens = (_put(x.astype(np.int32)) for x in tables)
    return Level(of_tiles, of_visits, _put(np.concatenate(words)), of_tokens, len(every), whole)


def _cut(part: Part, rows: int, before: int, rest: list[int]) -> NDArray[np.int64]:
    """Return the keys that tiles of so many rows at most visit, and the tiles; there are visits before those of it."""
    visited = np.append(0, np.cumsum(part.visits[:, 1] - part.visits[:, 0]))
    first, size, begin, end = part.tiles.T
    cut = [
        (visited[end] - visited[begin], first + bit, np.minimum(size - bit, rows), begin + before, end + before, bit)
        for bit in range(0, int(np.max(size, initial=0)), rows)
    ]
    table = np.concatenate([np.stack(np.broadcast_arrays(*columns), axis=-1) for columns in cut])
    return np.append(table, np.broadcast_to(rest, (len(table), 3)), axis=1)[table[:, 2] > 0]


def _put(values: NDArray[Any]) -> Any:
    return upload(np.ascontiguousarray(values)) if values.size else NULL
