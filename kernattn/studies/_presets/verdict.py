"""What a study finds of a claim, as a record; this is the one place that writes it as a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import special
from kernattn.studies._records import ENDS, Record, group

Word = Literal["Holds", "Holds in part", "Does not hold", "Open", ""]


class Tally(NamedTuple):
    """In how many settings a claim surely holds, surely does not, and cannot be told."""

    holding: int
    against: int
    undecided: int = 0
    of: str = "settings"

    @property
    def total(self) -> int:
        """How many settings there are."""
        return self.holding + self.against + self.undecided

    @property
    def word(self) -> Word:
        """How a verdict begins."""
        if not self.holding:
            return "Does not hold" if self.against else "Open"
        return "Holds in part" if self.against or self.undecided else "Holds"

    def __str__(self) -> str:
        holding = f"surely so in {self.holding} of {self.total} {self.of}"
        return f"{holding}, surely not in {self.against}, open in {self.undecided}"


class Estimate(NamedTuple):
    """A number, the ends of its 95% interval, which are NaN where redraws do not settle it, and where it was seen."""

    value: float
    low: float
    high: float
    at: str = ""

    @classmethod
    def of(cls, record: Record, field: str, at: str = "", place: int | None = None) -> Estimate:
        """Read a field of a record, or a place of a vector."""
        ends = (record[f"{field}{end}"] for end in ENDS)
        numbers = (each if place is None else each[place] for each in ends)
        value, low, high = (np.nan if each is None else each for each in numbers)
        return cls(value, low, high, at)

    def __format__(self, spec: str) -> str:
        shown = [_show(float(each), spec or ".2g") for each in self[:3]]
        ends = f"{shown[1]} to {shown[2]}" if np.isfinite(self.low) else "not settled"
        return f"{shown[0]} ({ends})" + (f" at {self.at}" if self.at else "")


class Ratio(NamedTuple):
    """Numbers beside a verdict, as ratios of errors: one of them, or the least and the most of many."""

    what: str
    values: Any  # a sequence of floats, or of Estimates
    spec: str = ".2g"
    unit: str = ""

    def __str__(self) -> str:
        shown = [_show(pick(self.values, key=_size), self.spec) for pick in (min, max)]
        return f"{self.what} is {' to '.join(dict.fromkeys(shown))}{self.unit}"


def two_digits(value: float) -> str:
    """Write two digits of a number below a million, without an exponent where it is large."""
    return _show(value, ".2g")


def _show(value: float | Estimate, spec: str) -> str:
    text = f"{value:{spec}}"
    return f"{float(text):g}" if spec.endswith("g") and not isinstance(value, Estimate) else text


def _size(value: float | Estimate) -> float:
    return value.value if isinstance(value, Estimate) else float(value)


class Verdict:
    """A claim, and what was measured of it: `facts`, a `tally` of settings for and against it, a `ratio`.

    `where` says of which settings the claim is, and `source` who made it. The word that a verdict begins with is that
    of its tally, or the one that was `decided` by another rule; without either it is a plain measurement, no verdict.
    """

    def __init__(
        self,
        claim: str,
        *facts: str,
        where: str = "",
        source: str = "",
        decided: Word | None = None,
        tally: Tally | None = None,
        ratio: Ratio | None = None,
    ) -> None:
        self.claim, self.where, self.source, self.tally, self.ratio = claim, where, source, tally, ratio
        self.facts = tuple(filter(None, facts))
        self.word: Word = decided or (tally.word if tally else "")

    @property
    def head(self) -> str:
        """The first sentence: whether the claim holds, where, and whose it is."""
        begins = " ".join(filter(None, (self.word, self.where)))
        claim = f"whether {self.claim}" if self.word == "Open" else self.claim
        source = f" ({self.source})" if self.source else ""
        return f"{begins}: {claim}{source}." if begins else f"{_capital(claim)}{source}."

    @property
    def brief(self) -> str:
        """The first sentence, and the first of what was seen: what a caption repeats."""
        return " ".join([self.head, *self._sentences(self.ratio, *self.facts, self.tally)[:1]])

    def __str__(self) -> str:
        return " ".join([self.head, *self._sentences(self.tally, self.ratio, *self.facts)])

    def _sentences(self, *parts: object) -> list[str]:
        return [f"{_capital(str(part))}." for part in parts if part is not None]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def compare(one: Record, other: Record, field: str) -> int:
    """Return -1 where the interval of the first lies below that of the second, 1 where above, 0 where they overlap."""
    (_, low, high, _), (_, least, most, _) = (Estimate.of(each, field) for each in (one, other))
    return -1 if high < least else int(low > most)


def count_lower(pairs: Iterable[tuple[Record, Record]], field: str, of: str = "settings") -> Tally:
    """Count the pairs of which the first is surely lower, surely higher, and neither."""
    signs = [compare(one, other, field) for one, other in pairs]
    return Tally(signs.count(-1), signs.count(1), signs.count(0), of)


def count_below(level: float, low: Any, high: Any, draws: int, of: str = "settings") -> Tally:
    """Count the intervals that surely lie below a level, surely above it, and neither, where all hold at once."""
    below, above = widen_together(low, high, draws, np.size(low))
    lower, higher = int(np.sum(above < level)), int(np.sum(below > level))
    return Tally(lower, higher, np.size(low) - lower - higher, of)


def widen_together(low: Any, high: Any, draws: int, count: int) -> tuple[Float64, Float64]:
    """Return the ends of Student's 95% intervals, widened so that `count` of them hold all at once (Bonferroni).

    A verdict on many settings needs it: of 15 intervals of things that are equal, some miss it in every other study.
    """
    low, high = (np.asarray(end, np.float64) for end in (low, high))  # None where redraws settle no mean
    middle, half = (high + low) / 2, (high - low) / 2
    wider = half * (special.stdtrit(draws - 1, 1 - 0.025 / count) / special.stdtrit(draws - 1, 0.975))
    return np.asarray(middle - wider, np.float64), np.asarray(middle + wider, np.float64)


def pair(
    records: Iterable[Record], axis: str, ours: Any, theirs: Any, by: Sequence[str]
) -> list[tuple[Record, Record]]:
    """Return the records of two values of an axis which agree on the axes `by`."""
    sides = [{record[axis]: record for record in each} for each in group(records, *by).values()]
    return [(each[ours], each[theirs]) for each in sides if ours in each and theirs in each]


def name_ties(records: Iterable[Record], least: Record, field: str, spell: Callable[[Record], str]) -> list[str]:
    """Name the records whose intervals reach down to that of the least one."""
    ties = (each for each in records if each is not least and each[f"{field}_low"] is not None)
    return [spell(each) for each in ties if each[f"{field}_low"] <= least[f"{field}_high"]]


def judge_coverage(records: Sequence[Record], of: str, expected: str, points: str) -> Verdict:
    """Say how many of the intervals of a field hold what theory expects."""
    inside, total = coverage(records, of, expected)
    share = f" ({inside / total:.0%})" if total else ""
    return Verdict(f"the 95% intervals hold the closed form in {inside} of {total}{share} of the {points}")


def coverage(records: Sequence[Record], of: str, expected: str) -> tuple[int, int]:
    """Return how many of the intervals of a field hold what theory expects, and how many there are.

    Where theory says 0 and every estimate is 0, up to rounding, there is nothing to cover.
    """
    inside = total = 0
    for record in records:
        if record.get(expected) is None:
            continue
        low, high, value = (
            np.asarray(record[name], np.float64).ravel() for name in (f"{of}_low", f"{of}_high", expected)
        )
        largest = np.nanmax(np.abs(value), initial=0.0)
        rounding = 1e-20 * largest or 1e-12  # squared errors of estimates that are exact are squares of rounding
        exact = (np.abs(value) <= 1e-12 * largest) & (np.maximum(np.abs(low), np.abs(high)) <= rounding)
        known = np.isfinite(low) & np.isfinite(high) & ~exact
        inside += int(np.sum((low <= value) & (value <= high) & known))
        total += int(np.sum(known))
    return inside, total


NEAR = 0.06  # how far an exponent may be from the claimed one, which is a limit
WIDE = 0.25  # an interval that goes further bears no claim out


def fit_exponent(records: Sequence[Record], field: str, axis: str) -> Estimate:
    """Return the slope of log field over log axis by least squares, its interval as if values were independent.

    Values on common random numbers vary together, so that their slope is known better than that.
    """
    value, low, high = (np.log([float(record[f"{field}{end}"]) for record in records]) for end in ENDS)
    x = np.log([float(record[axis]) for record in records])
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    slope, half = float(weights @ value), float(np.linalg.norm(weights * (high - low) / 2))
    return Estimate(slope, slope - half, slope + half)


def count_exponents(estimates: Sequence[Estimate], claimed: float) -> Tally:
    """Count the exponents that are the claimed one, surely others, and too uncertain to tell."""
    others = [each.high < claimed - NEAR or each.low > claimed + NEAR for each in estimates]
    wide = [max(claimed - each.low, each.high - claimed) > WIDE for each in estimates]
    against, undecided = sum(others), sum(w and not o for w, o in zip(wide, others, strict=True))
    return Tally(len(estimates) - against - undecided, against, undecided)
