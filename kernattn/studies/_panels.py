"""What the panels of several studies draw alike."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.studies._palette import GREY, UNIFORM, Look, look_of
from kernattn.studies._records import ENDS, Record, names, spell

APART = 0.05  # inches between two numbers along an axis


def read_field(records: Sequence[Record], field: str, place: int | None = None) -> Float64:
    """Read a field of each record, or a place of its vector, as floats: NaN where there is none."""
    values = (record[field] if place is None or record[field] is None else record[field][place] for record in records)
    return np.asarray([np.nan if each is None else each for each in values], np.float64)


def read_interval(records: Sequence[Record], field: str, place: int | None = None) -> list[Float64]:
    """Read a field of each record and the two ends of its interval."""
    return [read_field(records, f"{field}{end}", place) for end in ENDS]


def sort_by(records: Sequence[Record], axis: str) -> list[Record]:
    """Sort records by a field that holds numbers."""
    return sorted(records, key=lambda record: float(record[axis]))


def draw_interval(ax: Any, at: Sequence[float], interval: Sequence[Any], look: Look, label: str | None = None) -> None:
    """Draw values as a line, and between the ends of their intervals a band; None where there is none."""
    value, low, high = (np.asarray(each, np.float64) for each in interval)
    ax.plot(at, value, label=label, **look)
    ax.fill_between(at, low, high, color=look["color"], alpha=0.12, linewidth=0)


def clip(interval: Sequence[Any], most: float) -> tuple[Any, Any, Any]:
    """Leave out what is above `most`, lest it dwarfs a panel shared by others; a band ends there."""
    value, low, high = (np.where(np.asarray(each) <= most, each, np.nan) for each in interval)
    return value, low, np.where(np.isnan(high), most, high)


def draw_band(
    ax: Any,
    records: Sequence[Record],
    axis: str,
    field: str,
    look: Look,
    label: str | None = None,
    most: float = np.inf,
    place: int | None = None,
) -> None:
    """Draw a field along an axis, with a band between the ends of its intervals; what is above `most` is left out."""
    ordered = sort_by(records, axis)
    interval = [np.where(each <= most, each, np.nan) for each in read_interval(ordered, field, place)]
    draw_interval(ax, [record[axis] for record in ordered], interval, look, label)


def draw_bars(ax: Any, at: Any, interval: Any, look: Look, label: str | None = None, width: float = 1.0) -> None:
    """Draw values as points with bars to the ends of their intervals."""
    value, low, high = interval
    bars = [value - low, high - value]
    ax.errorbar(at, value, yerr=bars, elinewidth=width, label=label, **look | {"linestyle": "none"})


def set_logarithmic(
    ax: Any, xlabel: str, ylabel: str, xticks: Sequence[float] | None = None, yticks: Sequence[float] | None = None
) -> None:
    """Make both axes logarithmic, with plain numbers at these ticks."""
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    if xticks is not None:
        write_numbers(ax.xaxis, xticks)
    if yticks is not None:
        write_numbers(ax.yaxis, yticks)


def set_plain(ax: Any, xlabel: str, ylabel: str, xticks: Sequence[float]) -> None:
    """Make both axes logarithmic, with plain numbers along both, and no small ticks."""
    set_logarithmic(ax, xlabel, ylabel, xticks)
    write_numbers(ax.yaxis)
    ax.yaxis.minorticks_off()


def write_numbers(axis: Any, ticks: Sequence[float] | None = None) -> None:
    """Write plain numbers along an axis, at these ticks alone if they are given: logarithmic ones show powers."""
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    if ticks is not None:
        axis.set_ticks(ticks)
        axis.minorticks_off()


def write_short_logs(ax: Any) -> None:
    """Write plain numbers along logarithmic axes of less than a decade, where Matplotlib writes 6 x 10^-1."""
    from matplotlib.ticker import LogFormatterSciNotation

    class Plain(LogFormatterSciNotation):  # type: ignore[misc, unused-ignore]
        def __call__(self, x: float, pos: Any = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        if axis.get_scale() == "log" and high < 10 * low:
            for part, each in (("major", axis.get_major_formatter()), ("minor", axis.get_minor_formatter())):
                if isinstance(each, LogFormatterSciNotation):
                    plain = Plain(axis.get_transform().base, minor_thresholds=(1, 0.4))
                    getattr(axis, f"set_{part}_formatter")(plain)


def has_data(ax: Any) -> bool:
    """Say whether a panel shows more than levels that go all across: a point of a line, or a word."""

    def points(line: Any) -> bool:
        own = all(line.get_transform().contains_branch_seperately(ax.transData))
        return own and bool(np.isfinite(np.asarray(line.get_xydata(), np.float64)).all(axis=1).any())

    return bool(ax.texts) or any(map(points, ax.lines))


def thin_ticks(ax: Any, inches: float) -> None:
    """Leave out numbers along the x axis that would touch in a panel so wide, and slant such words."""
    from matplotlib.ticker import FixedLocator

    if not isinstance(ax.xaxis.get_major_locator(), FixedLocator):
        return
    at = np.asarray(ax.xaxis.get_majorticklocs(), np.float64)
    texts = ax.xaxis.get_major_formatter().format_ticks(at)
    rows = ax.transScale.transform(np.column_stack([at, np.full(len(at), ax.get_ylim()[0])]))
    places = inches * ax.transLimits.transform(rows)[:, 0]
    widths = np.asarray([_inches(ax, text) for text in texts])
    for step in range(1, len(at) + 1):
        kept = np.arange(len(at))[::-step][::-1]  # the last, and every so many before it
        if np.all(np.diff(places[kept]) >= (widths[kept][1:] + widths[kept][:-1]) / 2 + APART):
            break
    if step == 1:
        return
    if all(_is_number(text) for text in texts if text):
        ax.set_xticks(at, [text if i in kept else "" for i, text in enumerate(texts)])
    else:
        ax.set_xticks(at, texts, rotation=30, ha="right", rotation_mode="anchor")


def _inches(ax: Any, text: str) -> float:
    """Return how wide a text of an axis is."""
    probe = ax.figure.text(0, 0, text, fontsize=ax.xaxis.get_major_ticks(1)[0].label1.get_fontsize())
    extent = probe.get_window_extent()
    probe.remove()
    return float(extent.width / ax.figure.dpi)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def dodge(records: Sequence[Record], record: Record) -> float:
    """Return m, moved a little by the series, so that intervals of one m stand side by side on a log axis."""
    series = names([{"s": (r["estimator"], r["projection"])} for r in records], "s")
    place = series.index((record["estimator"], record["projection"])) - (len(series) - 1) / 2
    return float(record["m"] * 2 ** (0.6 * place / max(len(series), 1)))


def draw_uniform(ax: Any, level: float | None = 1.0) -> None:
    """Draw the level of uniform attention across a panel; where it is exact, a logarithmic axis says so in words."""
    if level == 0 and ax.get_yscale() == "log":
        ax.annotate("uniform attention is exact", (0.03, 0.05), xycoords="axes fraction", color=GREY)
    elif level is not None:
        ax.axhline(level, **UNIFORM)
    ax.plot([], [], label="uniform attention", **UNIFORM)


def draw_key(records: Sequence[Record], axis: Any) -> None:
    """Label a panel: a marker for each estimator, a line for each projection."""
    for estimator in names(records, "estimator"):
        look = look_of(records, estimator, "orthogonal") | {"linestyle": "none", "markersize": 6.0}
        axis.plot([], [], label=spell(estimator), **look)
    for projection in names(records, "projection"):
        line = look_of(records, records[0]["estimator"], projection)["linestyle"]
        axis.plot([], [], label=spell(projection), color=GREY, linestyle=line, linewidth=1.4)
