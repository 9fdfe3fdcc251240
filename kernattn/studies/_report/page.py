"""The page of a report: a section per study, all that it needs inside."""

import json
import re
from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any

from kernattn._runtime.extras import require
from kernattn.studies._presets.draw import caption, draw_figure
from kernattn.studies._presets.folder import Study
from kernattn.studies._records import names, spell
from kernattn.studies._report.assets import read_asset
from kernattn.studies._report.citations import bibtex
from kernattn.studies._report.commands import figure_command, study_command
from kernattn.studies._report.facts import (
    calibration,
    cells,
    constants,
    fields_with_intervals,
    fields_without_intervals,
)
from kernattn.studies._report.svg import inline
from kernattn.studies._report.tables import number, record_table, table
from kernattn.studies._seeds import digest
from kernattn.studies._style import render

MARKS = {"Holds": "holds ✓", "Holds in part": "part ◐", "Does not hold": "fails ✗", "Open": "open ?", "": "other ·"}
FEW = 40  # rows of a table that is not folded away


def html(studies: Sequence[Study]) -> str:
    """Return the HTML."""
    title = _title(studies[0]) if len(studies) == 1 else f"{len(studies)} studies of kernel approximation"
    anchors = _anchors(studies)
    named = list(zip(anchors, studies, strict=True))
    links = "".join(f'<li><a href="#{anchor}">{escape(_title(each))}</a></li>' for anchor, each in named)
    contents = f"<h1>{escape(title)}</h1>\n<nav><ul>{links}</ul></nav>" if len(studies) > 1 else ""
    body = "\n".join(_section(anchor, each) for anchor, each in named)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{read_asset('report.css')}</style>\n</head>\n<body>\n{contents}\n{body}\n"
        f"<script>\n{read_asset('report.js')}</script>\n</body>\n</html>\n"
    )


def _anchors(studies: Sequence[Study]) -> list[str]:
    """Return an id for each study: its name in letters that ids may have, and a number where it comes again."""
    lines: list[str] = []
    for study in studies:
        anchor = re.sub(r"[^A-Za-z0-9]+", "-", study.name).strip("-")
        lines.append(anchor if anchor and anchor not in lines else f"{anchor}-{len(lines) + 1}".strip("-"))
    return lines


def _title(study: Study) -> str:
    return study.name if study.preset is None else study.preset.title


def _section(name: str, study: Study) -> str:
    parts = [f'<section id="{name}">\n<h1>{escape(_title(study))}</h1>', *_claim(study)]
    for heading, text in (
        ("Verdicts", _verdicts(study)),
        ("What is not settled", _render_open(study)),
        ("Figures", _figures(name, study)),
        ("Do the intervals hold the closed forms?", _calibration(study)),
        ("All cells", _cells(study)),
        ("How it was made", _making(study)),
        ("BibTeX", _pre(bibtex(study.preset.claim if study.preset else ""))),
        ("Records", _embed(name, study)),
    ):
        if text:
            anchor = f"{name}-{re.sub('[^a-z]+', '-', heading.lower()).strip('-')}"
            parts.append(f'<h2 id="{anchor}">{heading}</h2>\n{text}')
    return "\n".join([*parts, "</section>"])


def mathml(formula: str) -> str:
    """Convert a formula from TeX."""
    converter: Any = require("latex2mathml.converter", "latex2mathml", "the formulas of a report")
    return str(converter.convert(formula, display="block"))


def _claim(study: Study) -> list[str]:
    if study.preset is None:
        return []
    formula = [mathml(study.preset.formula)] if study.preset.formula else []
    return [f"<p><strong>The field's claim.</strong> {escape(study.preset.claim)}</p>", *formula]


def _verdicts(study: Study) -> str:
    if study.preset is None:
        return ""
    lines = []
    for verdict in study.preset.verdicts(study.records):
        kind, mark = MARKS[verdict.word].split()
        lines.append(f'<li class="{kind}"><b aria-hidden="true">{mark}</b> {escape(str(verdict))}</li>')
    return '<ul class="verdicts">\n' + "\n".join(lines) + "\n</ul>"


