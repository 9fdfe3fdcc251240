"""How many frequencies make K' + lambda I a spectral approximation of K + lambda I: measured, and as proved."""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.features import random_features
from kernattn.kernels import Gaussian, usual_lengthscale
from kernattn.metrics import effective_dimension, median_and_ci, quantile_and_ci, spectral_delta
from kernattn.studies._images import real_rows
from kernattn.studies._palette import GREY, arrangement
from kernattn.studies._panels import draw_band, draw_interval, read_field, set_logarithmic, sort_by, write_numbers
from kernattn.studies._presets.preset import ROWS_OF_ONES_OWN, DrawRows, Figure, Options, Preset
from kernattn.studies._presets.verdict import (
    Ratio,
    Verdict,
    count_exponents,
    count_lower,
    fit_exponent,
    pair,
    two_digits,
)
from kernattn.studies._records import ENDS, Record, names, select, with_ends
from kernattn.studies._sweep import Cell, Sweep

SOURCES = ("normal", "digits")
LENGTHSCALES = {"normal": 2.0, "digits": 3.0}
SAMPLINGS = ("iid", "orthogonal", "leverage")
FAILURE = 0.1  # rho: one draw in ten may be worse
FEWEST = 36  # redraws that bound the 0.9 quantile with 95% confidence
TARGET = 0.5  # the largest Delta of which the theorem speaks


class _Problem(NamedTuple):
    """Rows, their kernel and Gram matrix, the ridge and the effective dimension."""

    x: Float64
    kernel: Gaussian
    gram: Float64
    ridge: float
    dimension: float


def sweep(**asked: Any) -> Sweep:
    """Return the design: rows that stay, m frequencies that are redrawn, a Gaussian kernel and a ridge n / n_lambda."""
    options = Options(**asked)
    full: dict[str, Any] = {
        "source": SOURCES,
        "n": (256,),
        "n_lambda": (8, 64, 512),
        "sampling": SAMPLINGS,
        "m": (4, 16, 64, 256, 1024, 4096),
    }
    small: dict[str, Any] = {"source": ("normal",), "n": (80,), "n_lambda": (8, 64), "m": (4, 32, 256, 1024)}
    known, draw_rows = options.choose_rows(SOURCES, _draw_rows, max(full["n"]))
    if options.data is not None:
        full["source"] = small["source"] = known
    chosen = options.choose_axes(full, small, {"source": known, "sampling": SAMPLINGS})
    problem = lru_cache(maxsize=1)(partial(_problem, draw_rows))

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        given = problem(cell["source"], cell["n"], cell["n_lambda"])
        return {"delta": spectral_delta(_estimate(given, cell["sampling"], cell["m"], rng), given.gram, given.ridge)}

    def facts(cell: Cell) -> dict[str, Any]:
        given = problem(cell["source"], cell["n"], cell["n_lambda"])
        norm = float(np.linalg.norm(given.gram, 2))
        leading = given.dimension if cell["sampling"] == "leverage" else float(cell["n_lambda"])
        needed = 8 / 3 * leading * np.log(16 * given.dimension / FAILURE)
        known = cell["sampling"] != "orthogonal" and norm >= given.ridge
        return {
            "where": f"{cell['source']} rows, n/λ {cell['n_lambda']}",
            "effective_dimension": given.dimension,
            "needed_bound": needed / TARGET**2 if known else None,
            "worst_bound": np.sqrt(needed / cell["m"]) if known else None,
        }

    return Sweep(
        "spectral",
        chosen,
        trial,
        facts,
        paired=("sampling", "m"),
        stop=options.stop(40, of="delta", least=FEWEST),
        seed=options.seed,
        reduce=_reduce,
        prepare=preparation(float64=("features", "kernel")),
    )


def _draw_rows(source: str, n: int, seed: int) -> Float64:
    """Return rows: 4 normal numbers each, or digits of 64 pixels."""
    return np.random.default_rng(seed).standard_normal((n, 4)) if source == "normal" else real_rows(source, n, seed)


def _problem(draw_rows: DrawRows, source: str, n: int, n_lambda: int) -> _Problem:
    """Return rows of the source, the same in every cell, with a lengthscale near the median of their distances."""
    x = draw_rows(source, n, 0)
    kernel = Gaussian(LENGTHSCALES[source] if source in LENGTHSCALES else usual_lengthscale(x))
    gram, ridge = kernel(x), n / n_lambda
    return _Problem(x, kernel, gram, ridge, effective_dimension(gram, ridge))


