"""Figures of a sweep of one's own: one for each field that redraws measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernattn._runtime.checks import one_of
from kernattn.studies._palette import GREY, series
from kernattn.studies._panels import draw_interval, read_interval, write_numbers
from kernattn.studies._presets.preset import Figure
from kernattn.studies._records import Record, group, names, spell

MANY = 10  # values of an axis that are all written, where they do not touch


def draw_fields(
    records: Sequence[Record], config: Mapping[str, Any], across: str | None = None, by: str | None = None
) -> dict[str, Figure]:
    """Return a figure for each field: its values and their intervals along an axis, a line for every other value.

    A fact ``x_predicted`` is drawn beside the field x, as a grey line. Paired differences are drawn about the level of
    what they are taken from.

    Parameters
    ----------
    records : sequence of dict
        Of the sweep.
    config : mapping
        Of its folder.
    across : str, optional
        The axis along which lines run; default the coordinates of a vector, else the axis with most numbers.
    by : str, optional
        An axis with a panel for each of its values.
    """
    along, axes = list(config["along"]), [axis for axis in config["axes"] if len(names(records, axis)) > 1]
    if across is not None:
        one_of("across", across, [*axes, *along])
    if by is not None:
        one_of("by", by, [axis for axis in axes if axis != across])
    wanted = config.get("cells", len(records))
    unfinished = f"unfinished, {len(records)} of {wanted} cells" if len(records) < wanted else ""
    figures = {}
    for field in _measured(records):
        vector = any(isinstance(record[field], list) for record in records)
        if vector and len(along) > 1:
            continue  # a surface, which no line shows
        mine = along if vector else axes
        ways = [axis for axis in mine if axis != by]
        if not ways or across not in (None, *ways):
            continue
        way = _widest(records, ways) if across is None else across
        kinds = [axis for axis in axes if axis not in (way, by)]
        logarithmic = _spans(record[field] for record in records)
        of = field.removesuffix("_difference")
        other = config.get("against") if of != field and f"{of}_low" in records[0] else None
        draw = partial(
            _draw_field,
            field=field,
            way=way,
            kinds=kinds,
            vector=vector,
            logarithmic=logarithmic,
            unfinished=unfinished,
            other=other,
        )
        line = f"; a line for each {', '.join(map(spell, kinds))}" if kinds else ""
        title, paired = spell(field), ""
        if other:
            title, paired = f"{spell(of)} less that of {_name(other)}", ", of paired differences"
        said = f"against {spell(way)}, 95% intervals{paired}{line}{unfinished and f'; {unfinished}'}"
        figures[field] = Figure(title, said, draw, by)
    return figures


def _measured(records: Sequence[Record]) -> list[str]:
    """Return the fields that have an interval in some record."""
    fields = dict.fromkeys(name for record in records for name in record)
    return [name for name in fields if f"{name}_low" in fields and f"{name}_high" in fields]


def _widest(records: Sequence[Record], axes: Sequence[str]) -> str:
    """Return the axis with most numbers; of names, where there are none."""
    values = {axis: _values_of(records, axis) for axis in axes}
    return max(axes, key=lambda axis: (_numeric(values[axis]), len(values[axis])))


def _values_of(records: Sequence[Record], axis: str) -> list[Any]:
    """Return the values of an axis, or the coordinates of one along which vectors run; numbers in order."""
    first = records[0][axis]
    values = list(first) if isinstance(first, list) else names(records, axis)
    return sorted(values) if _numeric(values) else values


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _draw_field(
    records: Sequence[Record],
    ax: Any,
    *,
    field: str,
    way: str,
    kinds: Sequence[str],
    vector: bool,
    logarithmic: bool,
    unfinished: str,
    other: Mapping[str, Any] | None,
) -> None:
    values = _values_of(records, way)
    numeric = _numeric(values)
    places: Sequence[float] = [float(value) for value in values] if numeric else range(len(values))
    expected = []
    for i, (kind, mine) in enumerate(group(records, *kinds).items()):
        shown = [r for r in mine if not other or any(r[axis] != value for axis, value in other.items())]
        shown = [r for r in shown if not vector or r[field] is not None]  # by cells that measure it
        if not shown:
            continue
        label = _name(dict(zip(kinds, kind, strict=True))) or None
        at, interval, predicted = _line(shown, field, way, values, places, vector)
        draw_interval(ax, at, interval, series(i), label)
        if predicted is not None:
            expected.append((at, predicted))
    for at, predicted in expected:
        ax.plot(at, predicted, color=GREY, linewidth=1.0, label="predicted")
    if other:
        ax.axhline(0.0, color=GREY, linewidth=1.0, label=_name(other))
    below = f"{spell(way)}\n{unfinished}" if unfinished else spell(way)  # in every size, for those who see it alone
    ax.set(xlabel=below, ylabel=spell(field), yscale="log" if logarithmic else "linear")
    if not numeric:
        ax.set_xticks(list(places), [_short(value) for value in values])
        return
    if _spans(places) or _geometric(places):
        ax.set_xscale("log")
    if len(places) <= MANY:
        write_numbers(ax.xaxis, places)


def _name(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{spell(axis)} {_short(value)}" for axis, value in values.items())


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else spell(str(value))


def _line(
    records: Sequence[Record], field: str, way: str, values: Sequence[Any], places: Sequence[float], vector: bool
) -> tuple[list[float], list[Any], Any]:
    """Return where a line runs, its interval, and what is predicted, if anything is."""
    name = f"{field}_predicted"
    if vector:
        (record,) = records
        order = np.argsort(record[way])
        rows = [np.asarray(record[f"{field}{end}"], np.float64)[order] for end in ("", "_low", "_high")]
        foretold = np.asarray(record[name], np.float64)[order] if name in record else None
        return list(np.asarray(record[way])[order]), rows, foretold
    ordered = sorted(records, key=lambda record: values.index(record[way]))
    at = [places[values.index(record[way])] for record in ordered]
    predicted = [record[name] for record in ordered] if all(name in record for record in ordered) else None
    return at, read_interval(ordered, field), predicted


def _geometric(values: Sequence[float]) -> bool:
    """Say whether three numbers or more, all positive, grow by one factor of 1.5 or more."""
    if len(values) < 3 or min(values) <= 0:
        return False
    factors = np.divide(values[1:], values[:-1])
    return bool(factors.min() >= 1.5 and np.allclose(factors, factors[0]))


def _spans(values: Iterable[Any]) -> bool:
    """Say whether numbers, or those of vectors, are positive and span a decade."""
    flat = np.asarray([np.nan if each is None else each for each in np.hstack(list(values))], np.float64)
    flat = flat[np.isfinite(flat)]
    return bool(flat.size and flat.min() > 0 and flat.max() >= 10 * flat.min())
