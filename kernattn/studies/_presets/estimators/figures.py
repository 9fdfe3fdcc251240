"""The figures: errors of the kernel and of attention over the temperature, and the ranks of estimators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernattn.studies._palette import UNIFORM, look_of
from kernattn.studies._panels import banded, numbered
from kernattn.studies._presets.preset import Figure
from kernattn.studies._records import ENDS, Record, names, select, spoken


def _lines(records: Sequence[Record], kernel: str) -> list[tuple[dict[str, Any], list[Record]]]:
    """Return look and records, by temperature, of every estimator with the first projection."""
    here = [r for r in records if r["kernel"] == kernel and r["projection"] == names(records, "projection")[0]]
    return [
        (look_of(records, name, "orthogonal"), sorted(select(here, estimator=name), key=lambda r: r["temperature"]))
        for name in names(here, "estimator")
    ]


def _along(ax: Any, records: Sequence[Record]) -> None:
    ax.set(xscale="log", xlabel="temperature")
    numbered(ax.xaxis, sorted(names(records, "temperature")))
    ax.yaxis.minorticks_off()


def kernel_error(records: Sequence[Record], ax: Any) -> None:
    """Squared error of the kernel over the temperature: closed forms as lines, settled measurements as points."""
    _along(ax, records)
    ax.set(yscale="log", ylabel="squared error over the kernel's square")
    for look, here in _lines(records, names(records, "kernel")[0]):
        at = [r["temperature"] for r in here]
        theory, seen, value = (
            np.asarray([r[field] for r in here], np.float64) for field in ("error_predicted", "error_settled", "error")
        )
        ax.plot(at, theory, **(look | {"marker": ""}))
        ax.plot(at, np.where(seen > 0, value, np.nan), **(look | {"linestyle": "none"}))
        ax.plot([], [], label=spoken(here[0]["estimator"]), **look)
    ax.axhline(1.0, label="error of estimating 0", **UNIFORM)


def attention_error(records: Sequence[Record], ax: Any) -> None:
    """Error of attention's outputs over that of uniform attention, over the temperature, with 95% intervals."""
    _along(ax, records)
    ax.set(yscale="log", ylabel="error over uniform attention's")
    for look, here in _lines(records, names(records, "kernel")[0]):
        at = [r["temperature"] for r in here]
        interval = [[r[f"over_uniform{end}"] for r in here] for end in ENDS]
        banded(ax, at, interval, look, spoken(here[0]["estimator"]))
    ax.axhline(1.0, label="uniform attention", **UNIFORM)


def rank(records: Sequence[Record], ax: Any) -> None:
    """Rank by the error of attention over the temperature."""
    _along(ax, records)
    lines = _lines(records, names(records, "kernel")[0])
    ax.set(ylabel="rank by the error of attention", yticks=range(1, len(lines) + 1))
    ax.set_ylim(len(lines) + 0.5, 0.5)
    errors = np.asarray([[r["over_uniform"] for r in here] for _, here in lines], np.float64)
    for (look, here), places in zip(lines, 1 + np.argsort(np.argsort(errors, axis=0), axis=0), strict=True):
        ax.plot([r["temperature"] for r in here], places, label=spoken(here[0]["estimator"]), **look)


FIGURES = {
    "attention": Figure(
        "The error of attention over the temperature, by estimator",
        "Of the first kernel: medians over redraws of the error of attention's outputs, with 95% intervals",
        attention_error,
        by="source",
        shows=r"for the (\w+) kernel: .* err no more than",
    ),
    "kernel": Figure(
        "The error of the kernel over the temperature, by estimator",
        "Of the first kernel: closed forms (lines), measurements (points) where redraws settle every pair",
        kernel_error,
        by="source",
        shows="over closed-form variance",
    ),
    "rank": Figure(
        "Which estimator errs less than which, over the temperature",
        "Of the first kernel: rank by the median error of attention's outputs; neighbours may be ties",
        rank,
        by="source",
        shows=r"for the (\w+) kernel: .* err no more than",
    ),
}
