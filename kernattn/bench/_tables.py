"""Tables and files of a benchmark, from its rows alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernattn._environment import version_of
from kernattn._runtime.files import replace_text


class Column(NamedTuple):
    """A column of a table: its title, what it says of a row, and whether it stands to the right."""

    title: str
    cell: Callable[[Mapping[str, Any]], str]
    right: bool = True


def word(title: str, key: str, right: bool = False) -> Column:
    """Return the column of a field as it is."""
    return Column(title, lambda row: str(row.get(key, "")), right)


def number(title: str, key: str, form: str, unit: float = 1.0) -> Column:
    """Return the column of a number in a unit; empty where a row has none."""
    return Column(title, lambda row: format(row[key] / unit, form) if key in row else "")


def impossible(bounds: float) -> bool:
    """Whether a time of so many lower bounds cannot be."""
    return bool(bounds < 0.995)  # bounds that NumPy made give its own kind


def over(title: str, key: str) -> Column:
    """Return the column of a time over a bound of it; what lies below 1 cannot be, and gets a question mark."""
    return Column(title, lambda row: f"{row[key]:.2f}{'?' * impossible(row[key])}" if key in row else "")


def milliseconds(row: Mapping[str, Any]) -> str:
    """Return a time as median (quartiles), or why there is none."""
    if "median_ms" not in row:
        return str(row.get("failed", ""))
    return f"{row['median_ms']:.4g} ({row['low_ms']:.4g}–{row['high_ms']:.4g})"


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """Return rows as a Markdown table.

    Parameters
    ----------
    rows : iterable of mapping
        What `bench` and its like return.
    columns : sequence of Column
        Those of the device.

    Returns
    -------
    str
        A line for each row, below two of head.
    """
    head = [_line(c.title for c in columns), f"|{'|'.join('---:' if c.right else '---' for c in columns)}|"]
    return "\n".join([*head, *(_line(c.cell(row) for c in columns) for row in rows)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def machine(where: str, packages: Iterable[str]) -> str:
    """Return one line about where numbers come from: the device, and the packages that are installed."""
    found = ((name, version_of(name)) for name in packages)
    return f"{where}; {', '.join(f'{name} {version}' for name, version in found if version is not None)}"


def write(
    folder: Path, name: str, where: str, races: Sequence[Mapping[str, Any]], parts: Sequence[str], **more: Any
) -> None:
    """Write the rows as name.json, and tables as name.md under lines about the machine and its rates.

    Parameters
    ----------
    folder : Path
        Created if needed.
    name : str
        Of the files.
    where : str
        The machine in a line.
    races : sequence of mapping
        Rows of `bench`.
    parts : sequence of str
        Tables.
    **more
        Other rows for the JSON file, by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = {"machine": where, "races": list(races), **more}
    replace_text(folder / f"{name}.json", json.dumps(content, indent=1) + "\n")
    text = [f"Measured on: {where}.", *_rates(races), *parts]
    replace_text(folder / f"{name}.md", "\n\n".join(text) + "\n")


def _rates(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say at which rates the parts of the floors ran, over all races of a dtype."""
    raced = [row for row in rows if "skipped" not in row]
    for dtype in sorted({row["dtype"] for row in raced}):
        moved, flops = (
            [row[key] for row in raced if row["dtype"] == dtype]
            for key in ("copy_bytes_per_second", "product_flops_per_second")
        )
        yield (
            f"{dtype}: traffic ran at {_rate(min(moved))}B/s to {_rate(max(moved))}B/s, as the arrays lie; products at "
            f"{_rate(min(flops))}FLOP/s to {_rate(max(flops))}FLOP/s."
        )


def _rate(value: float) -> str:
    return f"{value / 1e12:.4g} T" if value >= 1e12 else f"{value / 1e9:.4g} G"
