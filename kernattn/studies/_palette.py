"""Colours, markers and lines: one look for every estimator and projection, in studies, gallery and benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernattn._runtime.checks import one_of
from kernattn.features import ESTIMATORS
from kernattn.projections import PROJECTIONS
from kernattn.studies._records import Record, names

Look = dict[str, Any]
GREY = "#4d4d4d"
UNIFORM: Look = {"color": "#707070", "linewidth": 2.4, "zorder": 1.5}  # a darker grey is WINE to deuteranopes
BLUE, SKY, VERMILION, ORANGE, GREEN, PINK = "#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#CC79A7"
WINE, OLIVE = "#882255", "#999933"
COLOURS = {  # of Okabe and Ito (2008), two more of Tol (2021); the marker tells estimators apart in grey
    "trigonometric": (BLUE, "o"),
    "phase": (SKY, "v"),
    "positive": (VERMILION, "s"),
    "hyperbolic": (ORANGE, "D"),
    "optimal_positive": (GREEN, "^"),
    "favor_sharp": (PINK, "P"),
    "favor_sharp_asymmetric": (WINE, "X"),
    "tensor_sketch": (BLUE, "<"),
    "tensor_srht": (SKY, "h"),
    "complex_to_real": (GREEN, ">"),
    "complex_to_real_gaussian": (PINK, "p"),
    "rademacher_sketch": (VERMILION, "d"),
    "gaussian_sketch": (ORANGE, "H"),
    "arccosine": (OLIVE, "8"),
    "sampled": (WINE, "d"),
    "exact": (WINE, "*"),
}
SPARE = ((PINK, "P"), (WINE, "X"), (OLIVE, "p"), (BLUE, "<"), (VERMILION, ">"), (GREEN, "d"), (ORANGE, "h"), (SKY, "*"))
LINES: dict[str, Any] = {"iid": (0, (3, 1.5)), "orthogonal": "-"}
SPARE_LINES: tuple[Any, ...] = (":", "-.", (0, (1, 3)), (0, (5, 3, 1, 3)))
ARRANGEMENTS: dict[str, tuple[str, str, Any]] = {  # where projections or landmarks are all there is to tell apart
    "iid": (GREY, "o", (0, (3, 1.5))),
    "orthogonal": (BLUE, "s", "-"),
    "coupled": (SKY, "D", (0, (6, 2))),
    "simplex": (GREEN, "^", "-."),
    "hadamard": (ORANGE, "v", ":"),
    "sobol": (PINK, "P", (0, (1, 3))),
    "halton": (OLIVE, "X", (0, (5, 3, 1, 3))),
    "raw_qr": (VERMILION, "o", (0, (2, 2))),
    "moment_matched": (WINE, "p", (0, (8, 2))),
    "antithetic": (WINE, "<", (0, (4, 1, 1, 1))),
    "fastfood": (VERMILION, "d", (0, (1, 1))),
    "kac": (OLIVE, "h", (0, (3, 3))),
    "uniform": (WINE, "X", "-"),
    "kmeans": (GREEN, "^", "-"),
    "leverage": (SKY, "v", (0, (3, 1.5))),
    "rpcholesky": (VERMILION, "D", "-"),
    "greedy": (PINK, "P", ":"),
}
MECHANISMS: dict[str, tuple[str, str, Any]] = {  # of attention; features as elsewhere, and what has them, too
    "local": (BLUE, "o", "-"),
    "bigbird": (SKY, "v", "-"),
    "lsh": (ORANGE, "D", "-"),
    "routing": (PINK, "P", "-"),
    "pooling": (GREEN, "^", "-"),
    "linformer": (OLIVE, "p", "-"),
    "nystrom": (WINE, "X", "-"),
    "favor": (VERMILION, "s", "-"),
    "learned": (WINE, "*", "-"),
    "scatterbrain": (VERMILION, "d", (0, (3, 1.5))),
    "window-learned": (WINE, "d", (0, (3, 1.5))),
}
OTHER = (WINE, "*", (0, (8, 3)))


def line_style(estimator: str, projection: str = "orthogonal") -> Look:
    """Return colour and marker of an estimator, and the line of a projection, as Matplotlib's plot takes them.

    Studies, gallery and benchmarks draw a map alike. Colours are those of Okabe and Ito (2008) and two of Tol (2021),
    which stay apart for those who see two kinds of light; markers and lines tell maps apart where there is no colour.

    Parameters
    ----------
    estimator : str
        A name in `kernattn.features.ESTIMATORS`.
    projection : str
        A name in `kernattn.projections.PROJECTIONS`.

    Examples
    --------
    >>> from kernattn.studies import line_style
    >>> line_style("positive")["marker"], line_style("positive", "iid")["linestyle"]
    ('s', (0, (3, 1.5)))
    """
    for name, value, known in (("estimator", estimator, ESTIMATORS), ("projection", projection, PROJECTIONS)):
        one_of(name, value, known)
    colour, marker = COLOURS.get(estimator, OTHER[:2])
    return _look(colour, marker, LINES.get(projection, SPARE_LINES[0]), hollow=projection == "iid")


def look_of(records: Sequence[Record], estimator: str, projection: str) -> Look:
    """Return colour and marker (the estimator) and line (the projection); iid is dashed and hollow."""
    colour, marker = _known_or_spare(estimator, names(records, "estimator"), COLOURS, SPARE)
    line = _known_or_spare(projection, names(records, "projection"), LINES, SPARE_LINES)
    return _look(colour, marker, line, hollow=projection == "iid")


def arrangement(name: str) -> Look:
    """Return colour, marker and line of a projection or of landmarks, in a figure that compares nothing else."""
    return _look(*ARRANGEMENTS.get(name, OTHER), hollow=name in ("iid", "raw_qr"))


def mechanism(name: str) -> Look:
    """Return colour, marker and line of a mechanism of attention."""
    return _look(*MECHANISMS.get(name, OTHER), hollow=name in ("scatterbrain", "window-learned"))


def series(place: int) -> Look:
    """Return the look of one of several lines that have no look of their own, as contestants of a benchmark."""
    colour, marker = list(COLOURS.values())[place % len(COLOURS)]
    return _look(colour, marker, "-", hollow=False)


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


def _known_or_spare(name: str, present: Sequence[str], known: Mapping[str, Any], spare: Sequence[Any]) -> Any:
    if name in known:
        return known[name]
    free = [each for each in spare if each not in [known.get(other) for other in present]]
    return free[[other for other in present if other not in known].index(name) % len(free)]
