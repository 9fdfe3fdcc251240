"""The figures: variances over degree, cosine and number of features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernattn.studies._palette import GREY, line_style
from kernattn.studies._panels import draw_bars, read_field, set_logarithmic, sort_by, write_numbers
from kernattn.studies._presets.polynomial_sketch.measure import COSINES, bound
from kernattn.studies._presets.polynomial_sketch.verdicts import SPOKEN, verdicts
from kernattn.studies._presets.preset import Figure, Preset
from kernattn.studies._records import Record, names, select

LINES: dict[str, Any] = {  # TensorSketch and complex weights lie on each other
    "complex_to_real": (0, (6, 2)),
    "rademacher_sketch": (0, (3, 1.5)),
    "gaussian_sketch": ":",
}

HALF_DECADES = [part * 10**decade for decade in range(7) for part in (1, 3)]


def _draw(ax: Any, at: Sequence[float], estimator: str, theory: Any, points: Any, seen: Any) -> None:
    """Draw the closed form as a line, what redraws settle as points, and name both."""
    line = line_style(estimator) | {"linestyle": LINES.get(estimator, "-")}
    known = np.where(np.asarray(theory, float) > 1e-12, np.asarray(theory, float), np.nan)
    ax.plot(at, known, **line | ({"marker": ""} if len(at) > 1 else {"marker": "_", "markersize": 14}))
    settled = np.asarray(seen, bool) & np.isfinite(known)
    draw_bars(ax, at, [np.where(settled, each, np.nan) for each in points], line, width=0.8)
    ax.plot([], [], label=SPOKEN[estimator], **line)


def _at_equal_rows(records: Sequence[Record]) -> tuple[Any, Any, Any]:
    """Return m times the variance between equal rows: closed forms, measurements with their ends, and which settle."""
    m, fields = read_field(records, "m"), ("variance_predicted", "variance", "variance_low", "variance_high")
    theory, *points = (m * read_field(records, field, -1) for field in fields)
    return theory, points, [r["variance_settled"][-1] for r in records]


def draw_growth(records: Sequence[Record], ax: Any) -> None:
    """Draw m times the variance at equal rows against the degree, and the published bounds."""
    most = max(names(records, "m"))
    degrees = sorted(names(records, "degree"))
    ax.set(yscale="log", xlabel="degree p", ylabel=f"m × variance, m = {most}", xticks=degrees)
    write_numbers(ax.yaxis, HALF_DECADES)
    for estimator in names(records, "estimator"):
        _draw(ax, degrees, estimator, *_at_equal_rows(sort_by(select(records, estimator=estimator, m=most), "degree")))
    for estimator, label, line in (("tensor_sketch", "bound 2 + 3ᵖ", "-"), ("complex_to_real", "bound 2ᵖ⁺¹ − 2", ":")):
        level = [bound(estimator, p) for p in degrees]
        ax.plot(degrees, level, color=GREY, linestyle=line, linewidth=2.4, alpha=0.5, label=label)


def draw_against_cosine(records: Sequence[Record], ax: Any) -> None:
    """Draw the variance over that of the Gaussian sketch against the cosine, at the largest m."""
    found = select(records, m=max(names(records, "m")))
    base = select(found, estimator="gaussian_sketch")
    ax.set(yscale="log", xlabel="cosine of x and y", ylabel="variance over Gaussian sketch", xticks=COSINES)
    write_numbers(ax.yaxis, [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0])
    if not base:
        return
    unit = np.asarray(base[0]["variance_predicted"])
    for record in found:
        theory, *points = (
            np.asarray(record[field], float) / unit
            for field in ("variance_predicted", "variance", "variance_low", "variance_high")
        )
        _draw(ax, COSINES, record["estimator"], theory, points, record["variance_settled"])


def draw_against_m(records: Sequence[Record], ax: Any) -> None:
    """Draw m times the variance at equal rows against m: flat where the variance falls as 1/m."""
    ms = sorted(names(records, "m"))
    set_logarithmic(ax, "features m", "m × variance", ms, HALF_DECADES)
    for estimator in names(records, "estimator"):
        _draw(ax, ms, estimator, *_at_equal_rows(sort_by(select(records, estimator=estimator), "m")))


def _first(draw: Callable[..., None]) -> Callable[..., None]:
    """Return the drawing of the first kind of inputs alone."""
    return lambda records, ax: draw(select(records, inputs=names(records, "inputs")[0]), ax)


FIGURES = {
    "degree": Figure(
        "The variance between equal rows over the degree, and its bounds",
        "Closed forms (lines), measurements (points) where redraws settle them",
        draw_growth,
        by="inputs",
        shows="grows as",
    ),
    "cosine": Figure(
        "What sketches gain over the Gaussian sketch, over the angle between rows",
        "The first inputs, at the largest m: closed forms (lines), measurements (points)",
        _first(draw_against_cosine),
        by="degree",
        shows="never have more variance",
    ),
    "m": Figure(
        "The variance between equal rows over the number of features",
        "Equal rows, of the first inputs: closed forms (lines), measurements (points) where redraws settle them",
        _first(draw_against_m),
        by="degree",
        shows="intervals hold the closed form",
    ),
}

POLYNOMIAL_SKETCH = Preset(
    title="Sketches of the polynomial kernel",
    claim="The variance of products of real projections (Kar and Karnick 2012) and of TensorSRHT grows as 3^p / m with "
    "the degree p; TensorSketch (Pham and Pagh 2013) has the bound (2 + 3^p) / m (Avron, Nguyen and Woodruff 2014), "
    "which is read as the same growth. Complex weights bring it down to 2^p / m (Wacker, Ohana and Filippone 2022). "
    "TensorSRHT has no more variance than the Rademacher sketch at odd degrees (Wacker, Kanagawa and Filippone 2022). "
    "Trees of sketches, which are none of the maps here, need only polynomially many features (Ahle et al. 2020).",
    cost="quick 5, full 130 CPU seconds",
    sweep="kernattn.studies._presets.polynomial_sketch.measure:sweep",
    verdicts=verdicts,
    formula=r"\operatorname{Var} \hat{k}_{\mathrm{gaussian}} = \frac{1}{m} ((1 + 2 c^2)^p - c^{2 p}), "
    r"\quad c = x \cdot y, \quad |x| = |y| = 1",
    figures=FIGURES,
)
