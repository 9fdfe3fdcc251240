"""Performer's figure 2: where positive features beat trigonometric ones, over angle and length of the inputs."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.features import FeatureMap, Positive, random_features
from kernattn.kernels import Softmax
from kernattn.metrics._settled import where_settled
from kernattn.metrics._tilted import tilted_moment
from kernattn.projections import Iid
from kernattn.studies._palette import GREY, VERMILION, look_of
from kernattn.studies._presets.preset import Figure, Options, Preset
from kernattn.studies._presets.verdict import Verdict, judge_coverage, pair
from kernattn.studies._records import Record, names, with_ends
from kernattn.studies._sweep import Cell, Sweep

KERNEL = Softmax(scale=1.0)  # exp(x.y)
ANGLES = tuple(float(angle) for angle in range(0, 181, 15))  # degrees
LENGTHS = (0.5, 1.0, 1.5, 2.0)
AT = 120.0, 1.5  # where the verdict looks: SM = 0.32
PLACE = ANGLES.index(AT[0]), LENGTHS.index(AT[1])


def sweep(**asked: Any) -> Sweep:
    """Return the design: pairs x, y of one length under an angle, m = d features of each estimator."""
    options = Options(**asked)
    full = {"estimator": ("trigonometric", "positive"), "projection": ("iid", "orthogonal"), "d": (16, 64)}
    stop = options.stop(4000, 200, of="variance")

    @lru_cache(maxsize=1)
    def phi(cell: Cell) -> FeatureMap:
        return random_features(KERNEL, cell["d"], cell["d"], cell["estimator"], cell["projection"], rng=0)

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        x, y = _inputs(cell["d"])
        drawn = phi(cell).redraw(rng)
        estimate = np.einsum("alm,alm->al", drawn(x), drawn(y))
        exact = KERNEL.pairs(x, y)
        return {"variance": (estimate - exact) ** 2, "bias": estimate / exact - 1}

    def facts(cell: Cell) -> dict[str, Any]:
        x, y = _inputs(cell["d"])
        return {
            **_measure_tail(phi(cell), x[PLACE], y[PLACE]),
            "exact": KERNEL.pairs(x, y),
            "variance_predicted": phi(cell).variance(x, y),
            "bias_settled": where_settled(phi(cell), x, y, stop.draws),
            # the square of an exponential term is the term of inputs twice as long
            "variance_settled": where_settled(phi(cell), 2 * x, 2 * y, stop.draws),
        }

    return Sweep(
        "softmax-kernel",
        options.choose_axes(full, {"d": (16,)}),
        trial,
        facts,
        paired=("estimator", "projection"),
        along={"angle": ANGLES, "length": LENGTHS},
        stop=stop,
        version=2,
        seed=options.seed,
        prepare=preparation(float64=("features",)),
    )


def _measure_tail(phi: FeatureMap, x: Float64, y: Float64) -> dict[str, Any]:
    """Return the variance of independent positive features at one pair, by frequencies drawn where its tail is."""
    if not isinstance(phi, Positive) or phi.projection != Iid():
        return with_ends("variance_tilted", (None,) * 3)
    squares, exact = tilted_moment(phi, x, y, power=2, rng=0), KERNEL.pairs(x, y)
    return with_ends("variance_tilted", ((square - exact**2) / len(phi.omega) for square in squares))


def _inputs(d: int) -> tuple[Float64, Float64]:
    """Return pairs (A, L, d) in a plane that is no plane of coordinates."""
    frame = np.zeros((2, d))
    frame[0], frame[1] = d**-0.5, np.resize([1.0, -1.0], d) / np.sqrt(d)
    frame[1] -= (frame[1] @ frame[0]) * frame[0]
    frame[1] /= np.linalg.norm(frame[1])
    half = np.deg2rad(np.asarray(ANGLES))[:, None, None] / 2
    length = np.asarray(LENGTHS)[None, :, None]
    x = length * (np.cos(half) * frame[0] + np.sin(half) * frame[1])
    y = length * (np.cos(half) * frame[0] - np.sin(half) * frame[1])
    return x, y


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge whether the error of trigonometric features stays as SM -> 0, and that of positive ones vanishes."""
    pairs = pair(records, "estimator", "trigonometric", "positive", by=("d", "projection"))
    return [
        *(_judge(trig, positive) for trig, positive in pairs),
        judge_coverage(records, "variance", "variance_predicted", "points that redraws settle"),
    ]


def _judge(trig: Record, positive: Record) -> Verdict:
    i, j = PLACE
    curves = [np.asarray(each["variance_predicted"]) for each in (trig, positive)]
    ratio = curves[0] / np.maximum(curves[1], 1e-300)
    stays, vanishes = curves[0][-1, j] > curves[0][i, j] / 2, curves[1][-1, j] < curves[1][i, j] / 100
    return Verdict(
        "the error of trigonometric features stays as SM tends to 0, that of positive ones vanishes",
        f"at {AT[0]:g} degrees and length {AT[1]:g}, where SM is {trig['exact'][i][j]:.2g}, the variances are "
        f"{_variance_at(trig, i, j)} and {_variance_at(positive, i, j)}, between opposite inputs "
        f"{curves[0][-1, j]:.2g} and {curves[1][-1, j]:.2g}",
        f"positive features are better in {np.mean(ratio > 1):.0%} of the map, and worse where inputs point the "
        "same way",
        where=f"at d = m = {trig['d']}, {trig['projection']}",
        decided="Holds" if stays and vanishes and ratio[i, j] > 1 else "Does not hold",
    )


