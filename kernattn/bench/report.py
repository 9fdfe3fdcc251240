"""Tables and figures of a benchmark, from its rows alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kernattn._environment import versions
from kernattn._extras import require
from kernattn._files import replace_text
from kernattn._parallel import threads

__all__ = ["machine", "scaling_table", "start_table", "table", "write"]


def machine() -> str:
    """Return one line about where the numbers come from."""
    found = {name: version for name, version in versions().items() if version is not None}
    wanted = ("python", "numpy", "numba", "torch", "scikit-learn")
    packages = ", ".join(f"{name} {found[name]}" for name in wanted if name in found)
    return f"{_processor()}, {threads()} threads; {packages}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else "unknown processor"


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return the races as a Markdown table: times as median (quartiles), ratios to ours."""
    lines = [
        "| case | contestant | n | heads | dtype | ms | times ours | over the floor | squared error |",
        "|---|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        if "skipped" in row:
            lines.append(f"| {row['case']} | skipped: {row['skipped']} |  |  |  |  |  |  |  |")
            continue
        error = f"{row['squared_error']:.2e}" if "squared_error" in row else ""
        lines.append(
            f"| {row['case']} | {row['contestant']} | {row['n']} | {row['heads']} | {row['dtype']} "
            f"| {row['median_ms']:.4g} ({row['low_ms']:.4g}–{row['high_ms']:.4g}) | {row['ratio']:.2f} "
            f"| {row['over_floor']:.2f} | {error} |"
        )
    return "\n".join(lines)


def scaling_table(rows: Iterable[dict[str, Any]]) -> str:
    """Return the growth with n as a Markdown table."""
    head = ["| method | n | ms | ns per token and head | MiB beyond inputs and output |", "|---|---:|---:|---:|---:|"]
    line = "| {method} | {n} | {milliseconds:.4g} | {ns_per_token:.4g} | {extra_mib:.3g} |"
    lines = (line.format(**row) for row in rows)
    return "\n".join([*head, *lines])


def start_table(rows: Iterable[dict[str, Any]]) -> str:
    """Return what a new process waits for as a Markdown table."""
    head = ["| a new process | seconds |", "|---|---:|"]
    return "\n".join([*head, *(f"| {row['what']} | {row['seconds']:.2f} |" for row in rows)])


def write(folder: Path, races: Sequence[dict[str, Any]], growth: Sequence[dict[str, Any]], where: str) -> None:
    """Write bench.json, bench.md and, where there are rows for it, the figure of the growth with n."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(
        folder / "bench.json", json.dumps({"machine": where, "races": races, "scaling": growth}, indent=1) + "\n"
    )
    parts = [f"Measured on: {where}.", table(races) if races else "", scaling_table(growth) if growth else ""]
    replace_text(folder / "bench.md", "\n\n".join(part for part in parts if part) + "\n")
    if growth:
        _figure(folder, growth)


def _figure(folder: Path, growth: Sequence[dict[str, Any]]) -> None:
    figure = require("matplotlib.figure", "matplotlib", "the figure of a benchmark").Figure(
        figsize=(9, 3.8), layout="constrained"
    )
    left, right = figure.subplots(1, 2)
    for axis, field, label in (
        (left, "milliseconds", "milliseconds"),
        (right, "extra_mib", "MiB beyond inputs and output"),
    ):
        for method in dict.fromkeys(row["method"] for row in growth):
            points = [(row["n"], max(row[field], 1e-3)) for row in growth if row["method"] == method]
            axis.loglog(*zip(*points, strict=True), "o-", markersize=3, label=method)
        axis.set(xlabel="tokens n", ylabel=label)
        axis.set_xscale("log", base=2)
        axis.grid(alpha=0.3)
    left.legend(frameon=False, loc="upper left", fontsize="small")
    left.set_ylim(top=1e6)
    figure.suptitle(
        "{heads} heads, d = {dim}, float32: time and memory against the number of tokens".format(**growth[0])
    )
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"scaling.{suffix}", dpi=160)
