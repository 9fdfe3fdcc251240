"""How the figures look: colours that colour-blind readers tell apart, panels, legends, and files written whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from kernattn._files import replace_bytes
from kernattn.studies._records import Record, names

__all__ = [
    "FORMATS",
    "GREY",
    "UNIFORM",
    "Look",
    "arrangement",
    "canvas",
    "dodged",
    "legend",
    "look_of",
    "panels",
    "save",
    "uniform",
]

FORMATS = ("png", "svg")
GREY = "#4d4d4d"
COLOURS = {  # of Okabe and Ito (2008); the marker tells estimators apart in grey
    "trigonometric": ("#0072B2", "o"),
    "phase": ("#56B4E9", "v"),
    "positive": ("#D55E00", "s"),
    "hyperbolic": ("#E69F00", "D"),
    "optimal_positive": ("#009E73", "^"),
}
SPARE = (("#CC79A7", "P"), ("#000000", "X"), ("#999933", "p"))
LINES: dict[str, Any] = {"iid": (0, (3, 1.5)), "orthogonal": "-"}
SPARE_LINES: tuple[Any, ...] = (":", "-.", (0, (1, 3)), (0, (5, 3, 1, 3)))
ARRANGEMENTS = {  # where projections are all there is to tell apart
    "orthogonal": ("#0072B2", "s", "-"),
    "coupled": ("#56B4E9", "D", (0, (6, 2))),
    "simplex": ("#009E73", "^", "-."),
    "hadamard": ("#E69F00", "v", ":"),
    "sobol": ("#CC79A7", "P", (0, (1, 3))),
    "halton": ("#999933", "X", (0, (5, 3, 1, 3))),
    "raw_qr": ("#D55E00", "o", (0, (2, 2))),
}
OTHER = ("#000000", "*", (0, (8, 3)))
Look = dict[str, Any]
WIDTH = 10.6  # inches: the legend needs them

RC: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "axes.labelcolor": "#333333",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "kernattn",
    "text.color": "#222222",
    "xtick.color": "#555555",
    "ytick.color": "#555555",
}


def look_of(records: Sequence[Record], estimator: str, projection: str) -> Look:
    """Return colour and marker (the estimator) and line (the projection); iid is dashed and hollow."""
    colour, marker = _known_or_spare(estimator, names(records, "estimator"), COLOURS, SPARE)
    line = _known_or_spare(projection, names(records, "projection"), LINES, SPARE_LINES)
    return _look(colour, marker, line, hollow=projection == "iid")


def arrangement(projection: str) -> Look:
    """Return colour, marker and line of a projection, in a figure that compares nothing else."""
    return _look(*ARRANGEMENTS.get(projection, OTHER), hollow=projection == "raw_qr")


def _look(colour: str, marker: str, line: Any, hollow: bool) -> Look:
    return {
        "color": colour,
        "linestyle": line,
        "marker": marker,
        "markerfacecolor": "white" if hollow else colour,
        "markeredgecolor": colour,
        "markersize": 4.0,
        "markeredgewidth": 1.0,
        "linewidth": 1.4,
    }


def _known_or_spare(name: str, present: Sequence[str], known: dict[str, Any], spare: Sequence[Any]) -> Any:
    if name in known:
        return known[name]
    return spare[[other for other in present if other not in known].index(name) % len(spare)]


def dodged(records: Sequence[Record], record: Record) -> float:
    """Return m, moved a little by the series, so that intervals of one m stand side by side on a log axis."""
    series = names([{"s": (r["estimator"], r["projection"])} for r in records], "s")
    place = series.index((record["estimator"], record["projection"])) - (len(series) - 1) / 2
    return float(record["m"] * 2 ** (0.6 * place / max(len(series), 1)))


def canvas(title: str, subtitle: str, width: float, height: float) -> Any:
    """Return an empty figure, sizes in inches, with its message on top and room for a legend below that."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    figure.subplots_adjust(
        left=0.85 / width, right=1 - 0.2 / width, top=1 - 1.45 / height, bottom=0.55 / height, wspace=0.12, hspace=0.32
    )
    figure.text(0.25 / width, 1 - 0.3 / height, title, fontsize=13, fontweight="bold", va="center")
    figure.text(0.25 / width, 1 - 0.6 / height, subtitle, fontsize=9, color="#555555", va="center")
    return figure


def panels(records: Sequence[Record], title: str, subtitle: str, ylabel: str) -> tuple[Any, dict[str, Any]]:
    """Return a figure and its axes by dataset: scales down, sources across, log2 m along the bottom."""
    from matplotlib.ticker import FixedLocator, NullLocator

    sources, scales, ms = names(records, "source"), names(records, "scale"), sorted(names(records, "m"))
    figure = canvas(title, subtitle, max(3.3 * len(sources) + 1.05, WIDTH), 2.6 * len(scales) + 2.0)
    grid = figure.subplots(len(scales), len(sources), squeeze=False, sharex=True, sharey="row")
    axes = {}
    for i, scale in enumerate(scales):
        for j, source in enumerate(sources):
            axis = grid[i][j]
            found = next(r for r in records if r["source"] == source and r["scale"] == scale)
            axes[found["dataset"]] = axis
            axis.set_title(f"{source}, scale {scale:g}   (median v² = {found['v2_median']:.2g})", loc="left")
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_locator(FixedLocator(ms))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_xlim(ms[0] / 1.35, ms[-1] * 1.35)
            if i == len(scales) - 1:
                axis.set_xlabel("features m")
            if j == 0:
                axis.set_ylabel(ylabel)
    return figure, axes


UNIFORM: Look = {"color": GREY, "linewidth": 2.4, "alpha": 0.7, "zorder": 1.5}


def uniform(axis: Any, level: float | None) -> None:
    """Draw the level of uniform attention across a panel; where it is exact, a logarithmic axis says so in words."""
    if level == 0 and axis.get_yscale() == "log":
        axis.annotate("uniform attention is exact", (0.03, 0.05), xycoords="axes fraction", color=GREY)
    elif level is not None:
        axis.axhline(level, **UNIFORM)


def legend(figure: Any, records: Sequence[Record], extra: Sequence[Any] = ()) -> None:
    """Put one legend above the panels: a colour per estimator, a line per projection, and what is given."""
    from matplotlib.lines import Line2D

    handles: list[Any] = []
    for estimator in names(records, "estimator"):
        look = look_of(records, estimator, "orthogonal") | {"linestyle": "none", "markersize": 6.0}
        handles.append(Line2D([], [], label=estimator.replace("_", " "), **look))
    for projection in names(records, "projection"):
        look = look_of(records, records[0]["estimator"], projection)
        handles.append(Line2D([], [], label=projection, color=GREY, linestyle=look["linestyle"], linewidth=1.4))
    handles += [*extra, Line2D([], [], label="uniform attention", **UNIFORM)]
    width, height = figure.get_size_inches()
    figure.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(0.15 / width, 1 - 0.92 / height),
        ncols=min(len(handles), 9),
        handlelength=2.0,
        columnspacing=1.2,
        handletextpad=0.5,
    )


def save(folder: Path, name: str, draw: Callable[[], Any]) -> list[str]:
    """Draw a figure under this style and write it in every format; return the names of the files."""
    import matplotlib as mpl

    files = []
    with mpl.rc_context(RC):
        figure = draw()
        for form in FORMATS:
            buffer = BytesIO()
            metadata = {"Date": None} if form == "svg" else {}
            figure.savefig(buffer, format=form, dpi=140, metadata=metadata)
            replace_bytes(folder / f"{name}.{form}", buffer.getvalue())
            files.append(f"{name}.{form}")
    return files
