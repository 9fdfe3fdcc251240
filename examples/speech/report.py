"""Tables and curves from the records: python examples/speech/report.py writes them into docs/guide/speech.md."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from corpus import HERE
from matplotlib import pyplot as plt
from recogniser import METHODS
from train import RECORDS, write

import kernattn as ka

Record = dict[str, Any]
DOCS = HERE.parents[1] / "docs"
PAPER = {"softmax": (5.12, 2711), "linear": (8.08, 824), "lsh-4": (9.33, 2250), "bi-lstm": (10.94, 1047)}
"""Phoneme error rate in per cent and seconds an epoch on WSJ (Katharopoulos et al. 2020, table 3)."""
SHOWN = {
    "softmax": "softmax",
    "linear": "linear, elu + 1",
    "lsh-4": "LSH, 4 rounds",
    "bi-lstm": "Bi-LSTM",
    "ctc": "CTC alone",
}


def loaded(folder: Path) -> dict[str, dict[float, list[Record]]]:
    """Return the finished runs of each method, by rate, and in order of seeds."""
    runs: dict[str, dict[float, list[Record]]] = {method: {} for method in METHODS}
    for file in sorted(folder.glob("*-*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        settings = record["settings"]
        if len(record["epochs"]) == settings["epochs"]:
            runs[settings["method"]].setdefault(settings["rate"], []).append(record)
    return {method: dict(sorted(found.items())) for method, found in runs.items() if found}


def best(runs: dict[str, dict[float, list[Record]]]) -> dict[str, list[Record]]:
    """Return the runs of each method at the rate of the lowest error on seen voices, by the first seed."""
    return {
        method: min(found.values(), key=lambda records: records[0]["epochs"][-1]["seen"])
        for method, found in runs.items()
    }


def spread(values: Sequence[float]) -> str:
    """Return one value, or the least and the largest."""
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


def errors(runs: dict[str, list[Record]]) -> str:
    """Return the table of error rates and of seconds an epoch."""
    lines = [
        "| | parameters | rate | seeds | PER, seen voices | PER, unseen | CPU s an epoch | PER, paper | s, paper |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for method, found in runs.items():
        last = [run["epochs"][-1] for run in found]
        seconds = np.median([epoch["cpu_seconds"] for run in found for epoch in run["epochs"]])
        cells = [SHOWN[method], f"{found[0]['parameters']:,}", f"{found[0]['settings']['rate']:g}", str(len(found))]
        cells += [spread([each[split] for each in last]) for split in ("seen", "unseen")]
        cells += [f"{seconds:.0f}", f"{PAPER[method][0]}", f"{PAPER[method][1]:,}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def rates(runs: dict[str, dict[float, list[Record]]]) -> str:
    """Return the table of what each rate came to by the first seed, on seen voices."""
    tried = sorted({rate for found in runs.values() for rate in found})
    lines = ["| | " + " | ".join(f"rate {rate:g}" for rate in tried) + " |", "|---|" + "---|" * len(tried)]
    for method, found in runs.items():
        cells = [f"{found[rate][0]['epochs'][-1]['seen']:.1f}" if rate in found else "" for rate in tried]
        lines.append(f"| {SHOWN[method]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def times(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of milliseconds a step by length; in brackets without CTC, in those of linear attention."""
    lengths = sorted({row["n"] for row in rows})
    seconds = {(row["method"], row["n"]): row["seconds"] for row in rows}
    unit = {n: seconds["linear", n] - seconds["ctc", n] for n in lengths}
    lines = ["| | " + " | ".join(f"{n:,} rows" for n in lengths) + " |", "|---|" + "---|" * len(lengths)]
    for method in METHODS:
        cells = [
            f"{1000 * seconds[method, n]:.0f} ms ({(seconds[method, n] - seconds['ctc', n]) / unit[n]:.2f})"
            for n in lengths
        ]
        lines.append(f"| {SHOWN[method]} | {' | '.join(cells)} |")
    alone = " | ".join(f"{1000 * seconds['ctc', n]:.0f} ms" for n in lengths)
    return "\n".join([*lines, f"| CTC alone, in each of these | {alone} |"])


def curves(runs: dict[str, list[Record]], path: Path) -> None:
    """Draw the error rate of unseen voices against epochs and against CPU seconds."""
    with plt.rc_context(ka.studies.style("page")):
        figure, panels = plt.subplots(1, 2, figsize=(7, 2.6), sharey=True, layout="constrained")
        for number, (method, found) in enumerate(runs.items()):
            for run in found:
                rates = [epoch["unseen"] for epoch in run["epochs"]]
                spent = np.cumsum([epoch["cpu_seconds"] for epoch in run["epochs"]]) / 60
                for panel, x in zip(panels, (range(1, 1 + len(rates)), spent), strict=True):
                    panel.plot(x, rates, color=f"C{number}", label=SHOWN[method] if run is found[0] else None)
        panels[0].set(
            xlabel="epochs",
            ylabel="phoneme error rate, %",
            yscale="log",
            yticks=[10, 20, 50, 100],
            yticklabels=[10, 20, 50, 100],
        )
        panels[0].minorticks_off()
        panels[0].set_xticks(range(1, 1 + max(len(run["epochs"]) for found in runs.values() for run in found)))
        panels[1].set(xlabel="CPU minutes of training")
        panels[1].legend()
        unfinished = path.with_suffix(".tmp.png")
        figure.savefig(unfinished, dpi=130)
        plt.close(figure)
    unfinished.replace(path)


def placed(page: str, name: str, table: str) -> str:
    """Return a page with a table between the two comments of that name."""
    begin, end = f"<!-- {name}: made by examples/speech/report.py -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    text, found = pattern.subn(lambda _: f"{begin}\n{table}\n{end}", page)
    if found != 1:
        raise SystemExit(f"the page must have one place for {name}, between {begin!r} and {end!r}; it has {found}")
    return text


if __name__ == "__main__":
    runs = loaded(RECORDS)
    page = DOCS / "guide" / "speech.md"
    timing = json.loads((RECORDS / "timing.json").read_text(encoding="utf-8"))
    text = page.read_text(encoding="utf-8")
    for name, table in (("errors", errors(best(runs))), ("rates", rates(runs)), ("times", times(timing))):
        text = placed(text, name, table)
    curves(best(runs), DOCS / "figures" / "speech.png")
    write(page, text)
