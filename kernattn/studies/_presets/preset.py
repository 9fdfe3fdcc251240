"""What a study of the field's claims is: a sweep, the claim, figures, and a verdict, all from the records alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kernattn._check import one_of, shown
from kernattn.errors import ParameterError
from kernattn.features import ESTIMATORS
from kernattn.projections import resolve
from kernattn.studies._records import Record
from kernattn.studies._sweep import plain_values

__all__ = ["Figure", "Preset", "coverage", "designed", "per_cent"]


class Figure(NamedTuple):
    """One figure: ``draw(records, ax)`` fills a panel, and there is one for every value of the field `by`."""

    title: str
    subtitle: str
    draw: Callable[..., None]
    by: str | None = None


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
    """

    title: str
    claim: str
    cost: str
    sweep: str
    verdicts: Callable[[Sequence[Record]], list[str]]
    figures: Mapping[str, Figure]


def designed(
    full: Mapping[str, Any], quick: Mapping[str, Any] | None, given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the axes of a preset: its own, those of its quick form, and in their place what was given."""
    unknown = sorted(set(given or {}) - set(full))
    if unknown:
        raise ParameterError(f"this study has the axes {', '.join(full)}; got {', '.join(unknown)}")
    return {**full, **(quick or {}), **{axis: _like(axis, full[axis], each) for axis, each in (given or {}).items()}}


def _like(axis: str, own: Sequence[Any], given: Any) -> tuple[Any, ...]:
    """Return values of the type of the axis' own: names that kernattn knows, or positive numbers."""
    values, kind = plain_values(axis, given), type(own[0])
    if kind is float and all(type(value) in (int, float) for value in values):
        values = tuple(map(float, values))
    for value in values:
        if type(value) is not kind or (kind is not str and value <= 0):
            what = {int: "positive integers", float: "positive numbers", str: "names"}[kind]
            raise ParameterError(f"{axis} takes {what}, as {', '.join(map(str, own))}; got {shown(value)}")
        if axis == "estimator":
            one_of(axis, value, ESTIMATORS)
        elif axis == "projection" and value not in own:
            resolve(value)
    return plain_values(axis, values)


def coverage(records: Sequence[Record], field: str, expected: str) -> tuple[int, int]:
    """Return how many of the intervals of a field hold what theory expects, and how many there are.

    Where theory says 0, up to rounding, every estimate is exact, and there is nothing to cover.
    """
    inside = total = 0
    for record in records:
        if record.get(expected) is None:
            continue
        low, high, value = (
            np.asarray(record[name], np.float64).ravel() for name in (f"{field}_low", f"{field}_high", expected)
        )
        known = np.isfinite(low) & np.isfinite(high) & (np.abs(value) > 1e-12 * np.nanmax(np.abs(value)))
        inside += int(np.sum((low <= value) & (value <= high) & known))
        total += int(np.sum(known))
    return inside, total


def per_cent(part: int, whole: int) -> str:
    """Return a share in words."""
    return f"{part} of {whole}" + (f" ({part / whole:.0%})" if whole else "")
