"""What a report says about any study: which points are unsettled, whether intervals hold closed forms, its cells."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernattn.studies._presets.verdict import coverage
from kernattn.studies._records import Record, names
from kernattn.studies._sweep import RESERVED

SUFFIXES = ("_low", "_high", "_settled")  # of fields that say something of another one


class Calibration(NamedTuple):
    """How many intervals of a field hold what theory says."""

    field: str
    inside: int
    total: int


class Unsettled(NamedTuple):
    """How many points of a field have no interval, in all and by the value of an axis."""

    field: str
    without: int
    total: int
    by: dict[str, tuple[int, int]]


def fields_with_intervals(records: Sequence[Record]) -> list[str]:
    """Return the fields that come with intervals."""
    every = names([{"f": name} for record in records for name in record], "f")
    return [name for name in every if f"{name}_low" in every and f"{name}_high" in every]


def calibration(records: Sequence[Record], expected: Mapping[str, float]) -> list[Calibration]:
    """Return the coverage of every field of which theory says something: `expected`, or the field x_predicted."""
    facts = []
    for name in fields_with_intervals(records):
        known = [
            r | {f"{name}_predicted": expected[name]} if name in expected else r
            for r in records
            if r.get(f"{name}_low") is not None and r.get(f"{name}_high") is not None
        ]
        inside, total = coverage(
            [r for r in known if r.get(f"{name}_predicted") is not None], name, f"{name}_predicted"
        )
        if total:
            facts.append(Calibration(name, inside, total))
    return facts


def fields_without_intervals(records: Sequence[Record], axis: str) -> list[Unsettled]:
    """Return the fields that lack intervals somewhere, by the values of an axis."""
    facts = []
    for name in fields_with_intervals(records):
        by: dict[str, tuple[int, int]] = {}
        for record in records:
            value, low = (np.asarray(record.get(each), np.float64).ravel() for each in (name, f"{name}_low"))
            there = np.isfinite(value)
            without, total = by.get(str(record[axis]), (0, 0))
            by[str(record[axis])] = (without + int(np.sum(there & ~np.isfinite(low))), total + int(np.sum(there)))
        without, total = (sum(each) for each in zip(*by.values(), strict=True))
        if without:
            facts.append(Unsettled(name, without, total, by))
    return facts


def cells(records: Sequence[Record], along: Mapping[str, Sequence[float]]) -> Iterator[dict[str, Any]]:
    """Yield a mapping of plain values for every cell, and for every place of `along` in it."""
    shape = tuple(map(len, along.values()))
    for record in records:
        grids = {name: np.asarray(value, object) for name, value in record.items() if name not in along}
        vectors = {name for name, grid in grids.items() if shape and grid.shape == shape}
        for place in np.ndindex(shape):
            yield {
                **{axis: values[i] for (axis, values), i in zip(along.items(), place, strict=True)},
                **{name: grid[place] if name in vectors else record[name] for name, grid in grids.items()},
            }


def constants(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields that are one and the same in all rows, and what they are."""
    return {
        name: value
        for name, value in rows[0].items()
        if name not in RESERVED and not name.endswith(SUFFIXES) and all(row.get(name) == value for row in rows)
    }
