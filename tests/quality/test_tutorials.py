"""Tutorials run in their quick form and say what their pages show; where time is given, whole, to the same numbers."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

from quality.outputs import differences, numbers, words
from quality.tree import ROOT

SPEC = importlib.util.spec_from_file_location("tutorials", ROOT / "docs" / "tutorials.py")
tutorials = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tutorials)

NEEDS = {"swap": "transformers"}
WITHIN = 0.15  # of a number, for another machine rounds otherwise, and trains otherwise

every_page = pytest.mark.parametrize("page", tutorials.PAGES, ids=lambda page: page.stem)


@pytest.fixture(autouse=True)
def no_figures_left():
    """Figures are drawn into files, and closed."""
    mpl.use("Agg")
    yield
    plt.close("all")


def ran(page: Path, folder: Path, *, quick: bool) -> list[tuple[str, str]]:
    """What each block of a page prints, beside what the page shows."""
    pytest.importorskip(NEEDS.get(page.stem, "kernattn"))
    shown = [block["output"] or "" for block in tutorials.blocks(page)]
    return list(zip(tutorials.run(page, folder, quick=quick), shown, strict=True))


@every_page
def test_a_page_says_what_its_code_prints(page: Path, tmp_path: Path) -> None:
    for printed, shown in ran(page, tmp_path, quick=True):
        assert words(printed) == words(shown)
    drawn = {figure.name for figure in tmp_path.glob("*.png")}
    assert drawn == set(re.findall(r"\]\(\.\./figures/tutorials/([\w-]+\.png)\)", page.read_text("utf-8")))


@pytest.mark.slow
@every_page
def test_a_page_shows_the_numbers_of_its_code(page: Path, tmp_path: Path) -> None:
    for printed, shown in ran(page, tmp_path, quick=False):
        assert differences(printed, shown, WITHIN) == []


@every_page
def test_a_page_has_one_switch_of_sizes(page: Path) -> None:
    assert sum(block["code"].count(tutorials.FULL) for block in tutorials.blocks(page)) == 1


def test_outputs_take_the_places_of_those_that_were_shown(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# T\n\n```python\nquick = False\nprint(1 + quick)\n```\n\n```output\n7\n```\n\n```text\nx\n```\n", "utf-8"
    )
    assert list(tutorials.run(page, tmp_path, quick=True)) == ["2\n"]
    assert tutorials.written(page, ["1\n"]) == page.read_text("utf-8").replace("7", "1")
    assert "output" not in tutorials.written(page, [""])


def test_numbers_and_words_are_told_apart() -> None:
    text = "error 1,200 rows 3.5% at 1.0e-03, step2 in 12 s"
    assert [value for value, _ in numbers(text)] == [1200, 3.5, 0.001]
    assert numbers("1.0e-03")[0][1] == pytest.approx(0.5e-4)
    assert words(text) == words("error 9 rows 1% at 2, step2 in 4 s")
    assert words(text) != words("errors 9 rows 1% at 2, step2 in 4 s")


def test_differences_are_words_that_change_and_numbers_that_leave_what_is_allowed() -> None:
    assert differences("error 0.060, m = 64", "error 0.061, m = 64", 0.01) == []
    assert differences("error 0.060, m = 64", "error 0.063, m = 64", 0.01) == ["0.06 is not 0.063"]
    assert differences("error 0.060", "mistake 0.060", 0.01) != []
    assert differences("error 1 2", "error 1", 0.01) != []
