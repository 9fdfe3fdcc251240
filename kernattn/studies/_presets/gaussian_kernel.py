"""How much the arrangement of frequencies gains: variance over that of independent ones, for d frequencies."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.errors import NoClosedForm
from kernattn.features import ESTIMATORS, FeatureMap, random_features
from kernattn.kernels import Gaussian
from kernattn.metrics._settled import where_settled
from kernattn.projections import DirectionalProjection, Orthogonal, Pair, Projection, resolve
from kernattn.studies._palette import UNIFORM, arrangement
from kernattn.studies._panels import draw_bars, set_logarithmic
from kernattn.studies._presets.preset import Figure, Options, Preset
from kernattn.studies._presets.verdict import Estimate, Ratio, Verdict, judge_coverage
from kernattn.studies._records import ENDS, Record, names, select, spell
from kernattn.studies._sweep import Cell, Sweep

KERNEL = Gaussian()
SIZES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)  # |x - y| of trigonometric features, |x + y| of positive ones
AT = 1.0  # the size of which the verdict speaks
NEAR = 0.5  # the distance at which it looks at the formula for large d


@dataclass(frozen=True)
class RawQR(DirectionalProjection):
    """The frames that LAPACK's QR gives, transposed, as public code of Performers draws them: not Haar distributed.

    The signs of R's diagonal are left as they are, so a row is not uniform on the sphere: it leans to one side.
    """

    norms: str = "chi"

    def pairs(self, m: int, d: int) -> dict[Pair, int]:
        """Raise NoClosedForm: nothing is unbiased here."""
        raise NoClosedForm("directions of raw QR factors are not uniform")

    def _directions(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        blocks = generator.standard_normal((-(-m // d), d, d))
        return np.swapaxes(np.linalg.qr(blocks)[0], 1, 2).reshape(-1, d)[:m]


CONTROLS: dict[str, Projection] = {"coupled": Orthogonal(norms="coupled"), "raw_qr": RawQR()}


def sweep(**asked: Any) -> Sweep:
    """Return the design: one block of d frequencies, a pair of inputs along the diagonal for each size."""
    options = Options(**asked)
    full = {
        "estimator": ("trigonometric", "positive"),
        "projection": ("iid", "orthogonal", "coupled", "simplex", "hadamard", "sobol", "halton", "raw_qr"),
        "d": (4, 16, 64),
    }
    small = {"projection": ("iid", "orthogonal", "simplex", "hadamard", "raw_qr"), "d": (16,)}
    stop = options.stop(2000, 400, of="ratio")

    @lru_cache(maxsize=2)
    def phi(estimator: str, projection: str, d: int) -> FeatureMap:
        spec = CONTROLS[projection] if projection in CONTROLS else resolve(projection)
        return random_features(KERNEL, d, 2 * d if ESTIMATORS[estimator].paired else d, estimator, spec, rng=0)

    @lru_cache(maxsize=2)
    def exact(estimator: str, d: int) -> tuple[Float64, Float64]:
        """Return kernel and variance of independent frequencies, in closed form."""
        x, y = inputs(estimator, d)
        return KERNEL.pairs(x, y), phi(estimator, "iid", d).variance(x, y)

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        x, y = inputs(cell["estimator"], cell["d"])
        drawn = phi(cell["estimator"], cell["projection"], cell["d"]).redraw(rng)
        kernel, unit = exact(cell["estimator"], cell["d"])
        error = np.einsum("tm,tm->t", drawn(x), drawn(y)) - kernel
        return {"ratio": error**2 / unit, "bias": error / kernel}

    def facts(cell: Cell) -> dict[str, Any]:
        x, y = inputs(cell["estimator"], cell["d"])
        kernel, unit = exact(cell["estimator"], cell["d"])
        fields: dict[str, Any] = {"exact": kernel, "variance_iid": unit}
        try:
            predicted = phi(cell["estimator"], cell["projection"], cell["d"]).variance(x, y) / unit
            fields |= {"ratio_predicted": predicted, "bias_predicted": np.zeros(len(x))}
        except NoClosedForm:
            fields |= {"ratio_predicted": None, "bias_predicted": None}
        tails = phi(cell["estimator"], "iid", cell["d"])
        return fields | {
            "bias_settled": where_settled(tails, x, y, stop.draws),
            # the square of an exponential term is the term of inputs twice as long
            "ratio_settled": _is_bounded(cell["estimator"]) or where_settled(tails, 2 * x, 2 * y, stop.draws),
        }

    return Sweep(
        "gaussian-kernel",
        options.choose_axes(full, small),
        trial,
        facts,
        paired=("estimator", "projection"),
        along={"size": SIZES},
        stop=stop,
        seed=options.seed,
        prepare=preparation(float64=("features",)),
    )


def inputs(estimator: str, d: int) -> tuple[Float64, Float64]:
    """Return pairs (T, d): opposite for trigonometric features, equal for positive ones, which see x + y."""
    x = np.asarray(SIZES)[:, None] / 2 * np.full(d, d**-0.5)
    return x, -x if _is_bounded(estimator) else x


def _is_bounded(estimator: str) -> bool:
    """Whether the features are bounded, and see x - y; the others are exponentials, and see x + y."""
    return estimator in ("trigonometric", "phase")


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge where orthogonal frequencies gain, and the formula for large d; say what else gains, and raw QR's bias."""
    judged = []
    for d in names(records, "d"):
        judged += [told for each in select(records, d=d, **ORTHOGONAL) for told in _judge_gain(each)]
        least = [_name_least(select(records, d=d, estimator=estimator)) for estimator in names(records, "estimator")]
        judged.append(Verdict("; ".join(least), where=f"Least ratio at d = {d} and size {AT:g}"))
    if raw := select(records, projection="raw_qr"):
        judged.append(Verdict("raw QR takes no part in the least ratio: a biased estimate has a variance of no use"))
        judged += [told for each in raw if (told := _describe_bias(each))]
    return [*judged, judge_coverage(records, "ratio", "ratio_predicted", "settled points")]


