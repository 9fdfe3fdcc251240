"""What redrawing the features buys: outputs that are averaged over redraws, and the bias that no averaging removes."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._maps.kinds import KINDS
from kernattn._warmup import preparation
from kernattn.attention import softmax_attention
from kernattn.errors import NoClosedForm
from kernattn.features import FeatureMap, random_features
from kernattn.kernels import Softmax
from kernattn.metrics import attention_delta_method, attention_mse, empirical_variance, median_and_ci
from kernattn.projections import Iid
from kernattn.studies import _panels as panels
from kernattn.studies._means import FEWEST_OF_MEDIANS, means
from kernattn.studies._palette import GREY, look_of
from kernattn.studies._presets.preset import TOKENS_OF_ONES_OWN, Figure, Options, Preset
from kernattn.studies._presets.verdict import Estimate, Tally, Verdict
from kernattn.studies._records import ENDS, Record, names, select, spell, with_ends, with_intervals
from kernattn.studies._sweep import Cell, Sweep

KERNEL = Softmax()
QUERIES, KEYS, DIM, VALUES = 32, 256, 16, 8


class Problem(NamedTuple):
    """Inputs times a scale, values, and the outputs of exact attention."""

    q: Float64
    k: Float64
    v: Float64
    exact: Float64


def sweep(**asked: Any) -> Sweep:
    """Return the design: the first R redraws of a map, their outputs averaged, and their sums averaged."""
    options = Options(**asked)
    full = {
        "scale": (0.25, 0.5, 1.0),
        "estimator": ("positive", "optimal_positive", "trigonometric"),
        "projection": ("iid", "orthogonal"),
        "m": (16, 64, 256),
    }
    small = {"scale": (0.25, 1.0), "estimator": ("positive", "trigonometric"), "projection": ("iid",), "m": (16, 64)}
    redraws = tuple(2**i for i in range(6 if options.quick else 9))
    own = options.choose_tokens(QUERIES, KEYS)
    if own is not None:
        full = {"source": (own.label,)} | full | {"scale": (1.0,)}
        small["scale"] = (1.0,)

    @lru_cache(maxsize=8)
    def problem(scale: float) -> Problem:
        rng = np.random.default_rng(options.seed)
        q, k, v = (rng.standard_normal(shape) for shape in ((QUERIES, DIM), (KEYS, DIM), (KEYS, VALUES)))
        if own is not None:
            q, k, v = own.q, own.k, own.v
        return Problem(scale * q, scale * k, v, softmax_attention(scale * q, scale * k, v))

    @lru_cache(maxsize=1)
    def phi(cell: Cell) -> FeatureMap:
        given = problem(cell["scale"])
        return random_features(
            KERNEL, given.q.shape[1], cell["m"], cell["estimator"], cell["projection"], data=(given.q, given.k), rng=0
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
        return {
            "uniform": attention_mse(given.v.mean(axis=0), given.exact),
            "signed": is_signed(phi(cell)),
            **_second_order(phi(cell), given, np.asarray(redraws, np.float64)),
        }

    return Sweep(
        "redraw",
        options.choose_axes(full, small, {} if own is None else {"source": (own.label,)}),
        trial,
        facts,
        paired=("scale", "estimator", "projection", "m"),
        along={"redraws": redraws},
        stop=options.stop(24, 12, of="averaged", least=FEWEST_OF_MEDIANS),
        version=3,
        seed=options.seed,
        reduce=_reduce,
        prepare=preparation(float64=("features", "softmax")),
    )


def is_signed(phi: FeatureMap) -> bool:
    """Return whether features may be negative, all but exponentials: normalisers come near 0, errors have no mean."""
    return phi.query_spec is None or not KINDS[phi.query_spec.kind].per_feature


def averages(maps: Sequence[FeatureMap], q: Float64, k: Float64, v: Float64) -> tuple[Float64, Float64]:
    """Return N (R, n, e) and Z (R, n) of every map: attention's output is N / Z."""
    sums = np.concatenate([v, np.ones((len(v), 1))], axis=1)
    outputs = np.asarray([each.query(q) @ (each.key(k).T @ sums) for each in maps])
    return outputs[..., :-1], outputs[..., -1]


