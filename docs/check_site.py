"""Check a built site, python docs/check_site.py FOLDER: no dead link, and nothing that is loaded from elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src"}
NOT_LOADED = {"canonical", "next", "prev"}


class Page(HTMLParser):
    """Anchors, links, and what a browser loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what one tag names."""
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif values.get(LOADED.get(tag, "")) and values.get("rel") not in NOT_LOADED:
            self.loaded.append(values[LOADED[tag]])


def faults(root: Path) -> Iterator[str]:
    """Say what is wrong, page by page."""
    pages = {file: Page(file) for file in sorted(root.rglob("*.html")) if "_static" not in file.parts}
    for file, page in pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme != "data":
                    yield f"{file.relative_to(root)} loads {link}"
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            lost = not target.exists() or (
                parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors
            )
            if lost:
                yield f"{file.relative_to(root)} points to {link}"


if __name__ == "__main__":
    found = list(faults(Path(sys.argv[1]).resolve()))
    print(*found, sep="\n")
    sys.exit(f"{len(found)} faults" if found else 0)
