"""CPU time to an error of attention's outputs: random features against exact attention, over the length."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.attention import linear_attention, softmax_attention
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, random_features
from kernattn.kernels import Softmax
from kernattn.metrics import attention_mse, median_and_ci
from kernattn.studies._means import FEWEST_OF_MEDIANS
from kernattn.studies._palette import GREY, look_of
from kernattn.studies._panels import draw_band, draw_uniform, read_interval, set_logarithmic, sort_by
from kernattn.studies._presets.preset import TOKENS_OF_ONES_OWN, Figure, Options, Preset
from kernattn.studies._presets.verdict import Tally, Verdict, two_digits
from kernattn.studies._records import ENDS, Record, group, names, select, spell, with_intervals
from kernattn.studies._sweep import Cell, Sweep

DIM = 64
KERNEL = Softmax()
TARGETS = (0.5, 0.1)  # errors, in units of uniform attention's
SHORTEST = 0.002  # CPU seconds that a timing sums up at least
Float32 = NDArray[np.float32]


class Problem(NamedTuple):
    """Queries and keys times a scale, in float32; values of normal ones are the keys before that, so outputs differ."""

    q: Float32
    k: Float32
    v: Float32
    exact: Float64


def sweep(**asked: Any) -> Sweep:
    """Return the design: a trial runs exact attention, and then a map with each number of features, redrawn."""
    options = Options(**asked)
    full: dict[str, Any] = {
        "length": (256, 1024, 4096, 16384),
        "scale": (0.5, 1.0),
        "estimator": ("positive", "trigonometric"),
        "projection": ("iid", "orthogonal"),
        "m": (64, 128, 256, 512, 1024, 2048),
    }
    small: dict[str, Any] = {
        "length": (128, 512),
        "scale": (0.5,),
        "estimator": ("positive", "trigonometric"),
        "projection": ("orthogonal",),
        "m": (64, 256, 1024),
    }
    own = options.choose_tokens()
    if own is not None:
        full = {"source": (own.label,)} | full | {"scale": (1.0,)}
        small["scale"] = (1.0,)
        for axes in (full, small):
            axes["length"] = tuple(length for length in axes["length"] if length <= len(own.k)) or (len(own.k),)
    chosen = options.choose_axes(full, small, {} if own is None else {"source": (own.label,)})
    if own is not None and max(chosen["length"]) > len(own.k):
        raise ParameterError(f"length must be at most {len(own.k)}, the keys of the file; got {max(chosen['length'])}")
    numbers = chosen.pop("m")

    @lru_cache(maxsize=1)
    def problem(length: int, scale: float) -> Problem:
        rng = np.random.default_rng(options.seed)
        q, k = rng.standard_normal((2, length, DIM))
        q, k, v = (q, k, k) if own is None else own.draw(length, rng)
        exact = softmax_attention(scale * q, scale * k, v)
        q32, k32, v32 = (part.astype(np.float32) for part in (scale * q, scale * k, v))
        return Problem(q32, k32, v32, exact)

    @lru_cache(maxsize=1)
    def maps(cell: Cell) -> tuple[FeatureMap, ...]:
        given = problem(cell["length"], cell["scale"])
        q, k, v = (part[:1024] for part in given[:3])
        dim = q.shape[1]
        candidates = tuple(
            random_features(KERNEL, dim, m, cell["estimator"], cell["projection"], data=(q, k), rng=0) for m in numbers
        )
        softmax_attention(q, k, v)  # what a first call makes and keeps is in no timing
        for phi in candidates:
            linear_attention(q, k, v, phi)
        return candidates

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        q, k, v, exact = problem(cell["length"], cell["scale"])
        drawn = [phi.redraw(rng) for phi in maps(cell)]
        out, seconds = _time(lambda: softmax_attention(q, k, v))
        pairs = [_time(lambda phi=phi: linear_attention(q, k, v, phi)) for phi in drawn]
        return {
            "mse": np.asarray([attention_mse(each.astype(np.float64), exact) for each, _ in pairs]),
            "rounding": attention_mse(out.astype(np.float64), exact),
            "exact_seconds": seconds,
            "linear_seconds": np.asarray([each for _, each in pairs]),
        }

    def facts(cell: Cell) -> dict[str, Any]:
        given = problem(cell["length"], cell["scale"])
        return {"uniform": attention_mse(given.v.astype(np.float64).mean(axis=0), given.exact)}

    return Sweep(
        "time-to-error",
        chosen,
        trial,
        facts,
        paired=("estimator", "projection"),
        along={"m": numbers},
        stop=options.stop(6, of="over_uniform", least=FEWEST_OF_MEDIANS),
        seed=options.seed,
        reduce=_reduce,
        prepare=preparation(float32=("key_state", "attend", "softmax"), float64=("softmax",)),
    )


def _time(call: Any) -> tuple[Any, float]:
    """Return the result of a call, and its CPU time in seconds, over as many calls as a clock can tell."""
    started, count = process_time(), 0
    while True:
        result, count = call(), count + 1
        if (spent := process_time() - started) >= SHORTEST:
            return result, spent / count


def _reduce(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return medians with intervals of order statistics, and median times."""
    return {
        **with_intervals(median_and_ci, mse=draws["mse"], over_uniform=draws["mse"] / facts["uniform"]),
        "rounding_over_uniform": np.max(draws["rounding"]) / facts["uniform"],
        **{name: np.median(draws[name], axis=0) for name in ("exact_seconds", "linear_seconds")},
    }


