"""Whether one ranking of mechanisms serves at every temperature."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations

from kernattn.studies._presets.preset import judged, two_digits, word
from kernattn.studies._records import Record, names, select

NAMES = {"bigbird": "BigBird", "lsh": "LSH", "favor": "FAVOR+", "scatterbrain": "ScatterBrain", "nystrom": "Nystrom"}
NAMES |= {"linformer": "untrained Linformer"}


def spoken(mechanism: str) -> str:
    """Return the name of a mechanism as a sentence has it."""
    return NAMES.get(mechanism, mechanism)


def verdicts(records: Sequence[Record]) -> list[str]:
    """Say for each source whether mechanisms change places between temperatures, and what a row's own key does."""
    found = []
    most = max(names(records, "budget"))
    for source, length in dict.fromkeys((r["source"], r["length"]) for r in records):
        here = select(records, source=source, length=length, budget=most)
        temperatures = sorted(names(here, "temperature"), reverse=True)
        settings = [select(here, temperature=t) for t in temperatures]
        where = f"on {source}, {length} tokens"
        if len(settings) > 1:
            found.append(_turns(where, settings, most))
        found.append(_own_keys(where, settings[-1]))
    return found


def _turns(where: str, settings: Sequence[Sequence[Record]], budget: float) -> str:
    """Count the pairs of mechanisms that change places between two temperatures, over redraws, on this sequence."""
    pairs = list(combinations(names(settings[0], "mechanism"), 2))
    orders = [{pair: _order(setting, pair) for pair in pairs} for setting in settings]
    turned = [p for p in pairs if any(a[p] * b[p] < 0 for a, b in permutations(orders, 2))]
    others = [{pair: _order(setting, pair, "error_without_self") for pair in pairs} for setting in settings]
    also = [p for p in turned if any(a[p] * b[p] < 0 for a, b in permutations(others, 2))]
    stays = [p for p in pairs if len({order[p] for order in orders}) == 1 and orders[0][p] != 0]
    begins = word(0 if turned else len(stays), len(turned), len(pairs) - len(stays))  # one turned pair is against it
    text = judged(f"{begins} {where}", "one ranking of mechanisms serves at every temperature.")
    hot, cold = settings[0], settings[-1]
    text += (
        f" At a budget of {budget:g}, {len(turned)} of {len(pairs)} pairs change places on this sequence, "
        f"whatever is drawn, and {len(stays)} do not; of the {len(turned)}, {len(also)} also do so where each row's "
        f"own key is taken out. The least error is that of {_least(hot)} at {_keys(hot)} and of {_least(cold)} at "
        f"{_keys(cold)}"
    )
    for mechanism in ("local", "favor", "scatterbrain"):
        ends = [r["error"] for setting in (hot, cold) for r in select(setting, mechanism=mechanism)]
        if len(ends) == 2:
            text += f"; {spoken(mechanism)} goes from {two_digits(ends[0])} to {two_digits(ends[1])}"
    return f"{text} times the error of uniform attention."


def _order(setting: Sequence[Record], pair: tuple[str, str], measure: str = "error") -> int:
    """Return -1 where the first errs less, 1 where it errs more, and 0 where intervals over redraws overlap."""
    a, b = (select(setting, mechanism=mechanism)[0] for mechanism in pair)
    low, high = (f"{measure}_{end}" if f"{measure}_{end}" in a else measure for end in ("low", "high"))
    if a[high] < b[low]:
        return -1
    return int(a[low] > b[high])


def _own_keys(where: str, setting: Sequence[Record]) -> str:
    """Say what stays of the winner's lead where each row's own key is taken out, from both sides."""
    first = min(setting, key=lambda r: r["error"])
    apart = min(setting, key=lambda r: r["error_without_self"])
    return (
        f"{where[0].upper()}{where[1:]}, at {_keys(setting)}, a row's own key has {first['self_weight']:.0%} of its "
        f"weight. Without it, exact and approximate weights both summing to 1 over the others, the error of "
        f"{spoken(first['mechanism'])} is {two_digits(first['error_without_self'])} in place of "
        f"{two_digits(first['error'])} times that of uniform attention, and the least is that of "
        f"{spoken(apart['mechanism'])}, {two_digits(apart['error_without_self'])}."
    )


def _least(setting: Sequence[Record]) -> str:
    first = min(setting, key=lambda r: r["error"])
    return f"{spoken(first['mechanism'])} ({two_digits(first['error'])})"


def _keys(setting: Sequence[Record]) -> str:
    first = setting[0]
    return f"temperature {first['temperature']:g} ({first['effective_keys']:.0f} effective keys)"
