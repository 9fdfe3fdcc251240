"""Nystrom landmarks against random features at equal m, on real rows, beside the best error that any rank m has."""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, nystrom, random_features
from kernattn.kernels import Gaussian
from kernattn.studies._images import REAL_ROWS, real_rows
from kernattn.studies._means import mean_interval
from kernattn.studies._palette import GREY, UNIFORM, arrangement, series
from kernattn.studies._panels import draw_band, read_field, set_plain, sort_by
from kernattn.studies._presets.preset import ROWS_OF_ONES_OWN, Figure, Options, Preset
from kernattn.studies._presets.verdict import Estimate, Ratio, Verdict, Word, count_below, count_lower, widen_together
from kernattn.studies._records import ENDS, Record, names, select, with_ends
from kernattn.studies._sweep import Cell, Sweep

ROWS, FEW_ROWS = 512, 256
LANDMARKS = ("uniform", "kmeans", "leverage", "rpcholesky", "greedy")
FEATURES = ("iid", "orthogonal")
MAPS = LANDMARKS + FEATURES
SPOKEN = {"trace": "trace", "frobenius": "Frobenius", "operator": "operator"}
NORMS = tuple(SPOKEN)
AT = 0.5  # the lengthscale of the figures
MATTERS = 0.9  # a ratio of errors above it is a gain of less than a tenth


class Problem(NamedTuple):
    """Rows, their kernel, its matrix and the eigenvalues of that, the largest first."""

    x: Float64
    kernel: Gaussian
    matrix: Float64
    eigenvalues: Float64


def sweep(**asked: Any) -> Sweep:
    """Return the design: other rows and another choice in every redraw, common to all maps and m."""
    options = Options(**asked)
    full = {"rows": REAL_ROWS, "lengthscale": (0.25, 0.5, 1.0), "map": MAPS, "m": (16, 32, 64, 128, 256)}
    small = {
        "rows": ("digits", "pixels"),
        "lengthscale": (AT,),
        "map": ("uniform", "kmeans", "rpcholesky", "orthogonal"),
        "m": (16, 64),
    }
    count = FEW_ROWS if options.quick else ROWS
    known, draw_rows = options.choose_rows(REAL_ROWS, real_rows, count)
    if options.data is not None:
        full["rows"] = small["rows"] = known
    chosen = options.choose_axes(full, small, {"rows": known, "map": MAPS})
    if wrong := [m for m in chosen["m"] if m % 2 or m >= count]:
        raise ParameterError(f"m must be even and below the {count} rows; got {wrong[0]}")

    @lru_cache(maxsize=32)
    def problem(seed: int, rows: str, lengthscale: float) -> Problem:
        from scipy.spatial.distance import pdist

        x = draw_rows(rows, count, seed)
        kernel = Gaussian(lengthscale * float(np.median(pdist(x))))
        matrix = kernel(x)
        return Problem(x, kernel, matrix, np.maximum(np.linalg.eigvalsh(matrix)[::-1], 0.0))

    @lru_cache(maxsize=256)
    def errors(name: str, m: int, draw: int, *which: Any) -> Float64:
        given = problem(*which)
        return _norms(np.linalg.eigvalsh(_residual(given, name, m, draw))) / _norms(given.eigenvalues)

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        which, draw = (int(part) for part in rng.integers(2**63, size=2))
        key = which, cell["rows"], cell["lengthscale"]
        eigenvalues = problem(*key).eigenvalues
        of_norms = {
            "error": errors(cell["map"], cell["m"], draw, *key),
            "uniform": errors("uniform", cell["m"], draw, *key),
            "best": _norms(eigenvalues[cell["m"] :]) / _norms(eigenvalues),
        }
        vectors = {f"{norm}_{what}": value[i] for what, value in of_norms.items() for i, norm in enumerate(NORMS)}
        return vectors | {"bound": rpcholesky_bound(eigenvalues, cell["m"])}

    return Sweep(
        "nystrom",
        chosen,
        trial,
        paired=("map", "m"),
        version=2,
        stop=options.stop(12, 8, of="trace"),
        seed=options.seed,
        reduce=_reduce,
        prepare=preparation(float64=("kernel",)),
    )


def _residual(given: Problem, name: str, m: int, draw: int) -> Float64:
    """Return K - K' of a map of m features."""
    phi: FeatureMap
    if name in FEATURES:
        phi = random_features(given.kernel, given.x.shape[1], m, "trigonometric", name, rng=draw)
    else:
        phi = nystrom(given.x, given.kernel, m, method=name, rng=draw)
    features = phi(given.x, backend="reference")
    return np.asarray(given.matrix - features @ features.T)


