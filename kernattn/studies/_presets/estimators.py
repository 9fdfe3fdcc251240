"""Every estimator of the softmax and the Gaussian kernel, at as many features, on real and on made rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Float64
from kernattn._warmup import preparation
from kernattn.errors import NoClosedForm
from kernattn.features import FeatureMap, estimators, random_features
from kernattn.kernels import Gaussian, Kernel, Softmax
from kernattn.metrics import attention_mse, mean_and_ci, median_and_ci, settled
from kernattn.studies._palette import UNIFORM, look_of
from kernattn.studies._panels import banded, numbered
from kernattn.studies._presets.attention.tokens import DIM, SOURCES, shipped_tokens
from kernattn.studies._presets.preset import Figure, Preset, coverage, designed, judged, per_cent, word
from kernattn.studies._presets.signs import signed
from kernattn.studies._records import ENDS, Record, names, select, spoken, with_ends
from kernattn.studies._seeds import stream
from kernattn.studies._sweep import Cell, Stop, Sweep

__all__ = ["ESTIMATORS", "sweep"]

QUERIES, KEYS, VALUES = 64, 256, 8
AT = 1.0  # the temperature at which the order is told
ROUNDING = 1e-6  # of numbers in records


class Claim(NamedTuple):
    """That one estimator errs less than another one: of the kernel, or of attention's outputs alone."""

    low: str
    high: str
    of: str
    source: str


CLAIMS = (
    Claim("hyperbolic", "positive", "kernel", "Choromanski et al. 2021, lemma 2"),
    Claim("positive", "trigonometric", "attention", "Choromanski et al. 2021, figure 4"),
    Claim("trigonometric", "phase", "kernel", "Sutherland and Schneider 2015"),
    Claim("optimal_positive", "positive", "kernel", "Likhosherstov et al. 2022"),
    Claim("favor_sharp", "optimal_positive", "kernel", "Likhosherstov et al. 2023"),
    Claim("favor_sharp_asymmetric", "favor_sharp", "kernel", "Likhosherstov et al. 2023"),
)


def _normal(rng: np.random.Generator) -> tuple[Float64, Float64]:
    return rng.standard_normal((QUERIES, DIM)), rng.standard_normal((KEYS, DIM))