def place_reached(record: Record, target: float) -> int | None:
    """Return the place of the fewest features of which the median error is surely below the target, or None."""
    below = [high is not None and high <= target for high in record["over_uniform_high"]]
    return below.index(True) if True in below else None


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge from which length on features are faster, whether m depends on the length, and how times grow."""
    scales = sorted(names(records, "scale"))
    judged = [_judge_crossover(select(records, scale=scale), target) for scale in scales for target in TARGETS]
    worst = max(record["rounding_over_uniform"] for record in records)
    rounding = Verdict(f"exact attention in float32 has at most {worst:.1g} of uniform attention's squared error")
    return [*judged, _judge_constancy(records), _judge_growth(records), rounding]


def _judge_crossover(records: Sequence[Record], target: float) -> Verdict:
    """Judge from which length on each map reaches an error in less time than exact attention takes."""
    starts, parts = [], []
    for here in _by_map(records):
        gains = [_gain(record, target) for record in here]
        faster = [gain is not None and gain > 1 for gain in gains]
        start = next((i for i in range(len(here)) if all(faster[i:])), None)
        starts.append(start)
        place, last = place_reached(here[-1], target), here[-1]
        if not any(gains):
            least = min(value for r in here for value in r["over_uniform"])
            parts.append(f"{_map(last)}: not with m up to {last['m'][-1]} (at best {two_digits(least)} times)")
            continue
        crossing = "at no length looked at" if start is None else f"from n = {here[start]['length']} on"
        times = f"{two_digits(gains[-1])} times as fast" if gains[-1] else ""
        at = "not reached" if place is None else f"{times} with m = {last['m'][place]}"
        parts.append(f"{_map(last)}: {crossing} (at n = {last['length']}: {at})")
    crossed = [start for start in starts if start is not None]
    return Verdict(
        f"features reach {target:g} times uniform attention's error in less CPU time than exact attention takes",
        "; ".join(parts),
        where=f"at scale {records[0]['scale']:g}",
        decided="Does not hold" if not crossed else "Holds" if starts == [0] * len(starts) else "Holds in part",
    )


def _by_map(records: Sequence[Record]) -> list[list[Record]]:
    """Return the records of each estimator and projection, by length."""
    return [sort_by(here, "length") for here in group(records, "estimator", "projection").values()]


def _gain(record: Record, target: float) -> float | None:
    """Return the time of exact attention over that of the fewest features that reach the target; None if none does."""
    place = place_reached(record, target)
    return None if place is None else record["exact_seconds"] / record["linear_seconds"][place]


def _judge_constancy(records: Sequence[Record]) -> Verdict:
    """Judge in how many designs the error at the most features grows with the length, or cannot double."""
    groups = [here for scale in names(records, "scale") for here in _by_map(select(records, scale=scale))]
    ends = [(here[0], here[-1]) for here in groups]
    # of the shortest and of the longest sequence; NaN, which decides nothing, where an error is infinite
    low, high = (np.array([read_interval(two, "over_uniform", -1)[end] for two in ends]) for end in (1, 2))
    grows = low[:, 1] > high[:, 0]
    stays = ~grows & (high[:, 1] < 2 * low[:, 0])
    more, same = int(np.sum(grows)), int(np.sum(stays))
    first, last = ends[int(np.argmax(grows))]
    return Verdict(
        "the features needed do not grow with the length",
        f"it is so where at m = {first['m'][-1]} the error over uniform attention's at n = {last['length']} is "
        f"surely less than twice that at {first['length']}, and not where it is surely larger",
        f"with {_map(first)}, scale {first['scale']:g}, it goes from {two_digits(first['over_uniform'][-1])} to "
        f"{two_digits(last['over_uniform'][-1])}",
        tally=Tally(same, more, len(ends) - more - same, of="designs"),
    )


def _map(record: Record) -> str:
    return f"{spell(record['estimator'])}, {record['projection']}"


def _judge_growth(records: Sequence[Record]) -> Verdict:
    """Judge how times grow with the length: exponents between the two greatest lengths."""
    lengths = sorted(names(records, "length"))
    if len(lengths) < 2:
        return Verdict("of one length no growth of times can be told")
    near, far = (select(records, length=n) for n in lengths[-2:])
    octaves = np.log(lengths[-1] / lengths[-2])
    exact, linear = (
        float(np.log(np.median([np.max(r[name]) for r in far]) / np.median([np.max(r[name]) for r in near])) / octaves)
        for name in ("exact_seconds", "linear_seconds")
    )
    return Verdict(
        "the time of linear attention grows as n",
        f"from n = {lengths[-2]} to {lengths[-1]} it grows as n^{linear:.2f}, exact attention's as n^{exact:.2f}",
        decided="Holds" if linear < 1.2 else "Holds in part" if linear < exact else "Does not hold",
    )


def _select_most(records: Sequence[Record], scale: float | None = None) -> list[Record]:
    """Return the records of one scale and the last projection."""
    scale = min(names(records, "scale")) if scale is None else scale
    return select(records, scale=scale, projection=names(records, "projection")[-1])


def draw_error_over_time(records: Sequence[Record], ax: Any) -> None:
    """Draw the error against CPU time, a curve over m for each estimator; the time of exact attention across."""
    set_logarithmic(ax, "CPU milliseconds", "error over uniform attention's")
    here = _select_most(records)
    for record in here:
        look = look_of(records, record["estimator"], "orthogonal")
        value, low, high = (np.asarray(record[f"over_uniform{end}"], np.float64) for end in ENDS)
        at = 1e3 * np.asarray(record["linear_seconds"])
        ax.plot(at, value, label=spell(record["estimator"]), **look)
        ax.vlines(at, low, high, color=look["color"], linewidth=1.0)
    exact = 1e3 * float(np.median([r["exact_seconds"] for r in here]))
    ax.axvline(exact, color="black", linestyle="--", linewidth=1.2, label="exact attention")
    draw_uniform(ax)


def draw_time_over_length(records: Sequence[Record], ax: Any) -> None:
    """Draw the cPU time against the length: exact attention, and the fewest features that reach the first target."""
    lengths = sorted(names(records, "length"))
    set_logarithmic(ax, "length n", "CPU milliseconds", lengths)
    ax.yaxis.minorticks_off()
    here = _select_most(records, names(records, "scale")[0])
    exact = [1e3 * np.median([r["exact_seconds"] for r in select(here, length=n)]) for n in lengths]
    ax.plot(lengths, exact, color="black", linestyle="--", linewidth=1.2, label="exact attention")
    for estimator, target in product(names(here, "estimator"), TARGETS):
        curve = sort_by(select(here, estimator=estimator), "length")
        look = look_of(records, estimator, "orthogonal" if target == TARGETS[0] else "iid")
        points = [
            (r["length"], 1e3 * r["linear_seconds"][i]) for r in curve if (i := place_reached(r, target)) is not None
        ]
        if points:
            ax.plot(*zip(*points, strict=True), **look)
    for estimator in names(here, "estimator"):
        look = look_of(records, estimator, "orthogonal") | {"linestyle": "none"}
        ax.plot([], [], label=spell(estimator), **look)
    for target, line in zip(TARGETS, ("-", (0, (3, 1.5))), strict=True):
        ax.plot([], [], color=GREY, linestyle=line, label=f"to {target:g} of uniform's error")


def draw_error_over_length(records: Sequence[Record], ax: Any) -> None:
    """Draw the error against the length, at the fewest and at the most features."""
    set_logarithmic(ax, "length n", "error over uniform attention's", sorted(names(records, "length")))
    ax.yaxis.minorticks_off()
    numbers = records[0]["m"]
    here = _select_most(records, names(records, "scale")[0])
    for estimator, place in product(names(here, "estimator"), (0, len(numbers) - 1)):
        look = look_of(records, estimator, "orthogonal" if place else "iid")
        mine, label = select(here, estimator=estimator), f"{spell(estimator)}, m = {numbers[place]}"
        draw_band(ax, mine, "length", "over_uniform", look, label, place=place)
    draw_uniform(ax)


TIME_TO_ERROR = Preset(
    title="CPU time to an error of attention",
    claim="Linear attention takes nearly linear time in the length L, and less than exact attention at large L "
    "(Choromanski et al. 2021, section 4.1 and figure 3); and the number of features for an error depends on the "
    "dimension and the norms of queries and keys, not on L (theorem 4, of trigonometric features). Figure 3 is about "
    "time at a fixed number of features. What one needs to know is the time to an error.",
    cost="quick 3, full 45 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.time_to_error:sweep",
    verdicts=verdicts,
    figures={
        "error_over_time": Figure(
            "Features are worth their while left of the dashed line and below the grey one",
            f"A point per number of features, smallest scale, one head of {DIM} dimensions, float32; medians",
            draw_error_over_time,
            by="length",
            shows=r"at scale (\S+): .* in less CPU time",
        ),
        "time_over_length": Figure(
            "Where the lines cross, features begin to be faster than exact attention",
            "CPU time of the fewest features whose median error is surely below the target; no point: no m reaches it",
            draw_time_over_length,
            by="scale",
            shows="the time of linear attention",
        ),
        "error_over_length": Figure(
            "Where lines are level, the features needed do not grow with the length",
            "Medians over redraws of the error of attention's outputs, with 95% intervals",
            draw_error_over_length,
            by="scale",
            shows="the features needed",
        ),
    },
    data=TOKENS_OF_ONES_OWN,
)
