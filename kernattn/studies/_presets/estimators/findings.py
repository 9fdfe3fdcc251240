"""Where each claimed order of two estimators holds, and which errs least: verdicts and figures."""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from kernattn.studies._palette import UNIFORM, look_of
from kernattn.studies._panels import draw_band, sort_by, write_numbers
from kernattn.studies._presets.preset import TOKENS_OF_ONES_OWN, Figure, Preset
from kernattn.studies._presets.verdict import (
    Estimate,
    Ratio,
    Tally,
    Verdict,
    compare,
    count_lower,
    judge_coverage,
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
    Claim("learned", "favor_sharp_asymmetric", "attention", "Zhang et al. 2024"),
)


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge each claimed order by closed form and as attention measures it, and say which estimator errs least."""
    judged = []
    for kernel, claim in product(names(records, "kernel"), CLAIMS):
        if pairs := pair(select(records, kernel=kernel), "estimator", claim.low, claim.high, SETTING):
            judged.append(_judge_order(claim, kernel, pairs))
    for kernel, source in product(names(records, "kernel"), names(records, "source")):
        if here := select(records, kernel=kernel, source=source, temperature=AT):
            judged.append(_least(here))
    what = "cells, for measured over closed-form variance at the pairs that redraws settle"
    return [*judged, judge_coverage(records, "ratio", "ratio_predicted", what)]


def _judge_order(claim: Claim, kernel: str, pairs: Sequence[tuple[Record, Record]]) -> Verdict:
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
    clause = f", which cannot be told from {' or '.join(ties[:3])}" if ties else ""
    clause += f" or {len(ties) - 3} others" if len(ties) > 3 else ""
    below = sum(r["over_uniform_high"] < 1 for r in records)
    return Verdict(
        f"the least error of attention is that of {_name(least)}{clause}",
        f"{below} of {len(records)} maps are better than uniform attention",
        where=f"{least['kernel'].capitalize()} kernel on {least['source']} at temperature {AT:g} and m = {least['m']}",
        ratio=Ratio("its ratio to uniform attention's", [Estimate.of(least, "over_uniform")]),
    )


def _name(record: Record) -> str:
    return f"{spell(record['estimator'])} ({record['projection']})"


def _lines(records: Sequence[Record], kernel: str) -> list[tuple[dict[str, Any], list[Record]]]:
    """Return look and records, by temperature, of every estimator with the first projection that it has."""
    of_kernel = select(records, kernel=kernel)
    first = {r["estimator"]: r["projection"] for r in reversed(of_kernel)}
    here = [r for r in of_kernel if r["projection"] == first[r["estimator"]]]
    return [
        (look_of(records, name, "orthogonal"), sort_by(select(here, estimator=name), "temperature"))
        for name in names(here, "estimator")
    ]


def _along(ax: Any, records: Sequence[Record]) -> None:
    ax.set(xscale="log", xlabel="temperature")
    write_numbers(ax.xaxis, sorted(names(records, "temperature")))
    ax.yaxis.minorticks_off()


def draw_kernel_error(records: Sequence[Record], ax: Any) -> None:
    """Draw the squared error of the kernel over the temperature: closed forms as lines, what settles as points."""
    _along(ax, records)
    ax.set(yscale="log", ylabel="squared error over the kernel's square")
    for look, here in _lines(records, names(records, "kernel")[0]):
        at = [r["temperature"] for r in here]
        theory, seen, value = (
            np.asarray([r[field] for r in here], np.float64) for field in ("error_predicted", "error_settled", "error")
        )
        ax.plot(at, theory, **(look | {"marker": ""}))
        ax.plot(at, np.where(seen > 0, value, np.nan), **(look | {"linestyle": "none"}))
        ax.plot([], [], label=spell(here[0]["estimator"]), **look)
    ax.axhline(1.0, label="error of estimating 0", **UNIFORM)


def draw_attention_error(records: Sequence[Record], ax: Any) -> None:
    """Draw the error of attention over that of uniform attention, over the temperature, with 95% intervals."""
    _along(ax, records)
    ax.set(yscale="log", ylabel="error over uniform attention's")
    for look, here in _lines(records, names(records, "kernel")[0]):
        draw_band(ax, here, "temperature", "over_uniform", look, spell(here[0]["estimator"]))
    ax.axhline(1.0, label="uniform attention", **UNIFORM)


def draw_rank(records: Sequence[Record], ax: Any) -> None:
    """Draw the rank by the error of attention over the temperature."""
    _along(ax, records)
    lines = _lines(records, names(records, "kernel")[0])
    ax.set(ylabel="rank by the error of attention", yticks=range(1, len(lines) + 1))
    ax.set_ylim(len(lines) + 0.5, 0.5)
    errors = np.asarray([[r["over_uniform"] for r in here] for _, here in lines], np.float64)
    for (look, here), places in zip(lines, 1 + np.argsort(np.argsort(errors, axis=0), axis=0), strict=True):
        ax.plot([r["temperature"] for r in here], places, label=spell(here[0]["estimator"]), **look)


ESTIMATORS = Preset(
    title="Every estimator at as many features",
    claim="Each newer map has the lower variance: positive features err less than trigonometric ones in attention, "
    "and hyperbolic ones less than positive ones (Choromanski et al. 2021), optimal positive ones less still "
    "(Likhosherstov et al. 2022), and dense-exponential ones shaped by the data least, with one map or with two "
    "(FAVOR#, Likhosherstov et al. 2023). Of trigonometric maps, pairs of cosine and sine are better than cosines of a "
    "random phase for the Gaussian kernel (Sutherland and Schneider 2015). The tilts of FAVOR# minimise the mean "
    "logarithm of a term's second moment, which we call the typical second moment; few pairs carry the squared error. "
    "Learnt maps err less in attention than random ones (Hedgehog, Zhang et al. 2024): here one is fitted once for "
    "each source and temperature, to as many other rows of the source as there are keys.",
    cost="quick 6, full 100 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.estimators.measure:sweep",
    verdicts=verdicts,
    formula=r"\frac{\sum_{i j} \operatorname{Var} \hat{k}(q_i, k_j)}{\sum_{i j} k(q_i, k_j)^2}",
    figures={
        "attention": Figure(
            "The error of attention over the temperature, by estimator",
            "Of the first kernel: medians over redraws of the error of attention's outputs, with 95% intervals",
            draw_attention_error,
            by="source",
            shows=r"for the (\w+) kernel: .* err no more than",
        ),
        "kernel": Figure(
            "The error of the kernel over the temperature, by estimator",
            "Of the first kernel: closed forms (lines), measurements (points) where redraws settle every pair",
            draw_kernel_error,
            by="source",
            shows="over closed-form variance",
        ),
        "rank": Figure(
            "Which estimator errs less than which, over the temperature",
            "Of the first kernel: rank by the median error of attention's outputs; neighbours may be ties",
            draw_rank,
            by="source",
            shows=r"for the (\w+) kernel: .* err no more than",
        ),
    },
    data=TOKENS_OF_ONES_OWN,
)