def _norms(eigenvalues: Any) -> Float64:
    """Return the trace norm, the Frobenius norm and the operator norm of a symmetric matrix."""
    sizes = np.abs(eigenvalues)
    return np.array([np.sum(sizes), np.sqrt(np.sum(sizes**2)), np.max(sizes)])


def rpcholesky_bound(eigenvalues: Float64, m: int) -> float:
    r"""Return the least of :math:`(1 + \epsilon) \eta_r` over the r and :math:`\epsilon` that m pivots are enough for.

    Chen, Epperly, Tropp and Webber (2025), theorem 2.3: :math:`m \geq r / \epsilon + r \log(1 / (\epsilon \eta_r))`,
    with :math:`\eta_r` the relative trace error of the best rank r. Their bound is on the expected one of rpcholesky.
    """
    best = 1 - np.cumsum(eigenvalues) / np.sum(eigenvalues)
    r = np.arange(1, m + 1)[:, None]
    eta = np.maximum(best[:m, None], 1e-15)
    epsilon = np.geomspace(1e-2, 1e3, 400)
    enough = r / epsilon + r * np.log(np.maximum(1 / (epsilon * eta), 1.0)) <= m
    return min(1.0, float(np.min(np.where(enough, (1 + epsilon) * eta, np.inf))))


