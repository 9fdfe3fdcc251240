"""Which keys a row of exact attention sees, decided on the host before any work: intervals describe, bits execute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.graphs import in_a_graph
from kernattn._arrays.hooks import edge
from kernattn._plans.parts import Part, kept, pairs_of
from kernattn._runtime.checks import positive_integer, shown, whole_number
from kernattn.errors import ParameterError, ShapeError


@dataclass(frozen=True, eq=False)
class Plan:
    """What n queries see of l keys: "all" of them, as "causal" ones row i the keys j <= i + l - n, or what parts say.

    The first two are for any n and l. Parts are disjoint and merged by their log normalisers: `heads` has a tuple of
    them for all heads, or one for each. A plan is made on the host by a pattern's `plan`, and never holds anything
    n x l. "window" is a name in graphs alone: of the plan of the n keys up to each row's own, for lengths to come.
    """

    kind: Literal["all", "causal", "parts", "window"]
    n: int = 0
    length: int = 0
    heads: tuple[tuple[Part, ...], ...] = field(default=(), repr=False)

    @in_a_graph
    def _graph_name(self, n: int, length: int, causal: bool) -> str:
        """Return the name by which graphs know the plan, cut off where they are causal; their op checks n and l."""
        return str(edge("torch").keep_plan(cut_off(self) if causal else self))

    @property
    def pairs(self) -> float:
        """How many pairs are allowed, a head: an integer, or the mean of heads that differ."""
        return _mean([sum(part.pairs for part in parts) for parts in self.heads])

    @property
    def visited(self) -> float:
        """How many pairs are computed, a head."""
        return _mean([sum(part.visited for part in parts) for parts in self.heads])

    def _parts_of(self, head: Any) -> tuple[Part, ...]:
        if whole_number("head", head) >= len(self.heads):
            raise ParameterError(f"head must be below {len(self.heads)}, the heads of this plan; got {shown(head)}")
        return self.heads[head]

    def mask(self, head: int = 0) -> NDArray[np.bool_]:
        """Return the mask (n, l) of the keys that a head's rows see: to look at, for lengths that allow it."""
        result = np.zeros((self.n, self.length), bool)
        for part in self._parts_of(head):
            for rows, keys, seen in pairs_of(part):
                result[rows[:, None], keys] |= seen
        return result

    def reach(self, layers: int, head: int = 0) -> float:
        """Return the share of pairs j <= i in which row i is reached by token j through so many layers.

        A layer passes on its own token, too. The matrix of what is reached is n x n, for lengths that allow it.
        """
        layers = positive_integer("layers", layers)
        if self.n != self.length:
            raise ParameterError(f"reach needs as many queries as keys; got n = {self.n}, l = {self.length}")
        step = (self.mask(head) | np.eye(self.n, dtype=bool)).astype(np.float32)
        reached = step
        for _ in range(layers - 1):
            reached = np.minimum(step @ reached, 1)
        return float(np.sum(np.tril(reached) > 0) / (self.n * (self.n + 1) // 2))

    def plot(self, ax: Any, head: int = 0) -> Any:
        """Draw what is seen, queries down and keys across, and in a lighter tone what is computed beside; return ax."""
        picture = np.zeros((self.n, self.length))
        for part in self._parts_of(head):
            for rows, keys, seen in pairs_of(part):
                picture[rows[:, None], keys] = np.maximum(picture[rows[:, None], keys], np.where(seen, 1.0, 0.25))
        ax.imshow(picture, cmap="Blues", vmin=0, vmax=1.2, interpolation="nearest")
        ax.set(xlabel="keys", ylabel="queries")
        return ax


ALL, CAUSAL = Plan("all"), Plan("causal")


def _mean(counts: list[int]) -> float:
    total = sum(counts)
    return total // len(counts) if total % len(counts) == 0 else total / len(counts)


def check_lengths(plan: Plan, n: int, length: int) -> None:
    """Raise unless n queries and l keys are those of a plan."""
    if plan.kind == "parts" and (n, length) != (plan.n, plan.length):
        raise ShapeError(f"the plan is for n = {plan.n}, l = {plan.length}; got n = {n}, l = {length}")


def check_heads(plan: Plan, lead: tuple[int, ...]) -> None:
    """Raise unless leading axes have the heads of a plan."""
    if len(plan.heads) > 1 and (not lead or lead[-1] != len(plan.heads)):
        raise ShapeError(f"the pattern is of {len(plan.heads)} heads, the last leading axis; got leading axes {lead}")


Kept = TypeVar("Kept")


def kept_with_plan(make: Callable[[Plan], Kept]) -> Callable[[Plan], Kept]:
    """Keep what a function makes of a plan for as long as that plan lives."""
    made: WeakKeyDictionary[Plan, Kept] = WeakKeyDictionary()

    @wraps(make)
    def look_up(plan: Plan) -> Kept:
        kept = made.get(plan)
        if kept is None:
            kept = made[plan] = make(plan)
        return kept

    return look_up


@kept_with_plan
def cut_off(plan: Plan) -> Plan:
    """Return the plan without what stands after a row: row i sees the keys up to i + length - n."""
    ahead = plan.length - plan.n
    heads = tuple(
        tuple(kept(part, lambda rows, tokens: tokens <= rows + ahead) for part in parts) for parts in plan.heads
    )
    return Plan("parts", plan.n, plan.length, heads)
