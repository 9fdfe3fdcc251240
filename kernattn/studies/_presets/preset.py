"""What a study of the field's claims is: a sweep, the claim, figures, and a verdict, all from the records alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import one_of, shown
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import ParameterError
from kernattn.features import ESTIMATORS
from kernattn.projections import resolve
from kernattn.studies._records import Record
from kernattn.studies._sweep import plain_values

FEW = 3  # verdicts that a caption repeats
WORDS = ("Holds in part", "Holds", "Does not hold", "Open")


class Figure(NamedTuple):
    """One figure: ``draw(records, ax)`` fills a panel, and there is one for every value of the field `by`.

    A panel is named by that value, unless `draw` gave it a title. Title and subtitle say what is drawn, whatever the
    records; what was found, those verdicts say in which the regular expression `shows` is found. What its groups match
    is alike in all of them, as in the first: a figure of the first kernel takes none about another one.
    """

    title: str
    subtitle: str
    draw: Callable[..., None]
    by: str | None = None
    shows: str | None = None

    def found(self, verdicts: Sequence[str]) -> str:
        """Return what the figure shows: the first sentences of its verdicts, or of many verdicts how they begin."""
        if self.shows is None:
            return ""
        told = [(verdict, match.groups()) for verdict in verdicts if (match := re.search(self.shows, verdict))]
        mine = [verdict for verdict, groups in told if groups == told[0][1]]
        if len(mine) <= FEW:
            return " ".join(re.split(r"(?<=\.) (?=[A-Z])", verdict)[0] for verdict in mine)
        begins = Counter(next((each for each in WORDS if verdict.startswith(each)), "") for verdict in mine)
        counts = ", ".join(f"{each.lower()} {begins[each]}" for each in WORDS if begins[each])
        return f"Of its {len(mine)} verdicts: {counts}." if counts else ""


@dataclass(frozen=True, eq=False)
class Preset:
    """A study that kernattn brings.

    Parameters
    ----------
    title, claim, cost : str
        What it is about; what the field says, with the source; and what it takes, in words.
    sweep : str
        ``module:function`` of quick, seed, precision and axes, which returns the Sweep.
    verdicts : callable
        ``verdicts(records)``: sentences, of which each begins by saying whether the claim holds.
    figures : mapping
        By the name of their files.
    formula : str
        What is studied, in the TeX that `kernattn.studies._report.mathml` reads; empty where nothing has a closed form:
        test errors on data, and CPU times.
    expected : mapping
        What theory says of a field where it is one number; elsewhere the field ``x_predicted`` says it of x. Either is
        exact: the report counts how many intervals hold it.
    data : bool
        Whether it takes queries, keys and values of a file in place of its own.
    page : callable, optional
        ``page(records, files)``: the text of summary.md, in place of claim, verdicts and figures.
    """

    title: str
    claim: str
    cost: str
    sweep: str
    verdicts: Callable[[Sequence[Record]], list[str]]
    figures: Mapping[str, Figure]
    formula: str = ""
    expected: Mapping[str, float] = field(default_factory=dict)
    data: bool = False
    page: Callable[[Sequence[Record], Sequence[str]], str] | None = None


def designed(
    full: Mapping[str, Any],
    quick: Mapping[str, Any] | None,
    given: Mapping[str, Any] | None,
    allowed: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Any]:
    """Return the axes of a preset: its own, those of its quick form, and in their place what was given.

    `allowed` names the values that an axis takes. Elsewhere estimators and projections are those of kernattn.
    """
    given, allowed = given or {}, {"estimator": ESTIMATORS, **(allowed or {})}
    unknown = sorted(set(given) - set(full))
    if unknown:
        raise ParameterError(f"this study has the axes {', '.join(full)}; got {', '.join(unknown)}")
    chosen = {axis: _like(axis, full[axis], values, allowed.get(axis)) for axis, values in given.items()}
    return {**full, **(quick or {}), **chosen}


def _like(axis: str, own: Sequence[Any], given: Any, allowed: Collection[str] | None) -> tuple[Any, ...]:
    """Return values of the type of the axis' own: names that are known, or positive numbers."""
    values, kind = plain_values(axis, given), type(own[0])
    if kind is float and all(type(value) in (int, float) for value in values):
        values = tuple(map(float, values))
    for value in values:
        if type(value) is not kind or (kind is not str and value <= 0):
            what = {int: "positive integers", float: "positive numbers", str: "names"}[kind]
            raise ParameterError(f"{axis} takes {what}, as {', '.join(map(str, own))}; got {shown(value)}")
        if allowed is not None:
            one_of(axis, value, allowed)
        elif axis == "projection" and value not in own:
            resolve(value)
    return plain_values(axis, values)


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


def at_once(low: Any, high: Any, draws: int, count: int) -> tuple[Float64, Float64]:
    """Return the ends of Student's 95% intervals, widened so that `count` of them hold all at once (Bonferroni).

    A verdict on many settings needs it: of 15 intervals of things that are equal, some miss it in every other study.
    """
    middle, half = (np.add(high, low) / 2, np.subtract(high, low) / 2)
    wider = half * (special.stdtrit(draws - 1, 1 - 0.025 / count) / special.stdtrit(draws - 1, 0.975))
    return np.asarray(middle - wider, np.float64), np.asarray(middle + wider, np.float64)


def word(holding: int, against: int, undecided: int) -> str:
    """Return how a verdict begins, from how many settings are for the claim, against it, and cannot tell."""
    if not holding:
        return "Does not hold" if against else "Open"
    return "Holds in part" if against or undecided else "Holds"


def judged(begins: str, claim: str) -> str:
    """Return a claim below the word of its verdict, which says whether, where it is open, and that it holds or not."""
    return f"{begins}: {'whether ' if begins.startswith('Open') else ''}{claim}"


def two_digits(value: float) -> str:
    """Return two digits of a number below a million, without an exponent where it is large."""
    return f"{float(f'{value:.2g}'):g}"


def per_cent(part: int, whole: int) -> str:
    """Return a share in words."""
    return f"{part} of {whole}" + (f" ({part / whole:.0%})" if whole else "")
