"""Tables of a page that sort by a click on a column's head."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from kernattn.studies._records import Record, spell
from kernattn.studies._report.facts import SUFFIXES, constants, fields_with_intervals
from kernattn.studies._sweep import RESERVED


def number(value: Any) -> str:
    """Return a number as a table shows it: four digits; other values as they are."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a sortable table; a cell is a value, or a pair of the value to sort by and what is shown (HTML)."""
    columns = "".join(f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in head)
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    inner = f"<table><thead><tr>{columns}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
    return f'<div class="wide" tabindex="0">{inner}</div>'


def _cell(given: Any) -> str:
    value, text = given if isinstance(given, tuple) else (given, escape(number(given)))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"<td>{text}</td>" if value is not None else '<td data-value=""></td>'
    return f'<td class="number" data-value="{value!r}">{text}</td>'


def record_table(rows: Sequence[Mapping[str, Any]], records: Sequence[Record]) -> str:
    """Return the cells of a study, without what is the same in all, intervals beside their values."""
    same, intervals = constants(rows), fields_with_intervals(records)
    hidden = {*RESERVED, *same} - {"draws", "stopped"}
    names = [
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if name not in hidden and not name.endswith((*SUFFIXES, "seconds"))
    ]
    head = [spell(name) for name in names]
    return table(head, ([_value(row, name, name in intervals) for name in names] for row in rows))


def _value(row: Mapping[str, Any], name: str, interval: bool) -> Any:
    value = row.get(name)
    if not interval or value is None:
        return value
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    if low is None or high is None:
        return float(value), f'{number(float(value))} <span class="unsettled">no interval</span>'
    return float(value), f"{number(float(value))} [{number(float(low))}, {number(float(high))}]"
