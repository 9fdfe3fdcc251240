"""The figures: probabilities against m, beside the bounds, and what orthogonal frequencies take off them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernattn.studies._palette import BLUE, GREY, SKY, UNIFORM, Look
from kernattn.studies._panels import numbered
from kernattn.studies._presets.preset import Figure
from kernattn.studies._presets.tails.measure import EPSILONS, LENGTHS
from kernattn.studies._presets.tails.verdicts import CLEAR
from kernattn.studies._records import ENDS, Record, names, select

COLOURS = dict(zip(LENGTHS, (SKY, BLUE, "black"), strict=True))
MARKERS = dict(zip(LENGTHS, "osD", strict=True))


def tail(records: Sequence[Record], ax: Any, side: str, epsilon: float) -> None:
    """Share of estimates beyond a relative error, against m, with intervals; bounds dotted."""
    ax.set(xscale="log", yscale="log", xlabel="features m", ylabel="probability", ylim=(1e-6, 1.5))
    ax.set_title(records[0]["where"])
    numbered(ax.xaxis, sorted(names(records, "m")))
    e = EPSILONS.index(epsilon)
    for i, length in enumerate(LENGTHS):
        for projection in names(records, "projection"):
            found = sorted(select(records, projection=projection), key=lambda r: r["m"])
            alone = projection == "iid"
            look = _look(length, alone)
            value, low, high = (np.array([r[f"{side}{end}"][i][e] for r in found]) for end in ENDS)
            seen = value > 0
            at = np.array([r["m"] for r in found]) * (0.97 if alone else 1.03)
            ax.plot(at, np.where(seen, value, np.nan), label=f"length {length:g}, {projection}", **look)
            ax.vlines(at[seen], low[seen], high[seen], color=look["color"], linewidth=1.0)
            for name, line in ((f"{side}_chernoff", ":"), (f"{side}_jump", "-.")):
                if alone and found[0].get(name) is not None:
                    bound = [r[name][i][e] for r in found]
                    ax.plot(at, bound, color=look["color"], linewidth=1.0, linestyle=line)
    ax.plot([], [], color=GREY, linewidth=1.0, linestyle=":", label="at most (Chernoff, iid)")
    if side == "upper":
        ax.plot([], [], color=GREY, linewidth=1.0, linestyle="-.", label="at least (one term, iid)")


def _look(length: float, hollow: bool) -> Look:
    colour = COLOURS[length]
    return {
        "color": colour,
        "linestyle": (0, (3, 1.5)) if hollow else "-",
        "marker": MARKERS[length],
        "markerfacecolor": "white" if hollow else colour,
        "markersize": 4.0,
        "linewidth": 1.3,
    }


def ratio(records: Sequence[Record], ax: Any) -> None:
    """Probability of orthogonal over that of independent features, against the error, at the fewest features."""
    ax.set(xscale="log", yscale="log", xlabel="relative error ε", ylabel="P(|error| > ε) over iid")
    ax.set_title(records[0]["where"])
    numbered(ax.xaxis, EPSILONS)
    numbered(ax.yaxis, (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0))
    ax.axhline(1.0, label="iid", **UNIFORM)
    found = {r["projection"]: r for r in select(records, m=min(names(records, "m")))}
    if not {"iid", "orthogonal"} <= set(found):
        return
    mine, alone = (
        {end: np.asarray(found[projection][f"either{end}"]) for end in ENDS} for projection in ("orthogonal", "iid")
    )
    for i, length in enumerate(LENGTHS):
        known = np.all([each["_high"][i] < CLEAR * each["_low"][i] for each in (mine, alone)], axis=0)
        value, low, high = (
            np.where(known, mine[a][i] / np.where(known, alone[b][i], 1), np.nan)
            for a, b in (("", ""), ("_low", "_high"), ("_high", "_low"))
        )
        at = np.array(EPSILONS) * (0.97, 1.0, 1.03)[i]
        ax.plot(at, value, label=f"length {length:g}", **_look(length, False))
        ax.vlines(at[known], low[known], high[known], color=COLOURS[length], linewidth=1.0)


def _tail(side: str, epsilon: float) -> Callable[..., None]:
    return lambda records, ax: tail(records, ax, side, epsilon)


FIGURES = {
    "upper": Figure(
        "How often estimates exceed twice the kernel",
        "P(K' > 2 K), inputs at a right angle, 95% intervals of Clopper and Pearson",
        _tail("upper", 1.0),
        by="where",
        shows="upwards|break a bound",
    ),
    "lower": Figure(
        "How often estimates fall below half the kernel",
        "P(K' < K / 2), inputs at a right angle, 95% intervals of Clopper and Pearson",
        _tail("lower", 0.5),
        by="where",
        shows="break a bound",
    ),
    "ratio": Figure(
        "Large errors of orthogonal frequencies against those of independent ones",
        "P(|K' - K| > ε K) over that of independent ones, at the fewest features, where both were seen seven times; "
        "bars: 95% intervals",
        ratio,
        by="where",
        shows="have smaller tails",
    ),
}
