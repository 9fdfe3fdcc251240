"""The attention study in plain sentences: where random features beat uniform attention, and which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import exp

from kernattn.studies._presets.verdict import Verdict
from kernattn.studies._records import ENDS, Record, names, select


def beats_uniform(record: Record) -> bool:
    """Whether the whole 95% interval of the median squared error lies below the error of uniform attention."""
    high, level = record["attention_mse_high"], record["uniform_attention_mse"]
    return high is not None and level is not None and high < level


def worse_than_uniform(record: Record) -> bool:
    """Whether the whole 95% interval of the median squared error lies above the error of uniform attention.

    An output that did not stay finite is worse.
    """
    low, level = record["attention_mse_low"], record["uniform_attention_mse"]
    return record["attention_mse"] is None or (low is not None and level is not None and low > level)


def best(records: Iterable[Record]) -> Record | None:
    """Return the record of least attention error, if any is finite."""
    known = [record for record in records if record["attention_mse"] is not None]
    return min(known, key=lambda record: float(record["attention_mse"]), default=None)


def number(value: float | None) -> str:
    """Return two digits of a number."""
    if value is None:
        return "—"
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e4:
        return f"{value:.1e}"
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Say of every dataset whether random features beat uniform attention, and which do.

    A cell is better where the whole 95% interval of its median squared error over the redraws lies below the error of
    uniform attention, worse where it lies above, and open where it holds it.
    """
    return [_judge(select(records, dataset=dataset)) for dataset in names(records, "dataset")]


def _judge(records: list[Record]) -> Verdict:
    first, ms = records[0], sorted(names(records, "m"))
    largest, at = select(records, m=ms[-1]), f"at m = {ms[-1]}"
    leader, level = best(largest), first["uniform_attention_mse"]
    tell = partial(Verdict, where=str(first["dataset"]))
    if leader is None:
        return tell("no attention output stayed finite")
    if level is None:
        return tell("the error of uniform attention is beyond float64: there is nothing to compare with")
    error = leader["attention_mse"]
    if level == 0:
        nearest = f"{at} the nearest, {_label(leader)}, has a squared error of {number(error)}"
        return tell("uniform attention is exact here, so no approximation is better", nearest)
    hopeless = [m for m in ms if not any(map(beats_uniform, select(records, m=m)))]
    losers = [record for record in largest if worse_than_uniform(record)]
    unsure = [record for record in largest if not beats_uniform(record) and record not in losers]
    nothing = f"is shown to be better than uniform attention at m = {', '.join(map(str, hopeless))}"
    if hopeless == ms:
        lost = all(map(worse_than_uniform, records))
        advice = ": use exact attention here" if lost else f"; open {at}: {_group(unsure)}" if unsure else ""
        times, low, high = (number(leader[f"attention_mse{end}"] / level) for end in ENDS)
        return tell(
            f"no approximation {nothing}{advice}",
            f"{at} the least bad, {_label(leader)}, has {times} times the error of uniform attention, or {low} to "
            f"{high} times by its 95% interval",
            "the relative variance of positive features, about e^(v²)/m, is "
            f"{_spread(first, ms[-1])} at the median pair",
        )
    less = "no error" if error == 0 else f"{number(level / error)} times less error"
    better = [record for record in largest if beats_uniform(record)]
    ties = [r for r in better if r is not leader and r["attention_mse_low"] <= leader["attention_mse_high"]]
    tied = f"; {_group(ties)} cannot be told from it" if ties else ""
    return tell(
        f"{at} {_label(leader)} is best, with {less} than uniform attention{tied}",
        f"nothing {nothing}" if hopeless else "",
        f"no better than uniform attention {at}: {_group(losers)}" if losers else "",
        f"open {at}, where the interval holds its error: {_group(unsure)}" if unsure else "",
    )


def _spread(record: Record, m: int) -> str:
    v2 = float(record["v2_median"])
    return number(exp(v2) / m) if v2 < 700 else "beyond float64"


def _label(record: Record) -> str:
    return f"{record['estimator']} ({record['projection']})"


def _group(records: Sequence[Record]) -> str:
    """Name estimators once each, with their projections."""
    return ", ".join(
        f"{estimator} ({' and '.join(names(select(records, estimator=estimator), 'projection'))})"
        for estimator in names(records, "estimator")
    )
