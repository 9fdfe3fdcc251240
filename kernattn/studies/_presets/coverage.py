"""How often intervals of a Gaussian process hold the function, by features: among the rows, at their edge, outside."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import special
from kernattn._warmup import preparation
from kernattn.features import FeatureMap, hilbert, nystrom, random_features
from kernattn.kernels import Matern
from kernattn.studies._means import medians
from kernattn.studies._palette import BLUE, GREEN, GREY, ORANGE, VERMILION
from kernattn.studies._panels import draw_band
from kernattn.studies._presets.preset import Figure, Options, Preset
from kernattn.studies._presets.verdict import Tally, Verdict
from kernattn.studies._records import Record, names, select
from kernattn.studies._sweep import Cell, Sweep

if TYPE_CHECKING:
    from kernattn.solvers import GaussianProcess

KERNEL, DIM, NOISE = Matern(2.5, 0.8), 2, 0.1
NEW, FUNCTIONS, DRAWN = 100, 10, 400
REACH = 2.0  # of the coordinates of any row
PLACES = {"inside": (0.0, 0.9), "edge": (0.9, 1.1), "outside": (1.5, REACH)}
"""Where rows are asked, by the largest size of a coordinate; those that were learnt from have 1 at most."""
NEAR = 0.02


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
    }
    small = {"m": (64,), "level": (0.9,), "n": (200,)}

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        from kernattn import solvers  # loads SciPy: a table of studies does without

        x, new = rng.uniform(-1, 1, (cell["n"], DIM)), _new(cell["place"], rng)
        rows = np.concatenate([x, new])
        root = np.linalg.cholesky(KERNEL(rows) + 1e-9 * np.eye(len(rows)))
        functions = root @ rng.standard_normal((len(rows), FUNCTIONS))
        targets = functions[: len(x)] + NOISE * rng.standard_normal((len(x), FUNCTIONS))
        way = WAYS[cell["way"]]
        process = solvers.gp(solvers.moments(x, way.make(x, cell["m"], rng), y=targets), noise=NOISE, amplitude=1.0)
        low, high = _ends(process, new, cell["level"], way.drawn, rng)
        true = functions[len(x) :]
        return {"covered": np.mean((low <= true) & (true <= high)), "width": np.mean(high - low)}

    return Sweep(
        "coverage",
        options.choose_axes(full, small, {"way": WAYS, "place": PLACES}),
        trial,
        reduce=medians,
        paired=("way", "level"),
        stop=options.stop(30, 8),
        seed=options.seed,
        prepare=preparation(float64=("features",)),
    )


def _new(place: str, rng: np.random.Generator) -> Float64:
    """Return rows whose largest coordinate is of such a size."""
    rows = rng.uniform(-1, 1, (NEW, DIM))
    sizes = rng.uniform(*PLACES[place], (NEW, 1))
    return np.asarray(rows / np.max(np.abs(rows), axis=1, keepdims=True) * sizes)


def _ends(
    process: "GaussianProcess", new: Float64, level: float, drawn: bool, rng: np.random.Generator
) -> tuple[Float64, Float64]:
    """Return the ends of central intervals of that level (n, c): normal ones, or between quantiles of draws."""
    if drawn:
        values = process.draw(DRAWN, rng=rng)(new)
        low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=-1)
        return low, high
    mean, deviation = process.mean(new), np.sqrt(process.variance(new))
    half = special.ndtri((1 + level) / 2) * deviation
    return mean - half, mean + half


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge where intervals hold functions as often as they say, to two hundredths."""
    told = []
    for way in names(records, "way"):
        for place in names(records, "place"):
            found = select(records, way=way, place=place)
            known = [r for r in found if r["covered_low"] is not None]
            near = sum(abs(r["covered_low"] - r["level"]) < NEAR > abs(r["covered_high"] - r["level"]) for r in known)
            far = sum(r["covered_high"] < r["level"] - NEAR or r["covered_low"] > r["level"] + NEAR for r in known)
            said = ", ".join(f"{r['covered']:.1%} at {r['level']:.0%}, M = {r['m']}" for r in found)
            told.append(
                Verdict(
                    f"intervals hold the function as often as they say, {place}",
                    f"they hold it in {said}",
                    where=f"for {WAYS[way].label}",
                    tally=Tally(near, far, len(found) - near - far),
                )
            )
    return told


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
)
