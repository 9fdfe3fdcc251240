"""How often intervals of a Gaussian process hold the function, by features: among the rows, at their edge, outside.

Of tables of real data it is the targets that they hold, new rows of the same table.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import special
from kernattn._warmup import preparation
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, hilbert, nystrom, random_features
from kernattn.kernels import Matern, usual_lengthscale
from kernattn.studies._means import FEWEST_OF_MEDIANS, medians
from kernattn.studies._palette import BLUE, GREEN, GREY, ORANGE, VERMILION
from kernattn.studies._panels import draw_band
from kernattn.studies._presets.preset import Figure, Options, Preset
from kernattn.studies._presets.verdict import Tally, Verdict
from kernattn.studies._records import Record, names, select
from kernattn.studies._sweep import Cell, Sweep
from kernattn.studies._tables import diamonds, flights

if TYPE_CHECKING:
    from kernattn.solvers import GaussianProcess

KERNEL, DIM, NOISE = Matern(2.5, 0.8), 2, 0.1
NEW, FUNCTIONS = 100, 10
DRAWN, FEW = 400, 100  # functions between whose quantiles intervals lie, the latter in the quick form
REACH = 2.0  # of the coordinates of any row
PLACES = {"inside": (0.0, 0.9), "edge": (0.9, 1.1), "outside": (1.5, REACH)}
"""Where rows are asked, by the largest size of a coordinate; those that were learnt from have 1 at most."""
NEAR = 0.02
TABLES = {"flights": flights, "diamonds": diamonds}
SCALES = {
    "evidence": "the evidence",
    "left-out": "rows left out one by one",
    "held-out": "rows held out",
    "refitted": "rows held out, learnt from afterwards",
}
"""What makes the width of intervals of a table."""
JUDGED, HELD = 2000, 0.3  # new rows of a table, and the part of the others by which widths are scaled


class Way(NamedTuple):
    """A map of the kernel, whether functions are drawn, and how a figure shows it."""

    make: Callable[[Float64, int, np.random.Generator], FeatureMap]
    drawn: bool
    label: str
    look: dict[str, Any]


def _landmarks(x: Float64, m: int, rng: np.random.Generator) -> FeatureMap:
    return nystrom(x, KERNEL, m, method="kmeans", rng=rng)


def _random(x: Float64, m: int, rng: np.random.Generator) -> FeatureMap:
    return random_features(KERNEL, DIM, m, "trigonometric", rng=rng)


def _hilbert(x: Float64, m: int, rng: np.random.Generator) -> FeatureMap:
    return hilbert(KERNEL, [[-REACH, REACH]] * DIM, m, boundary=1.5)


WAYS = {
    "random": Way(_random, False, "random features", {"color": VERMILION, "marker": "o"}),
    "landmarks": Way(_landmarks, False, "landmarks", {"color": BLUE, "marker": "s"}),
    "hilbert": Way(_hilbert, False, "Hilbert basis", {"color": GREEN, "marker": "^"}),
    "draws": Way(_landmarks, True, "draws on landmarks", {"color": ORANGE, "marker": "D"}),
}


def sweep(**asked: Any) -> Sweep:
    """Return the design: functions of the kernel itself, and the part of them that intervals hold at new rows."""
    options = Options(**asked)
    full = {
        "way": tuple(WAYS),
        "place": tuple(PLACES),
        "m": (64, 256),
        "level": (0.5, 0.9, 0.95),
        "n": (500,),
        "data": ("functions",),
        "scale": ("evidence",),
    }
    small = {"m": (64,), "level": (0.9,), "n": (200,)}

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        from kernattn import solvers  # loads SciPy: a table of studies does without

        if cell["data"] != "functions":
            return _on_a_table(cell, rng)
        x, new = rng.uniform(-1, 1, (cell["n"], DIM)), _new(cell["place"], rng)
        rows = np.concatenate([x, new])
        root = np.linalg.cholesky(KERNEL(rows) + 1e-9 * np.eye(len(rows)))
        functions = root @ rng.standard_normal((len(rows), FUNCTIONS))
        targets = functions[: len(x)] + NOISE * rng.standard_normal((len(x), FUNCTIONS))
        way = WAYS[cell["way"]]
        process = solvers.gp(solvers.moments(x, way.make(x, cell["m"], rng), y=targets), noise=NOISE, amplitude=1.0)
        drawn = (FEW if options.quick else DRAWN) if way.drawn else 0
        low, high = _ends(process, new, cell["level"], drawn, rng)
        true = functions[len(x) :]
        return {"covered": np.mean((low <= true) & (true <= high)), "width": np.mean(high - low)}

    axes = options.choose_axes(
        full, small, {"way": WAYS, "place": PLACES, "data": ("functions", *TABLES), "scale": SCALES}
    )
    tables = set(axes["data"]) - {"functions"}
    if tables and not (set(axes["place"]) == {"inside"} and set(axes["way"]) <= {"random", "landmarks"}):
        raise ParameterError(
            f"of a table ({', '.join(sorted(tables))}), place must be 'inside', and way 'random' or 'landmarks'; got "
            f"place {', '.join(axes['place'])} and way {', '.join(axes['way'])}"
        )
    return Sweep(
        "coverage",
        axes,
        trial,
        reduce=medians,
        paired=("way", "level"),
        stop=options.stop(30, 8, least=FEWEST_OF_MEDIANS),
        seed=options.seed,
        prepare=preparation(float64=("features",)),
    )


def _on_a_table(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
    """Return the part of new targets that intervals hold, whose noise, amplitude and lengthscale are the evidence's.

    Errors with heavy tails make normal intervals too wide; by rows held out, widths are what the level asks for there.
    What that costs are the root mean squared error and the nats, the negative log density of a new target.
    """
    from kernattn.solvers import calibrate

    level = cell["level"]
    rows = TABLES[cell["data"]]().split(cell["n"], JUDGED, rng=rng)
    learnt = cell["n"] - int(HELD * cell["n"]) * (cell["scale"] in ("held-out", "refitted"))
    z, scale = special.ndtri((1 + level) / 2), 1.0
    process = _learn(rows.x[:learnt], rows.y[:learnt], cell, rng)
    if learnt < cell["n"]:
        errors, deviations = _judge(process, rows.x[learnt:], rows.y[learnt:])
        scale = float(np.quantile(np.abs(errors) / (z * deviations), level))
    if cell["scale"] == "refitted":
        process = _learn(rows.x, rows.y, cell, rng)
    elif cell["scale"] == "left-out":
        process = calibrate(process, x=rows.x, y=rows.y, coverage=level)
    errors, deviations = _judge(process, rows.new_x, rows.new_y)
    deviations = scale * deviations
    return {
        "covered": np.mean(np.abs(errors) < z * deviations),
        "width": 2 * z * np.mean(deviations),
        "error": np.sqrt(np.mean(errors**2)),
        "nats": np.mean(0.5 * (errors / deviations) ** 2 + np.log(deviations) + 0.5 * np.log(2 * np.pi)),
    }


def _learn(x: Float64, y: Float64, cell: Cell, rng: np.random.Generator) -> "GaussianProcess":
    """Return the process of rows, whose lengthscale, noise and amplitude have the largest evidence."""
    from kernattn import solvers

    kernel = Matern(2.5, usual_lengthscale(x))
    if cell["way"] == "random":
        phi: FeatureMap = random_features(kernel, x.shape[1], cell["m"], "trigonometric", rng=rng)
    else:
        phi = nystrom(x, kernel, cell["m"], method="kmeans", rng=rng)
    return solvers.gp(solvers.moments(x, solvers.tune(x, y, phi).phi, y=y))


def _judge(process: "GaussianProcess", x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """Return errors of new targets, and the deviations that the process says they have."""
    deviations: Float64 = np.sqrt(process.variance(x) + process.noise**2)
    return process.mean(x) - y, deviations


def _new(place: str, rng: np.random.Generator) -> Float64:
    """Return rows whose largest coordinate is of such a size."""
    rows = rng.uniform(-1, 1, (NEW, DIM))
    sizes = rng.uniform(*PLACES[place], (NEW, 1))
    return np.asarray(rows / np.max(np.abs(rows), axis=1, keepdims=True) * sizes)


def _ends(
    process: "GaussianProcess", new: Float64, level: float, drawn: int, rng: np.random.Generator
) -> tuple[Float64, Float64]:
    """Return the ends of central intervals of that level (n, c): normal ones, or between quantiles of so many draws."""
    if drawn:
        values = process.draw(drawn, rng=rng)(new)
        low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=-1)
        return low, high
    mean, deviation = process.mean(new), np.sqrt(process.variance(new))
    half = special.ndtri((1 + level) / 2) * deviation
    return mean - half, mean + half


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge where intervals hold functions as often as they say, to two hundredths."""
    judged = []
    for way, place, data in product(*(names(records, axis) for axis in ("way", "place", "data"))):
        what = "the function" if data == "functions" else f"new targets of {data}"
        mine = select(records, way=way, place=place, data=data)
        known = [r for r in mine if r["covered_low"] is not None]
        near = sum(abs(r["covered_low"] - r["level"]) < NEAR > abs(r["covered_high"] - r["level"]) for r in known)
        far = sum(r["covered_high"] < r["level"] - NEAR or r["covered_low"] > r["level"] + NEAR for r in known)
        said = ", ".join(
            f"{r['covered']:.1%} at {r['level']:.0%}, M = {r['m']}"
            + f", widths by {SCALES[r['scale']]}" * (data in TABLES)
            for r in mine
        )
        judged.append(
            Verdict(
                f"intervals hold {what} as often as they say, {place}",
                f"they hold it in {said}",
                where=f"for {WAYS[way].label}",
                tally=Tally(near, far, len(mine) - near - far),
            )
        )
    return judged


