"""What the shares of large deviations say of the claims."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernattn.studies._presets.verdict import Tally, Verdict, two_digits
from kernattn.studies._records import Record, names, select

CLEAR = 4  # ends of an interval over each other, up to which a share is known: seven hits


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge where orthogonal tails are smaller, whether the bounds hold, and whether there is an exponential one."""
    found = []
    for where in names(records, "where"):
        mine = select(records, where=where)
        alone = select(mine, projection="iid")
        if {"iid", "orthogonal"} <= set(names(mine, "projection")):
            found += _smaller(where, mine)
        if alone:
            found.append(_bounds(where, alone))
            if alone[0]["upper_jump"] is not None:
                found.append(_jump(where, alone))
    return found


def _smaller(where: str, records: Sequence[Record]) -> list[Verdict]:
    """Judge orthogonal against independent features, at every m, length, error and side."""
    places: dict[str, list[tuple[str, str, str]]] = {"smaller": [], "larger": [], "open": [], "seldom": []}
    for m in sorted(names(records, "m")):
        pair = {r["projection"]: r for r in select(records, m=m)}
        for side in ("upper", "lower"):
            _place(places, pair["orthogonal"], pair["iid"], side)
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


def _place(places: dict[str, list[tuple[str, str, str]]], mine: Record, other: Record, side: str) -> None:
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


def _bounds(where: str, alone: Sequence[Record]) -> Verdict:
    """Judge whether shares obey the bounds; say how many times these are above them where they say something."""
    broken = total = 0
    told = []
    for name, (side, spell) in BOUNDS.items():
        if alone[0][name] is None:
            continue
        bound, value, low = (np.array([r[each] for r in alone], float) for each in (name, side, f"{side}_low"))
        broken, total = broken + int(np.sum(low > bound)), total + low.size
        telling = (bound < 1) & (value > 0)
        slack = bound[telling] / value[telling]
        times = f"{two_digits(slack.min())} to {two_digits(slack.max())}" if slack.size else "unknown"
        told.append(f"{spell} {times}")
    return Verdict(
        "no measured share breaks a bound",
        f"{broken} of {total} do",
        f"bound over share, where the bound is below 1 and the share above 0: {'; '.join(told)}",
        where=f"for {where}, independent frequencies",
        decided="Does not hold" if broken else "Holds",
    )


def _jump(where: str, alone: Sequence[Record]) -> Verdict:
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
