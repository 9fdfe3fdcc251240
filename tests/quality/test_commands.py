"""Every command of the benchmarks that a document or a docstring names can be given, case by case."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("numba")

from bench.cpu.device import DEVICE as CPU
from bench.cpu.runs import PARTS
from bench.gpu.device import DEVICE as GPU
from kernattn.cli._main import parser
from quality.tree import ROOT

FILES = [
    ROOT / "README.md",
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("docs/bench/**/*.py"),
    *ROOT.glob("kernattn/**/*.py"),
    *ROOT.glob("kernattn/**/*.cu*"),
]
SPAN = re.compile(r"`+([^`]*\bkernattn bench\b[^`]*)`+")


def commands(text: str) -> Iterator[str]:
    """Arguments of the commands in a text: a line each in a block of them, else one in a pair of backticks."""
    for span in SPAN.findall(text):
        for line in span.splitlines() if span.startswith("text\n") else [" ".join(span.split())]:
            if "kernattn bench" in line:
                yield line.partition("kernattn bench")[2]


def check(arguments: str) -> None:
    options = parser().parse_args(["bench", *shlex.split(arguments)])
    known = {"cpu": CPU, "gpu": GPU}[options.device].cases
    assert set(options.cases or []) <= set(known), arguments


def test_commands_are_found_in_blocks_and_in_lines() -> None:
    text = "`A=1 kernattn bench --cases\n  step` and\n```text\nkernattn bench --start\nA=1 kernattn bench --n 7\n```\n"
    assert list(commands(text)) == [" --cases step", " --start", " --n 7"]


@pytest.mark.parametrize("arguments", [" --cases no-such-case", " --device gpu --cases one-head"])
def test_a_case_that_there_is_not_is_noticed(arguments: str) -> None:
    with pytest.raises(AssertionError, match=arguments):
        check(arguments)


def test_commands_of_documents_and_docstrings() -> None:
    found: list[tuple[Path, str]] = [(file, each) for file in FILES for each in commands(file.read_text("utf-8"))]
    assert len(found) > 10
    for _, arguments in found:
        check(arguments)


def test_runs_of_the_page() -> None:
    for runs in PARTS.values():
        for run in runs:
            check(run.arguments)