def _second_order(phi: FeatureMap, given: Problem, redraws: Float64) -> dict[str, Any]:
    """Return the delta method's mean errors: bias^2 + variance / R of averaged outputs; sums are those of R m features.

    They leave out terms of higher order in 1 / m, so they are no closed forms, and are not called ``x_predicted``.
    """
    none = dict.fromkeys(("averaged_second_order", "pooled_second_order", "floor_second_order"))
    if is_signed(phi) or getattr(phi, "projection", None) != Iid():
        return none  # medians are measured; or unknown, or minutes of hypergeometric functions
    try:
        delta = attention_delta_method(given.q, given.k, given.v, phi)
    except NoClosedForm:
        return none
    if not delta.trusted.all():
        return none
    floor, variance = float(np.mean(delta.bias**2)), float(np.mean(delta.variance))
    return {
        "averaged_second_order": floor + variance / redraws,
        "pooled_second_order": floor / redraws**2 + variance / redraws,
        "floor_second_order": floor,
    }


def _reduce(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return median errors, and where features are positive means, which the delta method predicts: Z may be 0 else.

    A mean that few redraws carry has no interval.
    """
    errors = {name: draws[name] for name in ("averaged", "pooled")}
    expected = {"averaged_mean": draws["averaged"], "pooled_mean": draws["pooled"], "floor": draws["floor"]}
    if facts["signed"]:
        return with_intervals(median_and_ci, **errors) | {
            name: part for field in expected for name, part in with_ends(field, (np.nan,) * 3).items()
        }
    return with_intervals(median_and_ci, **errors) | means(facts, **expected)


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge where averaging over redraws lowers the error; say what stays, and what averaging the sums does instead."""
    scales = names(records, "scale")
    judged = [_judge_means(select(records, scale=s, estimator=e)) for s in scales for e in names(records, "estimator")]
    for scale in scales:
        here = select(records, scale=scale)
        judged += [_compare_sums(here), *_describe_floors(here)]
    return judged


def _compare_sums(records: Sequence[Record]) -> Verdict:
    """Compare averaged outputs with averaged sums, which see as many features."""
    first, signs = records[0], []
    for r in records:
        pooled, averaged = (Estimate.of(r, field, place=-1) for field in ("pooled", "averaged"))
        signs.append(-1 if pooled.high < averaged.low else int(pooled.low > averaged.high))
    return Verdict(
        "averaging numerators and normalisers apart, as one map of R m features does, errs less than averaging outputs "
        f"in {signs.count(-1)} of {len(records)} designs and more in {signs.count(1)}; elsewhere the intervals overlap",
        f"with {spell(first['estimator'])} features, {_name(first)}, the errors are {first['pooled'][-1]:.2g} and "
        f"{first['averaged'][-1]:.2g}",
        where=f"At scale {first['scale']:g} and R = {first['redraws'][-1]}",
    )


def _judge_means(records: Sequence[Record]) -> Verdict:
    """Judge one estimator at one scale, over numbers of features and projections."""
    first, most = records[0], records[0]["redraws"][-1]
    ends = [(r, Estimate.of(r, "averaged", place=0), Estimate.of(r, "averaged", place=-1)) for r in records]
    better = [r for r, one, many in ends if many.high < one.low]
    biased = [r for r in records if Estimate.of(r, "floor").low > 0]
    beaten = [r for r, one, many in ends if many.high < r["uniform"] < one.low]
    stays = [r for r, one, many in ends if r not in better and many.low > one.value / 2]
    below = [r["floor_high"] for r in records if r["floor_high"] is not None]
    if first["signed"]:
        bias = "signed normalisers come near 0, and an average of such ratios has no mean"
    elif biased:
        bias = (
            f"in {len(biased)} of the designs a bias stays that no number of redraws removes: with {_name(biased[0])} "
        )
        bias += f"its square is {Estimate.of(biased[0], 'floor')}"
    else:
        bias = f"no bias is seen: its square is below {max(below):.2g}" if below else "no bias is settled"
    return Verdict(
        f"outputs averaged over {most} redraws err less than those of a single draw",
        f"they do in {len(better)} of {len(records)} designs; with {_name(first)} the error goes from "
        f"{first['averaged'][0]:.2g} to {first['averaged'][-1]:.2g}",
        bias,
        f"averaging takes the error from above that of uniform attention to below it in {len(beaten)} of them"
        if beaten
        else "",
        where=f"at scale {first['scale']:g} for {spell(first['estimator'])} features",
        decided=Tally(len(better), len(stays) + len(biased), len(records) - len(better) - len(stays)).word,
    )


def _describe_floors(records: Sequence[Record]) -> list[Verdict]:
    """Say how the floor falls with m, for each design of which two are seen."""
    judged = []
    for estimator, projection in product(names(records, "estimator"), names(records, "projection")):
        here = select(records, estimator=estimator, projection=projection)
        seen = [r for r in here if Estimate.of(r, "floor").low > 0]
        if len(seen) > 1:
            low, high = seen[0], seen[-1]
            claim = (
                f"the floor of {spell(estimator)}, {projection} features falls by a factor of "
                f"{low['floor'] / high['floor']:.2g} from m = {low['m']} to {high['m']}; the delta method, where it "
                f"holds, predicts {(high['m'] / low['m']) ** 2:.3g}"
            )
            judged.append(Verdict(claim, where=f"At scale {low['scale']:g}"))
    return judged


def _name(record: Record) -> str:
    return f"{record['projection']}, m = {record['m']}"


def draw_over_redraws(records: Sequence[Record], ax: Any) -> None:
    """Draw the error over redraws: outputs averaged, sums averaged, one draw kept, and uniform attention."""
    panels.set_logarithmic(ax, "redraws R", "error of attention outputs", records[0]["redraws"])
    ax.yaxis.minorticks_off()
    least = min(names(records, "m"))
    projection = names(records, "projection")[-1]
    for record in select(records, m=least, projection=projection):
        look = look_of(records, record["estimator"], "orthogonal")
        hollow = look | {"linestyle": (0, (3, 1.5)), "markerfacecolor": "white"}
        count = record["redraws"]
        ax.plot([], [], label=spell(record["estimator"]), **(look | {"linestyle": "none"}))
        for field, style in (("averaged", look), ("pooled", hollow)):
            panels.draw_interval(ax, count, [record[f"{field}{end}"] for end in ENDS], style)
        ax.axhline(record["averaged"][0], color=look["color"], linestyle=":", linewidth=1.0)
    for label, line in ("outputs averaged", "-"), ("sums averaged", (0, (3, 1.5))), ("one draw kept", ":"):
        ax.plot([], [], color=GREY, linestyle=line, linewidth=1.2, label=label)
    panels.draw_uniform(ax, records[0]["uniform"])


def draw_over_features(records: Sequence[Record], ax: Any) -> None:
    """Draw the error of one draw and the floor under averages over m: predictions as lines, measurements as points."""
    panels.set_logarithmic(ax, "features m", "error of attention outputs", sorted(names(records, "m")))
    ax.yaxis.minorticks_off()
    for estimator in names(select(records, signed=False), "estimator"):
        here = panels.sort_by(select(records, estimator=estimator, projection=names(records, "projection")[0]), "m")
        look = look_of(records, estimator, "orthogonal")
        for field, style in (("averaged", look), ("floor", look | {"markerfacecolor": "white"})):
            place, measured = (0, "averaged_mean") if field == "averaged" else (None, field)
            interval = panels.read_interval(here, measured, place)
            theory = panels.read_field(here, f"{field}_second_order", place)
            m = panels.read_field(here, "m") * (1.0 if field == "averaged" else 1.04)
            seen = interval[1] > 0
            what = "one draw" if field == "averaged" else "floor"
            panels.draw_bars(ax, m[seen], [each[seen] for each in interval], style, f"{spell(estimator)}, {what}")
            line = {"linestyle": "-" if field == "averaged" else "--", "marker": "_", "markersize": 12}
            ax.plot(m, theory, color=look["color"], linewidth=1.2, **line)
    ax.plot([], [], color=GREY, linewidth=1.2, marker="_", markersize=12, label="delta method")
    panels.draw_uniform(ax, records[0]["uniform"])


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
            "Fewest features; medians over trials with 95% intervals; normal queries and keys, or a file's, times the "
            "scale",
            draw_over_redraws,
            by="scale",
            shows="outputs averaged over",
        ),
        "floor": Figure(
            "The error of one draw, and the floor under averages of many, over the features",
            "Positive maps: settled means, 95% intervals; lines: the delta method, where it holds for all rows",
            draw_over_features,
            by="scale",
            shows="the floor of",
        ),
    },
    data=TOKENS_OF_ONES_OWN,
)
