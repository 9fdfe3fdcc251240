"""Tasks by hand: a graph of one task a line, which Dask's own collections build much more slowly."""

from collections.abc import Callable, Sequence
from typing import Any

from dask.base import tokenize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

Key = Any
"""What names a task in a graph: a string or a tuple."""


class Tasks:
    """A layer of a graph, above those of the collections that it reads."""

    def __init__(self, what: str, reads: Sequence[Any], *given: Any) -> None:
        """Begin a layer, of one name for the same arguments."""
        self.name = f"kernattn-{what}-{tokenize(*reads, *given)}"
        self._reads = reads
        self._tasks: dict[Key, Any] = {}

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Key:
        """Return the key of a new task; arguments that are keys stand for their values, in lists too."""
        return self.at((len(self._tasks),), function, *arguments)

    def at(self, place: tuple[int, ...], function: Callable[..., Any], *arguments: Any) -> Key:
        """Return the key of the task that makes a block of an array."""
        key = (self.name, *place)
        self._tasks[key] = (function, *arguments)
        return key

    def graph(self) -> HighLevelGraph:
        """Return the graph so far."""
        return HighLevelGraph.from_collections(self.name, self._tasks, dependencies=self._reads)

    def value(self, key: Key) -> Delayed:
        """Return the result of a task as a collection."""
        return Delayed(key, self.graph(), layer=self.name)


def key_of(array: Any, place: Sequence[int]) -> Key:
    """Return the key of an array's block at a place, which may have more axes, and be broadcast."""
    return (array.name, *place_in(array.numblocks, place))


def place_in(counts: Sequence[int], place: Sequence[int]) -> tuple[int, ...]:
    """Return a place among so many blocks, as it is broadcast to `place`."""
    return tuple(0 if count == 1 else i for count, i in zip(counts, place[len(place) - len(counts) :], strict=True))


def first_place(counts: Sequence[int]) -> tuple[int, ...]:
    """Return the first place among so many blocks."""
    return (0,) * len(counts)


def block_of(array: Any, lead: tuple[int, ...]) -> Key:
    """Return the key of a block of which only the leading axes are in chunks."""
    return key_of(array, (*lead, *first_place(array.numblocks[len(lead) :])))
