"""The page of rooms names every room of the package, and no other."""

from __future__ import annotations

import re

from quality.tree import PACKAGE, ROOT

PAGE = ROOT / "docs" / "where_things_live.md"
LINE = re.compile(r"^( *)([\w.]+/?)(?: {2,}\S.*)?$", re.MULTILINE)


def told() -> set[str]:
    """Paths on the page's tree, from the root of the repository."""
    tree = PAGE.read_text(encoding="utf-8").split("```")[1].removeprefix("text\n")
    paths, above = set(), [""]
    for indent, name in LINE.findall(tree):
        depth = len(indent) // 2
        above[depth:] = [above[depth - 1] + name if depth else name]
        paths.add(above[depth])
    return paths


def test_what_the_page_names_exists() -> None:
    paths = told()
    assert len(paths) > 30
    for path in paths:
        assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file(), path


def test_every_room_is_on_the_page() -> None:
    folders = {f"kernattn/{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    files = {f"kernattn/{path.name}" for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert (folders | files) - told() == set()
