"""The files and the tables that docs/adding.md names are there."""

import re
from pathlib import Path

import kernattn as ka
from quality.tree import ROOT

PACKAGE = Path(ka.__file__).parent


def found(name):
    """The file of that name on the page; None where there is none."""
    folders = (ROOT, PACKAGE, PACKAGE / "ops" / "attend", PACKAGE / "projections")
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def test_the_page_names_files_that_exist():
    page = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w./]+\.(?:py|cu))`", page)
    assert len(named) > 10
    for name in named:
        assert found(name), name
    entries = re.findall(r"`([A-Z]+)`(?:, [^`]*)? in `([\w/]+\.py)`", page)
    assert {entry for entry, _ in entries} >= {
        "ESTIMATORS",
        "FAMILIES",
        "HEADERS",
        "KINDS",
        "PROJECTIONS",
        "RECORDS",
        "TABLE",
    }
    for entry, name in entries:
        assert re.search(rf"^{entry}\b", found(name).read_text(encoding="utf-8"), re.MULTILINE), (entry, name)