def _variance_at(record: Record, i: int, j: int) -> str:
    """Write the variance at one point: closed form and measurement."""
    seen = f"measured {record['variance'][i][j]:.2g}" if record["variance_settled"][i][j] else "unsettled"
    if record["variance_tilted"] is not None:
        seen += f"; {record['variance_tilted']:.2g} by tilted frequencies"
    return f"{record['variance_predicted'][i][j]:.2g} ({seen})"


def draw_variance(records: Sequence[Record], ax: Any, length: float = 1.5) -> None:
    """Draw the variance over the angle at one length: closed forms as lines, measurements as points."""
    j = LENGTHS.index(length)
    ax.set(yscale="log", xlabel="angle between x and y, degrees", ylabel="variance of the estimate", xticks=ANGLES[::2])
    for record in records:
        look = look_of(records, record["estimator"], record["projection"])
        seen = np.asarray(record["variance_settled"])[:, j]
        theory, points = (np.asarray(record[f"variance{end}"], float)[:, j] for end in ("_predicted", ""))
        known = theory > 1e-12 * np.max(theory)  # 0 has no place on a logarithmic axis
        ax.plot(ANGLES, np.where(known, theory, np.nan), **(look | {"marker": ""}))
        ax.plot(ANGLES, np.where(known & seen, points, np.nan), **(look | {"linestyle": "none"}))
        ax.plot([], [], label=f"{record['estimator']}, {record['projection']}", **look)
    square = np.asarray(records[0]["exact"])[:, j] ** 2
    ax.plot(ANGLES, square, color=GREY, linewidth=2.4, alpha=0.7, label="SM² (100 % error)")


def draw_ratio(records: Sequence[Record], ax: Any) -> None:
    """Draw the variance of trigonometric over that of positive features, against the angle, a line per length."""
    projection = names(records, "projection")[-1]
    mine = {r["estimator"]: r for r in records if r["projection"] == projection}
    if not {"trigonometric", "positive"} <= set(mine):
        return
    pair, seen, settled_here = (
        {name: np.asarray(mine[name][field], float) for name in ("trigonometric", "positive")}
        for field in ("variance_predicted", "variance", "variance_settled")
    )
    both = np.minimum(*settled_here.values()) > 0
    ax.set(
        yscale="log",
        xlabel="angle between x and y, degrees",
        ylabel=f"variance ratio, {projection}",
        xticks=ANGLES[::2],
    )
    for j, (length, marker) in enumerate(zip(LENGTHS, "osD^", strict=True)):
        shade = str(0.75 - 0.22 * j)
        look = {"color": shade, "linewidth": 1.4, "markersize": 4}
        inner = slice(1, -1)  # between equal inputs the one is exact, between opposite ones the other
        line, points = (each["trigonometric"][inner, j] / each["positive"][inner, j] for each in (pair, seen))
        ax.plot(ANGLES[inner], line, **look)
        ax.plot(
            ANGLES[inner], np.where(both[inner, j], points, np.nan), marker=marker, **(look | {"linestyle": "none"})
        )
        ax.plot([], [], marker=marker, label=f"length {length:g}", **look)
    ax.axhline(1.0, color=VERMILION, linewidth=1.0, label="above: positive features are better")


SOFTMAX_KERNEL = Preset(
    title="The softmax kernel by trigonometric and by positive features",
    claim="The error of trigonometric features stays large where the softmax kernel SM(x, y) = exp(x.y) tends to 0, "
    "that of positive features vanishes there (Choromanski et al. 2021, lemma 2 and figure 2).",
    cost="quick 3, full 32 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.softmax_kernel:sweep",
    verdicts=verdicts,
    formula=r"\operatorname{Var} \hat{k}_{\mathrm{trig}} = \frac{1}{m} e^{|x|^2 + |y|^2} (1 - e^{-|x - y|^2})^2, \quad "
    r"\operatorname{Var} \hat{k}_{\mathrm{pos}} = \frac{1}{m} (e^{|x + y|^2} - 1) e^{2 x \cdot y}",
    figures={
        **{
            f"variance_{length:g}": Figure(
                f"The variance of both estimators over the angle, inputs of length {length:g}",
                "Closed forms (lines), measurements (points) where redraws settle them",
                partial(draw_variance, length=length),
                by="d",
                shows="stays as SM tends to 0" if length == AT[1] else None,
            )
            for length in (0.5, 1.5)
        },
        "ratio": Figure(
            "Above the line, positive features have less variance than trigonometric ones",
            "Variance of trigonometric over that of positive features: closed forms (lines), measurements (points)",
            draw_ratio,
            by="d",
            shows="intervals hold the closed form",
        ),
    },
    made="pairs of rows of chosen lengths and angles",
)
