"""What the shares of large deviations say of the claims: verdicts, and figures beside the bounds."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kernattn.studies._palette import BLUE, GREY, SKY, UNIFORM, Look
from kernattn.studies._panels import set_logarithmic, sort_by
from kernattn.studies._presets.preset import Figure, Preset
from kernattn.studies._presets.tails.measure import EPSILONS, LENGTHS
from kernattn.studies._presets.verdict import Tally, Verdict, two_digits
from kernattn.studies._records import ENDS, Record, names, select

CLEAR = 4  # ends of an interval over each other, up to which a share is known: seven hits


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge where orthogonal tails are smaller, whether the bounds hold, and whether there is an exponential one."""
    judged = []
    for where in names(records, "where"):
        mine = select(records, where=where)
        alone = select(mine, projection="iid")
        if {"iid", "orthogonal"} <= set(names(mine, "projection")):
            judged += _compare_tails(where, mine)
        if alone:
            judged.append(_judge_bounds(where, alone))
            if alone[0]["upper_jump"] is not None:
                judged.append(_judge_jump(where, alone))
    return judged


def _compare_tails(where: str, records: Sequence[Record]) -> list[Verdict]:
    """Judge orthogonal against independent features, at every m, length, error and side."""
    places: dict[str, list[tuple[str, str, str]]] = {"smaller": [], "larger": [], "open": [], "seldom": []}
    for m in sorted(names(records, "m")):
        pair = {r["projection"]: r for r in select(records, m=m)}
        for side in ("upper", "lower"):
            _sort_places(places, pair["orthogonal"], pair["iid"], side)
    less, more = places["smaller"], places["larger"]
    tally = Tally(len(less), len(more), len(places["open"]), of="places (side, length, m, ε)")
    verdict = Verdict(
        "orthogonal frequencies have smaller tails",
        f"at {len(places['seldom'])} more places large errors are seen too seldom to tell",
        where=f"for {where}",
        tally=tally,
    )
    said = (("Smaller", less), ("Larger", more))
    return [verdict, *(Verdict(_few(at), where=f"{name}, {where}, ε in brackets") for name, at in said if at)]


def _sort_places(places: dict[str, list[tuple[str, str, str]]], mine: Record, other: Record, side: str) -> None:
    """Sort the places of two records: where one interval lies below the other, and where both overlap or are wide."""
    less, more = (
        np.asarray(low[f"{side}_high"]) < np.asarray(high[f"{side}_low"])
        for low, high in ((mine, other), (other, mine))
    )
    known = np.all(
        [np.asarray(r[f"{side}_high"]) < CLEAR * np.asarray(r[f"{side}_low"]) for r in (mine, other)], axis=0
    )
    for i, length in enumerate(mine["length"]):
        for e, epsilon in enumerate(mine["epsilon"]):
            apart = "smaller" if less[i, e] else "larger" if more[i, e] else None
            name = apart or ("open" if known[i, e] else "seldom")
            places[name].append((f"{side}, length {length:g}", f"m {mine['m']}", f"{epsilon:g}"))


def _few(places: Sequence[tuple[str, str, str]]) -> str:
    """Put places together that differ in the error, then those that differ in m."""
    together: dict[str, dict[str, list[str]]] = {}
    for side, m, epsilon in places:
        together.setdefault(side, {}).setdefault(m, []).append(epsilon)
    return "; ".join(
        f"{side}, " + ", ".join(f"{m} ({', '.join(epsilons)})" for m, epsilons in each.items())
        for side, each in together.items()
    )


BOUNDS = {  # field: the side of which it speaks, and its name
    "upper_chernoff": ("upper", "Chernoff's upwards"),
    "lower_chernoff": ("lower", "Chernoff's downwards"),
    "hoeffding": ("either", "Hoeffding's"),
    "chebyshev": ("either", "Chebyshev's"),
}


def _judge_bounds(where: str, alone: Sequence[Record]) -> Verdict:
    """Judge whether shares obey the bounds; say how many times these are above them where they say something."""
    broken = total = 0
    parts = []
    for name, (side, spell) in BOUNDS.items():
        if alone[0][name] is None:
            continue
        bound, value, low = (np.array([r[each] for r in alone], float) for each in (name, side, f"{side}_low"))
        broken, total = broken + int(np.sum(low > bound)), total + low.size
        telling = (bound < 1) & (value > 0)
        slack = bound[telling] / value[telling]
        times = f"{two_digits(slack.min())} to {two_digits(slack.max())}" if slack.size else "unknown"
        parts.append(f"{spell} {times}")
    return Verdict(
        "no measured share breaks a bound",
        f"{broken} of {total} do",
        f"bound over share, where the bound is below 1 and the share above 0: {'; '.join(parts)}",
        where=f"for {where}, independent frequencies",
        decided="Does not hold" if broken else "Holds",
    )


def _judge_jump(where: str, alone: Sequence[Record]) -> Verdict:
    """Judge whether there is an exponential bound upwards: there is none, for one term alone is enough."""
    least, value, high = (np.array([r[each] for r in alone]) for each in ("upper_jump", "upper", "upper_high"))
    below = int(np.sum(high < least))
    share = np.max(least[value > 0] / value[value > 0], initial=0.0)
    return Verdict(
        "tails have an exponential bound",
        "a term's moment generating function, which is finite for the regularised kernel, is infinite for the "
        "softmax kernel, so the exponential bound is 1 at every m",
        f"one term alone accounts for up to {share:.0%} of a share, and {below} of {value.size} shares are below "
        "what it accounts for",
        where=f"upwards for {where}",
        decided="Open" if below else "Does not hold",
    )


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
            curve = sort_by(select(records, projection=projection), "m")
            alone = projection == "iid"
            look = _look(length, alone)
            value, low, high = (np.array([r[f"{side}{end}"][i][e] for r in curve]) for end in ENDS)
            seen = value > 0
            at = np.array([r["m"] for r in curve]) * (0.97 if alone else 1.03)
            ax.plot(at, np.where(seen, value, np.nan), label=f"length {length:g}, {projection}", **look)
            ax.vlines(at[seen], low[seen], high[seen], color=look["color"], linewidth=1.0)
            for name, line in ((f"{side}_chernoff", ":"), (f"{side}_jump", "-.")):
                if alone and curve[0].get(name) is not None:
                    bound = [r[name][i][e] for r in curve]
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
    few = {r["projection"]: r for r in select(records, m=min(names(records, "m")))}
    if not {"iid", "orthogonal"} <= set(few):
        return
    mine, alone = (
        {end: np.asarray(few[projection][f"either{end}"]) for end in ENDS} for projection in ("orthogonal", "iid")
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
    figures={
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
            "P(|K' - K| > ε K) over that of independent ones, at the fewest features, where both were seen seven "
            "times; bars: 95% intervals",
            draw_ratio,
            by="where",
            shows="have smaller tails",
        ),
    },
    made="pairs of rows at a right angle, of chosen lengths",
)
