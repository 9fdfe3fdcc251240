"""Figures of the study of mechanisms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kernattn.studies._palette import UNIFORM, mechanism
from kernattn.studies._panels import banded, clipped, numbered, uniform
from kernattn.studies._presets.mechanisms.verdicts import spoken
from kernattn.studies._presets.preset import Figure
from kernattn.studies._records import ENDS, Record, names, select

MOST = 100.0  # times the error of uniform attention that a panel shows


def error_over_flops(records: Sequence[Record], ax: Any, field: str) -> None:
    """Error over flops, a line for each mechanism, and the level of uniform attention."""
    ax.set(xscale="log", yscale="log", xlabel="flops over exact attention's", ylabel="error over uniform attention's")
    numbered(ax.xaxis, [1 / 32, 1 / 16, 1 / 8, 1 / 4])
    ax.xaxis.set_major_formatter(lambda value, _: f"1/{1 / value:.0f}")
    for name in names(records, "mechanism"):
        here = sorted(select(records, mechanism=name), key=lambda r: float(r["flops"]))
        interval = [clipped([r[f"{field}{end}"] for r in here], MOST) for end in ENDS]
        banded(ax, [float(r["flops"]) for r in here], interval, mechanism(name), label=spoken(name))
    uniform(ax, 1.0)
    ax.plot([], [], label="uniform attention", **UNIFORM)
    first = records[0]
    ax.set_title(f"{first['source']}, T = {first['temperature']:g}: {first['effective_keys']:.0f} keys", loc="left")


FIGURES = {
    "error": Figure(
        "The error of attention outputs over flops, by temperature",
        "Mean square error over that of uniform attention; medians of redraws with their intervals, up to "
        f"{MOST:g}; T is the temperature, and a panel's keys are those that uniform weights of the same entropy have",
        partial(error_over_flops, field="error"),
        by="setting",
        shows="one ranking of mechanisms",
    ),
    "without-self": Figure(
        "The same without each row's own key",
        "Its weight is taken out of exact and approximate rows, which then sum to 1 over the others",
        partial(error_over_flops, field="error_without_self"),
        by="setting",
        shows="a row's own key",
    ),
}
