"""How many frequencies make K' + lambda I a spectral approximation of K + lambda I: measured, and as proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.features import random_features
from kernattn.kernels import Gaussian
from kernattn.metrics import effective_dimension, median_and_ci, quantile_and_ci, spectral_delta
from kernattn.studies._images import real_rows
from kernattn.studies._palette import GREY, arrangement
from kernattn.studies._panels import banded, numbered
from kernattn.studies._presets.exponents import begins, exponent
from kernattn.studies._presets.preset import Figure, Preset, designed, judged, two_digits, word
from kernattn.studies._records import ENDS, Record, names, select, with_ends
from kernattn.studies._sweep import Cell, Stop, Sweep

SOURCES = ("normal", "digits")
SAMPLINGS = ("iid", "orthogonal", "leverage")
FAILURE = 0.1  # rho: one draw in ten may be worse
TARGET = 0.5  # the largest Delta of which the theorem speaks


class _Problem(NamedTuple):
    """Rows, their kernel and Gram matrix, the ridge and the effective dimension."""

    x: Float64
    kernel: Gaussian
    gram: Float64
    ridge: float
    dimension: float


def sweep(
    quick: bool = False, seed: int = 0, precision: float | None = None, axes: Mapping[str, Any] | None = None
) -> Sweep:
    """Return the design: rows that stay, m frequencies that are redrawn, a Gaussian kernel and a ridge n / n_lambda."""
    full = {
        "source": SOURCES,
        "n": (256,),
        "n_lambda": (8, 64, 512),
        "sampling": SAMPLINGS,
        "m": (4, 16, 64, 256, 1024, 4096),
    }
    small = {"source": ("normal",), "n": (80,), "n_lambda": (8, 64), "m": (4, 32, 256, 1024)}

    problem = lru_cache(maxsize=1)(_problem)

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

    chosen = designed(full, small if quick else None, axes, {"source": SOURCES, "sampling": SAMPLINGS})
    stop = Stop(40, precision, of="delta")
    return Sweep(
        "spectral",
        chosen,
        trial,
        facts,
        paired=("sampling", "m"),
        stop=stop,
        seed=seed,
        reduce=_quantiles,
        prepare=preparation(float64=("features", "kernel")),
    )


def _problem(source: str, n: int, n_lambda: int) -> _Problem:
    """Return rows of the source, the same in every cell: 4 normal numbers each, or digits of 64 pixels."""
    x = np.random.default_rng(0).standard_normal((n, 4)) if source == "normal" else real_rows(source, n, 0)
    kernel = Gaussian(lengthscale=2.0 if source == "normal" else 3.0)
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


def _quantiles(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Median and 0.9 quantile of Delta, with intervals of order statistics."""
    del cell, facts
    worst = quantile_and_ci(draws["delta"], 1 - FAILURE)
    return with_ends("delta", median_and_ci(draws["delta"])) | with_ends("worst", worst)


def needed(records: Sequence[Record], field: str = "worst") -> float | None:
    """Return the m at which a field falls to the target, between measurements in logarithms; None where it does not."""
    found = sorted(records, key=lambda r: r["m"])
    for before, after in pairwise(found):
        if before[field] > TARGET >= after[field]:
            part = np.log(before[field] / TARGET) / np.log(before[field] / after[field])
            return float(before["m"] * (after["m"] / before["m"]) ** part)
    return None


def verdicts(records: Sequence[Record]) -> list[str]:
    """Say whether the bound holds and how loose it is, how Delta falls, and what arrangement and leverage gain."""
    found = [_bound(records)]
    alone = select(records, sampling="iid")
    if len(names(alone, "m")) > 1:
        found.append(_rate(alone))
    for source in names(alone, "source"):
        found += _numbers(source, select(alone, source=source))
    for sampling, claim in (
        ("leverage", "frequencies by leverage"),
        ("orthogonal", "orthogonal frequencies"),
    ):
        mine = select(records, sampling=sampling)
        if mine and alone:
            found.append(_against(claim, mine, alone))
    return found


def _bound(records: Sequence[Record]) -> str:
    inside = [r for r in records if r["worst_bound"] is not None and r["worst_bound"] <= TARGET]
    if not inside:
        return "Open: the bound asks for more frequencies than any m here has, so it says nothing about these draws."
    broken = [r for r in inside if r["worst_low"] > r["worst_bound"]]
    slack = [r["worst_bound"] / r["worst"] for r in inside]
    return (
        f"{'Does not hold' if broken else 'Holds'}: where the bound promises a Δ of at most 1/2 in nine draws of "
        f"ten, the measured 0.9 quantile exceeds the bound in {len(broken)} of {len(inside)} cells; the bound is "
        f"{min(slack):.2g} to {max(slack):.2g} times the quantile."
    )


