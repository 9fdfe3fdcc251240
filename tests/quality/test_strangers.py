"""Four strangers go their whole way: each script of docs/strangers runs to its end, in an empty folder."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from quality.tree import ROOT

SCRIPTS = {"scikit": "sklearn", "server": None, "researcher": "matplotlib", "transformers_and_jax": "transformers"}


def test_every_script_is_run() -> None:
    assert {path.stem for path in (ROOT / "docs" / "strangers").glob("*.py")} == set(SCRIPTS)


@pytest.mark.parametrize(
    "name",
    ["server", "researcher", *(pytest.param(x, marks=pytest.mark.slow) for x in ("scikit", "transformers_and_jax"))],
)
def test_stranger(name: str, tmp_path: Path) -> None:
    for package in filter(None, (SCRIPTS[name], "jax" if "jax" in name else None)):
        pytest.importorskip(package)
    runpy.run_path(str(ROOT / "docs" / "strangers" / f"{name}.py"))["main"](tmp_path)
