"""What is cited by name and year, on a page or in the code, is among the references."""

from __future__ import annotations

import re
import runpy
import unicodedata
from functools import cache

from kernattn.studies._report.citations import read_works
from quality.tree import ROOT

REFERENCES = ROOT / "docs" / "references.md"
FILES = sorted(
    file
    for pattern in ("*.md", "docs/**/*.md", "kernattn/**/*.py", "examples/**/*.py")
    for file in ROOT.glob(pattern)
    if "_build" not in file.parts and file != REFERENCES
)
CITATION = re.compile(r"([A-Z][\w'’-]*\w)(?: et al\.)?(?:'s)?,? \(?((?:18|19|20)\d\d)[),;:.]")
ENTRY = re.compile(r"^- ([^(]+) \((\d{4})\)\. \S.*\.$")
NO_NAMES = {"CUDA", "Python", "January", "May", "June", "November"}  # before a number that is no year of a work


def plain(name: str) -> str:
    """A name without accents: Schölkopf and Schoelkopf are one."""
    letters = "".join(letter for letter in unicodedata.normalize("NFKD", name) if letter.isascii())
    return letters.removesuffix("'s").replace("oe", "o").replace("ue", "u")


@cache
def entries() -> list[tuple[set[str], str]]:
    """The authors and the year of every reference."""
    lines = [line for line in REFERENCES.read_text(encoding="utf-8").splitlines() if line.startswith("- ")]
    found = [ENTRY.match(line) for line in lines]
    assert all(found), [line for line, entry in zip(lines, found, strict=True) if entry is None]
    return [({plain(author) for author in entry[1].split(", ")}, entry[2]) for entry in found if entry]


def missing(text: str) -> list[str]:
    """What a text cites that no reference is of: its last name before the year is no author of a work of that year."""
    text = re.sub(r"\s+", " ", text)
    cited = {(plain(name), year) for name, year in CITATION.findall(text) if name not in NO_NAMES}
    known = entries()
    return sorted(f"{name} {year}" for name, year in cited if not any(name in who and year == of for who, of in known))


def test_what_is_cited_is_among_the_references() -> None:
    found = {str(file.relative_to(ROOT)): missing(file.read_text(encoding="utf-8")) for file in FILES}
    assert {file: works for file, works in found.items() if works} == {}


def test_the_page_is_that_of_the_list_that_reports_cite_from() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "references.py"))["page"]()
    assert REFERENCES.read_text(encoding="utf-8") == written, "run python docs/references.py"
    assert len(entries()) - 1 == len(read_works())  # all but the one that has no venue


def test_what_is_not_there_is_missed() -> None:
    assert missing("as Yu et al. (2016) and Higham and Mary (2019) do, and Nobody\n(2016), Yu (2015).") == [
        "Nobody 2016",
        "Yu 2015",
    ]


def test_references_are_sorted_by_name_and_year() -> None:
    for section in REFERENCES.read_text(encoding="utf-8").split("\n## ")[1:]:
        lines = [plain(line).lower() for line in section.splitlines() if line.startswith("- ")]
        assert lines == sorted(set(lines))
