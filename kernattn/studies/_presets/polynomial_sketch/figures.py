"""The figures: variances over degree, cosine and number of features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernattn.studies._palette import GREY, look
from kernattn.studies._panels import numbered
from kernattn.studies._presets.polynomial_sketch.measure import COSINES, bound
from kernattn.studies._presets.polynomial_sketch.verdicts import SPOKEN
from kernattn.studies._presets.preset import Figure
from kernattn.studies._records import Record, names, select

LINES: dict[str, Any] = {  # TensorSketch and complex weights lie on each other
    "complex_to_real": (0, (6, 2)),
    "rademacher_sketch": (0, (3, 1.5)),
    "gaussian_sketch": ":",
}

HALF_DECADES = [part * 10**decade for decade in range(7) for part in (1, 3)]


def _drawn(ax: Any, at: Sequence[float], estimator: str, theory: Any, points: Any, seen: Any) -> None:
    """Draw the closed form as a line, what redraws settle as points, and name both."""
    line = look(estimator) | {"linestyle": LINES.get(estimator, "-")}
    known = np.where(np.asarray(theory, float) > 1e-12, np.asarray(theory, float), np.nan)
    ax.plot(at, known, **line | ({"marker": ""} if len(at) > 1 else {"marker": "_", "markersize": 14}))
    value, low, high = (np.where(np.asarray(seen, bool) & np.isfinite(known), each, np.nan) for each in points)
    ax.errorbar(at, value, yerr=[value - low, high - value], elinewidth=0.8, **line | {"linestyle": "none"})
    ax.plot([], [], label=SPOKEN[estimator], **line)


def _at_equal_rows(records: Sequence[Record]) -> tuple[Any, Any, Any]:
    """Return m times the variance between equal rows: closed forms, measurements with their ends, and which settle."""
    theory, *points = (
        [np.nan if r[field][-1] is None else r["m"] * r[field][-1] for r in records]
        for field in ("variance_predicted", "variance", "variance_low", "variance_high")
    )
    return theory, np.array(points), [r["variance_settled"][-1] for r in records]


def growth(records: Sequence[Record], ax: Any) -> None:
    """M times the variance at equal rows against the degree, and the published bounds."""
    most = max(names(records, "m"))
    degrees = sorted(names(records, "degree"))
    ax.set(yscale="log", xlabel="degree p", ylabel=f"m × variance, m = {most}", xticks=degrees)
    numbered(ax.yaxis, HALF_DECADES)
    for estimator in names(records, "estimator"):
        found = sorted(select(records, estimator=estimator, m=most), key=lambda r: r["degree"])
        _drawn(ax, degrees, estimator, *_at_equal_rows(found))
    for estimator, label, line in (
        ("tensor_sketch", "bound 2 + 3ᵖ", "-"),
        ("complex_to_real", "bound 2ᵖ⁺¹ − 2", ":"),
    ):
        ax.plot(
            degrees,
            [bound(estimator, p) for p in degrees],
            color=GREY,
            linestyle=line,
            linewidth=2.4,
            alpha=0.5,
            label=label,
        )


def against_cosine(records: Sequence[Record], ax: Any) -> None:
    """Variance over that of the Gaussian sketch against the cosine, at the largest m."""
    found = select(records, m=max(names(records, "m")))
    base = select(found, estimator="gaussian_sketch")
    ax.set(yscale="log", xlabel="cosine of x and y", ylabel="variance over Gaussian sketch", xticks=COSINES)
    numbered(ax.yaxis, [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0])
    if not base:
        return
    unit = np.asarray(base[0]["variance_predicted"])
    for record in found:
        theory, *points = (
            np.asarray(record[field], float) / unit
            for field in ("variance_predicted", "variance", "variance_low", "variance_high")
        )
        _drawn(ax, COSINES, record["estimator"], theory, points, record["variance_settled"])


def against_m(records: Sequence[Record], ax: Any) -> None:
    """M times the variance at equal rows against m: flat where the variance falls as 1/m."""
    ms = sorted(names(records, "m"))
    ax.set(xscale="log", yscale="log", xlabel="features m", ylabel="m × variance")
    numbered(ax.xaxis, ms)
    numbered(ax.yaxis, HALF_DECADES)
    for estimator in names(records, "estimator"):
        found = sorted(select(records, estimator=estimator), key=lambda r: r["m"])
        _drawn(ax, ms, estimator, *_at_equal_rows(found))


def _first(draw: Callable[..., None]) -> Callable[..., None]:
    """Return the drawing of the first kind of inputs alone."""
    return lambda records, ax: draw(select(records, inputs=names(records, "inputs")[0]), ax)


FIGURES = {
    "degree": Figure(
        "The variance between equal rows over the degree, and its bounds",
        "Closed forms (lines), measurements (points) where redraws settle them",
        growth,
        by="inputs",
        shows="grows as",
    ),
    "cosine": Figure(
        "What sketches gain over the Gaussian sketch, over the angle between rows",
        "The first inputs, at the largest m: closed forms (lines), measurements (points)",
        _first(against_cosine),
        by="degree",
        shows="never have more variance",
    ),
    "m": Figure(
        "The variance between equal rows over the number of features",
        "Equal rows, of the first inputs: closed forms (lines), measurements (points) where redraws settle them",
        _first(against_m),
        by="degree",
        shows="intervals hold the closed form",
    ),
}
