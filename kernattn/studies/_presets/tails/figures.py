"""The figures: probabilities against m, beside the bounds, and what orthogonal frequencies take off them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kernattn.studies._palette import BLUE, GREY, SKY, UNIFORM, Look
from kernattn.studies._panels import set_logarithmic, sort_by
from kernattn.studies._presets.preset import Figure, Preset
from kernattn.studies._presets.tails.measure import EPSILONS, LENGTHS
from kernattn.studies._presets.tails.verdicts import CLEAR, verdicts
from kernattn.studies._records import ENDS, Record, names, select

COLOURS = dict(zip(LENGTHS, (SKY, BLUE, "black"), strict=True))
MARKERS = dict(zip(LENGTHS, "osD", strict=True))


def draw_tail(records: Sequence[Record], ax: Any, side: str, epsilon: float) -> None:
    """Draw the share of estimates beyond a relative error, against m, with intervals; bounds dotted."""
    set_logarithmic(ax, "features m", "probability", sorted(names(records, "m")))
    ax.set(ylim=(1e-6, 1.5))
    ax.set_title(records[0]["where"])
    e = EPSILONS.index(epsilon)
    for i, length in enumerate(LENGTHS):
        for projection in names(records, "projection"):
            found = sort_by(select(records, projection=projection), "m")
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


def draw_ratio(records: Sequence[Record], ax: Any) -> None:
    """Draw probabilities of orthogonal over independent features, against the error, at the fewest features."""
    yticks = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    set_logarithmic(ax, "relative error ε", "P(|error| > ε) over iid", EPSILONS, yticks)
    ax.set_title(records[0]["where"])
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


FIGURES = {
    "upper": Figure(
        "How often estimates exceed twice the kernel",
        "P(K' > 2 K), inputs at a right angle, 95% intervals of Clopper and Pearson",
        partial(draw_tail, side="upper", epsilon=1.0),
        by="where",
        shows="upwards|breaks a bound",
    ),
    "lower": Figure(
        "How often estimates fall below half the kernel",
        "P(K' < K / 2), inputs at a right angle, 95% intervals of Clopper and Pearson",
        partial(draw_tail, side="lower", epsilon=0.5),
        by="where",
        shows="breaks a bound",
    ),
    "ratio": Figure(
        "Large errors of orthogonal frequencies against those of independent ones",
        "P(|K' - K| > ε K) over that of independent ones, at the fewest features, where both were seen seven times; "
        "bars: 95% intervals",
        draw_ratio,
        by="where",
        shows="have smaller tails",
    ),
}

TAILS = Preset(
    title="Probabilities of large deviations",
    claim="Estimates of the regularised softmax kernel by positive features, of frequencies as long as d^1/2, obey a "
    "bound on P(K' > a) that is exponentially small in m, and a smaller one where these are orthogonal, m <= d "
    "(Choromanski et al. 2021, theorem 3). Here it is asked whether that holds of the softmax kernel itself, for "
    "normal frequencies, three estimators and both tails. Bounded terms, as those of trigonometric features, "
    "obey Hoeffding's bound (Rahimi and Recht 2007).",
    cost="quick 4, full 90 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.tails.measure:sweep",
    verdicts=verdicts,
    formula=r"\hat{k} = \frac{1}{m} \sum_l t_l, \quad "
    r"P(\hat{k} > a) \le e^{-m s a} (\mathrm{E} e^{s t})^m, \quad s > 0",
    figures=FIGURES,
)
