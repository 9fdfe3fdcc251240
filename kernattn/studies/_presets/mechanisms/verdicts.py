"""Whether one ranking of mechanisms serves at every temperature."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from kernattn.studies._presets.verdict import Tally, Verdict, compare, two_digits
from kernattn.studies._records import Record, names, select

NAMES = {"bigbird": "BigBird", "lsh": "LSH", "favor": "FAVOR+", "scatterbrain": "ScatterBrain", "nystrom": "Nystrom"}
NAMES |= {"linformer": "untrained Linformer"}
TOLD = ("local", "favor", "scatterbrain")  # whose errors at both ends are told


def spell(mechanism: str) -> str:
    """Return the name of a mechanism as a sentence has it."""
    return NAMES.get(mechanism, mechanism)


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge for each source whether mechanisms keep their places at all temperatures; say what a row's own key does."""
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


def _turns(where: str, settings: Sequence[Sequence[Record]], budget: float) -> Verdict:
    """Count the pairs of mechanisms that change places between two temperatures, over redraws, on this sequence."""
    pairs = list(combinations(names(settings[0], "mechanism"), 2))
    orders, apart = (
        [{two: _order(setting, two, field) for two in pairs} for setting in settings]
        for field in ("error", "error_without_self")
    )
    turned = [p for p in pairs if any(a[p] * b[p] < 0 for a, b in combinations(orders, 2))]
    also = [p for p in turned if any(a[p] * b[p] < 0 for a, b in combinations(apart, 2))]
    stays = [p for p in pairs if len({order[p] for order in orders}) == 1 and orders[0][p] != 0]
    hot, cold = settings[0], settings[-1]
    ends = {name: [r["error"] for each in (hot, cold) for r in select(each, mechanism=name)] for name in TOLD}
    goes = (
        f"{spell(name)} goes from {two_digits(two[0])} to {two_digits(two[1])}"
        for name, two in ends.items()
        if len(two) == 2
    )
    return Verdict(
        "one ranking of mechanisms serves at every temperature",
        f"at a budget of {budget:g}, {len(turned)} of {len(pairs)} pairs change places on this sequence, whatever "
        f"is drawn, and {len(stays)} do not; of the {len(turned)}, {len(also)} also do so where each row's own "
        "key is taken out",
        f"the least error, over that of uniform attention, is that of {_least(hot)} at {_keys(hot)} and of "
        f"{_least(cold)} at {_keys(cold)}",
        f"from the one to the other, {'; '.join(goes)}",
        where=where,
        decided=Tally(0 if turned else len(stays), len(turned), len(pairs) - len(stays)).word,
    )


def _order(setting: Sequence[Record], two: tuple[str, str], field: str) -> int:
    """Return -1 where the first errs less, 1 where it errs more, and 0 where intervals over redraws overlap."""
    a, b = (select(setting, mechanism=mechanism)[0] for mechanism in two)
    return compare(a, b, field)


def _own_keys(where: str, setting: Sequence[Record]) -> Verdict:
    """Say what stays of the winner's lead where each row's own key is taken out, from both sides."""
    first, apart = (min(setting, key=lambda r: float(r[field])) for field in ("error", "error_without_self"))
    return Verdict(
        f"a row's own key has {first['self_weight']:.0%} of its weight",
        "without it, exact and approximate weights both summing to 1 over the others, the error of "
        f"{spell(first['mechanism'])} is {two_digits(first['error_without_self'])} in place of "
        f"{two_digits(first['error'])} times that of uniform attention, and the least is that of "
        f"{spell(apart['mechanism'])}, {two_digits(apart['error_without_self'])}",
        where=f"{where[0].upper()}{where[1:]}, at {_keys(setting)}",
    )


def _least(setting: Sequence[Record]) -> str:
    first = min(setting, key=lambda r: float(r["error"]))
    return f"{spell(first['mechanism'])} ({two_digits(first['error'])})"


def _keys(setting: Sequence[Record]) -> str:
    first = setting[0]
    return f"temperature {first['temperature']:g} ({first['effective_keys']:.0f} effective keys)"