def _estimate(given: _Problem, sampling: str, m: int, rng: np.random.Generator) -> Float64:
    """Return K' of m frequencies."""
    if sampling == "leverage":
        phi = _by_leverage(given, m, rng)
    else:
        phi = random_features(given.kernel, given.x.shape[1], 2 * m, "trigonometric", sampling, rng=rng)(given.x)
    return np.asarray(phi @ phi.T)


def _by_leverage(given: _Problem, m: int, rng: np.random.Generator) -> Float64:
    """Return features (n, 2m) of frequencies drawn as density times leverage, by rejection, weighted to stay unbiased.

    The leverage of a frequency is z* (K + lambda I)^-1 z, with z_j = exp(i omega x_j) (Avron et al. 2017, definition
    3). It is at most n_lambda, and its mean is the effective dimension.
    """
    n, d = given.x.shape
    inverse = np.linalg.inv(given.gram + given.ridge * np.eye(n))
    kept: list[Float64] = []
    while sum(part.shape[1] for part in kept) < m:
        z = random_features(given.kernel, d, 2 * max(m, 64), "trigonometric", "iid", rng=rng)(given.x)
        z = np.reshape(z * np.sqrt(z.shape[1] / 2), (n, 2, -1))  # cosines and sines
        leverage = np.einsum("ncm,ncm->m", z, np.einsum("nk,kcm->ncm", inverse, z, optimize=True))
        taken = rng.random(len(leverage)) * n / given.ridge < leverage
        kept.append((z * np.sqrt(given.dimension / leverage))[..., taken].reshape(2 * n, -1))
    chosen = np.concatenate(kept, axis=1)[:, :m]
    return np.asarray(chosen.reshape(n, 2 * m) / np.sqrt(m))


