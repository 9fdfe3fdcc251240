"""What `kernattn bench tables` does."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.cpu.device import DEVICE
from bench.cpu.tabular.races import known_models, race
from bench.cpu.tabular.report import parts
from bench.cpu.tabular.sources import tables
from kernattn._runtime.checks import positive_integer
from kernattn._runtime.files import replace_text
from kernattn.errors import ParameterError

_MARKED = re.compile(r"<!-- table: (tables\S*|machine) -->\n(.*?)<!-- end -->", re.DOTALL)


def run_tables(options: argparse.Namespace) -> None:
    """Race on tables, keep the rows in a folder, and print or write what they say.

    Rows that the folder holds are not measured again; with `--anew` those of `--models` are.
    """
    if options.list:
        print(*tables(), "", *known_models(), sep="\n")
        return
    if options.n is not None:
        raise ParameterError("tables have the rows they have; --rows N learns from no more than N of them, not --n")
    seeds = 5 if options.seeds is None else positive_integer("--seeds", options.seeds)
    most = None if options.rows is None else positive_integer("--rows", options.rows)
    name = "tables" if most is None else f"tables-{most}"
    file = None if options.out is None else options.out / f"{name}.json"
    kept = _kept(file, (options.models or known_models()) if options.anew else ())

    def report(rows: list[dict[str, Any]]) -> None:
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_text(file, json.dumps(rows, indent=0) + "\n")
        print(f"{len(rows)} rows; {rows[-1]['table']}, seed {rows[-1]['seed']}", file=sys.stderr, flush=True)

    rows = race(options.cases, options.models, seeds, kept, report, most)
    made = parts(rows, name)
    if options.page is None:
        print(*made.values(), sep="\n\n")
        return
    if most is None:
        made["machine"] = f"{datetime.now(UTC):%Y-%m-%d}. {DEVICE.machine()}."
    text = options.page.read_text(encoding="utf-8")

    def filled(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- table: {name} -->\n\n{made[name]}\n\n<!-- end -->" if name in made else match[0]

    replace_text(options.page, _MARKED.sub(filled, text))


def _kept(file: Path | None, again: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of a file, but those of contestants that are raced again."""
    if file is None or not file.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(file.read_text())
    return [row for row in rows if row["model"] not in again]
