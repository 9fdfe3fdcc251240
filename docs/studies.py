"""Run studies in full, and write docs/studies.md with its figures: python docs/studies.py [FOLDER [NAME ...]].

Records are kept in FOLDER (default build/studies), and cells that were measured are not measured again. Of named
studies the sections and figures are made anew, and the page keeps those of the others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

import kernattn as ka
from kernattn.studies import PRESETS

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "studies.md"
FIGURES = DOCS / "figures" / "studies"
FULL = {"quick": False, "seed": 0, "precision": None, "axes": {}}
TURNED = r"^- ((?:Does not hold|Holds in part).*)$"  # a verdict

HEAD = """# What the studies found

Every study tests one claim of the literature against closed forms and redraws. Each section has the claim, the command
that measures it, our verdicts with their intervals, and figures. The list below collects the claims that failed, in
whole or in part. All results are for seed 0. `python docs/studies.py` makes this page: it runs the commands, or reads
the folders that they left. `kernattn report` shows everything that a study measured. The [guide](guide/studies.md)
explains how to run a study and what a record holds.
"""


def measured(name: str, folder: Path) -> list[dict[str, Any]]:
    """Records of a study in its full form: those of the folder, and what it lacks."""
    print(name, file=sys.stderr, flush=True)
    return ka.studies.run(PRESETS[name].sweep, folder / name, workers=2, progress=None, settings=FULL)


def kept() -> dict[str, str]:
    """The sections of the page as it stands, each under the name of its study."""
    parts = re.split(r"^\(([a-z-]+)\)=\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def page(sections: Mapping[str, str]) -> str:
    """The text, from the sections of the studies."""
    lines = [HEAD, "| study | what it asks | what it costs |", "|---|---|---|"]
    lines += [f"| [{name}](#{name}) | {PRESETS[name].title} | {PRESETS[name].cost} |" for name in sections]
    absent = [f"`kernattn study {name}` ({PRESETS[name].cost})" for name in PRESETS if name not in sections]
    lines += ["", f"Not on this page: {', '.join(absent)}."] if absent else []
    lines += ["", "## Claims that do not hold, or in part", ""]
    for name, text in sections.items():
        lines += [f"- [{name}](#{name}): {verdict}" for verdict in re.findall(TURNED, text, flags=re.MULTILINE)]
    lines += [f"\n({name})=\n{text}" for name, text in sections.items()]
    return "\n".join(lines) + "\n"


def section(name: str, records: Sequence[dict[str, Any]]) -> str:
    """One study: claim, command, verdicts, figures."""
    preset = PRESETS[name]
    verdicts = preset.verdicts(records)
    lines = [f"## {preset.title}", "", f"**The field's claim.** {plain(preset.claim)}", ""]
    lines += [f"$$\n{preset.formula}\n$$", ""] if preset.formula else []
    lines += ["```text", f"kernattn study {name}", "```", "", "**What we measured.**", ""]
    lines += [f"- {plain(str(verdict))}" for verdict in verdicts]
    draws = sorted({record["draws"] for record in records})
    redraws = f"{draws[0]}" if len(draws) == 1 else f"{draws[0]} to {draws[-1]}"
    lines += ["", f"{len(records)} cells of {redraws} redraws.", ""]
    for stem, figure in preset.figures.items():
        caption = plain(f"{figure.title}. {figure.subtitle}. {figure.findings(verdicts)}".strip())
        lines += [f"![{plain(figure.title)}](figures/studies/{name}-{stem}.png)", "", f"*{caption}*", ""]
    return "\n".join(lines[:-1])


def plain(text: str) -> str:
    """A text in which no character means something to Markdown."""
    return re.sub(r"([*_<>$`\\\[\]])", r"\\\1", text)


def draw(name: str, folder: Path) -> None:
    """The figures of a study for the page, as PNG of few colours."""
    with TemporaryDirectory() as scratch:
        for file in ka.studies.figures(folder / name, out=scratch, size="page", formats=("png",)):
            with Image.open(file) as image:
                small = image.convert("RGB").quantize(160, dither=Image.Dither.NONE)
                small.save(FIGURES / f"{name}-{file.name}", optimize=True)


def main(folder: Path, names: Sequence[str]) -> None:
    """Measure what is missing, and write the sections and figures of these studies anew."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    shown = {f"{name}-{stem}.png" for name, preset in PRESETS.items() for stem in preset.figures}
    for old in FIGURES.glob("*.png"):
        if old.name not in shown:
            old.unlink()
    sections = kept()
    for name in names:
        sections[name] = section(name, measured(name, folder))
        draw(name, folder)
        PAGE.write_text(page({each: sections[each] for each in PRESETS if each in sections}), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/studies"), sys.argv[2:] or tuple(PRESETS))
