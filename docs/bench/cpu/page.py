"""A page whose tables are made by one command: between the marks that name a table stand its runs and their rows.

Every run is a process of its own, so that none spins or warms up for another.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from bench.cpu.exact import EXACT
from bench.cpu.generate.races import GENERATION
from bench.cpu.mkl import fastest_mkl
from bench.cpu.runs import PARTS, Run, held_to_avx2, unheld
from bench.cpu.scaling import SCALING
from bench.cpu.scaling_backward import SCALING_BACKWARD
from bench.cpu.stream import STREAM
from bench.cpu.targets import columns, reached
from kernattn._runtime.files import replace_bytes, replace_text
from kernattn.bench._tables import Column, table, text_column
from kernattn.cli._start import START
from kernattn.errors import KernattnError, ParameterError

Result = dict[str, Any]

COLUMNS = (
    text_column("d", "dim", right=True),
    text_column("bits", "vector_bits", right=True),
    text_column("threads", "threads", right=True),
    text_column("turns begin", "begins"),
)

FEATURES = text_column("features", "features", right=True)  # where rows differ in them

CASES = Path(__file__).parents[1]

LONGEST = 600  # seconds of a run

_MARKED = re.compile(r"<!-- table: (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)
_FIGURE = re.compile(r"\]\((\S*?([\w-]+)\.png)\)")


def make_page(page: Path, race_columns: tuple[Column, ...], report: Callable[[str], None]) -> None:
    """Make every table anew that a page has marks for, `<!-- table: name -->` and `<!-- end -->`, in one go.

    The page is written whole after each run, so that an interrupt leaves those that are done. A run that fails, or
    takes too long, leaves its error beside the rows that it had, and is told when all is done. Tables of races have
    `race_columns`; `report` is told of every run before it begins.
    """
    text = page.read_text(encoding="utf-8")
    names = [match[1] for match in _MARKED.finditer(text)]
    known = [*PARTS, "machine", "targets"]
    if not names or not set(names) <= set(known):
        raise ParameterError(
            f"{page} must have marks of tables among {', '.join(known)}; got {', '.join(names) or 'none'}"
        )
    results_of: dict[str, list[Result]] = {}
    with TemporaryDirectory() as folder:
        switch = fastest_mkl(Path(folder))
        for name, results in _run_tables([name for name in names if name in PARTS], Path(folder), switch, report):
            results_of[name] = results
            _fill(page, text, results_of, race_columns, bool(switch))
    failed = [
        str(run) for name, each in results_of.items() for run, r in zip(PARTS[name], each, strict=True) if "failed" in r
    ]
    if failed:
        raise KernattnError(f"{page} is written, but these runs failed: {'; '.join(failed)}")


def _fill(
    page: Path, text: str, results_of: Mapping[str, Sequence[Result]], race_columns: Sequence[Column], switched: bool
) -> None:
    """Write the page with the tables that there are so far; the others stay as they were."""
    made = {name: _part(PARTS[name], results, race_columns) for name, results in results_of.items()}
    results = [result for each in results_of.values() for result in each]
    held = reached([row for result in results for kind in ("races", "generation") for row in result.get(kind, [])])
    made |= {"machine": _machine(results, switched), "targets": table(held, columns(held))}
    pictures = {name: picture for result in results for name, picture in result["pictures"].items()}
    for figure in _FIGURE.finditer(text):
        if figure[2] in pictures:
            replace_bytes(page.parent / figure[1], pictures[figure[2]])

    def filled(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- table: {name} -->\n\n{made[name]}\n\n<!-- end -->" if name in made else match[0]

    replace_text(page, _MARKED.sub(filled, text))


def _run_tables(
    names: Sequence[str], folder: Path, switch: Mapping[str, str], report: Callable[[str], None]
) -> Iterator[tuple[str, list[Result]]]:
    """Yield the tables by name, with what their runs gave so far, in the order of the page."""
    begin, count, total = perf_counter(), 0, sum(len(PARTS[name]) for name in names)
    for name in names:
        results: list[Result] = []
        for run in PARTS[name]:
            count += 1
            report(f"{perf_counter() - begin:4.0f} s, {count} of {total}: {run}")
            results.append(_result(run, folder / str(count), switch))
            yield name, results


def _result(run: Run, folder: Path, switch: Mapping[str, str]) -> Result:
    """Return what a run wrote, its pictures by name, and its last words if it failed."""
    words = [sys.executable, "-m", "kernattn", "bench", "--from", str(CASES), *run.arguments.split()]
    words += ["--out", str(folder)]
    variables = {**os.environ, **switch, **run.environment}
    try:
        done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False, timeout=LONGEST)
        failed = (done.stderr.strip().splitlines() or ["no word"])[-1] if done.returncode else None
    except subprocess.TimeoutExpired:
        failed = f"stopped after {LONGEST} seconds"
    written = folder / "bench.json"
    result: Result = json.loads(written.read_text()) if written.exists() else {}
    result |= {"pictures": {picture.stem: picture.read_bytes() for picture in folder.glob("*.png")}}
    return result if failed is None else result | {"failed": failed}


def _part(runs: Sequence[Run], results: Sequence[Result], race_columns: Sequence[Column]) -> str:
    """Return the runs of a table so far, and their rows in one; a column that no row fills is left out."""
    runs = runs[: len(results)]
    failed = [f"Failed: `{run}`: {r['failed']}" for run, r in zip(runs, results, strict=True) if "failed" in r]
    tables = []
    for kind, shown in (
        ("races", (*race_columns, *COLUMNS)),
        ("scaling", SCALING),
        ("scaling_backward", SCALING_BACKWARD),
        ("start", START),
        ("stream", STREAM),
        ("generation", GENERATION),
        ("exact", EXACT),
    ):
        rows = [row for result in results for row in result.get(kind, [])]
        filled = [column for column in shown if any(column.cell(row) for row in rows)]
        filled += [FEATURES] if kind == "races" and len({row.get("features") for row in rows}) > 1 else []
        tables += [table(rows, filled)] if rows else []
    lines = "\n".join(str(run) for run in runs)
    return "\n\n".join([f"```text\n{lines}\n```", *failed, *tables])


def _machine(results: Sequence[Result], switched: bool) -> str:
    """Return when and where the runs were, and what held some of them to AVX2 and let others use more."""
    wheres = [result["machine"] for result in results if "machine" in result]
    lines = [f"{datetime.now(UTC):%Y-%m-%d}. {wheres[0] if wheres else 'No run succeeded'}."]
    if unheld():
        lines.append(
            f"`AVX2` before a command stands for `{_shell(held_to_avx2())}`; the others ran with `{_shell(unheld())}`."
        )
    if switched:
        lines.append("PyTorch's MKL took the fastest paths of this processor, by a function that was loaded before it.")
    return "\n\n".join(lines)


def _shell(variables: Mapping[str, str]) -> str:
    return " ".join(f'{name}="{value}"' if " " in value else f"{name}={value}" for name, value in variables.items())
