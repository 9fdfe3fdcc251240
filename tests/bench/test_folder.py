"""The folder of cases: found from a clone, told where it is not, and of layers that look down alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import bench
from kernattn.cli import main

FOLDER = Path(bench.__file__).parent


def test_without_a_clone_the_command_says_where_cases_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--list"]) == 2
    told = capsys.readouterr().err
    assert f"there is no package of cases in {tmp_path / 'docs' / 'bench'}: " in told
    assert "cases live in the repository" in told
    assert "kernattn.bench races callables of your own" in told
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    assert "cases live in the repository" in " ".join(capsys.readouterr().out.split())


def test_cases_are_taken_from_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--list", "--from", str(FOLDER)]) == 0
    assert capsys.readouterr().out.startswith("causal-elu1 ")


def test_start_needs_no_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kernattn.cli._start._seconds", lambda code, environment: 0.25)
    assert main(["bench", "--start"]) == 0
    assert "| import kernattn | 0.25 |" in capsys.readouterr().out
    assert main(["bench", "--start", "--batch", "2"]) == 2  # which nothing here could heed


def test_what_is_shared_knows_no_device_nor_they_each_other() -> None:
    for file in FOLDER.rglob("*.py"):
        room = file.relative_to(FOLDER).parts[0]
        if room == "command.py":
            continue
        imported = [
            node.module or "" for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)
        ]
        for device in {"cpu", "gpu"} - {room}:
            assert not any(name.startswith(f"bench.{device}") for name in imported), file
