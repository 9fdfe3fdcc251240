"""Files of a benchmark, from its rows alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernattn._environment import version_of
from kernattn._runtime.files import replace_text


def machine(where: str, packages: Iterable[str]) -> str:
    """Return one line about where numbers come from: the device, and the packages that are installed."""
    versions = ((name, version_of(name)) for name in packages)
    return f"{where}; {', '.join(f'{name} {version}' for name, version in versions if version is not None)}"


def write(
    folder: Path, name: str, where: str, races: Sequence[Mapping[str, Any]], parts: Sequence[str], **more: Any
) -> None:
    """Write rows, and others by name, as name.json; and tables as name.md, below the machine and its rates."""
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
