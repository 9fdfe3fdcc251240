"""Whether one ranking of mechanisms serves at every temperature: verdicts and figures."""

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from math import isclose
from typing import Any

from kernattn.studies._palette import mechanism
from kernattn.studies._panels import draw_band, draw_uniform, set_logarithmic
from kernattn.studies._presets.preset import TOKENS_OF_ONES_OWN, Figure, Preset
from kernattn.studies._presets.verdict import Tally, Verdict, compare, two_digits
from kernattn.studies._records import Record, names, select

NAMES = {"bigbird": "BigBird", "lsh": "LSH", "favor": "FAVOR+", "scatterbrain": "ScatterBrain", "nystrom": "Nystrom"}
NAMES |= {"linformer": "untrained Linformer", "learned": "a fitted map", "window-learned": "a window and a fitted map"}
TOLD = ("local", "favor", "learned", "scatterbrain", "window-learned")  # whose errors at both ends are told


def spell(mechanism: str) -> str:
    """Return the name of a mechanism as a sentence has it."""
    return NAMES.get(mechanism, mechanism)


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge for each source whether mechanisms keep their places at all temperatures; say what a row's own key does."""
    judged = []
    most = max(names(records, "budget"))
    for source, length in dict.fromkeys((r["source"], r["length"]) for r in records):
        here = select(records, source=source, length=length, budget=most)
        temperatures = sorted(names(here, "temperature"), reverse=True)
        settings = [select(here, temperature=t) for t in temperatures]
        where = f"on {source}, {length} tokens"
        if len(settings) > 1:
            judged.append(_judge_ranking(where, settings, most))
        judged.append(_describe_own_keys(where, settings[-1]))
        judged += _judge_halves(where, select(records, source=source, length=length))
    return judged


def _judge_halves(where: str, records: Sequence[Record]) -> list[Verdict]:
    """Compare a window beside a fitted map with either alone and twice as large, where the budgets are such."""
    judged = []
    for budget in names(records, "budget"):
        rows = []
        for temperature in sorted(names(records, "temperature"), reverse=True):
            alone = [("window-learned", 1.0), ("local", 2 / 3), ("learned", 4 / 3), ("favor", 4 / 3)]
            here = [_at(records, name, temperature, share * budget) for name, share in alone]
            if None not in here[:3]:
                rows.append((temperature, here))
        if not rows:
            continue
        signs = [max(compare(here[0], other, "error") for other in here[1:3]) for _, here in rows]
        count = round(budget * rows[0][1][0]["length"] / 3)
        parts = (
            f"at temperature {temperature:g}, {two_digits(here[0]['error'])} against {two_digits(here[1]['error'])} "
            f"of the window, {two_digits(here[2]['error'])} of the fitted map"
            + (f" and {two_digits(here[3]['error'])} of as many FAVOR+ features" if here[3] else "")
            for temperature, here in rows
        )
        judged.append(
            Verdict(
                f"a window of {count} keys and a fitted map of {count} features err less than either alone of twice "
                "the size",
                "; ".join(parts),
                where=where,
                source="Zhang et al. 2025",
                decided=Tally(signs.count(-1), signs.count(1), signs.count(0)).word,
            )
        )
    return judged


def _at(records: Sequence[Record], mechanism: str, temperature: float, budget: float) -> Any:
    mine = select(records, mechanism=mechanism, temperature=temperature)
    return next((record for record in mine if isclose(record["budget"], budget)), None)


def _judge_ranking(where: str, settings: Sequence[Sequence[Record]], budget: float) -> Verdict:
    """Count the pairs of mechanisms that change places between two temperatures, over redraws, on this sequence."""
    pairs = list(combinations(names(settings[0], "mechanism"), 2))
    by_name = [{r["mechanism"]: r for r in setting} for setting in settings]
    orders, apart = (
        [{(a, b): compare(at[a], at[b], field) for a, b in pairs} for at in by_name]
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
        f"the least error, over that of uniform attention, is that of {_name_least(hot)} at {_spell_keys(hot)} and of "
        f"{_name_least(cold)} at {_spell_keys(cold)}",
        f"from the one to the other, {'; '.join(goes)}",
        where=where,
        decided=Tally(0 if turned else len(stays), len(turned), len(pairs) - len(stays)).word,
    )


