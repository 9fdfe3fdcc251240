"""What the shares of large deviations say of the claims."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernattn.studies._presets.preset import judged, two_digits
from kernattn.studies._records import Record, names, select

CLEAR = 4  # ends of an interval over each other, up to which a share is known: seven hits


def verdicts(records: Sequence[Record]) -> list[str]:
    """Say where orthogonal tails are smaller, whether the bounds hold, and what has no exponential bound."""
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


def _smaller(where: str, records: Sequence[Record]) -> list[str]:
    """Orthogonal against independent features, at every m, length, error and side."""
    places: dict[str, list[tuple[str, str, str]]] = {"smaller": [], "larger": [], "open": [], "seldom": []}
    for m in sorted(names(records, "m")):
        pair = {r["projection"]: r for r in select(records, m=m)}
        for side in ("upper", "lower"):
            _place(places, pair["orthogonal"], pair["iid"], side)
    less, more = places["smaller"], places["larger"]
    total = sum(map(len, places.values()))
    word = "Does not hold" if more else "Open"
    if less:
        word = "Holds in part" if more or places["open"] else "Holds"
    text = (
        f"{judged(f'{word} for {where}', 'orthogonal frequencies have smaller tails')}. Of {total} places "
        f"(side, length, m, ε) they are surely smaller in {len(less)}, surely larger in {len(more)}, not told apart in "
        f"{len(places['open'])}, and seen too seldom to tell in {len(places['seldom'])}."
    )
    said = (("Smaller", less), ("Larger", more))
    return [text, *(f"{name}, {where}, ε in brackets: {_few(found)}." for name, found in said if found)]


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


def _bounds(where: str, alone: Sequence[Record]) -> str:
    """Whether shares obey the bounds, and how many times these are above them where they say something."""
    broken = total = 0
    told = []
    for name, (side, spoken) in BOUNDS.items():
        if alone[0][name] is None:
            continue
        bound, value, low = (np.array([r[each] for r in alone], float) for each in (name, side, f"{side}_low"))
        broken, total = broken + int(np.sum(low > bound)), total + low.size
        telling = (bound < 1) & (value > 0)
        slack = bound[telling] / value[telling]
        told.append(
            f"{spoken} {two_digits(slack.min())} to {two_digits(slack.max())}" if slack.size else f"{spoken} unknown"
        )
    return (
        f"{'Does not hold' if broken else 'Holds'} for {where}, independent frequencies: {broken} of {total} measured "
        f"shares break a bound. Bound over share, where the bound is below 1 and the share above 0: {'; '.join(told)}."
    )


def _jump(where: str, alone: Sequence[Record]) -> str:
    """Upwards there is no exponential bound: one term alone is enough."""
    least, value, high = (np.array([r[each] for r in alone]) for each in ("upper_jump", "upper", "upper_high"))
    below = int(np.sum(high < least))
    share = np.max(least[value > 0] / value[value > 0], initial=0.0)
    word = "Open" if below else "Does not hold"
    return (
        f"{judged(f'{word} upwards for {where}', 'tails have an exponential bound')}. A term's moment "
        f"generating function, which is finite for the regularised kernel, is infinite for the softmax kernel, so the "
        f"exponential bound is 1 at every m. One term alone accounts for up to {share:.0%} of a share, and {below} of "
        f"{value.size} shares are below what it accounts for."
    )
