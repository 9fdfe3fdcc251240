"""Tables of a race, from its rows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Column(NamedTuple):
    """A column of a table: its title, what it says of a row, and whether it stands to the right."""

    title: str
    cell: Callable[[Mapping[str, Any]], str]
    right: bool = True


def text_column(title: str, key: str, right: bool = False) -> Column:
    """Return the column of a field as it is."""
    return Column(title, lambda row: str(row.get(key, "")), right)


def number_column(title: str, key: str, form: str, unit: float = 1.0) -> Column:
    """Return the column of a number in a unit; empty where a row has none."""
    return Column(title, lambda row: format(row[key] / unit, form) if key in row else "")


def impossible(bounds: float) -> bool:
    """Tell whether a time of so many lower bounds cannot be."""
    return bool(bounds < 0.995)  # bounds that NumPy made give its own kind


def ratio_column(title: str, key: str) -> Column:
    """Return the column of a time over a bound of it; what lies below 1 cannot be, and gets a question mark."""
    return Column(title, lambda row: f"{row[key]:.2f}{'?' * impossible(row[key])}" if key in row else "")


def milliseconds(row: Mapping[str, Any]) -> str:
    """Return a time as median (quartiles), or why there is none."""
    if "median_ms" not in row:
        return str(row.get("failed", ""))
    return f"{row['median_ms']:.4g} ({row['low_ms']:.4g}–{row['high_ms']:.4g})"


COLUMNS = (
    text_column("contestant", "contestant"),
    Column("ms", milliseconds),
    number_column("times the first", "ratio", ".2f"),
    ratio_column("over the floor", "over_floor"),
    number_column("over its parts in turn", "over_parts", ".2f"),
)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column] = COLUMNS) -> str:
    """Return rows as a Markdown table, :math:`n + 2` lines.

    Parameters
    ----------
    rows : sequence of mapping
        What `race` and its like return.
    columns : sequence of Column
        By default the contestants of a race, their times, ratios and floors.

    Returns
    -------
    str
        A line for each row, below two of head.
    """
    head = [_line(c.title for c in columns), f"|{'|'.join('---:' if c.right else '---' for c in columns)}|"]
    return "\n".join([*head, *(_line(c.cell(row) for c in columns) for row in rows)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