ORTHOGONAL = {"estimator": "trigonometric", "projection": "orthogonal"}


def _judge_gain(record: Record) -> list[Verdict]:
    """Judge the gain of orthogonal frequencies at every distance, and the formula for large d at one."""
    d, curve = record["d"], record["ratio_predicted"]
    worse = [f"{size:g}" for size, value in zip(SIZES, curve, strict=True) if value > 1]
    near, formula = curve[SIZES.index(NEAR)], _asymptotic(NEAR, d)
    return [
        Verdict(
            "orthogonal frequencies have less variance than independent ones at every distance looked at",
            f"it is more than 1 at |x - y| = {', '.join(worse)}" if worse else "",
            where=f"at d = {d}",
            decided="Does not hold" if worse else "Holds",
            ratio=Ratio("the ratio of variances", curve, ".3g"),
        ),
        Verdict(
            "the formula for large d gives the ratio",
            f"at |x - y| = {NEAR:g} the ratio is {near:.2g}, the formula says {formula:.2g}, and its limit for "
            f"d -> infinity {_asymptotic(NEAR, np.inf):.2g}",
            where=f"at d = {d}",
            decided="Holds" if abs(near / formula - 1) < 0.2 else "Does not hold",
        ),
    ]


def _describe_bias(record: Record) -> Verdict | None:
    """Say where raw QR factors are biased, or that no bias is seen."""
    bias = [Estimate.of(record, "bias", place=i) for i in range(len(SIZES))]
    off = [i for i, each in enumerate(bias) if each.low > 0 or each.high < 0]
    what = f"{record['estimator']} features, d = {record['d']}"
    if not off:
        why = ": a cosine does not see the sign of a row" if _is_bounded(record["estimator"]) else ""
        return Verdict(f"raw QR factors show no bias for {what}{why}")
    if record["estimator"] != "positive":
        return None
    value, low, high, _ = bias[off[-1]]
    mean = Estimate(1 + value, 1 + low, 1 + high)
    return Verdict(
        f"raw QR factors are biased: {what}, |x + y| = {SIZES[off[-1]]:g}",
        ratio=Ratio("the mean estimate over the kernel", [mean], ".3f"),
    )


def _name_least(records: Sequence[Record]) -> str:
    """Name the least ratio: by its closed form, else by a measurement that redraws settle, with its interval."""
    estimator = spell(records[0]["estimator"])
    fair = [r for r in records if r["projection"] != "raw_qr"]
    known = {spell(r["projection"]): ratio for r in fair if (ratio := _ratio_at(r))}
    name = min(known, key=lambda projection: known[projection].value, default=None)
    if name is None:
        return f"unknown for {estimator} features"
    value, low, high, _ = known[name]
    how = "closed form" if low == high else f"measured, {low:.2g} to {high:.2g}"
    text = f"{name} for {estimator} features ({value:.2g}, {how})"
    ties = [other for other, each in known.items() if other != name and each.low <= high]
    unseen = [each for r in fair if (each := spell(r["projection"])) not in known]
    text += f", which cannot be told from {', '.join(ties)}" if ties else ""
    return text + (f", leaving out {', '.join(unseen)}, which redraws do not settle" if unseen else "")


