"""Where each claimed order of two estimators holds, and which errs least."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from kernattn.studies._presets.preset import coverage, judged, per_cent, word
from kernattn.studies._records import Record, names, select, spoken

AT = 1.0  # the temperature at which the order is told
ROUNDING = 1e-6  # of numbers in records


class Claim(NamedTuple):
    """That one estimator errs less than another one: of the kernel, or of attention's outputs alone."""

    low: str
    high: str
    of: str
    source: str


CLAIMS = (
    Claim("hyperbolic", "positive", "kernel", "Choromanski et al. 2021, lemma 2"),
    Claim("positive", "trigonometric", "attention", "Choromanski et al. 2021, figure 4"),
    Claim("trigonometric", "phase", "kernel", "Sutherland and Schneider 2015"),
    Claim("optimal_positive", "positive", "kernel", "Likhosherstov et al. 2022"),
    Claim("favor_sharp", "optimal_positive", "kernel", "Likhosherstov et al. 2023"),
    Claim("favor_sharp_asymmetric", "favor_sharp", "kernel", "Likhosherstov et al. 2023"),
)


def verdicts(records: Sequence[Record]) -> list[str]:
    """Say of each claimed order where it holds, by closed form and as attention measures it."""
    found = []
    for kernel, claim in product(names(records, "kernel"), CLAIMS):
        if pairs := _pairs(select(records, kernel=kernel), claim.low, claim.high):
            found.append(_ordered(claim, kernel, pairs))
    for kernel, source in product(names(records, "kernel"), names(records, "source")):
        if here := select(records, kernel=kernel, source=source, temperature=AT):
            found.append(_least(here))
    inside, total = coverage(records, "ratio", "ratio_predicted")
    found.append(
        f"At pairs that redraws settle, the 95% interval of measured over closed-form variance holds 1 in "
        f"{per_cent(inside, total)} cells."
    )
    return found


def _pairs(records: Sequence[Record], low: str, high: str) -> list[tuple[Record, Record]]:
    """Return the records of both estimators in each setting."""
    key = ("source", "temperature", "projection", "m")
    others = {tuple(r[axis] for axis in key): r for r in select(records, estimator=high)}
    mine = ((r, others.get(tuple(r[axis] for axis in key))) for r in select(records, estimator=low))
    return [(one, other) for one, other in mine if other is not None]


def _ordered(claim: Claim, kernel: str, pairs: Sequence[tuple[Record, Record]]) -> str:
    """Return the verdict on one claim: by closed form if it is about the kernel, and by attention in any case."""
    closed = [(a, b) for a, b in pairs if a["error_predicted"] is not None and b["error_predicted"] is not None]
    squares, typical = (
        [(a, b) for a, b in closed if a[field] <= (1 + ROUNDING) * b[field]] for field in ("error_predicted", "typical")
    )
    less = [(a, b) for a, b in pairs if a["over_uniform_high"] < b["over_uniform_low"]]
    more = [(a, b) for a, b in pairs if a["over_uniform_low"] > b["over_uniform_high"]]
    won, lost = len(less), len(more)
    if claim.of == "kernel":
        won += len(squares)
        lost += 2 * len(closed) - len(squares) - len(typical)
    begins = word(won, lost, 0)
    where = ", ".join(dict.fromkeys(f"{a['source']} at temperature {a['temperature']:g}" for a, b in more[:3]))
    theory = (
        f"By closed form the kernel's squared error is no larger in {len(squares)} of {len(closed)} settings, and the "
        f"typical second moment in {len(typical)}. "
    )
    called = kernel.replace("gaussian", "Gaussian")
    what = f"{spoken(claim.low)} features err no more than {spoken(claim.high)} ones"
    return (
        f"{judged(f'{begins} for the {called} kernel', what)} ({claim.source}). {theory if closed else ''}Measured, "
        f"the error of attention is surely smaller in {len(less)} of {len(pairs)} settings, surely larger in "
        f"{len(more)}{f' (as on {where})' if where else ''}, and open in {len(pairs) - len(less) - len(more)}."
    )


def _least(records: Sequence[Record]) -> str:
    """Name the least error of attention for one kernel and source, and what cannot be told from it."""
    least = min(records, key=lambda r: r["over_uniform"])
    ties = [r for r in records if r is not least and r["over_uniform_low"] <= least["over_uniform_high"]]
    below = [r for r in records if r["over_uniform_high"] < 1]
    return (
        f"{least['kernel'].capitalize()} kernel on {least['source']} at temperature {least['temperature']:g} and m = "
        f"{least['m']}: the least error of attention is that of {_name(least)}, {least['over_uniform']:.2g} times "
        f"uniform attention's ({least['over_uniform_low']:.2g} to {least['over_uniform_high']:.2g})"
        + (f", which cannot be told from {' or '.join(map(_name, ties[:3]))}" if ties else "")
        + (f" or {len(ties) - 3} others" if len(ties) > 3 else "")
        + f"; better than uniform attention: {len(below)} of {len(records)} maps."
    )


def _name(record: Record) -> str:
    return f"{spoken(record['estimator'])} ({record['projection']})"
