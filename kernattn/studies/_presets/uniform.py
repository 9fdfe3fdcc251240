"""The largest error over a compact set, and over an attention matrix: how it falls with m and grows with d."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import optimize
from kernattn._warmup import preparation
from kernattn.errors import ParameterError
from kernattn.features import random_features
from kernattn.kernels import Softmax
from kernattn.metrics import median_and_ci
from kernattn.projections import resolve
from kernattn.studies._means import FEWEST_OF_MEDIANS
from kernattn.studies._palette import look_of
from kernattn.studies._panels import draw_band, set_logarithmic, sort_by, write_numbers
from kernattn.studies._presets.preset import Figure, Options, Preset
from kernattn.studies._presets.verdict import Ratio, Verdict, count_exponents, count_lower, fit_exponent, pair
from kernattn.studies._records import Record, group, names, select, with_ends
from kernattn.studies._sweep import Cell, Sweep

WHERE = ("ball", "attention")
KNOWN = ("trigonometric", "positive")
DIAMETER = 4.0  # of the compact set, in lengthscales
TOKENS = 256
RADIUS = 1.0  # of queries and keys, times d^(1/4)
STARTS, CLIMBERS, STEPS = 512, 16, 8


def sweep(**asked: Any) -> Sweep:
    """Return the design: the Gaussian kernel over a ball, or exp(q.k / sqrt(d)) over all pairs of tokens."""
    options = Options(**asked)
    full = {
        "over": WHERE,
        "estimator": KNOWN,
        "projection": ("iid", "orthogonal"),
        "d": (2, 4, 8, 16, 32),
        "m": (64, 256, 1024, 4096),
    }
    small = {"d": (2, 8), "m": (64, 256, 1024)}

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        return {"largest": (_over_ball if cell["over"] == "ball" else _over_tokens)(cell, rng)}

    def facts(cell: Cell) -> dict[str, Any]:
        proved = cell["over"] == "ball" and cell["projection"] == "iid"
        return {
            "bound": uniform_bound(cell["d"], cell["m"] // 2, refined=True) if proved else None,
            "bound_2007": uniform_bound(cell["d"], cell["m"] // 2, refined=False) if proved else None,
        }

    chosen = options.choose_axes(full, small, {"over": WHERE, "estimator": KNOWN})
    if odd := [m for m in chosen["m"] if m % 2]:
        raise ParameterError(f"m must be even, for trigonometric features come in pairs; got {odd[0]}")
    return Sweep(
        "uniform",
        chosen,
        trial,
        facts,
        keep=lambda cell: cell["over"] != "ball" or cell["estimator"] == "trigonometric",
        paired=("estimator", "projection", "m"),
        stop=options.stop(40, 16, of="largest", least=FEWEST_OF_MEDIANS),
        seed=options.seed,
        reduce=_reduce,
        prepare=preparation(float64=("features", "kernel")),
    )


SPOKEN = {"ball": "Gaussian kernel", "attention": "attention matrix"}


def _over_ball(cell: Cell, rng: np.random.Generator) -> float:
    """Return max ``|mean_l cos(omega_l t) - exp(-|t|^2 / 2)|`` over ``|t| <= DIAMETER``: all differences of the set."""
    return largest_error(resolve(cell["projection"]).draw(cell["m"] // 2, cell["d"], rng), rng)


def largest_error(omega: Float64, rng: np.random.Generator) -> float:
    """Climb from the best of many points in the ball of differences; what is found is below the supremum, if anything.

    At a peak of the error its second derivatives are near minus its height times I, for those of a Gaussian field with
    this kernel are: so the step is gradient over height.
    """
    d = omega.shape[1]
    t = rng.standard_normal((STARTS, d))
    t *= DIAMETER * rng.random((STARTS, 1)) ** (1 / d) / np.linalg.norm(t, axis=1, keepdims=True)
    best = t[np.argsort(-np.abs(_error(omega, t)[0]))[:CLIMBERS]]
    largest = 0.0
    for _ in range(STEPS):
        error, gradient = _error(omega, best)
        largest = max(largest, float(np.max(np.abs(error))))
        step = gradient / error[:, None]
        best = best + step / np.maximum(1, np.linalg.norm(step, axis=1, keepdims=True))
        best = best * np.minimum(1, DIAMETER / np.linalg.norm(best, axis=1, keepdims=True))
    return max(largest, float(np.max(np.abs(_error(omega, best)[0]))))


def _error(omega: Float64, t: Float64) -> tuple[Float64, Float64]:
    """Return the error at differences t (P, d), and its gradient."""
    u = t @ omega.T
    exact = np.exp(-np.sum(t**2, axis=1) / 2)
    gradient = exact[:, None] * t - np.sin(u) @ omega / len(omega)
    return np.asarray(np.mean(np.cos(u), axis=1) - exact), np.asarray(gradient)


def _over_tokens(cell: Cell, rng: np.random.Generator) -> float:
    """Return the largest error of exp(q.k / sqrt(d)) over all pairs of tokens on a sphere."""
    d = cell["d"]
    tokens = np.random.default_rng(d).standard_normal((2, TOKENS, d))
    q, k = RADIUS * d**0.25 * tokens / np.linalg.norm(tokens, axis=-1, keepdims=True)
    kernel = Softmax()
    phi = random_features(kernel, d, cell["m"], cell["estimator"], cell["projection"], rng=rng)
    return float(np.max(np.abs(phi(q) @ phi(k).T - kernel(q, k))))


def uniform_bound(d: int, number: int, refined: bool) -> float:
    """Return the error that so many frequencies exceed at most every second time, over a set of DIAMETER.

    Rahimi and Recht (2007), claim 1, with sigma_p^2 = d and l the diameter: P is at most 2^8 (sigma_p l / e)^2
    exp(-D e^2 / (4 (d + 2))). Refined by Sutherland and Schneider (2015), proposition 1, for pairs of cosine and sine:
    beta_d (sigma_p l / e)^(2 d / (d + 2)) exp(-D e^2 / (4 (d + 2) alpha_e)), alpha_e = min(1, 1/2 + e / 3) for the
    Gaussian kernel, beta_d = ((d/2)^(-d/(d+2)) + (d/2)^(2/(d+2))) 2^((6d+2)/(d+2)). Errors above 2 are none.
    """
    half = d / 2

    def log_excess(log_error: float) -> float:
        error = np.exp(log_error)
        power, alpha, constant = 2.0, 1.0, 8 * np.log(2)
        if refined:
            power, alpha = 2 * d / (d + 2), min(1.0, 0.5 + error / 3)
            constant = np.log(half ** (-d / (d + 2)) + half ** (2 / (d + 2))) + (6 * d + 2) / (d + 2) * np.log(2)
        decay = number * error**2 / (4 * (d + 2) * alpha)
        return float(constant + power * np.log(d**0.5 * DIAMETER / error) - decay + np.log(2))

    return float(np.exp(optimize.brentq(log_excess, np.log(1e-9), np.log(1e6))))


def _reduce(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the median, with the interval of order statistics: a maximum over exponentials has long tails."""
    return with_ends("largest", median_and_ci(draws["largest"]))


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge whether the m-rate is right and the bounds hold; say how loose they are, and what attention matrices do."""
    ball = select(records, over="ball", projection="iid")
    judged = _judge_bound(ball) if ball else []
    for (over, estimator), mine in group(records, "over", "estimator").items():
        judged += _judge_rate(f"{SPOKEN[over]}, {estimator} features", select(mine, projection="iid"))
        if pairs := pair(mine, "projection", "orthogonal", "iid", by=("d", "m")):
            ratio = Ratio(
                "of largest errors, the ratio", [ours["largest"] / theirs["largest"] for ours, theirs in pairs]
            )
            less = f"a smaller largest error: {count_lower(pairs, 'largest', of='cells')}"
            where = f"Orthogonal frequencies against independent ones, {SPOKEN[over]}, {estimator} features"
            judged.append(Verdict(less, ratio=ratio, where=where))
    return judged


def _judge_bound(ball: Sequence[Record]) -> list[Verdict]:
    broken = [r for r in ball if r["largest_low"] > min(r["bound"], r["bound_2007"])]
    idle = [r for r in ball if r["bound"] >= 1]
    new, old = (Ratio(of, [r[field] / r["largest"] for r in ball], unit=" times the median") for field, of in BOUNDS)
    judged = [
        Verdict(
            "the median of the largest error found over a ball stays below its bound",
            f"it surely exceeds the bound in {len(broken)} of {len(ball)} cells",
            str(new),
            str(old),
            decided="Does not hold" if broken else "Holds",
        )
    ]
    if idle:
        where = ", ".join(f"at d = {d} up to m = {max(r['m'] for r in select(idle, d=d))}" for d in names(idle, "d"))
        judged.append(
            Verdict(
                f"in {len(idle)} of {len(ball)} cells the bound of 2015 is 1 or more, as large as the kernel itself, "
                f"and says nothing: {where}"
            )
        )
    most = [r for r in ball if r["m"] == max(names(ball, "m"))]
    if len(most) > 2:
        x, *y = (np.log([float(r[name]) for r in most]) for name in ("d", "largest", "bound"))
        error, bound = (np.polyfit(x, each, 1)[0] for each in y)
        at = f"At m = {most[0]['m']}"
        judged.append(Verdict(f"the largest error grows as d^{error:.2f}, the bound as d^{bound:.2f}", where=at))
    return judged


BOUNDS = (("bound", "the bound of 2015"), ("bound_2007", "that of 2007"))


def _judge_rate(what: str, alone: Sequence[Record]) -> list[Verdict]:
    """Judge whether the largest error falls as m^-1/2, by least squares at each d."""
    if len(names(alone, "m")) < 2:
        return []
    dims = names(alone, "d")
    slopes = [fit_exponent(select(alone, d=d), "largest", "m") for d in dims]
    tally = count_exponents(slopes, -0.5)._replace(of=f"dimensions d = {', '.join(map(str, dims))}")
    ratio = Ratio("the exponent", [each.value for each in slopes], ".2f")
    return [Verdict("the largest error falls as m^-1/2", where=f"for the {what}", tally=tally, ratio=ratio)]


def draw_over_m(records: Sequence[Record], ax: Any, over: str) -> None:
    """Draw the median of the largest error against m, its interval as a band, and the bounds."""
    records = select(records, over=over)
    if not records:
        return
    set_logarithmic(ax, "features m", "largest error", sorted(names(records, "m")))
    write_numbers(ax.yaxis)
    for (estimator, projection), curve in group(records, "estimator", "projection").items():
        draw_band(ax, curve, "m", "largest", look_of(records, estimator, projection), f"{estimator}, {projection}")
    proved = sort_by([r for r in records if r["bound"] is not None], "m")
    for name, line, label in (
        ("bound", ":", "bound, Sutherland and Schneider"),
        ("bound_2007", "-.", "bound, Rahimi and Recht"),
    ):
        if proved:
            at, level = [r["m"] for r in proved], [r[name] for r in proved]
            ax.plot(at, level, color="black", linestyle=line, linewidth=1.1, label=label)


UNIFORM_ERROR = Preset(
    title="Uniform convergence: the largest error",
    claim="Over a compact set of diameter l the largest error of D random Fourier frequencies exceeds ε with a "
    "probability of at most 2^8 (σ_p l / ε)^2 exp(-D ε^2 / (4(d + 2))) (Rahimi and Recht 2007, claim 1; constants of "
    "Sutherland and Schneider 2015, proposition 1), so that ε is of the order of (d log m / m)^1/2; and attention "
    "matrices of bounded queries and keys are approximated to ε by about d / ε^2 trigonometric features of orthogonal "
    "frequencies, up to logarithms and a factor of the norms (Choromanski et al. 2021, theorem 4).",
    cost="quick 4, full 70 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.uniform:sweep",
    verdicts=verdicts,
    formula=r"P(\max_{|t| \le l} |\hat{k}(t) - k(t)| > \epsilon) \le 2^8 (\frac{\sigma_p l}{\epsilon})^2 "
    r"e^{-D \epsilon^2 / (4 (d + 2))}",
    figures={
        "ball": Figure(
            "The largest error over a ball, and its bounds",
            "Gaussian kernel, inputs 4 lengthscales apart at most; median of the largest error found, band: its 95% "
            "interval",
            partial(draw_over_m, over="ball"),
            by="d",
            shows="found over a ball|for the Gaussian kernel, .* falls as",
        ),
        "attention": Figure(
            "The largest error over an attention matrix",
            "That of exp(q.k / d^1/2) over 256 queries and keys of norm d^1/4: median, band: its 95% interval",
            partial(draw_over_m, over="attention"),
            by="d",
            shows="for the attention matrix, .* falls as",
        ),
    },
    made="a ball, and tokens on a sphere, of chosen dimensions",
)
