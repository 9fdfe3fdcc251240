"""What the panels of several studies draw alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernattn.studies._palette import GREY, UNIFORM, Look, look_of
from kernattn.studies._records import Record, names, spoken


def banded(ax: Any, at: Sequence[float], interval: Sequence[Any], look: Look, label: str | None = None) -> None:
    """Draw values as a line, and between the ends of their intervals a band."""
    value, low, high = interval
    ax.plot(at, value, label=label, **look)
    ax.fill_between(at, low, high, color=look["color"], alpha=0.12, linewidth=0)


def numbered(axis: Any, ticks: Sequence[float] | None = None) -> None:
    """Write plain numbers along an axis, at these ticks alone if they are given: logarithmic ones show powers."""
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    if ticks is not None:
        axis.set_ticks(ticks)
        axis.minorticks_off()


def dodged(records: Sequence[Record], record: Record) -> float:
    """Return m, moved a little by the series, so that intervals of one m stand side by side on a log axis."""
    series = names([{"s": (r["estimator"], r["projection"])} for r in records], "s")
    place = series.index((record["estimator"], record["projection"])) - (len(series) - 1) / 2
    return float(record["m"] * 2 ** (0.6 * place / max(len(series), 1)))


def uniform(axis: Any, level: float | None) -> None:
    """Draw the level of uniform attention across a panel; where it is exact, a logarithmic axis says so in words."""
    if level == 0 and axis.get_yscale() == "log":
        axis.annotate("uniform attention is exact", (0.03, 0.05), xycoords="axes fraction", color=GREY)
    elif level is not None:
        axis.axhline(level, **UNIFORM)


def clipped(values: Sequence[float], most: float) -> Any:
    """Return an array of values, NaN above `most`: what a panel shared by others leaves out, lest it dwarfs them."""
    array = np.asarray(values, np.float64)
    return np.where(array <= most, array, np.nan)


def key(records: Sequence[Record], axis: Any) -> None:
    """Label a panel: a marker for each estimator, a line for each projection."""
    for estimator in names(records, "estimator"):
        look = look_of(records, estimator, "orthogonal") | {"linestyle": "none", "markersize": 6.0}
        axis.plot([], [], label=spoken(estimator), **look)
    for projection in names(records, "projection"):
        line = look_of(records, records[0]["estimator"], projection)["linestyle"]
        axis.plot([], [], label=spoken(projection), color=GREY, linestyle=line, linewidth=1.4)
