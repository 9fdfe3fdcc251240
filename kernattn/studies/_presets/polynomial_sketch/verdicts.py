"""How variances grow with the degree, which sketch is the best where, and whether bounds and intervals hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernattn.studies._presets.polynomial_sketch.measure import BASES, COSINES
from kernattn.studies._presets.verdict import Estimate, Ratio, Tally, Verdict, check_coverage, pair
from kernattn.studies._records import Record, names, select

SPOKEN = {
    "tensor_sketch": "TensorSketch",
    "tensor_srht": "TensorSRHT",
    "rademacher_sketch": "Rademacher sketch",
    "gaussian_sketch": "Gaussian sketch",
    "complex_to_real": "complex weights",
}
BETWEEN = 6**0.5  # a growth above it is nearer to 3 than to 2


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge how variances grow with the degree, which sketch is the better one, and whether bounds hold."""
    most, where = max(names(records, "m")), names(records, "inputs")[0]
    widest = select(records, m=most)
    found = [_bounds(records)]
    for name in names(records, "estimator"):
        ordered = [r for r in select(widest, inputs=where, estimator=name) if r["variance_predicted"][-1] > 0]
        if len(ordered) > 1:
            found.append(_growth(sorted(ordered, key=lambda r: int(r["degree"]))))
    for better, ours in (("tensor_srht", "features of TensorSRHT"), ("complex_to_real", "complex weights")):
        pairs = pair(widest, "estimator", better, "rademacher_sketch", by=("inputs", "degree"))
        for parity, odd in (("odd", 1), ("even", 0)):
            if alike := [two for two in pairs if two[0]["degree"] % 2 == odd]:
                claim = f"{ours} never have more variance than the Rademacher sketch at {parity} degrees"
                found += _never_more(claim, alike)
    found += [_best(select(widest, inputs=each)) for each in names(widest, "inputs")]
    points = "settled points; the others, of high degrees or few features, have no interval"
    return [*found, check_coverage(records, "variance", "variance_predicted", points)]


def _bounds(records: Sequence[Record]) -> Verdict:
    """Judge whether closed forms lie below the published bound, and no more intervals above it than chance lets."""
    above = points = beyond = settled = 0
    for record in records:
        over = np.asarray(record["variance_predicted"]) > record["bound"] * (1 + 1e-6)  # records have 8 digits
        low = np.asarray(record["variance_low"], np.float64)  # NaN where unsettled
        above, points = above + int(np.sum(over)), points + len(over)
        beyond, settled = beyond + int(np.sum(low > record["bound"])), settled + int(np.sum(np.isfinite(low)))
    return Verdict(
        "variances stay below their published bounds",
        f"{above} of {points} closed forms lie above their published bound, and so do {beyond} of {settled} "
        "intervals of settled points (a few by chance where a bound is reached)",
        decided="Does not hold" if above or beyond > 0.05 * settled else "Holds",
    )


def _growth(ordered: Sequence[Record]) -> Verdict:
    """Judge whether the variance of equal rows grows by the factor that is claimed, from one degree to the next."""
    last = ordered[-1]
    # two of one parity, where there are: TensorSRHT tells odd degrees from even ones
    first = next((r for r in ordered[-2::-1] if (last["degree"] - r["degree"]) % 2 == 0), ordered[-2])
    (p, before), (q, after) = ((r["degree"], r["variance_predicted"][-1]) for r in (first, last))
    claimed, growth = BASES[last["estimator"]], (after / before) ** (1 / (q - p))
    seen = [r for r in ordered if r["variance_settled"][-1]]
    told = "no degree is settled by redraws"
    if seen:
        value = Estimate.of(seen[-1], "variance", place=-1)
        told = (
            f"at degree {seen[-1]['degree']} measured {value:.3g}, closed form {seen[-1]['variance_predicted'][-1]:.3g}"
        )
    name = SPOKEN[last["estimator"]]
    return Verdict(
        f"the variance of {f'the {name}' if name.endswith(' sketch') else name} grows as {claimed}^p",
        f"between equal rows ({last['inputs']}) it grows by a factor of {growth:.2f} per degree from {p} to {q}, "
        f"to {after / last['bound']:.0%} of its bound at m = {last['m']}",
        told,
        decided="Holds" if (growth > BETWEEN) == (claimed == 3) else "Does not hold",
    )


def _never_more(claim: str, pairs: Sequence[tuple[Record, Record]]) -> list[Verdict]:
    """Judge whether the closed form of one sketch is nowhere above that of another one."""
    both = [np.asarray([r["variance_predicted"] for r in side]).ravel() for side in zip(*pairs, strict=True)]
    ratios = [above / below for above, below in zip(*both, strict=True) if below > 0]
    lower = sum(ratio <= 1 + 1e-6 for ratio in ratios)
    tally = Tally(lower, len(ratios) - lower, of="places")
    return [Verdict(claim, tally=tally, ratio=Ratio("the ratio of variances", ratios))] if ratios else []


def _best(records: Sequence[Record]) -> Verdict:
    """Name the sketch of the least variance at every degree and cosine."""
    told = []
    for degree in names(records, "degree"):
        found = {r["estimator"]: np.asarray(r["variance_predicted"]) for r in select(records, degree=degree)}
        table = np.stack(list(found.values()))
        best = [
            " = ".join(SPOKEN[name] for name, value in zip(found, column, strict=True) if value <= 1.005 * column.min())
            for column in table.T
        ]
        runs: list[list[Any]] = []
        for cosine, name in zip(COSINES, best, strict=True):
            if runs and runs[-1][0] == name:
                runs[-1][2] = cosine
            else:
                runs.append([name, cosine, cosine])
        spans = (f"{name} ({low:g}{'' if low == high else f' to {high:g}'})" for name, low, high in runs)
        told.append(f"degree {degree}: {', '.join(spans)}")
    where = f"Least variance by closed form, {records[0]['inputs']} rows, cosines in brackets"
    return Verdict("; ".join(told), where=where)
