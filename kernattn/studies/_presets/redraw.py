"""What redrawing the features buys: outputs that are averaged over redraws, and the bias that no averaging removes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.attention import softmax_attention
from kernattn.errors import NoClosedForm
from kernattn.features import FeatureMap, random_features
from kernattn.kernels import Softmax
from kernattn.metrics import attention_delta_method, attention_mse, empirical_variance, mean_and_ci, median_and_ci
from kernattn.projections import Iid
from kernattn.studies._palette import GREY, UNIFORM, look_of
from kernattn.studies._panels import banded, numbered, uniform
from kernattn.studies._presets.preset import Figure, Preset, designed, word
from kernattn.studies._presets.signs import signed
from kernattn.studies._records import ENDS, Record, names, select, spoken, with_ends
from kernattn.studies._sweep import Cell, Stop, Sweep

KERNEL = Softmax()
QUERIES, KEYS, DIM, VALUES = 32, 256, 16, 8


class Problem(NamedTuple):
    """Normal inputs times a scale, normal values, and the outputs of exact attention."""

    q: Float64
    k: Float64
    v: Float64
    exact: Float64


def sweep(
    quick: bool = False, seed: int = 0, precision: float | None = None, axes: Mapping[str, Any] | None = None
) -> Sweep:
    """Return the design: the first R redraws of a map, their outputs averaged, and their sums averaged."""
    full = {
        "scale": (0.25, 0.5, 1.0),
        "estimator": ("positive", "optimal_positive", "trigonometric"),
        "projection": ("iid", "orthogonal"),
        "m": (16, 64, 256),
    }
    small = {"scale": (0.25, 1.0), "estimator": ("positive", "trigonometric"), "projection": ("iid",), "m": (16, 64)}
    redraws = tuple(2**i for i in range(6 if quick else 9))

    @lru_cache(maxsize=8)
    def problem(scale: float) -> Problem:
        rng = np.random.default_rng(seed)
        q, k, v = (rng.standard_normal(shape) for shape in ((QUERIES, DIM), (KEYS, DIM), (KEYS, VALUES)))
        return Problem(scale * q, scale * k, v, softmax_attention(scale * q, scale * k, v))

    @lru_cache(maxsize=1)
    def phi(cell: Cell) -> FeatureMap:
        given = problem(cell["scale"])
        return random_features(
            KERNEL, DIM, cell["m"], cell["estimator"], cell["projection"], data=(given.q, given.k), rng=0
        )

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        q, k, v, exact = problem(cell["scale"])
        maps = [phi(cell).redraw(rng) for _ in range(redraws[-1])]
        numerators, normalisers = averages(maps, q, k, v)
        outputs = numerators / normalisers[..., None]
        parts = [slice(count) for count in redraws]
        kept = np.asarray([np.mean(outputs[part], axis=0) for part in parts])  # (len(redraws), n, e)
        both = [(np.mean(numerators[part], axis=0), np.mean(normalisers[part], axis=0)) for part in parts]
        pooled = np.asarray([top / bottom[:, None] for top, bottom in both])
        noise = empirical_variance(outputs) / len(outputs)
        return {
            "averaged": attention_mse(kept, exact),
            "pooled": attention_mse(pooled, exact),
            "floor": np.mean((kept[-1] - exact) ** 2 - noise),
        }

    def facts(cell: Cell) -> dict[str, Any]:
        given = problem(cell["scale"])
        spread = np.broadcast_to(given.v.mean(axis=0), given.exact.shape)
        return {
            "uniform": attention_mse(spread, given.exact),
            "statistic": "median" if signed(phi(cell)) else "mean",
            "floor_settled": not signed(phi(cell)),
            **_second_order(phi(cell), given, np.asarray(redraws, np.float64)),
        }

    return Sweep(
        "redraw",
        designed(full, small if quick else None, axes),
        trial,
        facts,
        paired=("scale", "estimator", "projection", "m"),
        along={"redraws": redraws},
        stop=Stop(12 if quick else 24, precision, of="averaged"),
        version=2,
        seed=seed,
        reduce=_reduced,
        prepare=preparation(float64=("features", "softmax")),
    )


def averages(maps: Sequence[FeatureMap], q: Float64, k: Float64, v: Float64) -> tuple[Float64, Float64]:
    """Return N (R, n, e) and Z (R, n) of every map: attention's output is N / Z."""
    sums = np.concatenate([v, np.ones((len(v), 1))], axis=1)
    found = np.asarray([each.query(q) @ (each.key(k).T @ sums) for each in maps])
    return found[..., :-1], found[..., -1]


