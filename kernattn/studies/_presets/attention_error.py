"""Performer's figure 4: error of attention outputs against m, with the two things that it leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.attention import linear_attention, softmax_attention
from kernattn.features import random_features
from kernattn.kernels import Softmax
from kernattn.metrics import attention_mse, median_and_ci
from kernattn.studies._palette import GREY, UNIFORM, look_of
from kernattn.studies._panels import banded, clipped, key, numbered, uniform
from kernattn.studies._presets.preset import Figure, Preset, designed
from kernattn.studies._records import ENDS, Record, names, select, spoken, with_ends
from kernattn.studies._sweep import Cell, Stop, Sweep

DIM = 16
KERNEL = Softmax()
MOST = 100  # errors that a figure shows, over that of uniform attention


def sweep(
    quick: bool = False, seed: int = 0, precision: float | None = None, axes: Mapping[str, Any] | None = None
) -> Sweep:
    """Return the design: normal queries, keys and values, times a scale; fifteen redraws of them and of the map."""
    full = {
        "length": (4096,),
        "scale": (0.5, 1.0, 1.5),
        "estimator": ("trigonometric", "positive", "hyperbolic", "optimal_positive"),
        "projection": ("iid", "orthogonal"),
        "m": (16, 32, 64, 128, 256),
    }
    small = {"length": (256,), "scale": (0.5, 1.0), "estimator": ("trigonometric", "positive"), "m": (16, 256)}

    @lru_cache(maxsize=64)
    def problem(seed: int, length: int, scale: float) -> tuple[Float64, Float64, Float64, Float64]:
        q, k, v = np.random.default_rng(seed).standard_normal((3, length, DIM))
        q, k = scale * q, scale * k
        return q, k, v, softmax_attention(q, k, v)

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        inputs, draw = (int(part) for part in rng.integers(2**63, size=2))
        q, k, v, exact = problem(inputs, cell["length"], cell["scale"])
        data = np.concatenate([q, k])
        phi = random_features(KERNEL, DIM, cell["m"], cell["estimator"], cell["projection"], data=data, rng=draw)
        return {
            "mse": attention_mse(linear_attention(q, k, v, phi), exact),
            "uniform": attention_mse(np.broadcast_to(v.mean(axis=0), exact.shape), exact),
        }

    return Sweep(
        "attention-error",
        designed(full, small if quick else None, axes),
        trial,
        paired=("scale", "estimator", "projection", "m"),
        stop=Stop(15, precision, of="over_uniform"),
        seed=seed,
        reduce=_medians,
        prepare=preparation(float64=("key_state", "attend", "softmax")),
    )


def _medians(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Medians with intervals of order statistics: a ratio whose normaliser comes near 0 has no mean error."""
    del cell, facts
    return {
        **with_ends("mse", median_and_ci(draws["mse"])),
        **with_ends("over_uniform", median_and_ci(draws["mse"] / draws["uniform"])),
        **with_ends("uniform", median_and_ci(draws["uniform"])),
    }