def _ratio_at(record: Record) -> Estimate | None:
    """Return the ratio of size AT and its interval, which is a point where there is a closed form."""
    i = SIZES.index(AT)
    if record["ratio_predicted"] is not None:
        return Estimate(*(float(record["ratio_predicted"][i]),) * 3)
    ratio = Estimate.of(record, "ratio", place=i)
    return ratio if np.isfinite(ratio.low) else None


def _asymptotic(z: float, d: float) -> float:
    """Return the ratio for one block and large d: Yu et al. (2016), theorem 1."""
    return float(1 - (1 - 1 / d) * np.exp(-(z**2)) * z**4 / (1 - np.exp(-(z**2))) ** 2)


def draw_ratio(records: Sequence[Record], ax: Any, xlabel: str) -> None:
    """Draw the variance over that of independent frequencies: closed forms as lines, measurements as points."""
    yticks = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    set_logarithmic(ax, xlabel, "variance over iid", [0.25, 0.5, 1, 2, 3], yticks)
    for record in records:
        if record["projection"] == "iid":
            continue
        look = arrangement(record["projection"])
        shown = np.broadcast_to(record["ratio_settled"], len(SIZES))
        if record["ratio_predicted"] is not None:
            ax.plot(SIZES, record["ratio_predicted"], **(look | {"marker": ""}))
        points = np.where(shown, np.asarray(record["ratio"], float), np.nan)
        joined = {"linestyle": "none"} if record["ratio_predicted"] else {"linewidth": 0.7}
        ax.plot(SIZES, points, **(look | joined))
        ax.plot([], [], label=spell(record["projection"]), **look)
    ax.axhline(1.0, label="iid", **UNIFORM)


def draw_bias(records: Sequence[Record], ax: Any) -> None:
    """Draw the bias of positive features, with 95% intervals, where redraws settle it."""
    ax.set(xlabel="|x + y|", ylabel="relative bias")
    ax.axhline(0.0, color="#222222", linewidth=0.8)
    alike = [r for r in records if r["projection"] in ("orthogonal", "raw_qr")]
    for k, record in enumerate(alike):
        interval = np.asarray([record[f"bias{end}"] for end in ENDS], float)
        known = np.isfinite(interval[1])
        at = np.asarray(SIZES) * 1.03 ** (k - 0.5)
        name = record["projection"]
        draw_bars(ax, at[known], interval[:, known], arrangement(name), spell(name))


JOINED = "Thin lines (hadamard, raw qr and the like) join measurements"


GAUSSIAN_KERNEL = Preset(
    title="The Gaussian kernel under every arrangement of frequencies",
    claim="Orthogonal frequencies have a lower variance than independent ones, for large d by the factor "
    "1 - (d - 1)/d exp(-z^2) z^4 / (1 - exp(-z^2))^2 with z = |x - y| (Yu et al. 2016, theorem 1); simplices serve "
    "positive features better still (Reid et al. 2023), coupled norms (Reid et al. 2025) and low-discrepancy points "
    "(Yang et al. 2014) trigonometric ones.",
    cost="quick 5, full 80 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.gaussian_kernel:sweep",
    verdicts=verdicts,
    formula=r"\frac{\operatorname{Var} \hat{k}_{\mathrm{orthogonal}}}{\operatorname{Var} \hat{k}_{\mathrm{iid}}} "
    r"\approx 1 - \frac{d - 1}{d} \frac{e^{-z^2} z^4}{(1 - e^{-z^2})^2}, \quad z = |x - y|",
    figures={
        "ratio": Figure(
            "What an arrangement gains over independent frequencies, for trigonometric features",
            f"Inputs along the diagonal: closed forms (lines), measurements (points). {JOINED}",
            lambda records, ax: draw_ratio(select(records, estimator="trigonometric"), ax, "|x - y|"),
            by="d",
            shows="at every distance looked at",
        ),
        "ratio_positive": Figure(
            "What an arrangement gains over independent frequencies, for positive features",
            f"Closed forms (lines), measurements (points) where redraws settle them. {JOINED}",
            lambda records, ax: draw_ratio(select(records, estimator="positive"), ax, "|x + y|"),
            by="d",
        ),
        "bias": Figure(
            "The bias of positive features, by arrangement of the frequencies",
            "Mean estimate over the kernel, less 1, with 95% intervals where redraws settle them",
            lambda records, ax: draw_bias(select(records, estimator="positive"), ax),
            by="d",
            shows="positive features, d = .* mean estimate",
        ),
    },
    made="pairs of rows at chosen distances",
)