def _reduce(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the median and the 0.9 quantile of Delta, with intervals of order statistics."""
    delta = draws["delta"]
    return with_ends("delta", median_and_ci(delta)) | with_ends("worst", quantile_and_ci(delta, 1 - FAILURE))


def features_needed(records: Sequence[Record], field: str = "worst") -> float | None:
    """Return the m at which a field falls to the target, between measurements in logarithms; None where it does not."""
    for before, after in pairwise(sort_by(records, "m")):
        if before[field] > TARGET >= after[field]:
            part = np.log(before[field] / TARGET) / np.log(before[field] / after[field])
            return float(before["m"] * (after["m"] / before["m"]) ** part)
    return None


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge whether the bound holds, how Delta falls, and what arrangement and leverage gain; say how loose it is."""
    judged = [_judge_bound(records)]
    alone = select(records, sampling="iid")
    if len(names(alone, "m")) > 1:
        judged.append(_judge_rate(alone))
    for source in names(alone, "source"):
        judged += _describe_numbers(source, select(alone, source=source))
    at = select(records, m=max(names(alone, "m"), default=0))
    for sampling, claim in (("leverage", "frequencies by leverage"), ("orthogonal", "orthogonal frequencies")):
        if pairs := pair(at, "sampling", sampling, "iid", by=("where",)):
            claim = f"{claim} err less than independent ones at m = {at[0]['m']}"
            gains = [theirs["delta"] / ours["delta"] for ours, theirs in pairs]
            ratio = Ratio("the median Δ of independent ones over theirs", gains)
            judged.append(Verdict(claim, tally=count_lower(pairs, "delta"), ratio=ratio))
    return judged


def _judge_bound(records: Sequence[Record]) -> Verdict:
    inside = [r for r in records if r["worst_bound"] is not None and r["worst_bound"] <= TARGET]
    if not inside:
        silent = "it asks for more frequencies than any m here has, so it says nothing about these draws"
        return Verdict("the bound holds", silent, decided="Open")
    broken = sum(r["worst_low"] > r["worst_bound"] for r in inside)
    return Verdict(
        "where the bound promises a Δ of at most 1/2 in nine draws of ten, the measured 0.9 quantile stays below it",
        f"the quantile surely exceeds the bound in {broken} of {len(inside)} cells",
        decided="Does not hold" if broken else "Holds",
        ratio=Ratio("the bound", [r["worst_bound"] / r["worst"] for r in inside], unit=" times the quantile"),
    )


def _judge_rate(alone: Sequence[Record]) -> Verdict:
    """Judge how the median of independent frequencies falls between the two largest m."""
    first, last = sorted(names(alone, "m"))[-2:]
    ends = [r for r in alone if r["m"] in (first, last)]
    slopes = [fit_exponent(select(ends, where=where), "delta", "m") for where in names(alone, "where")]
    ratio = Ratio(f"the exponent of its median between m = {first} and {last}", [each.value for each in slopes], ".2f")
    return Verdict("Δ falls as m^-1/2", tally=count_exponents(slopes, -0.5), ratio=ratio)


def _describe_numbers(source: str, alone: Sequence[Record]) -> list[Verdict]:
    """Say which m is needed, beside the bound."""
    parts = []
    for ratio in names(alone, "n_lambda"):
        here = select(alone, n_lambda=ratio)
        at, predicted = features_needed(here), here[0]["needed_bound"]
        if at is not None and predicted is not None:
            parts.append(
                f"{two_digits(at)} at n/λ = {ratio} (s_λ = {here[0]['effective_dimension']:.3g}), where the bound is "
                f"{two_digits(predicted / at)} times that"
            )
    where = f"Frequencies that bring Δ to at most 1/2 in nine draws of ten, {source} rows"
    return [Verdict("; ".join(parts), where=where)] if parts else []


LOOKS = {"iid": arrangement("iid"), "orthogonal": arrangement("orthogonal"), "leverage": arrangement("simplex")}
SPOKEN = {"iid": "independent", "orthogonal": "orthogonal", "leverage": "by leverage"}


def draw_delta(records: Sequence[Record], ax: Any) -> None:
    """Draw the 0.9 quantile of Delta against m, its interval as a band, and the bounds where they say something."""
    set_logarithmic(ax, "frequencies m", "Δ that one draw in ten exceeds", sorted(names(records, "m")))
    write_numbers(ax.yaxis)
    ax.set_title(records[0]["where"])
    for name in names(records, "sampling"):
        line = sort_by(select(records, sampling=name), "m")
        draw_band(ax, line, "m", "worst", LOOKS[name], SPOKEN[name])
        predicted = read_field(line, "worst_bound")
        _draw_bound(ax, [r["m"] for r in line], np.where(predicted <= 8, predicted, np.nan), name)
    ax.axhline(TARGET, color=GREY, linewidth=0.8)


def draw_numbers(records: Sequence[Record], ax: Any) -> None:
    """Draw the m that Delta = 1/2 takes against n / lambda, beside the bounds."""
    ratios = sorted(names(records, "n_lambda"))
    set_logarithmic(ax, "n / λ", "frequencies for Δ = 1/2", ratios)
    write_numbers(ax.yaxis)
    ax.set_title(f"{records[0]['source']} rows")
    for name in names(records, "sampling"):
        cells = [select(records, sampling=name, n_lambda=ratio) for ratio in ratios]
        interval = [np.array([features_needed(each, f"worst{end}") for each in cells], float) for end in ENDS]
        draw_interval(ax, ratios, interval, LOOKS[name], SPOKEN[name])
        _draw_bound(ax, ratios, read_field([each[0] for each in cells], "needed_bound"), name)


def _draw_bound(ax: Any, at: Sequence[float], level: Float64, name: str) -> None:
    if np.isfinite(level).any():
        ax.plot(at, level, color=LOOKS[name]["color"], linewidth=1.2, linestyle=":", label=f"bound, {SPOKEN[name]}")


SPECTRAL = Preset(
    title="Spectral approximation of a Gram matrix and its ridge",
    claim="m >= (8/3) Δ^-2 n_λ ln(16 s_λ / ρ) random Fourier features, n_λ = n/λ and s_λ the effective dimension, make "
    "K' + λI a Δ-spectral approximation of K + λI with probability 1 - ρ, for Δ up to 1/2 and |K| >= λ; of frequencies "
    "drawn by their ridge leverage, s_λ in place of n_λ is enough (Avron et al. 2017, theorem 7 and lemma 6). Here ρ "
    "is 0.1, and m counts frequencies, each with a cosine and a sine.",
    cost="quick 4, full 245 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.spectral:sweep",
    verdicts=verdicts,
    formula=r"(1 - \Delta) (K + \lambda I) \preceq K' + \lambda I \preceq (1 + \Delta) (K + \lambda I) "
    r"\quad \mathrm{by} \quad m \ge \frac{8}{3 \Delta^2} n_\lambda \log \frac{16 s_\lambda}{\rho}",
    figures={
        "delta": Figure(
            "Δ against the number of frequencies, and its bounds",
            "0.9 quantile over redraws, band: its 95% interval; dotted: the bounds, proved below the line at 1/2",
            draw_delta,
            by="where",
            shows="where the bound promises|Δ falls as",
        ),
        "needed": Figure(
            "Frequencies that bring Δ to 1/2, and those that the bounds ask for",
            "In nine draws of ten; interpolated on logarithmic axes, bands from 95% intervals; dotted: the bounds",
            draw_numbers,
            by="source",
            shows="^Frequencies that bring",
        ),
    },
    data=ROWS_OF_ONES_OWN,
)