def verdicts(records: Sequence[Record]) -> list[str]:
    """Say who wins where, and whether anybody beats attending to all keys alike."""
    found = []
    most = max(names(records, "m"))
    for length, scale in dict.fromkeys((r["length"], r["scale"]) for r in records):
        last = select(records, length=length, scale=scale, m=most)
        where = f"at length {length}, scale {scale:g}"
        pair = {r["estimator"]: r for r in last if r["projection"] == "orthogonal"}
        if {"positive", "trigonometric"} <= set(pair):
            positive, trig = pair["positive"], pair["trigonometric"]
            found.append(
                f"{_word(positive, trig)} {where}: at m = {most} the error of positive features is "
                f"{positive['mse'] / trig['mse']:.2g} times that of trigonometric ones, orthogonal."
            )
            found.append(f"FAVOR+ (positive, orthogonal) has {_times(positive)} {where} and m = {most}.")
        for estimator in names(last, "estimator"):
            pair = {r["projection"]: r for r in select(last, estimator=estimator)}
            if {"orthogonal", "iid"} <= set(pair):
                found.append(
                    f"{_word(pair['orthogonal'], pair['iid'])} {where}: at m = {most} the error of orthogonal "
                    f"frequencies is {pair['orthogonal']['mse'] / pair['iid']['mse']:.2g} times that of independent "
                    f"ones, {spoken(estimator)} features."
                )
        better = [r for r in last if r["over_uniform_high"] < 1]
        least = min(last, key=lambda r: r["mse"])
        ties = [r for r in last if r is not least and r["mse_low"] <= least["mse_high"]]
        found.append(
            f"{where[0].upper()}{where[1:]} and m = {most}, {len(better)} of {len(last)} maps are better than "
            f"attending to all keys alike; the least error is that of {_name(least)}, with {_times(least)}"
            + (f", which cannot be told from {' and '.join(map(_name, ties))}." if ties else ".")
        )
    return found


def _word(low: Record, high: Record) -> str:
    """Say whether the first errs less than the second: open where their intervals overlap."""
    if low["mse_high"] < high["mse_low"]:
        return "Holds"
    return "Does not hold" if low["mse_low"] > high["mse_high"] else "Open"


def _name(record: Record) -> str:
    return f"{spoken(record['estimator'])}, {record['projection']}"


def _times(record: Record) -> str:
    value, low, high = (f"{record[f'over_uniform{end}']:.2g}" for end in ENDS)
    return f"{value} times the error of uniform attention ({low} to {high})"


def error(records: Sequence[Record], ax: Any) -> None:
    """Median error over that of uniform attention against m, with its 95% interval as a band."""
    ax.set(xscale="log", yscale="log", xlabel="features m", ylabel="error over that of uniform attention")
    numbered(ax.xaxis, sorted(names(records, "m")))
    lengths = names(records, "length")
    for length, estimator, projection in product(lengths, names(records, "estimator"), names(records, "projection")):
        found = select(records, length=length, estimator=estimator, projection=projection)
        found = sorted(found, key=lambda r: r["m"])
        look = look_of(records, estimator, projection)
        value, low, high = (clipped([r[f"over_uniform{end}"] for r in found], MOST) for end in ENDS)
        interval = value, low, np.where(np.isnan(high), MOST, high)
        banded(ax, [r["m"] for r in found], interval, look | {"linewidth": 1.4 + 0.8 * lengths.index(length)})
    uniform(ax, 1.0)
    key(records, ax)
    for i, length in enumerate(lengths if len(lengths) > 1 else ()):
        ax.plot([], [], color=GREY, linewidth=1.4 + 0.8 * i, label=f"length {length}")
    ax.plot([], [], label="uniform attention", **UNIFORM)


ATTENTION_ERROR = Preset(
    title="The error of attention outputs on normal inputs",
    claim="Positive features approximate attention outputs better than trigonometric ones, and orthogonal ones better "
    "than independent ones, at L = 4096 and d = 16 (Choromanski et al. 2021, figure 4). The figure shows one scale of "
    "the inputs, and not what attending to all keys alike would err.",
    cost="quick 3, full 20 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.attention_error:sweep",
    verdicts=verdicts,
    formula=r"\frac{\sum_i |\hat{A}_i - A_i|^2}{\sum_i |\frac{1}{L} \sum_j v_j - A_i|^2}, \quad "
    r"A_i = \frac{\sum_j e^{q_i \cdot k_j / \sqrt{d}} v_j}{\sum_j e^{q_i \cdot k_j / \sqrt{d}}}",
    figures={
        "error": Figure(
            "Below the grey line, random features beat uniform attention",
            "Median over the redraws, band: its 95% interval; queries and keys normal, times the scale. Not shown: "
            f"above {MOST}",
            error,
            by="scale",
            shows="times that of",
        )
    },
)