def _rate(alone: Sequence[Record]) -> str:
    """How the median of independent frequencies falls between the two largest m."""
    first, last = sorted(names(alone, "m"))[-2:]
    found = [
        exponent([r for r in select(alone, where=where) if r["m"] in (first, last)], "delta", "m")
        for where in names(alone, "where")
    ]
    claim, against, undecided = begins(found, -0.5)
    return (
        f"{judged(claim, 'Δ falls as m^-1/2')}. Between m = {first} and {last} its median falls as m^"
        f"{min(found).value:.2f} to m^{max(found).value:.2f}; the exponent is surely another in {against} of "
        f"{len(found)} settings, and too uncertain to tell in {undecided}."
    )


def _numbers(source: str, alone: Sequence[Record]) -> list[str]:
    """The m that is needed beside the bound."""
    told = []
    for ratio in names(alone, "n_lambda"):
        here = select(alone, n_lambda=ratio)
        at, predicted = needed(here), here[0]["needed_bound"]
        if at is not None and predicted is not None:
            dimension = here[0]["effective_dimension"]
            told.append(
                f"{two_digits(at)} at n/λ = {ratio} (s_λ = {dimension:.3g}), where the bound is "
                f"{two_digits(predicted / at)} times that"
            )
    if not told:
        return []
    return [f"Frequencies that bring Δ to at most 1/2 in nine draws of ten, {source} rows: {'; '.join(told)}."]


def _against(claim: str, mine: Sequence[Record], alone: Sequence[Record]) -> str:
    """One way of drawing against independent frequencies, at the largest m of each setting."""
    counts, gains, most = [0, 0, 0], [], max(names(alone, "m"))
    for where in names(mine, "where"):
        each, other = (select(found, where=where) for found in (mine, alone))
        ours, theirs = (select(found, m=most)[0] for found in (each, other))
        gains.append(theirs["delta"] / ours["delta"])
        counts[0] += ours["delta_high"] < theirs["delta_low"]
        counts[1] += ours["delta_low"] > theirs["delta_high"]
        counts[2] += 1
    better, worse, total = counts
    return (
        f"{judged(word(better, worse, total - better - worse), f'{claim} err less than independent ones')}. At m = "
        f"{most} their median Δ is surely smaller in {better} of {total} settings, surely larger in {worse}, and open "
        f"in {total - better - worse}; that of independent ones is {min(gains):.2g} to {max(gains):.2g} times as large."
    )


LOOKS = {"iid": arrangement("iid"), "orthogonal": arrangement("orthogonal"), "leverage": arrangement("simplex")}
SPOKEN = {"iid": "independent", "orthogonal": "orthogonal", "leverage": "by leverage"}


def delta(records: Sequence[Record], ax: Any) -> None:
    """The 0.9 quantile of Delta against m, its interval as a band, and the bounds where they say something."""
    _logarithmic(ax, sorted(names(records, "m")))
    ax.set(xlabel="frequencies m", ylabel="Δ that one draw in ten exceeds", title=records[0]["where"])
    for name in names(records, "sampling"):
        found = sorted(select(records, sampling=name), key=lambda r: r["m"])
        look = LOOKS[name]
        m = [r["m"] for r in found]
        banded(ax, m, [[r[f"worst{end}"] for r in found] for end in ENDS], look, SPOKEN[name])
        predicted = np.array([r["worst_bound"] for r in found], float)
        if np.isfinite(predicted).any():
            bound = {"color": look["color"], "linewidth": 1.2, "linestyle": ":"}
            ax.plot(m, np.where(predicted <= 8, predicted, np.nan), label=f"bound, {SPOKEN[name]}", **bound)
    ax.axhline(TARGET, color=GREY, linewidth=0.8)


def numbers(records: Sequence[Record], ax: Any) -> None:
    """The m that Delta = 1/2 takes against n / lambda, beside the bounds."""
    ratios = sorted(names(records, "n_lambda"))
    _logarithmic(ax, ratios)
    ax.set(xlabel="n / λ", ylabel="frequencies for Δ = 1/2", title=f"{records[0]['source']} rows")
    for name in names(records, "sampling"):
        look, cells = LOOKS[name], [select(records, sampling=name, n_lambda=ratio) for ratio in ratios]
        interval = [np.array([needed(each, f"worst{end}") for each in cells], float) for end in ENDS]
        banded(ax, ratios, interval, look, SPOKEN[name])
        predicted = np.array([each[0]["needed_bound"] for each in cells], float)
        if np.isfinite(predicted).any():
            bound = {"color": look["color"], "linewidth": 1.2, "linestyle": ":"}
            ax.plot(ratios, predicted, label=f"bound, {SPOKEN[name]}", **bound)


def _logarithmic(ax: Any, ticks: Sequence[float]) -> None:
    ax.set(xscale="log", yscale="log")
    numbered(ax.xaxis, ticks)
    numbered(ax.yaxis)


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
            delta,
            by="where",
            shows="exceeds the bound|Δ falls as",
        ),
        "needed": Figure(
            "Frequencies that bring Δ to 1/2, and those that the bounds ask for",
            "In nine draws of ten; interpolated on logarithmic axes, bands from 95% intervals; dotted: the bounds",
            numbers,
            by="source",
            shows="^Frequencies that bring",
        ),
    },
)
