"""Write tables and figures of the guide's page from records, verdicts and measurements of memory.

It draws images of the shipped models, and reads the records in ``trained/``, ``memory.jsonl``, ``tried.jsonl`` and
``baselines.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import generate
import matplotlib as mpl
import numpy as np
from baselines import BASELINES
from baselines import KEPT as BASELINES_KEPT
from files import replace
from images import SIDES
from matplotlib import pyplot as plt
from methods import METHODS

import kernattn as ka

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
PAGE, FIGURES = DOCS / "guide" / "image_generation.md", DOCS / "figures" / "images"
VERDICTS = FIGURES / "verdicts.json"
PAPER = {"softmax": ".621", "linear": ".644", "lsh": ".745"}  # bits on all of MNIST; LSH with one round
COLOURS = ("#000000", "#0072B2", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#882255", "#999999")

Records = list[dict[str, Any]]


def read(folder: Path) -> dict[str, Records]:
    """Return the records of each task."""
    found: dict[str, Records] = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(record["name"], []).append(record)
    return found


def of_methods(records: Records) -> dict[str, Records]:
    """Return the records of each method, in the order of `METHODS`."""
    found = {method: [record for record in records if record["method"] == method] for method in METHODS}
    return {method: rows for method, rows in found.items() if rows}


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def digits_table(records: Records) -> str:
    """Return what each method reached on digits, over its seeds."""
    methods = of_methods(records)
    exact = np.mean([record["bits"] for record in methods["softmax"]])

    def row(method: str, rows: Records) -> list[object]:
        found, fresh = ([record[name] for record in rows] for name in ("bits", "bits_of_a_new_draw"))
        share = np.mean([record["share_of_normalisers_at_most_0"] for record in rows])
        return [
            METHODS[method], f"{np.mean(found):.3f}", f"{min(found):.3f} to {max(found):.3f}",
            f"{np.mean(found) / exact - 1:+.1%}", "" if fresh == found else f"{np.mean(fresh):.3f}",
            f"{share:.2%}" if method not in ("softmax", "lsh") else "",
            f"{np.mean([record['cpu_seconds'] for record in rows]):.0f}",
        ]  # fmt: skip

    head = "attention", "bits", "of the seeds", "over softmax", "with a new draw", "normalisers <= 0", "CPU seconds"
    return table(head, (row(*item) for item in methods.items()))


def mnist_table(records: Records) -> str:
    """Return what each method reached on MNIST beside the paper's figures."""
    rows = [
        [
            METHODS[method], f"{record['bits']:.3f}", PAPER.get(method, ""), record["steps"],
            f"{record['steps'] * record['batch'] / 4500:.1f}", f"{record['cpu_seconds'] / 60:.1f}",
        ]
        for method, found in of_methods(records).items()
        for record in found
    ]  # fmt: skip
    return table(("attention", "bits, ours", "the paper's", "steps", "epochs", "CPU minutes"), rows)


def verdict_row(name: str, what: str, verdict: dict[str, Any]) -> list[object]:
    """Return the verdict on some images."""
    counts = verdict["counts"]
    return [name, what, f"{verdict['confidence']:.3f}", sum(map(bool, counts)), " ".join(map(str, counts))]


def verdicts_table(verdicts: dict[str, Any]) -> str:
    """Return what the judge says of images that were drawn, of real ones, and of none."""
    rows: list[list[object]] = []
    for name in SIDES:
        models = {stem: said for stem, said in verdicts.items() if stem.startswith(name) and said}
        for stem, said in models.items():
            method = stem.removeprefix(f"{name}-").rpartition("-")[0]
            rows.append(verdict_row(name, f"drawn, {METHODS[method]}", said["drawn"]))
        for said in list(models.values())[:1]:
            rows += [verdict_row(name, what, said[what]) for what in ("held out", "independent pixels")]
    return table(("images", "which", "confidence", "classes", "taken for 0 to 9"), rows)


def memory_table(rows: Records) -> str:
    """Return bytes against steps."""
    by = {(row["attention"], row["steps"]): row for row in rows}
    steps = sorted({row["steps"] for row in rows})
    kinds = "linear", "softmax"

    def cell(kind: str, step: int, part: str, unit: float) -> str:
        return f"{by[kind, step][part] / unit:,.0f}" if (kind, step) in by else ""

    head = "steps", "linear: state, KB", "peak of the process, MB", "softmax: keys and values, KB", "peak, MB"
    return table(
        head,
        (
            [f"{step:,}", *(cell(kind, step, *part) for kind in kinds for part in (("state", 1e3), ("peak", 1e6)))]
            for step in steps
        ),
    )


