"""The figures: errors of the kernel and of attention over the temperature, and the ranks of estimators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernattn.studies._palette import UNIFORM, look_of
from kernattn.studies._panels import draw_band, sort_by, write_numbers
from kernattn.studies._presets.estimators.verdicts import verdicts
from kernattn.studies._presets.preset import Figure, Preset
from kernattn.studies._records import Record, names, select, spell


def _lines(records: Sequence[Record], kernel: str) -> list[tuple[dict[str, Any], list[Record]]]:
    """Return look and records, by temperature, of every estimator with the first projection."""
    here = [r for r in records if r["kernel"] == kernel and r["projection"] == names(records, "projection")[0]]
    return [
        (look_of(records, name, "orthogonal"), sort_by(select(here, estimator=name), "temperature"))
        for name in names(here, "estimator")
    ]


def _along(ax: Any, records: Sequence[Record]) -> None:
    ax.set(xscale="log", xlabel="temperature")
    write_numbers(ax.xaxis, sorted(names(records, "temperature")))
    ax.yaxis.minorticks_off()


def draw_kernel_error(records: Sequence[Record], ax: Any) -> None:
    """Draw the squared error of the kernel over the temperature: closed forms as lines, what settles as points."""
    _along(ax, records)
    ax.set(yscale="log", ylabel="squared error over the kernel's square")
    for look, here in _lines(records, names(records, "kernel")[0]):
        at = [r["temperature"] for r in here]
        theory, seen, value = (
            np.asarray([r[field] for r in here], np.float64) for field in ("error_predicted", "error_settled", "error")
        )
        ax.plot(at, theory, **(look | {"marker": ""}))
        ax.plot(at, np.where(seen > 0, value, np.nan), **(look | {"linestyle": "none"}))
        ax.plot([], [], label=spell(here[0]["estimator"]), **look)
    ax.axhline(1.0, label="error of estimating 0", **UNIFORM)


def draw_attention_error(records: Sequence[Record], ax: Any) -> None:
    """Draw the error of attention over that of uniform attention, over the temperature, with 95% intervals."""
    _along(ax, records)
    ax.set(yscale="log", ylabel="error over uniform attention's")
    for look, here in _lines(records, names(records, "kernel")[0]):
        draw_band(ax, here, "temperature", "over_uniform", look, spell(here[0]["estimator"]))
    ax.axhline(1.0, label="uniform attention", **UNIFORM)


def draw_rank(records: Sequence[Record], ax: Any) -> None:
    """Draw the rank by the error of attention over the temperature."""
    _along(ax, records)
    lines = _lines(records, names(records, "kernel")[0])
    ax.set(ylabel="rank by the error of attention", yticks=range(1, len(lines) + 1))
    ax.set_ylim(len(lines) + 0.5, 0.5)
    errors = np.asarray([[r["over_uniform"] for r in here] for _, here in lines], np.float64)
    for (look, here), places in zip(lines, 1 + np.argsort(np.argsort(errors, axis=0), axis=0), strict=True):
        ax.plot([r["temperature"] for r in here], places, label=spell(here[0]["estimator"]), **look)


FIGURES = {
    "attention": Figure(
        "The error of attention over the temperature, by estimator",
        "Of the first kernel: medians over redraws of the error of attention's outputs, with 95% intervals",
        draw_attention_error,
        by="source",
        shows=r"for the (\w+) kernel: .* err no more than",
    ),
    "kernel": Figure(
        "The error of the kernel over the temperature, by estimator",
        "Of the first kernel: closed forms (lines), measurements (points) where redraws settle every pair",
        draw_kernel_error,
        by="source",
        shows="over closed-form variance",
    ),
    "rank": Figure(
        "Which estimator errs less than which, over the temperature",
        "Of the first kernel: rank by the median error of attention's outputs; neighbours may be ties",
        draw_rank,
        by="source",
        shows=r"for the (\w+) kernel: .* err no more than",
    ),
}

ESTIMATORS = Preset(
    title="Every estimator at as many features",
    claim="Each newer map has the lower variance: positive features err less than trigonometric ones in attention, "
    "and hyperbolic ones less than positive ones (Choromanski et al. 2021), optimal positive ones less still "
    "(Likhosherstov et al. 2022), and dense-exponential ones shaped by the data least, with one map or with two "
    "(FAVOR#, Likhosherstov et al. 2023). Of trigonometric maps, pairs of cosine and sine are better than cosines of a "
    "random phase for the Gaussian kernel (Sutherland and Schneider 2015). The tilts of FAVOR# minimise the mean "
    "logarithm of a term's second moment, which we call the typical second moment; few pairs carry the squared error.",
    cost="quick 6, full 40 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.estimators.measure:sweep",
    verdicts=verdicts,
    formula=r"\frac{\sum_{i j} \operatorname{Var} \hat{k}(q_i, k_j)}{\sum_{i j} k(q_i, k_j)^2}",
    figures=FIGURES,
)
