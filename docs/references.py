"""Write docs/references.md from the list of references that reports of studies cite from: python docs/references.py."""

from __future__ import annotations

import re
from pathlib import Path

import kernattn

LIST = Path(kernattn.__file__).parent / "studies" / "_report" / "references.txt"
PAGE = Path(__file__).parent / "references.md"
TOP = """# References

Works that the guide, the theory pages, the studies and the docstrings cite, by subject.

"""


def surnames(match: re.Match[str]) -> str:
    """Return the authors of an entry as the page has them."""
    return "- " + ", ".join(name.partition(",")[0] for name in match[1].split(" and ")) + " ("


def page() -> str:
    """Return the text of the page."""
    return TOP + re.sub(r"^- ([^(]+) \(", surnames, LIST.read_text(encoding="utf-8"), flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