def _describe_own_keys(where: str, setting: Sequence[Record]) -> Verdict:
    """Say what stays of the winner's lead where each row's own key is taken out, from both sides."""
    first, apart = (min(setting, key=lambda r: float(r[field])) for field in ("error", "error_without_self"))
    return Verdict(
        f"a row's own key has {first['self_weight']:.0%} of its weight",
        "without it, exact and approximate weights both summing to 1 over the others, the error of "
        f"{spell(first['mechanism'])} is {two_digits(first['error_without_self'])} in place of "
        f"{two_digits(first['error'])} times that of uniform attention, and the least is that of "
        f"{spell(apart['mechanism'])}, {two_digits(apart['error_without_self'])}",
        where=f"{where[0].upper()}{where[1:]}, at {_spell_keys(setting)}",
    )


def _name_least(setting: Sequence[Record]) -> str:
    first = min(setting, key=lambda r: float(r["error"]))
    return f"{spell(first['mechanism'])} ({two_digits(first['error'])})"


def _spell_keys(setting: Sequence[Record]) -> str:
    first = setting[0]
    return f"temperature {first['temperature']:g} ({first['effective_keys']:.0f} effective keys)"


MOST = 100.0  # times the error of uniform attention that a panel shows


def draw_error_over_flops(records: Sequence[Record], ax: Any, field: str) -> None:
    """Draw the error over flops, a line for each mechanism, and the level of uniform attention."""
    set_logarithmic(
        ax, "flops over exact attention's", "error over uniform attention's", [1 / 32, 1 / 16, 1 / 8, 1 / 4]
    )
    ax.xaxis.set_major_formatter(lambda value, _: f"1/{1 / value:.0f}")
    for name in names(records, "mechanism"):
        draw_band(ax, select(records, mechanism=name), "flops", field, mechanism(name), spell(name), MOST)
    draw_uniform(ax)
    first = records[0]
    ax.set_title(f"{first['source']}, T = {first['temperature']:g}: {first['effective_keys']:.0f} keys", loc="left")


MECHANISMS = Preset(
    title="Mechanisms of attention at equal flops",
    claim="Benchmarks of efficient attention end in one ranking of the mechanisms (Tay et al. 2021, table 1). Here "
    "it is asked whether one ranking serves at every temperature of the softmax, at equal flops and without training: "
    "whether patterns, low rank, features and hashing keep their places from rows that look at everything to rows that "
    "look at a few keys. A layer of LoLCATs joins a window of exact weights with a map that is fitted (Zhang et al. "
    "2025): here a map is fitted once for each setting, to tokens of the source that do not judge, and the bias of "
    "exact weights is chosen on the same tokens.",
    cost="quick 5, full 500 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.mechanisms.measure:sweep",
    verdicts=verdicts,
    formula=r"\frac{\sum_i |\hat{o}_i - o_i|^2}{\sum_i |u - o_i|^2}, \quad "
    r"o_i = \sum_j \frac{e^{q_i^T k_j / (d^{1/2} T)}}{Z_i} v_j, \quad "
    r"u = \frac{1}{n} \sum_j v_j",
    figures={
        "error": Figure(
            "The error of attention outputs over flops, by temperature",
            "Mean square error over that of uniform attention; medians of redraws with their intervals, up to "
            f"{MOST:g}; T is the temperature, and a panel's keys are those that uniform weights of the same entropy "
            "have",
            partial(draw_error_over_flops, field="error"),
            by="setting",
            shows="one ranking of mechanisms",
        ),
        "without-self": Figure(
            "The same without each row's own key",
            "Its weight is taken out of exact and approximate rows, which then sum to 1 over the others",
            partial(draw_error_over_flops, field="error_without_self"),
            by="setting",
            shows="a row's own key",
        ),
    },
    data=TOKENS_OF_ONES_OWN + ", in their order",
)
