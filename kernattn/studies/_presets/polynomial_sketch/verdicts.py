"""How variances grow with the degree, which sketch is the best where, and whether bounds and intervals hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernattn.studies._presets.polynomial_sketch.measure import BASES, COSINES
from kernattn.studies._presets.preset import coverage, per_cent
from kernattn.studies._records import ENDS, Record, names, select

SPOKEN = {
    "tensor_sketch": "TensorSketch",
    "tensor_srht": "TensorSRHT",
    "rademacher_sketch": "Rademacher sketch",
    "gaussian_sketch": "Gaussian sketch",
    "complex_to_real": "complex weights",
}
BETWEEN = 6**0.5  # a growth above it is nearer to 3 than to 2


def verdicts(records: Sequence[Record]) -> list[str]:
    """Say how variances grow with the degree, which sketch is the best where, and whether bounds and intervals hold."""
    most, where = max(names(records, "m")), names(records, "inputs")[0]
    widest = select(records, m=most)
    found = [_bounds(records)]
    found += [
        told for each in names(records, "estimator") if (told := _growth(select(widest, inputs=where, estimator=each)))
    ]
    found += _compared(widest, "tensor_srht", "rademacher_sketch", "features of TensorSRHT", "the Rademacher sketch")
    found += _compared(widest, "complex_to_real", "rademacher_sketch", "complex weights", "the Rademacher sketch")
    found += [_best(select(widest, inputs=each)) for each in names(widest, "inputs")]
    inside, total = coverage(records, "variance", "variance_predicted")
    found.append(
        f"The 95% intervals hold the closed form in {per_cent(inside, total)} of the settled points; the others, of "
        "high degrees or few features, have no interval."
    )
    return found


def _bounds(records: Sequence[Record]) -> str:
    """Whether closed forms lie above the published bound, and whether more intervals do than chance lets."""
    above = points = beyond = settled = 0
    for record in records:
        over = np.asarray(record["variance_predicted"]) > record["bound"] * (1 + 1e-6)  # records have 8 digits
        low = np.asarray(record["variance_low"], np.float64)  # NaN where unsettled
        above, points = above + int(np.sum(over)), points + len(over)
        beyond, settled = beyond + int(np.sum(low > record["bound"])), settled + int(np.sum(np.isfinite(low)))
    word = "Does not hold" if above or beyond > 0.05 * settled else "Holds"
    return (
        f"{word}: {above} of {points} closed forms lie above their published bound, and so do {beyond} of "
        f"{settled} intervals of settled points (a few by chance where a bound is reached)."
    )


def _growth(records: Sequence[Record]) -> str | None:
    """Whether the variance of equal rows grows by the factor that is claimed, from one degree to the next."""
    ordered = sorted((r for r in records if r["variance_predicted"][-1] > 0), key=lambda record: record["degree"])
    if len(ordered) < 2:
        return None
    last = ordered[-1]
    # two of one parity, where there are: TensorSRHT tells odd degrees from even ones
    first = next((r for r in ordered[-2::-1] if (last["degree"] - r["degree"]) % 2 == 0), ordered[-2])
    (p, before), (q, after) = ((r["degree"], r["variance_predicted"][-1]) for r in (first, last))
    claimed, growth = BASES[ordered[0]["estimator"]], (after / before) ** (1 / (q - p))
    seen = [r for r in ordered if r["variance_settled"][-1]]
    told = "no degree is settled by redraws"
    if seen:
        value, low, high = (seen[-1][f"variance{end}"][-1] for end in ENDS)
        told = (
            f"at degree {seen[-1]['degree']} measured {value:.3g} ({low:.3g} to {high:.3g}), "
            f"closed form {seen[-1]['variance_predicted'][-1]:.3g}"
        )
    name = SPOKEN[last["estimator"]]
    name = f"the {name}" if name.endswith(" sketch") else name
    word = "Holds" if (growth > BETWEEN) == (claimed == 3) else "Does not hold"
    return (
        f"{word}: the variance of {name} grows as {claimed}^p. Between equal rows "
        f"({last['inputs']}) it grows by a factor of {growth:.2f} per degree from {p} to {q}, to "
        f"{after / last['bound']:.0%} of its bound at m = {last['m']}; {told}."
    )


def _compared(records: Sequence[Record], better: str, worse: str, first: str, second: str) -> list[str]:
    """How the closed form of one sketch compares with that of another one, for odd and for even degrees."""
    found = []
    for parity, degrees in (("odd", 1), ("even", 0)):
        ratios = [
            above / below
            for left in select(records, estimator=better)
            for right in select(records, estimator=worse, inputs=left["inputs"], degree=left["degree"])
            if left["degree"] % 2 == degrees
            for above, below in zip(left["variance_predicted"], right["variance_predicted"], strict=True)
            if below > 0
        ]
        if not ratios:
            continue
        lower = sum(ratio <= 1 + 1e-6 for ratio in ratios)
        word = "Holds" if lower == len(ratios) else "Holds in part" if lower else "Does not hold"
        found.append(
            f"{word}: {first} never have more variance than {second} at {parity} degrees. They have no more at {lower} "
            f"of {len(ratios)} places; theirs is {min(ratios):.2g} to {max(ratios):.2g} times as large."
        )
    return found


def _best(records: Sequence[Record]) -> str:
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
    return f"Least variance by closed form, {records[0]['inputs']} rows, cosines in brackets; {'; '.join(told)}."