def curves(records: dict[str, Records], path: Path) -> None:
    """Draw bits of held-out images against steps, of each task."""
    with mpl.rc_context(ka.studies.style()):
        figure, panels = plt.subplots(1, len(records), figsize=(9.6, 3.6), layout="constrained", squeeze=False)
        for axes, (name, rows) in zip(panels[0], records.items(), strict=True):
            for method, found in of_methods(rows).items():
                steps = [point[0] for point in found[0]["curve"]]
                held_out = np.mean([[point[3] for point in record["curve"]] for record in found], axis=0)
                colour = COLOURS[list(METHODS).index(method)]
                axes.plot(steps, held_out, color=colour, label=METHODS[method], linewidth=1.6)
            axes.set(title=name, xlabel="steps of training", ylabel="bits a pixel, held out")
            axes.set_ylim(*bounds(rows))
            axes.legend(frameon=False, fontsize="small")
        replace(path, lambda file: figure.savefig(file, format="png", dpi=110))
        plt.close(figure)


def bounds(records: Records) -> tuple[float, float]:
    """Return limits that show how curves end, not how they begin."""
    ends = [record["curve"][-1][3] for record in records]
    return 0.97 * min(ends), max(ends) + 0.45 * min(ends)


def tried_table(rows: Records) -> str:
    """Return what each setting reached on images that judge settings."""
    head = "attention", "rate", "decay", "features", "a draw lasts, steps", "bits", "with a new draw"

    def draws(row: dict[str, Any]) -> str:
        kept = "" if row["settled"] == 1 else f"; one for the last {1 - row['settled']:.0%}"
        return f"{row['redraw']}{kept}" if row["method"] == "favor-redrawn" else ""

    def cells(row: dict[str, Any]) -> list[object]:
        random = row["method"] != "softmax"
        return [
            METHODS[row["method"]], f"{row['rate']:g}", f"{row['decay']:g}", row["features"] if random else "",
            draws(row), f"{row['bits']:.3f}", f"{row['bits_of_a_new_draw']:.3f}" if random else "",
        ]  # fmt: skip

    return table(head, map(cells, rows))


def baselines_table(found: dict[str, dict[str, float]]) -> str:
    """Return the bits of models that count levels."""
    head = ["a model that knows", *found]
    return table(head, ([knows, *(f"{found[name][knows]:.2f}" for name in found)] for knows in BASELINES))


class Kept(NamedTuple):
    """What the page tells of."""

    records: dict[str, Records]
    verdicts: dict[str, Any]
    memory: Records
    tried: Records
    baselines: dict[str, dict[str, float]]


def filled(page: str, kept: Kept) -> str:
    """Return a page with tables at its marks."""
    tables = {
        "verdicts": verdicts_table(kept.verdicts),
        "digits": digits_table(kept.records["digits"]),
        "mnist": mnist_table(kept.records["mnist"]),
        "memory": memory_table(kept.memory),
        "tried": tried_table(kept.tried),
        "baselines": baselines_table(kept.baselines),
    }
    for name, content in tables.items():
        mark = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = mark.sub(lambda found, content=content: f"{found[1]}\n{content}\n\n{found[2]}", page)
    return page


def rows_of(path: Path) -> Records:
    """Return what the lines of a file say."""
    return [json.loads(row) for row in path.read_text(encoding="utf-8").splitlines()]


def kept() -> Kept:
    """Return records of training, verdicts on images, measurements of memory, settings that were tried, baselines."""
    verdicts, baselines = (json.loads(path.read_text(encoding="utf-8")) for path in (VERDICTS, BASELINES_KEPT))
    return Kept(
        read(HERE / "trained"), verdicts, rows_of(HERE / "memory.jsonl"), rows_of(HERE / "tried.jsonl"), baselines
    )


def main() -> None:
    FIGURES.mkdir(parents=True, exist_ok=True)
    generate.main(["--out", str(FIGURES)])
    found = kept()
    curves(found.records, FIGURES / "curves.png")
    page = filled(PAGE.read_text(encoding="utf-8"), found)
    replace(PAGE, lambda file: file.write(page.encode()))


if __name__ == "__main__":
    main()