def _render_open(study: Study) -> str:
    axes = list(study.config["axes"])
    axis = next((each for each in axes if len(names(study.records, each)) > 1), axes[0])
    open_ones = fields_without_intervals(study.records, axis)
    wanted, there = study.config.get("cells", len(study.records)), len(study.records)
    first = f"<p>The sweep is not finished: {there} of {wanted} cells are here.</p>" if there < wanted else ""
    if not open_ones:
        every = (
            "Every point here has an interval." if fields_with_intervals(study.records) else "No field has an interval."
        )
        return f"{first}<p>{every}</p>"
    values = [str(value) for value in names(study.records, axis)]
    rows = [
        [
            spell(each.field),
            _part(each.without, each.total, f"{each.without} of {each.total}"),
            *(_part(*each.by[value], "{} of {}".format(*each.by[value])) for value in values),
        ]
        for each in open_ones
    ]
    head = ["points without an interval", "in all", *(spell(value) for value in values)]
    condition = mathml(r"\frac{\gamma(t)^2}{R D} \le 0.4^2, \quad \gamma(t)^2 = (e^{v^2} + 2)^2 (e^{v^2} - 1)")
    return (
        f"{first}<p>Where theory says that the redraws do not reach the tail that carries a statistic, their spread "
        "says nothing about its error: such points are shown without an interval and decide no verdict. The mean of R "
        "redraws of D terms <i>t</i> is settled where its skewness is small; on the right, that of a term of positive "
        f"features with v = |x + y|, in the kernel's own scale (<code>kernattn.metrics.settled</code>).</p>{condition}"
        + table(head, rows)
    )


def _part(part: int, whole: int, text: str) -> tuple[float, str]:
    """Return a share for a table, and how it is shown."""
    return part / max(whole, 1), text


def _figures(name: str, study: Study) -> str:
    parts, verdicts = [], study.verdicts()
    for stem, figure in study.figures().items():
        drawn = render(stem, partial(draw_figure, figure, study.records, "page"), "page", ("svg",), "")
        if not drawn:
            continue
        svg = inline(drawn["svg"], f"{name}-{stem}", figure.title)
        about = caption(figure, study.records, study.config, verdicts).removeprefix(f"{figure.title}.")
        parts.append(
            f'<figure id="{name}-figure-{stem}">\n'
            f"{svg}\n<figcaption><strong>{escape(figure.title)}.</strong>"
            f"{escape(about)}</figcaption>\n{_pre(figure_command(stem, study.folder))}</figure>"
        )
    return "\n".join(parts)


def _calibration(study: Study) -> str:
    held = calibration(study.records, study.preset.expected if study.preset else {})
    if not held:
        return ""
    rows = [
        [spell(each.field), each.inside, each.total, _part(each.inside, each.total, f"{each.inside / each.total:.1%}")]
        for each in held
    ]
    head = ["field", "intervals that hold the closed form", "intervals", "coverage"]
    return (
        "<p>Intervals are 95%: of independent ones, 19 in 20 hold the truth. Points of one cell share their redraws, "
        "and cells that are compared share their random numbers, so they are not independent.</p>" + table(head, rows)
    )


def _cells(study: Study) -> str:
    rows = list(cells(study.records, study.config["along"]))
    same = "; ".join(f"{spell(name)} {number(value)}" for name, value in constants(rows).items() if value is not None)
    note = f"<p>The same in all: {escape(same)}.</p>" if same else ""
    text = record_table(rows, study.records)
    if len(rows) > FEW:
        text = f"<details><summary>{len(rows)} rows of {len(study.records)} cells</summary>\n{text}</details>"
    return note + text


def _making(study: Study) -> str:
    config, records = study.config, study.records
    stops = {why: sum(r["stopped"] == why for r in records) for why in names(records, "stopped")}
    facts = {
        "seed": config["seed"],
        "axes": "; ".join(f"{axis}: {', '.join(map(str, values))}" for axis, values in config["axes"].items()),
        "compared on the same random numbers": ", ".join(config["paired"]) or "nothing",
        "redraws": ", ".join(map(str, sorted(names(records, "draws")))),
        "cells stopped by": ", ".join(f"{why} ({count})" for why, count in stops.items()),
        "data (hash)": ", ".join(map(str, config["axes"]["tokens"])) if "tokens" in config["axes"] else None,
        "records (hash of all but times)": digest([record["checksum"] for record in records]),
        "seconds, all cells": round(sum(record["seconds"] for record in records), 1),
        **{f"version of {name}": version for name, version in config["versions"].items()},
    }
    rows = [[name, str(value)] for name, value in facts.items() if value is not None]
    command = _pre(study_command(config, study.folder))
    return f'{command}\n<div class="facts">{table(["what", "value"], rows)}</div>'


def _embed(name: str, study: Study) -> str:
    lines = "".join(json.dumps(record) + "\n" for record in study.records)
    return (
        f'<p><button type="button" class="download" data-of="{name}-records-jsonl" data-file="{name}.jsonl">Download '
        f"the {len(study.records)} records</button> as lines of JSON.</p>\n"
        f'<script type="application/json" id="{name}-records-jsonl">{lines.replace("<", chr(92) + "u003c")}</script>'
    )


def _pre(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"