def _anisotropic(rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Queries and keys that vary along different axes, and keys that share a mean."""
    (q, k), sizes = _normal(rng), np.geomspace(2.0, 0.2, DIM)
    return q * sizes, k * sizes[::-1] + 0.5 * rng.standard_normal(DIM)


MADE: dict[str, Callable[[np.random.Generator], tuple[Float64, Float64]]] = {
    "normal": _normal,
    "anisotropic": _anisotropic,
}
KERNELS: dict[str, Callable[[float], Kernel]] = {  # of one temperature, they differ by a factor of each row
    "softmax": lambda temperature: Softmax(scale=DIM**-0.5 / temperature),
    "gaussian": lambda temperature: Gaussian(lengthscale=(DIM**0.5 * temperature) ** 0.5),
}


class Problem(NamedTuple):
    """Rows, the kernel at all pairs, and attention by it: out_i = sum_j k_ij v_j / sum_j k_ij."""

    q: Float64
    k: Float64
    v: Float64
    entries: Float64
    exact: Float64


def sweep(
    quick: bool = False, seed: int = 0, precision: float | None = None, axes: Mapping[str, Any] | None = None
) -> Sweep:
    """Return the design: one number of features for all, rows of four kinds, and the temperature of the weights."""
    served = estimators(Softmax())
    full = {
        "kernel": ("softmax", "gaussian"),
        "source": ("anisotropic", "china", "digits"),
        "temperature": (64.0, 16.0, 4.0, 2.0, 1.0, 0.5),
        "estimator": served,
        "projection": ("iid", "orthogonal"),
        "m": (64,),
    }
    small = {"source": ("anisotropic", "digits"), "temperature": (64.0, 1.0), "projection": ("iid",)}
    stop = Stop(12 if quick else 32, precision, of="over_uniform")
    allowed = {"kernel": KERNELS, "source": (*MADE, *SOURCES), "estimator": served}
    chosen = designed(full, small if quick else None, axes, allowed)

    @lru_cache(maxsize=32)
    def problem(name: str, source: str, temperature: float) -> Problem:
        q, k, v = _rows(source, seed)
        entries = np.asarray(KERNELS[name](temperature)(q, k))
        return Problem(q, k, v, entries, entries @ v / entries.sum(axis=1, keepdims=True))

    @lru_cache(maxsize=1)
    def phi(cell: Cell) -> FeatureMap:
        given = problem(cell["kernel"], cell["source"], cell["temperature"])
        kernel = KERNELS[cell["kernel"]](cell["temperature"])
        return random_features(
            kernel, DIM, cell["m"], cell["estimator"], cell["projection"], data=(given.q, given.k), rng=0
        )

    @lru_cache(maxsize=1)
    def predicted(cell: Cell) -> tuple[Float64 | None, NDArray[np.bool_]]:
        """Return the variance at all pairs, in closed form, and the pairs at which redraws see the squares."""
        given = problem(cell["kernel"], cell["source"], cell["temperature"])
        x, y = given.q[:, None], given.k[None]
        # the square of an exponential term is the term of rows twice as long
        seen = np.asarray(signed(phi(cell)) | settled(phi(cell), 2 * x, 2 * y, stop.draws))
        try:
            return np.asarray(phi(cell).variance(x, y)), seen
        except NoClosedForm:
            return None, seen

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        given = problem(cell["kernel"], cell["source"], cell["temperature"])
        drawn = phi(cell).redraw(rng)
        estimate = drawn.query(given.q) @ drawn.key(given.k).T
        squares = (estimate - given.entries) ** 2
        variance, seen = predicted(cell)
        found = {
            "error": np.mean(squares) / np.mean(given.entries**2),
            "attention": attention_mse(estimate @ given.v / estimate.sum(axis=1, keepdims=True), given.exact),
        }
        if variance is not None and (known := _told(variance, seen, given.entries)).any():
            found["ratio"] = np.mean(squares[known] / variance[known])
        return found

    def facts(cell: Cell) -> dict[str, Any]:
        given = problem(cell["kernel"], cell["source"], cell["temperature"])
        variance, seen = predicted(cell)
        spread = np.broadcast_to(given.v.mean(axis=0), given.exact.shape)
        found: dict[str, Any] = {
            "uniform": attention_mse(spread, given.exact),
            "error_settled": bool(seen.all()),
            "error_predicted": None,
            "typical": None,
            "pairs": seen.size,
            "ratio_pairs": 0,
            "ratio_predicted": 1.0,
        }
        if variance is None:
            return found
        return found | {
            "error_predicted": np.mean(variance) / np.mean(given.entries**2),
            # the geometric mean of what one feature's term has as its squared mean, over the kernel's square
            "typical": np.exp(np.mean(np.log1p(cell["m"] * variance / given.entries**2))),
            "ratio_pairs": int(_told(variance, seen, given.entries).sum()),
        }

    return Sweep(
        "estimators",
        chosen,
        trial,
        facts,
        paired=("kernel", "source", "temperature", "estimator", "projection", "m"),
        stop=stop,
        seed=seed,
        reduce=_reduced,
        prepare=preparation(float64=("features", "scales", "kernel")),
    )


def _rows(source: str, seed: int) -> tuple[Float64, Float64, Float64]:
    """Return queries, keys and values of DIM columns."""
    if source not in MADE:
        tokens = shipped_tokens(source, QUERIES, KEYS, seed)
        return tokens.q, tokens.k, tokens.v
    rng = np.random.default_rng(stream(seed, f"estimators/{source}"))
    return (*MADE[source](rng), rng.standard_normal((KEYS, VALUES)))


def _told(variance: Float64, seen: NDArray[np.bool_], entries: Float64) -> NDArray[np.bool_]:
    """Return the pairs at which a measured variance can be held against the closed one: some have none but rounding."""
    return np.asarray(seen & np.isfinite(variance) & (variance > 1e-9 * entries**2))


def _reduced(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Means of the kernel's error, medians of attention's: a ratio whose normaliser comes near 0 has no mean."""
    del cell
    error = mean_and_ci(draws["error"])
    return {
        **with_ends("error", error if facts["error_settled"] else (error.value, np.nan, np.nan)),
        **with_ends("ratio", mean_and_ci(draws["ratio"]) if "ratio" in draws else (np.nan,) * 3),
        **with_ends("attention", median_and_ci(draws["attention"])),
        **with_ends("over_uniform", median_and_ci(draws["attention"] / facts["uniform"])),
    }


def verdicts(records: Sequence[Record]) -> list[str]:
    """Say of each claimed order where it holds, by closed form and as attention measures it."""
    found = []
    for kernel, claim in product(names(records, "kernel"), CLAIMS):
        if pairs := _pairs(select(records, kernel=kernel), claim.low, claim.high):
            found.append(_ordered(claim, kernel, pairs))
    for kernel, source in product(names(records, "kernel"), names(records, "source")):
        if here := select(records, kernel=kernel, source=source, temperature=AT):
            found.append(_least(here))
    inside, total = coverage(records, "ratio", "ratio_predicted")
    found.append(
        f"At pairs that redraws settle, the 95% interval of measured over closed-form variance holds 1 in "
        f"{per_cent(inside, total)} cells."
    )
    return found


def _pairs(records: Sequence[Record], low: str, high: str) -> list[tuple[Record, Record]]:
    """Return the records of both estimators in each setting."""
    key = ("source", "temperature", "projection", "m")
    others = {tuple(r[axis] for axis in key): r for r in select(records, estimator=high)}
    mine = ((r, others.get(tuple(r[axis] for axis in key))) for r in select(records, estimator=low))
    return [(one, other) for one, other in mine if other is not None]


def _ordered(claim: Claim, kernel: str, pairs: Sequence[tuple[Record, Record]]) -> str:
    """Return the verdict on one claim: by closed form if it is about the kernel, and by attention in any case."""
    closed = [(a, b) for a, b in pairs if a["error_predicted"] is not None and b["error_predicted"] is not None]
    squares, typical = (
        [(a, b) for a, b in closed if a[field] <= (1 + ROUNDING) * b[field]] for field in ("error_predicted", "typical")
    )
    less = [(a, b) for a, b in pairs if a["over_uniform_high"] < b["over_uniform_low"]]
    more = [(a, b) for a, b in pairs if a["over_uniform_low"] > b["over_uniform_high"]]
    won, lost = len(less), len(more)
    if claim.of == "kernel":
        won += len(squares)
        lost += 2 * len(closed) - len(squares) - len(typical)
    begins = word(won, lost, 0)
    where = ", ".join(dict.fromkeys(f"{a['source']} at temperature {a['temperature']:g}" for a, b in more[:3]))
    theory = (
        f"By closed form the kernel's squared error is no larger in {len(squares)} of {len(closed)} settings, and the "
        f"typical second moment in {len(typical)}. "
    )
    called = kernel.replace("gaussian", "Gaussian")
    what = f"{spoken(claim.low)} features err no more than {spoken(claim.high)} ones"
    return (
        f"{judged(f'{begins} for the {called} kernel', what)} ({claim.source}). {theory if closed else ''}Measured, "
        f"the error of attention is surely smaller in {len(less)} of {len(pairs)} settings, surely larger in "
        f"{len(more)}{f' (as on {where})' if where else ''}, and open in {len(pairs) - len(less) - len(more)}."
    )


def _least(records: Sequence[Record]) -> str:
    """Name the least error of attention for one kernel and source, and what cannot be told from it."""
    least = min(records, key=lambda r: r["over_uniform"])
    ties = [r for r in records if r is not least and r["over_uniform_low"] <= least["over_uniform_high"]]
    below = [r for r in records if r["over_uniform_high"] < 1]
    return (
        f"{least['kernel'].capitalize()} kernel on {least['source']} at temperature {least['temperature']:g} and m = "
        f"{least['m']}: the least error of attention is that of {_name(least)}, {least['over_uniform']:.2g} times "
        f"uniform attention's ({least['over_uniform_low']:.2g} to {least['over_uniform_high']:.2g})"
        + (f", which cannot be told from {' or '.join(map(_name, ties[:3]))}" if ties else "")
        + (f" or {len(ties) - 3} others" if len(ties) > 3 else "")
        + f"; better than uniform attention: {len(below)} of {len(records)} maps."
    )


def _name(record: Record) -> str:
    return f"{spoken(record['estimator'])} ({record['projection']})"


def _lines(records: Sequence[Record], kernel: str) -> list[tuple[dict[str, Any], list[Record]]]:
    """Return look and records, by temperature, of every estimator with the first projection."""
    here = [r for r in records if r["kernel"] == kernel and r["projection"] == names(records, "projection")[0]]
    return [
        (look_of(records, name, "orthogonal"), sorted(select(here, estimator=name), key=lambda r: r["temperature"]))
        for name in names(here, "estimator")
    ]


def _along(ax: Any, records: Sequence[Record]) -> None:
    ax.set(xscale="log", xlabel="temperature")
    numbered(ax.xaxis, sorted(names(records, "temperature")))
    ax.yaxis.minorticks_off()


def kernel_error(records: Sequence[Record], ax: Any) -> None:
    """Squared error of the kernel over the temperature: closed forms as lines, settled measurements as points."""
    _along(ax, records)
    ax.set(yscale="log", ylabel="squared error over the kernel's square")
    for look, here in _lines(records, names(records, "kernel")[0]):
        at = [r["temperature"] for r in here]
        theory, seen, value = (
            np.asarray([r[field] for r in here], np.float64) for field in ("error_predicted", "error_settled", "error")
        )
        ax.plot(at, theory, **(look | {"marker": ""}))
        ax.plot(at, np.where(seen > 0, value, np.nan), **(look | {"linestyle": "none"}))
        ax.plot([], [], label=spoken(here[0]["estimator"]), **look)
    ax.axhline(1.0, label="error of estimating 0", **UNIFORM)


def attention_error(records: Sequence[Record], ax: Any) -> None:
    """Error of attention's outputs over that of uniform attention, over the temperature, with 95% intervals."""
    _along(ax, records)
    ax.set(yscale="log", ylabel="error over uniform attention's")
    for look, here in _lines(records, names(records, "kernel")[0]):
        at = [r["temperature"] for r in here]
        interval = [[r[f"over_uniform{end}"] for r in here] for end in ENDS]
        banded(ax, at, interval, look, spoken(here[0]["estimator"]))
    ax.axhline(1.0, label="uniform attention", **UNIFORM)


def rank(records: Sequence[Record], ax: Any) -> None:
    """Rank by the error of attention over the temperature."""
    _along(ax, records)
    lines = _lines(records, names(records, "kernel")[0])
    ax.set(ylabel="rank by the error of attention", yticks=range(1, len(lines) + 1))
    ax.set_ylim(len(lines) + 0.5, 0.5)
    errors = np.asarray([[r["over_uniform"] for r in here] for _, here in lines], np.float64)
    for (look, here), places in zip(lines, 1 + np.argsort(np.argsort(errors, axis=0), axis=0), strict=True):
        ax.plot([r["temperature"] for r in here], places, label=spoken(here[0]["estimator"]), **look)


ESTIMATORS = Preset(
    title="Every estimator at as many features",
    claim="Each newer map has the lower variance: positive features err less than trigonometric ones in attention, "
    "and hyperbolic ones less than positive ones (Choromanski et al. 2021), optimal positive ones less still "
    "(Likhosherstov et al. 2022), and dense-exponential ones shaped by the data least, with one map or with two "
    "(FAVOR#, Likhosherstov et al. 2023). Of trigonometric maps, pairs of cosine and sine are better than cosines of a "
    "random phase for the Gaussian kernel (Sutherland and Schneider 2015). The tilts of FAVOR# minimise the mean "
    "logarithm of a term's second moment, which we call the typical second moment; few pairs carry the squared error.",
    cost="quick 6, full 40 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.estimators:sweep",
    verdicts=verdicts,
    formula=r"\frac{\sum_{i j} \operatorname{Var} \hat{k}(q_i, k_j)}{\sum_{i j} k(q_i, k_j)^2}",
    figures={
        "attention": Figure(
            "The error of attention over the temperature, by estimator",
            "Of the first kernel: medians over redraws of the error of attention's outputs, with 95% intervals",
            attention_error,
            by="source",
            shows=r"for the (\w+) kernel: .* err no more than",
        ),
        "kernel": Figure(
            "The error of the kernel over the temperature, by estimator",
            "Of the first kernel: closed forms (lines), measurements (points) where redraws settle every pair",
            kernel_error,
            by="source",
            shows="over closed-form variance",
        ),
        "rank": Figure(
            "Which estimator errs less than which, over the temperature",
            "Of the first kernel: rank by the median error of attention's outputs; neighbours may be ties",
            rank,
            by="source",
            shows=r"for the (\w+) kernel: .* err no more than",
        ),
    },
)