def _reduce(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return mean errors, and geometric means of their ratios to those of uniform landmarks and of the best rank m.

    None has an interval where few redraws carry it.
    """
    fields: dict[str, Any] = {"bound": np.mean(draws["bound"])}
    for norm in NORMS:
        error = draws[f"{norm}_error"]
        fields |= with_ends(norm, mean_interval(error))
        fields[f"{norm}_best"] = np.mean(draws[f"{norm}_best"])
        for other in ("uniform", "best"):
            logs = mean_interval(np.log(error / draws[f"{norm}_{other}"]))
            fields |= with_ends(f"{norm}_over_{other}", np.exp(logs))
    return fields


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge which landmarks beat uniform ones where, how near to the best they are, and how random features fare."""
    digits = select(records, rows="digits", map="rpcholesky")
    judged = [_judge_known_result(digits)] if digits else []
    for name, source in SOURCES.items():
        for rows in names(records, "rows"):
            if cells := select(records, map=name, rows=rows):
                tally = count_below(0.0, *_ratios(cells), cells[0]["draws"])
                claim = f"{name} landmarks beat uniform ones on {rows} in the trace norm"
                judged.append(Verdict(claim, source=source, tally=tally, ratio=_over_uniform(cells)))
    if pivoted := select(records, map="rpcholesky"):
        above = int(np.sum(read_field(pivoted, "trace_low") > read_field(pivoted, "bound")))
        nearest, farthest = (pick(r["trace_over_best"] for r in pivoted) for pick in (min, max))
        judged.append(
            Verdict(
                "the mean error of rpcholesky stays below its bound",
                f"it is surely above at {above} of {len(pivoted)} settings, and {nearest:.2f} to {farthest:.2f} "
                "times the least error of any rank m",
                source="Chen et al. 2025, theorem 2.3",
                decided="Does not hold" if above else "Holds",
            )
        )
    return judged + [told for norm in NORMS if (told := _compare_with_features(records, norm))]


SOURCES = {"rpcholesky": "Chen et al. 2025", "leverage": "Musco and Musco 2017", "kmeans": "Zhang et al. 2008"}


def _judge_known_result(records: Sequence[Record]) -> Verdict:
    """Judge the known result that rpcholesky gains nothing on digits."""
    low, high = (np.exp(each) for each in widen_together(*_ratios(records), records[0]["draws"], len(records)))
    better, much = int(np.sum(high < 1)), int(np.sum(high < MATTERS))
    others = (f"{min(r[f'{norm}_over_uniform'] for r in records):.2f} in the {SPOKEN[norm]} norm" for norm in NORMS[1:])
    word: Word = "Holds" if np.all(low > MATTERS) else "Open"
    if better:
        word = "Does not hold" if much else "Holds in part"
    return Verdict(
        "rpcholesky gains nothing over uniform landmarks on digits",
        f"the trace error is surely lower at {better} of {len(records)} settings, by more than a tenth at {much}",
        f"the least ratio is {' and '.join(others)}",
        decided=word,
        ratio=_over_uniform(records),
    )


def _over_uniform(records: Sequence[Record]) -> Ratio:
    at = [f"lengthscale {r['lengthscale']:g}, m = {r['m']}" for r in records]
    ratios = [Estimate.of(r, "trace_over_uniform", where) for r, where in zip(records, at, strict=True)]
    return Ratio("the ratio to the error of uniform landmarks", ratios, ".3g")


def _ratios(records: Sequence[Record]) -> tuple[Float64, Float64]:
    """Return the ends of intervals of the logarithms of the trace errors' ratios to uniform landmarks."""
    low, high = (np.log(read_field(records, f"trace_over_uniform{end}")) for end in ENDS[1:])
    return low, high


def _compare_with_features(records: Sequence[Record], norm: str) -> Verdict | None:
    """Judge whether uniform landmarks err less than the better of the random features, in one norm."""
    pairs = []
    for record in select(records, map="uniform"):
        where = {axis: record[axis] for axis in ("rows", "lengthscale", "m")}
        if others := [r for r in select(records, **where) if r["map"] in FEATURES]:
            pairs.append((record, min(others, key=lambda r: float(r[norm]))))
    if not pairs:
        return None
    ratio = Ratio("the ratio of errors", [landmarks[norm] / features[norm] for landmarks, features in pairs])
    claim = f"uniform landmarks err less than random Fourier features of equal m in the {SPOKEN[norm]} norm"
    return Verdict(claim, source="Yang et al. 2012", tally=count_lower(pairs, norm), ratio=ratio)


def draw_error(records: Sequence[Record], ax: Any, norm: str) -> None:
    """Draw the relative error against m at one lengthscale, the best of any rank m as a line."""
    at = AT if AT in names(records, "lengthscale") else names(records, "lengthscale")[0]
    mine = select(records, lengthscale=at)
    set_plain(ax, "features m", f"{norm} error of K, relative", sorted(names(mine, "m")))
    for name in names(mine, "map"):
        draw_band(ax, select(mine, map=name), "m", norm, arrangement(name), name)
    floor = sort_by(select(mine, map=names(mine, "map")[0]), "m")
    m = [r["m"] for r in floor]
    ax.plot(m, read_field(floor, f"{norm}_best"), label="best rank m", **UNIFORM)
    if norm == "trace":
        ax.plot(m, read_field(floor, "bound"), color=GREY, linewidth=1.4, linestyle=":", label="bound of rpcholesky")


def draw_gain(records: Sequence[Record], ax: Any) -> None:
    """Draw the trace error of rpcholesky over that of uniform landmarks, a line for each lengthscale."""
    mine = select(records, map="rpcholesky")
    if not mine:
        return
    set_plain(ax, "features m", "trace error over uniform", sorted(names(mine, "m")))
    ax.set_yticks([0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 1.0])
    for place, lengthscale in enumerate(sorted(names(mine, "lengthscale"))):
        label = f"lengthscale {lengthscale:g}"
        draw_band(ax, select(mine, lengthscale=lengthscale), "m", "trace_over_uniform", series(place), label)
    ax.axhline(1.0, color=GREY, linewidth=1.2, label="below: rpcholesky is better")


NYSTROM = Preset(
    title="Nystrom landmarks and random features on real rows",
    claim="Randomly pivoted Cholesky comes near the best rank m and beats uniform landmarks (Chen, Epperly, Tropp "
    "and Webber 2025), as leverage scores (Musco and Musco 2017) and centres of k-means (Zhang, Tsang and Kwok 2008) "
    "do; Nystrom maps err less than random Fourier features where the spectrum falls fast (Yang et al. 2012). Known, "
    "and to be shown or refuted: rpcholesky does not beat uniform landmarks on digits.",
    cost="quick 4, full 280 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.nystrom:sweep",
    verdicts=verdicts,
    formula=r"\mathrm{E} \operatorname{tr}(K - \hat{K}_m) \le (1 + \epsilon) \sum_{i > r} \lambda_i "
    r"\quad \mathrm{by} \quad m \ge \frac{r}{\epsilon} + r \log \frac{1}{\epsilon \eta_r}, "
    r"\quad \eta_r = \frac{\sum_{i > r} \lambda_i}{\sum_i \lambda_i}",
    figures={
        "gain": Figure(
            "Landmarks of rpcholesky against uniform ones",
            "Ratio to uniform landmarks of the same redraw, geometric mean, band: its 95% interval. Lengthscale in "
            "median distances",
            draw_gain,
            by="rows",
            shows="rpcholesky landmarks beat uniform ones",
        ),
        **{
            norm: Figure(
                f"Landmarks and random features against the best rank m, in the {norm} norm",
                f"Relative to that of K; lengthscale {AT:g} median distances, or the first; band: 95% interval",
                partial(draw_error, norm=norm),
                by="rows",
                shows=f"features of equal m in the {norm} norm",
            )
            for norm in ("trace", "operator")
        },
    },
    data=ROWS_OF_ONES_OWN,
)