def draw_covered(records: Sequence[Record], ax: Any) -> None:
    """Draw how often intervals hold the function over their level, of the fewest features; dotted: as often as said."""
    here = select(records, m=min(names(records, "m")))
    levels = sorted(names(here, "level"))
    for way in names(here, "way"):
        look = {"markersize": 4.0, "linewidth": 1.4, **WAYS[way].look}
        draw_band(ax, select(here, way=way), "level", "covered", look, WAYS[way].label)
    ax.plot([0.4, 1.0], [0.4, 1.0], color=GREY, linewidth=1.0, linestyle=":")
    ax.set(xlabel="level of the interval", ylabel="part of functions that it holds", ylim=(0, 1), xticks=levels[:2])


COVERAGE = Preset(
    title="How often intervals of a Gaussian process hold the function",
    claim="The variance of random features is that of M directions, which rows narrow down everywhere: intervals hold "
    "the function less often than they say (variance starvation, Wang et al. 2018). Landmarks that add what they lack "
    "of the kernel, bases whose error is small on the whole domain, and functions that are drawn by Matheron's rule "
    "(Wilson et al. 2020) do not have that defect.",
    cost="quick 8, full 300 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.coverage:sweep",
    verdicts=verdicts,
    figures={
        "covered": Figure(
            "How often intervals hold the function, over their level",
            "Rows in [-1, 1]^2, Matern 5/2 of lengthscale 0.8, fewest features; medians over redraws, 95% intervals",
            draw_covered,
            by="place",
            shows="as often as they say, inside",
        )
    },
    made="functions that are drawn over a square",
)
