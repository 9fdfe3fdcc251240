"""Every example runs in its quick form."""

from __future__ import annotations

import runpy
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

from quality.tree import ROOT

EXAMPLES = sorted(ROOT.glob("examples/plot_*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(example.parent)  # as a script has it
    mpl.use("Agg")
    try:
        runpy.run_path(str(example))["run"](quick=True)
        assert plt.get_fignums(), "an example draws something"
    finally:
        plt.close("all")
    assert list(tmp_path.iterdir()) == [], "an example writes no file"