def _second_order(phi: FeatureMap, given: Problem, redraws: Float64) -> dict[str, Any]:
    """Return the delta method's mean errors: bias^2 + variance / R of averaged outputs; sums are those of R m features.

    They leave out terms of higher order in 1 / m, so they are no closed forms, and are not called ``x_predicted``.
    """
    none = dict.fromkeys(("averaged_second_order", "pooled_second_order", "floor_second_order"))
    if signed(phi) or getattr(phi, "projection", None) != Iid():
        return none  # medians are measured; or unknown, or minutes of hypergeometric functions
    try:
        found = attention_delta_method(given.q, given.k, given.v, phi)
    except NoClosedForm:
        return none
    if not found.trusted.all():
        return none
    floor, variance = float(np.mean(found.bias**2)), float(np.mean(found.variance))
    return {
        "averaged_second_order": floor + variance / redraws,
        "pooled_second_order": floor / redraws**2 + variance / redraws,
        "floor_second_order": floor,
    }


def _reduced(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Means where features are positive, for outputs stay among the values; medians where a normaliser may be 0."""
    del cell
    of = median_and_ci if facts["statistic"] == "median" else mean_and_ci
    floor = mean_and_ci(draws["floor"]) if facts["floor_settled"] else (np.nan,) * 3
    return {
        **with_ends("averaged", of(draws["averaged"])),
        **with_ends("pooled", of(draws["pooled"])),
        **with_ends("floor", floor),
    }


def verdicts(records: Sequence[Record]) -> list[str]:
    """Say where averaging over redraws lowers the error, what stays, and what averaging the sums does instead."""
    found = [
        _averaged(select(records, scale=scale, estimator=estimator))
        for scale in names(records, "scale")
        for estimator in names(records, "estimator")
    ]
    for scale in names(records, "scale"):
        here = select(records, scale=scale)
        found += [_pooled(here), *_falls(here)]
    return found


def _pooled(records: Sequence[Record]) -> str:
    """Compare averaged outputs with averaged sums, which see as many features."""
    first = records[0]
    less = [r for r in records if r["pooled_high"][-1] < r["averaged_low"][-1]]
    more = [r for r in records if r["pooled_low"][-1] > r["averaged_high"][-1]]
    return (
        f"At scale {first['scale']:g} and R = {first['redraws'][-1]}, averaging numerators and normalisers apart, as "
        f"one map of R m features does, errs less than averaging outputs in {len(less)} of {len(records)} designs and "
        f"more in {len(more)}; elsewhere the intervals overlap. With {spoken(first['estimator'])} features, "
        f"{_name(first)}, the errors are {first['pooled'][-1]:.2g} and {first['averaged'][-1]:.2g}."
    )


def _averaged(records: Sequence[Record]) -> str:
    """Return the verdict on one estimator at one scale, over numbers of features and projections."""
    first, most = records[0], records[0]["redraws"][-1]
    better = [r for r in records if r["averaged_high"][-1] < r["averaged_low"][0]]
    biased = [r for r in records if r["floor_low"] is not None and r["floor_low"] > 0]
    beaten = [r for r in records if r["averaged_high"][-1] < r["uniform"] < r["averaged_low"][0]]
    stays = [r for r in records if r not in better and r["averaged_low"][-1] > r["averaged"][0] / 2]
    begins = word(len(better), len(stays) + len(biased), len(records) - len(better) - len(stays))
    text = (
        f"{begins} at scale {first['scale']:g} for {spoken(first['estimator'])} features: outputs averaged over {most} "
        f"redraws err less than those of a single draw in {len(better)} of {len(records)} designs; with {_name(first)} "
        f"the error goes from {first['averaged'][0]:.2g} to {first['averaged'][-1]:.2g}"
    )
    if first["statistic"] == "median":
        text += " (medians: signed normalisers come near 0, and an average of such ratios has no mean)"
    elif biased:
        one = biased[0]
        text += (
            f". In {len(biased)} of the designs a bias stays that no number of redraws removes: with {_name(one)} its "
            f"square is {one['floor']:.2g} (95% interval {one['floor_low']:.2g} to {one['floor_high']:.2g})"
        )
    else:
        text += f". No bias is seen: its square is below {max(r['floor_high'] for r in records):.2g}"
    if beaten:
        text += f". Averaging takes the error from above that of uniform attention to below it in {len(beaten)} of them"
    return f"{text}."


def _falls(records: Sequence[Record]) -> list[str]:
    """Say how the floor falls with m, for each design of which two are seen."""
    found = []
    for estimator in names(records, "estimator"):
        for projection in names(records, "projection"):
            here = select(records, estimator=estimator, projection=projection)
            seen = [r for r in here if r["floor_low"] is not None and r["floor_low"] > 0]
            if len(seen) > 1:
                low, high = seen[0], seen[-1]
                found.append(
                    f"At scale {low['scale']:g} the floor of {spoken(estimator)}, {projection} features falls by a "
                    f"factor of {low['floor'] / high['floor']:.2g} from m = {low['m']} to {high['m']}; the delta "
                    f"method, where it holds, predicts {(high['m'] / low['m']) ** 2:.3g}."
                )
    return found


def _name(record: Record) -> str:
    return f"{record['projection']}, m = {record['m']}"


def over_redraws(records: Sequence[Record], ax: Any) -> None:
    """Error over the number of redraws: outputs averaged, sums averaged, one draw kept, and uniform attention."""
    ax.set(xscale="log", yscale="log", xlabel="redraws R", ylabel="error of attention outputs")
    numbered(ax.xaxis, records[0]["redraws"])
    ax.yaxis.minorticks_off()
    least = min(names(records, "m"))
    projection = names(records, "projection")[-1]
    for record in select(records, m=least, projection=projection):
        look = look_of(records, record["estimator"], "orthogonal")
        hollow = look | {"linestyle": (0, (3, 1.5)), "markerfacecolor": "white"}
        count = record["redraws"]
        ax.plot([], [], label=spoken(record["estimator"]), **(look | {"linestyle": "none"}))
        for field, style in (("averaged", look), ("pooled", hollow)):
            banded(ax, count, [record[f"{field}{end}"] for end in ENDS], style)
        ax.axhline(record["averaged"][0], color=look["color"], linestyle=":", linewidth=1.0)
    for label, line in ("outputs averaged", "-"), ("sums averaged", (0, (3, 1.5))), ("one draw kept", ":"):
        ax.plot([], [], color=GREY, linestyle=line, linewidth=1.2, label=label)
    uniform(ax, records[0]["uniform"])
    ax.plot([], [], label="uniform attention", **UNIFORM)


def over_features(records: Sequence[Record], ax: Any) -> None:
    """Error of one draw and the floor under averaged outputs, over m: predictions as lines, measurements as points."""
    ax.set(xscale="log", yscale="log", xlabel="features m", ylabel="error of attention outputs")
    numbered(ax.xaxis, sorted(names(records, "m")))
    ax.yaxis.minorticks_off()
    for estimator in names(select(records, statistic="mean"), "estimator"):
        here = sorted(select(records, estimator=estimator, projection=names(records, "projection")[0]), key=_m)
        look = look_of(records, estimator, "orthogonal")
        for field, style in (("averaged", look), ("floor", look | {"markerfacecolor": "white"})):
            value, low, high = (_column(here, f"{field}{end}") for end in ENDS)
            theory = _column(here, f"{field}_second_order")
            m = _column(here, "m") * (1.0 if field == "averaged" else 1.04)
            seen = low > 0
            error = [(value - low)[seen], (high - value)[seen]]
            what = "one draw" if field == "averaged" else "floor"
            points = style | {"linestyle": "none"}
            label = f"{spoken(estimator)}, {what}"
            ax.errorbar(m[seen], value[seen], yerr=error, elinewidth=1.0, label=label, **points)
            line = {"linestyle": "-" if field == "averaged" else "--", "marker": "_", "markersize": 12}
            ax.plot(m, theory, color=look["color"], linewidth=1.2, **line)
    ax.plot([], [], color=GREY, linewidth=1.2, marker="_", markersize=12, label="delta method")
    uniform(ax, records[0]["uniform"])
    ax.plot([], [], label="uniform attention", **UNIFORM)


def _m(record: Record) -> int:
    return int(record["m"])


def _column(records: Sequence[Record], field: str) -> Float64:
    """Return the first entry of a field of each record; NaN where there is none."""
    return np.asarray([np.nan if r[field] is None else np.ravel(r[field])[0] for r in records], np.float64)


REDRAW = Preset(
    title="What redrawing the features buys",
    claim="Periodic redraws improve the approximation of attention over many iterations, and positive features need "
    "them in training to match exact softmax attention, without them perplexity stays higher (Choromanski et al. 2021, "
    "sections 4.2 and 4.3, figure 5). That claim is about training. Without it we measure its premise: the errors of "
    "several draws cancel, so that their averaged outputs come near those of exact attention.",
    cost="quick 5, full 300 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.redraw:sweep",
    verdicts=verdicts,
    formula=r"\frac{1}{R} \sum_{r} \frac{N_r}{Z_r} \quad \mathrm{and} \quad \frac{\sum_r N_r}{\sum_r Z_r}, \quad "
    r"N_r = \sum_j \hat{k}_{r j} v_j, \quad Z_r = \sum_j \hat{k}_{r j}",
    figures={
        "redraws": Figure(
            "The error of averaged outputs over the number of redraws",
            "Fewest features; means over trials (positive features), medians (signed ones), with 95% intervals; normal "
            "queries and keys times the scale",
            over_redraws,
            by="scale",
            shows="outputs averaged over",
        ),
        "floor": Figure(
            "The error of one draw, and the floor under averages of many, over the features",
            "Positive maps: measurements with 95% intervals, and the delta method (lines) where it holds for all rows",
            over_features,
            by="scale",
            shows="the floor of",
        ),
    },
)
