"""Performer's figure 4: error of attention outputs against m, with the two things that it leaves out."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.attention import linear_attention, softmax_attention
from kernattn.errors import ParameterError
from kernattn.features import random_features
from kernattn.kernels import Softmax
from kernattn.metrics import attention_mse, median_and_ci
from kernattn.studies import _panels as panels
from kernattn.studies._means import FEWEST_OF_MEDIANS
from kernattn.studies._palette import GREY, look_of
from kernattn.studies._presets.preset import TOKENS_OF_ONES_OWN, Figure, Options, Preset
from kernattn.studies._presets.verdict import Estimate, Ratio, Verdict, count_lower, name_ties, pair
from kernattn.studies._records import Record, names, select, spell, with_intervals
from kernattn.studies._sweep import Cell, Sweep

DIM = 16
KERNEL = Softmax()
MOST = 100  # errors that a figure shows, over that of uniform attention


def sweep(**asked: Any) -> Sweep:
    """Return the design: normal queries, keys and values, times a scale; fifteen redraws of them and of the map."""
    options = Options(**asked)
    full = {
        "length": (4096,),
        "scale": (0.5, 1.0, 1.5),
        "estimator": ("trigonometric", "positive", "hyperbolic", "optimal_positive"),
        "projection": ("iid", "orthogonal"),
        "m": (16, 32, 64, 128, 256),
    }
    small = {"length": (256,), "scale": (0.5, 1.0), "estimator": ("trigonometric", "positive"), "m": (16, 256)}
    own = options.choose_tokens()
    if own is not None:
        full = {"source": (own.label,)} | full | {"length": (min(4096, len(own.k)),), "scale": (1.0,)}
        small |= {"length": (min(256, len(own.k)),), "scale": (1.0,)}
    chosen = options.choose_axes(full, small, {} if own is None else {"source": (own.label,)})
    if own is not None and max(chosen["length"]) > len(own.k):
        raise ParameterError(f"length must be at most {len(own.k)}, the keys of the file; got {max(chosen['length'])}")

    @lru_cache(maxsize=64)
    def problem(seed: int, length: int, scale: float) -> tuple[Float64, Float64, Float64, Float64]:
        rng = np.random.default_rng(seed)
        q, k, v = rng.standard_normal((3, length, DIM)) if own is None else own.draw(length, rng)
        q, k = scale * q, scale * k
        return q, k, v, softmax_attention(q, k, v)

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        inputs, draw = (int(part) for part in rng.integers(2**63, size=2))
        q, k, v, exact = problem(inputs, cell["length"], cell["scale"])
        data = np.concatenate([q, k])
        dim, m = q.shape[1], cell["m"]
        phi = random_features(KERNEL, dim, m, cell["estimator"], cell["projection"], data=data, rng=draw)
        return {
            "mse": attention_mse(linear_attention(q, k, v, phi), exact),
            "uniform": attention_mse(v.mean(axis=0), exact),
        }

    return Sweep(
        "attention-error",
        chosen,
        trial,
        paired=("scale", "estimator", "projection", "m"),
        stop=options.stop(15, of="over_uniform", least=FEWEST_OF_MEDIANS),
        seed=options.seed,
        reduce=_reduce,
        prepare=preparation(float64=("key_state", "attend", "softmax")),
    )


def _reduce(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return medians with intervals of order statistics: a ratio whose normaliser comes near 0 has no mean error."""
    mse, uniform = draws["mse"], draws["uniform"]
    return with_intervals(median_and_ci, mse=mse, over_uniform=mse / uniform, uniform=uniform)


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge who errs less at the most features, for each length and scale, and who beats attending to all alike."""
    most = max(names(records, "m"))
    settings = dict.fromkeys((r["length"], r["scale"]) for r in records)
    return [told for n, scale in settings for told in _judge(select(records, length=n, scale=scale, m=most))]


def _judge(last: Sequence[Record]) -> list[Verdict]:
    first = last[0]
    where = f"at length {first['length']}, scale {first['scale']:g}"
    at = f"at m = {first['m']}"
    judged = []
    for positive, trig in pair(select(last, projection="orthogonal"), "estimator", "positive", "trigonometric", by=()):
        claim = f"{at} positive features err less than trigonometric ones, orthogonal"
        favor = str(_over(positive, "the error of FAVOR+ (positive, orthogonal)"))
        judged.append(_compare(positive, trig, claim, where, favor))
    for orthogonal, iid in pair(last, "projection", "orthogonal", "iid", by=("estimator",)):
        kind = spell(orthogonal["estimator"])
        claim = f"{at} orthogonal frequencies err less than independent ones, {kind} features"
        judged.append(_compare(orthogonal, iid, claim, where))
    better, least = [r for r in last if r["over_uniform_high"] < 1], min(last, key=lambda r: float(r["mse"]))
    ties = name_ties(last, least, "mse", _name)
    claim = f"{len(better)} of {len(last)} maps are better than attending to all keys alike"
    clause = f"it cannot be told from {' and '.join(ties)}" if ties else ""
    ratio, where = _over(least, f"the least error, that of {_name(least)},"), f"{where[0].upper()}{where[1:]}, {at[3:]}"
    return [*judged, Verdict(claim, clause, where=where, ratio=ratio)]


def _compare(low: Record, high: Record, claim: str, where: str, *facts: str) -> Verdict:
    ratio = Ratio("the ratio of errors", [low["mse"] / high["mse"]])
    return Verdict(claim, *facts, where=where, decided=count_lower([(low, high)], "mse").word, ratio=ratio)


def _over(record: Record, what: str) -> Ratio:
    return Ratio(f"{what} over that of uniform attention", [Estimate.of(record, "over_uniform")])


def _name(record: Record) -> str:
    return f"{spell(record['estimator'])}, {record['projection']}"


def draw_error(records: Sequence[Record], ax: Any) -> None:
    """Draw the median error over that of uniform attention against m, with its 95% interval as a band."""
    panels.set_logarithmic(ax, "features m", "error over that of uniform attention", sorted(names(records, "m")))
    lengths = names(records, "length")
    for length, estimator, projection in product(lengths, names(records, "estimator"), names(records, "projection")):
        here = panels.sort_by(select(records, length=length, estimator=estimator, projection=projection), "m")
        look = look_of(records, estimator, projection) | {"linewidth": 1.4 + 0.8 * lengths.index(length)}
        interval = panels.clip(panels.read_interval(here, "over_uniform"), MOST)
        panels.draw_interval(ax, [r["m"] for r in here], interval, look)
    panels.draw_key(records, ax)
    for i, length in enumerate(lengths if len(lengths) > 1 else ()):
        ax.plot([], [], color=GREY, linewidth=1.4 + 0.8 * i, label=f"length {length}")
    panels.draw_uniform(ax)


ATTENTION_ERROR = Preset(
    title="The error of attention outputs over the number of features",
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
            "Median over the redraws, band: its 95% interval; normal queries and keys, or a file's, times the scale. "
            f"Not shown: above {MOST}",
            draw_error,
            by="scale",
            shows="err less than",
        )
    },
    data=TOKENS_OF_ONES_OWN,
)
