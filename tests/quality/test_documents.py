"""Every python block in the README and the pages runs, page by page, top to bottom, and prints what the page shows."""

from __future__ import annotations

import re
import tomllib
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from quality.outputs import differences
from quality.tree import ROOT

PAGES = sorted(page for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if "_build" not in page.parts)
WITHIN = 0.02  # of a number: other processors add in another order
BLOCK = re.compile(r"^```(python|output)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


def with_code() -> list[Path]:
    """Pages that hold python blocks; tutorials have tests of their own."""
    pages = [page for page in PAGES if page.parent.name != "tutorials"]
    return [page for page in pages if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", with_code(), ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of output say what was printed since the block of output before."""
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "page"}
    printed = StringIO()
    for block in BLOCK.finditer(text):
        kind, content = block.groups()
        if kind == "output":
            assert differences(printed.getvalue(), content, WITHIN) == []
            printed = StringIO()
            continue
        line = text.count("\n", 0, block.start()) + 1
        with redirect_stdout(printed):
            exec(compile("\n" * line + content, str(page), "exec"), namespace)


FILE = re.compile(r"`((?:\w+/)+\w+\.(?:py|cu|cuh|md))`")


def test_links_lead_somewhere_and_files_that_a_page_names_exist() -> None:
    missing = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        missing += [(page, target) for target in LINK.findall(text) if not (page.parent / target).exists()]
        for name in FILE.findall(text):
            if not any((folder / name).is_file() for folder in (ROOT, ROOT / "kernattn")):
                missing.append((page, name))
    assert missing == []


@pytest.mark.parametrize("folder", ["benchmarks", "guide", "theory", "tutorials"])
def test_every_page_is_listed(folder: str) -> None:
    home = ROOT / "docs" / folder
    contents = (home / "index.md").read_text(encoding="utf-8")
    for page in home.glob("*.md"):
        if page.name != "index.md":
            assert page.stem in contents.splitlines(), f"{page.name} is in no toctree"
            assert f"]({page.name})" in contents, f"{page.name} is not told"


def test_every_figure_is_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    figures = [path.relative_to(ROOT / "docs/figures") for path in (ROOT / "docs/figures").rglob("*.png")]
    assert [str(figure) for figure in figures if f"figures/{figure.as_posix()})" not in pages] == []


def test_a_decision_opens_with_its_number_and_says_what_forced_it() -> None:
    for page in (ROOT / "docs/decisions").glob("0*.md"):
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(page.name[:4])}. "), page
        for part in ("Forced by", "Chosen", "Costs"):
            assert f"\n**{part}" in text, (page, part)


BRINGS = {  # what blocks of code use, and the extras that bring it
    r"^import dask": "dask",
    r"^(?:import|from) (?:torch|kernattn\.torch)": "torch|huggingface",
    r"^import jax": "jax",
    r"^(?:import|from) (?:transformers|kernattn\.huggingface)": "huggingface",
    r"^from (?:sklearn|kernattn\.sklearn)": "sklearn|study",
    r"\b(?:flights|diamonds)\(": "data",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_how_to_install_what_its_code_uses(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = "".join(content for kind, content in BLOCK.findall(text) if kind == "python")
    for use, extra in BRINGS.items():
        if re.search(use, code, re.MULTILINE):
            told = re.search(rf"'\.\[[\w,]*\b(?:{extra})\b|extra `(?:{extra})`", text)
            assert told, f"{use} is used, and no word said of '.[{extra}]'"


def test_every_extra_is_told() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    told = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/guide/install.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert told == sorted(told)
    assert set(told) == set(extras)
