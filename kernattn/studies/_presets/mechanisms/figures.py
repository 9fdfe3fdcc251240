"""Figures of the study of mechanisms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kernattn.studies._palette import mechanism
from kernattn.studies._panels import draw_band, draw_uniform, set_logarithmic
from kernattn.studies._presets.mechanisms.verdicts import spell, verdicts
from kernattn.studies._presets.preset import Figure, Preset
from kernattn.studies._records import Record, names, select

MOST = 100.0  # times the error of uniform attention that a panel shows


def draw_error_over_flops(records: Sequence[Record], ax: Any, field: str) -> None:
    """Draw the error over flops, a line for each mechanism, and the level of uniform attention."""
    set_logarithmic(
        ax, "flops over exact attention's", "error over uniform attention's", [1 / 32, 1 / 16, 1 / 8, 1 / 4]
    )
    ax.xaxis.set_major_formatter(lambda value, _: f"1/{1 / value:.0f}")
    for name in names(records, "mechanism"):
        draw_band(ax, select(records, mechanism=name), "flops", field, mechanism(name), spell(name), MOST)
    draw_uniform(ax)
    first = records[0]
    ax.set_title(f"{first['source']}, T = {first['temperature']:g}: {first['effective_keys']:.0f} keys", loc="left")


FIGURES = {
    "error": Figure(
        "The error of attention outputs over flops, by temperature",
        "Mean square error over that of uniform attention; medians of redraws with their intervals, up to "
        f"{MOST:g}; T is the temperature, and a panel's keys are those that uniform weights of the same entropy have",
        partial(draw_error_over_flops, field="error"),
        by="setting",
        shows="one ranking of mechanisms",
    ),
    "without-self": Figure(
        "The same without each row's own key",
        "Its weight is taken out of exact and approximate rows, which then sum to 1 over the others",
        partial(draw_error_over_flops, field="error_without_self"),
        by="setting",
        shows="a row's own key",
    ),
}

MECHANISMS = Preset(
    title="Mechanisms of attention at equal flops",
    claim="Benchmarks of efficient attention end in one ranking of the mechanisms (Tay et al. 2021, table 1). Here "
    "it is asked whether one ranking serves at every temperature of the softmax, at equal flops and without training: "
    "whether patterns, low rank, features and hashing keep their places from rows that look at everything to rows that "
    "look at a few keys.",
    cost="quick 5, full 130 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.mechanisms.measure:sweep",
    verdicts=verdicts,
    formula=r"\frac{\sum_i |\hat{o}_i - o_i|^2}{\sum_i |u - o_i|^2}, \quad "
    r"o_i = \sum_j \frac{e^{q_i^T k_j / (d^{1/2} T)}}{Z_i} v_j, \quad "
    r"u = \frac{1}{n} \sum_j v_j",
    figures=FIGURES,
    data=True,
)
