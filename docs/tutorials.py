"""Run tutorials in full, and write what they print and draw into docs: python docs/tutorials.py [NAME ...].

An ``output`` block after a ``python`` block is what the code prints. The line ``quick = False`` of a page sets its
sizes, and figures are the .png files that its code saves.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import matplotlib as mpl
from PIL import Image

from kernattn._runtime.files import replace_text

DOCS = Path(__file__).resolve().parent
PAGES = sorted(page for page in DOCS.glob("tutorials/*.md") if page.stem != "index")
FIGURES = DOCS / "figures" / "tutorials"
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```output\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
FULL, QUICK = "quick = False\n", "quick = True\n"


def blocks(page: Path) -> list[re.Match[str]]:
    """The blocks of a page, each with the output that the page shows."""
    return list(BLOCK.finditer(page.read_text(encoding="utf-8")))


def run(page: Path, folder: Path, *, quick: bool) -> Iterator[str]:
    """Run a page block by block in a folder, and yield what each block prints."""
    namespace: dict[str, object] = {"__name__": "page"}
    with chdir(folder):
        for block in blocks(page):
            code = block["code"].replace(FULL, QUICK) if quick else block["code"]
            line = block.string.count("\n", 0, block.start()) + 1
            with redirect_stdout(StringIO()) as printed:
                exec(compile("\n" * line + code, str(page), "exec"), namespace)
            yield "".join(f"{each.rstrip()}\n" for each in printed.getvalue().splitlines())


def written(page: Path, outputs: list[str]) -> str:
    """The text of a page, with these outputs in place of those that it shows."""
    printed = iter(outputs)

    def block(match: re.Match[str]) -> str:
        output = next(printed)
        return f"```python\n{match['code']}```\n" + (f"\n```output\n{output}```\n" if output else "")

    return BLOCK.sub(block, page.read_text(encoding="utf-8"))


def keep(figure: Path) -> None:
    """Keep a figure beside the pages, in 256 colours: a photograph takes a quarter of the bytes."""
    with Image.open(figure) as image:
        image.convert("RGB").quantize(256).save(FIGURES / figure.name, optimize=True)


def main(names: list[str]) -> None:
    """Run pages, and write them and their figures."""
    mpl.use("Agg")
    for page in [page for page in PAGES if not names or page.stem in names]:
        start = process_time()
        with TemporaryDirectory() as folder:
            replace_text(page, written(page, list(run(page, Path(folder), quick=False))))
            for figure in Path(folder).glob("*.png"):
                keep(figure)
        print(f"{page.stem}: {process_time() - start:.0f} s of CPU time", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
