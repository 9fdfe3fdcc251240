"""The figures of the attention study: drawn from the records alone, one message each, uniform attention in all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kernattn.studies._records import Record, names
from kernattn.studies._style import GREY, UNIFORM, WIDTH, Look, canvas, dodged, legend, look_of, panels, save, uniform

__all__ = ["write_figures"]

UNSEEN: Look = {"marker": "x", "alpha": 0.45, "markersize": 4.0}
SEEN = ("variance_seen", "variance_seen_predicted")
CEILING = 10_000  # kernel errors, in units of that of uniform attention


def write_figures(folder: Path, records: Sequence[Record]) -> list[str]:
    """Write every figure as PNG and SVG into the folder; return the names of the files."""
    figures = {
        "attention_mse": _attention_mse,
        "kernel_mse": _kernel_mse,
        "bias": _bias,
        "variance": _variance,
    }
    return [file for name, draw in figures.items() for file in save(folder, name, partial(draw, records))]


def _series(records: Sequence[Record], dataset: str) -> Iterator[tuple[list[Record], Look]]:
    """Yield the records of each estimator and projection on one dataset, by m, with their look."""
    for estimator in names(records, "estimator"):
        for projection in names(records, "projection"):
            found = [
                record
                for record in records
                if (record["dataset"], record["estimator"], record["projection"]) == (dataset, estimator, projection)
            ]
            if found:
                yield sorted(found, key=lambda record: record["m"]), look_of(records, estimator, projection)


def _level(records: Sequence[Record], dataset: str, field: str) -> float | None:
    """Return what uniform attention has on a dataset."""
    level: float | None = next(record[field] for record in records if record["dataset"] == dataset)
    return level


def _known(records: Sequence[Record], *fields: str) -> list[Record]:
    return [record for record in records if all(record.get(field) is not None for field in fields)]


def _positive(records: Sequence[Record], field: str) -> list[Record]:
    """Return the records that a logarithmic axis can show."""
    return [record for record in _known(records, field) if record[field] > 0]


def _attention_mse(records: Sequence[Record]) -> Any:
    figure, axes = panels(
        records,
        "Below the grey line, random features beat uniform attention",
        "Squared error of attention outputs against exact softmax attention: median over the redraws",
        "MSE of attention",
    )
    for dataset, axis in axes.items():
        axis.set_yscale("log")
        for series, look in _series(records, dataset):
            found = _positive(series, "attention_mse")
            axis.plot([r["m"] for r in found], [r["attention_mse"] for r in found], **look)
        uniform(axis, _level(records, dataset, "uniform_attention_mse"))
    legend(figure, records)
    return figure


def _kernel_mse(records: Sequence[Record]) -> Any:
    from matplotlib.lines import Line2D

    figure, axes = panels(
        records,
        "Error of the kernel matrix: as the closed form predicts (lines), and measured (points)",
        "Points off their line: redraws do not reach the tail that carries the variance. Not shown: errors of more "
        f"than {CEILING:,} times that of uniform attention",
        "MSE of kernel / mean k²",
    )
    for dataset, axis in axes.items():
        axis.set_yscale("log")
        level = _level(records, dataset, "uniform_kernel_relative_mse")
        for series, look in _series(records, dataset):
            line = {key: look[key] for key in ("color", "linestyle", "linewidth")} | {"alpha": 0.75}
            for field, style in (
                ("kernel_relative_mse_predicted", line),
                ("kernel_relative_mse", look | {"linestyle": "none"}),
            ):
                found = [r for r in _positive(series, field) if not level or r[field] < CEILING * level]
                axis.plot([r["m"] for r in found], [r[field] for r in found], **style)
        uniform(axis, level)
    legend(figure, records, [Line2D([], [], color=GREY, linewidth=1.4, label="predicted", alpha=0.75)])
    return figure


def _bias(records: Sequence[Record]) -> Any:
    figure, axes = panels(
        records,
        "Where the interval meets 0, the redraws show no bias of the kernel",
        "Mean k' / mean k − 1 over the entries whose mean the redraws settle, 95% intervals, logarithmic beyond ±0.1",
        "relative bias of k'",
    )
    for dataset, axis in axes.items():
        axis.set_yscale("symlog", linthresh=0.1, linscale=1.5)
        for series, look in _series(records, dataset):
            found = _known(series, "bias", "bias_low", "bias_high")
            axis.errorbar(
                [dodged(records, r) for r in found],
                [r["bias"] for r in found],
                yerr=[[r["bias"] - r["bias_low"] for r in found], [r["bias_high"] - r["bias"] for r in found]],
                **(look | {"linestyle": "none", "markersize": 3.2}),
                elinewidth=1.0,
            )
        uniform(axis, _level(records, dataset, "uniform_bias"))
        axis.axhline(0, color="#222222", linewidth=0.8, zorder=1.4)
    legend(figure, records)
    return figure


def _variance(records: Sequence[Record]) -> Any:
    from matplotlib.lines import Line2D

    estimators = names(records, "estimator")
    columns = min(len(estimators), 3)
    rows = -(-len(estimators) // columns)
    figure = canvas(
        "On the diagonal, the measured variance is the predicted one",
        "In units of the squared error of uniform attention; one point per dataset, m and projection. "
        "Crosses: all entries, unseen tails included",
        max(3.3 * columns + 1.05, WIDTH),
        2.9 * rows + 2.0,
    )
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    seen = [r[field] for r in _known(records, *SEEN) for field in SEEN if r[field] > 0]
    shown = (min([*seen, 1.0]) / 3, max([*seen, 1.0]) * 10)
    for i, (axis, estimator) in enumerate(zip(grid, estimators, strict=False)):
        axis.set_title(estimator.replace("_", " "), loc="left")
        axis.set(xscale="log", yscale="log", xlim=shown, ylim=shown)
        for record in (r for r in records if r["estimator"] == estimator):
            look = look_of(records, estimator, record["projection"]) | {"linestyle": "none"}
            for field, style in (("variance", look | UNSEEN), ("variance_seen", look)):
                if _positive([record], field) and _positive([record], f"{field}_predicted"):
                    axis.plot(record[f"{field}_predicted"], record[field], **style)
        axis.axline((1, 1), (10, 10), color="#222222", linewidth=0.8, zorder=1.4)
        uniform(axis, 1.0)
        axis.axvline(1.0, **UNIFORM)
        if i % columns == 0:
            axis.set_ylabel("measured")
        if i + columns >= len(estimators):
            axis.set_xlabel("predicted")
            axis.xaxis.set_tick_params(labelbottom=True)
    for axis in grid[len(estimators) :]:
        axis.set_visible(False)
    legend(figure, records, [Line2D([], [], linestyle="none", marker="x", color=GREY, label="all entries")])
    return figure
