"""Where each claimed order of two estimators holds, and which errs least."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from kernattn.studies._presets.verdict import (
    Estimate,
    Ratio,
    Tally,
    Verdict,
    check_coverage,
    compare,
    count_lower,
    name_ties,
    pair,
)
from kernattn.studies._records import Record, names, select, spell

AT = 1.0  # the temperature at which the order is told
ROUNDING = 1e-6  # of numbers in records
SETTING = ("source", "temperature", "projection", "m")


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


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge each claimed order by closed form and as attention measures it, and say which estimator errs least."""
    found = []
    for kernel, claim in product(names(records, "kernel"), CLAIMS):
        if pairs := pair(select(records, kernel=kernel), "estimator", claim.low, claim.high, SETTING):
            found.append(_ordered(claim, kernel, pairs))
    for kernel, source in product(names(records, "kernel"), names(records, "source")):
        if here := select(records, kernel=kernel, source=source, temperature=AT):
            found.append(_least(here))
    what = "cells, for measured over closed-form variance at the pairs that redraws settle"
    return [*found, check_coverage(records, "ratio", "ratio_predicted", what)]


def _ordered(claim: Claim, kernel: str, pairs: Sequence[tuple[Record, Record]]) -> Verdict:
    """Judge one claim: by closed form if it is about the kernel, and by attention in any case."""
    closed = [(a, b) for a, b in pairs if a["error_predicted"] is not None and b["error_predicted"] is not None]
    squares, typical = (
        sum(a[field] <= (1 + ROUNDING) * b[field] for a, b in closed) for field in ("error_predicted", "typical")
    )
    seen = count_lower(pairs, "over_uniform")
    of_kernel = claim.of == "kernel"
    lost = seen.against + of_kernel * (2 * len(closed) - squares - typical)
    more = [a for a, b in pairs if compare(a, b, "over_uniform") > 0]
    where = ", ".join(dict.fromkeys(f"{r['source']} at temperature {r['temperature']:g}" for r in more[:3]))
    theory = (
        f"by closed form the kernel's squared error is no larger in {squares} of {len(closed)} settings, and the "
        f"typical second moment in {typical}"
    )
    return Verdict(
        f"{spell(claim.low)} features err no more than {spell(claim.high)} ones",
        theory if closed else "",
        f"by the measured error of attention, {seen}" + (f" (against it on {where})" if where else ""),
        where=f"for the {kernel.replace('gaussian', 'Gaussian')} kernel",
        source=claim.source,
        decided=Tally(seen.holding + of_kernel * squares, lost).word,
    )


def _least(records: Sequence[Record]) -> Verdict:
    """Name the least error of attention for one kernel and source, and what cannot be told from it."""
    least = min(records, key=lambda r: float(r["over_uniform"]))
    ties = name_ties(records, least, "over_uniform", _name)
    told = f", which cannot be told from {' or '.join(ties[:3])}" if ties else ""
    told += f" or {len(ties) - 3} others" if len(ties) > 3 else ""
    below = sum(r["over_uniform_high"] < 1 for r in records)
    return Verdict(
        f"the least error of attention is that of {_name(least)}{told}",
        f"{below} of {len(records)} maps are better than uniform attention",
        where=f"{least['kernel'].capitalize()} kernel on {least['source']} at temperature {AT:g} and m = {least['m']}",
        ratio=Ratio("its ratio to uniform attention's", [Estimate.of(least, "over_uniform")]),
    )


def _name(record: Record) -> str:
    return f"{spell(record['estimator'])} ({record['projection']})"
