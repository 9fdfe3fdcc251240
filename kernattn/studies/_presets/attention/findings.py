"""Where random features beat uniform attention on real tokens, and which: verdicts and figures."""

from collections.abc import Iterable, Sequence
from functools import partial
from math import exp
from typing import Any

import numpy as np

from kernattn.studies import _panels as panels
from kernattn.studies._palette import GREY, UNIFORM, Look, look_of
from kernattn.studies._presets.preset import Figure
from kernattn.studies._presets.verdict import Verdict
from kernattn.studies._records import ENDS, Record, group, names, select, spell


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


UNSETTLED: Look = {"linestyle": "none", "marker": "x", "markersize": 3.6, "alpha": 0.55}
CEILING = 10_000  # kernel errors, in units of that of uniform attention
MOST = 100  # attention errors, likewise
FACTOR = 3  # between measured and predicted variance, at which points are clipped


def draw_attention_mse(records: Sequence[Record], ax: Any) -> None:
    """Draw the error of attention outputs over that of uniform attention against m: median, band: 95% interval."""
    _by_m(records, ax, "error over that of uniform attention")
    ax.set_yscale("log")
    level = records[0]["uniform_attention_mse"]
    if not level:
        ax.annotate("uniform attention is exact", (0.03, 0.05), xycoords="axes fraction", color=GREY)
    for curve, look in _series(records) if level else ():
        known = [r for r in curve if all(r[f"attention_mse{end}"] for end in ENDS)]
        interval = [each / level for each in panels.read_interval(known, "attention_mse")]
        panels.draw_interval(ax, [r["m"] for r in known], panels.clip(interval, MOST), look)
    panels.draw_key(records, ax)
    panels.draw_uniform(ax, 1.0 if level else None)


def draw_kernel_mse(records: Sequence[Record], ax: Any) -> None:
    """Draw the kernel's error: closed forms as lines, measurements as points, crosses where redraws miss the tail."""
    _by_m(records, ax, "MSE of kernel / mean k²")
    ax.set_yscale("log")
    level = records[0]["uniform_kernel_relative_mse"]
    for curve, look in _series(records):
        shown = [r for r in _positive(curve, "kernel_relative_mse_predicted") if _below(r, "_predicted", level)]
        line = {name: look[name] for name in ("color", "linestyle", "linewidth")}
        ax.plot([r["m"] for r in shown], [r["kernel_relative_mse_predicted"] for r in shown], **line)
        for r in _positive(curve, "kernel_relative_mse"):
            if _below(r, "", level):
                seen = r["kernel_relative_mse_low"] is not None
                style = look | ({"linestyle": "none"} if seen else UNSETTLED)
                ax.plot(r["m"], r["kernel_relative_mse"], **style)
    panels.draw_key(records, ax)
    panels.draw_uniform(ax, level)
    ax.plot([], [], color=GREY, label="not settled", **UNSETTLED)


def draw_bias(records: Sequence[Record], ax: Any) -> None:
    """Draw the bias of the mean kernel entry, with 95% intervals, over the entries that redraws settle."""
    _by_m(records, ax, "relative bias of k'")
    ax.set_yscale("symlog", linthresh=0.1, linscale=1.5)
    for series, look in _series(records):
        known = [r for r in series if r.get("bias") is not None]
        at = [panels.dodge(records, r) for r in known]
        panels.draw_bars(ax, at, panels.read_interval(known, "bias"), look | {"markersize": 3.2})
    panels.draw_key(records, ax)
    panels.draw_uniform(ax, records[0]["uniform_bias"])
    ax.axhline(0, color="#222222", linewidth=0.8, zorder=1.4)


def draw_variance(records: Sequence[Record], ax: Any) -> None:
    """Draw measured over predicted variance against the predicted one, with 95% intervals, over what settles."""
    ax.set(xscale="log", yscale="log", xlabel="predicted, over uniform's error", ylabel="measured / predicted")
    ax.set_title(spell(records[0]["estimator"]), loc="left")
    ax.set_ylim(0.9 / FACTOR, FACTOR / 0.9)
    panels.write_numbers(ax.yaxis, [0.5, 0.8, 1, 1.25, 2])
    for projection in names(records, "projection"):
        look = look_of(records, records[0]["estimator"], projection) | {"linestyle": "none"}
        known = [r for r in records if r["projection"] == projection and r.get("variance_ratio_low") is not None]
        known = _positive(known, "variance_seen_predicted")
        interval = [np.clip(each, 1 / FACTOR, FACTOR) for each in panels.read_interval(known, "variance_ratio")]
        panels.draw_bars(ax, [r["variance_seen_predicted"] for r in known], interval, look, width=0.8)
        ax.plot([], [], label=projection, **(look | {"color": GREY, "markeredgecolor": GREY, "marker": "o"}))
    ax.axhline(1, color="#222222", linewidth=0.8, zorder=1.4)
    ax.axvline(1.0, label="uniform attention", **UNIFORM)


def _by_m(records: Sequence[Record], ax: Any, ylabel: str) -> None:
    """Name a panel of one dataset, and lay m along its bottom."""
    first, ms = records[0], sorted(names(records, "m"))
    ax.set_title(f"{first['source']}, scale {first['scale']:g} (median v² = {first['v2_median']:.2g})", loc="left")
    ax.set_xscale("log", base=2)
    panels.write_numbers(ax.xaxis, ms)
    ax.set(xlim=(ms[0] / 1.35, ms[-1] * 1.35), xlabel="features m", ylabel=ylabel)


def _series(records: Sequence[Record]) -> list[tuple[list[Record], Look]]:
    """Return the records of each estimator and projection, by m, with their look."""
    series = group(records, "estimator", "projection").items()
    return [(panels.sort_by(found, "m"), look_of(records, *both)) for both, found in series]


def _positive(records: Sequence[Record], field: str) -> list[Record]:
    """Return the records that a logarithmic axis can show."""
    return [r for r in records if r.get(field) is not None and r[field] > 0]


def _below(record: Record, end: str, level: float | None) -> bool:
    return not level or record[f"kernel_relative_mse{end}"] < CEILING * level


V2 = "v² is |q + k|² / √d of a pair: the relative variance of m positive features is about e^(v²) / m"

FIGURES = {
    "attention_mse": Figure(
        "Below the grey line, random features beat uniform attention",
        "Squared error of attention outputs against exact softmax attention, over that of uniform attention: median "
        f"over the redraws, band: its 95% interval. Not shown: above {MOST}. {V2}",
        draw_attention_mse,
        by="dataset",
    ),
    "kernel_mse": Figure(
        "Error of the kernel matrix: as the closed form predicts (lines), and measured (points)",
        "Crosses are not settled: redraws miss the tail that carries the error, and say little about it. Not shown: "
        f"errors of more than {CEILING:,} times that of uniform attention. {V2}",
        draw_kernel_mse,
        by="dataset",
    ),
    "bias": Figure(
        "Where the interval meets 0, the redraws show no bias of the kernel",
        "Mean k' / mean k − 1 over the entries whose mean the redraws settle, 95% intervals, logarithmic beyond ±0.1. "
        f"{V2}",
        draw_bias,
        by="dataset",
    ),
    "variance": Figure(
        "Measured variances over the predicted ones",
        "Over the entries whose variance the redraws settle, 95% intervals, clipped at a factor of "
        f"{FACTOR}; one point per dataset, m and projection. "
        "Right of the grey line, the error is above that of uniform attention",
        draw_variance,
        by="estimator",
    ),
}
