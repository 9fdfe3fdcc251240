"""How variances grow with the degree, which sketch is the best where, and whether bounds hold: verdicts and figures."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernattn.studies._palette import GREY, line_style
from kernattn.studies._panels import draw_bars, read_field, set_logarithmic, sort_by, write_numbers
from kernattn.studies._presets.polynomial_sketch.measure import BASES, COSINES, bound
from kernattn.studies._presets.preset import ROWS_OF_ONES_OWN, Figure, Preset
from kernattn.studies._presets.verdict import Estimate, Ratio, Tally, Verdict, judge_coverage, pair
from kernattn.studies._records import Record, names, select

SPOKEN = {
    "tensor_sketch": "TensorSketch",
    "tensor_srht": "TensorSRHT",
    "rademacher_sketch": "Rademacher sketch",
    "gaussian_sketch": "Gaussian sketch",
    "complex_to_real": "complex weights",
}
BETWEEN = 6**0.5  # a growth above it is nearer to 3 than to 2


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge how variances grow with the degree, which sketch is the better one, and whether bounds hold."""
    most, where = max(names(records, "m")), names(records, "inputs")[0]
    widest = select(records, m=most)
    judged = [_judge_bounds(records)]
    for name in names(records, "estimator"):
        ordered = [r for r in select(widest, inputs=where, estimator=name) if r["variance_predicted"][-1] > 0]
        if len(ordered) > 1:
            judged.append(_judge_growth(sorted(ordered, key=lambda r: int(r["degree"]))))
    for better, ours in (("tensor_srht", "features of TensorSRHT"), ("complex_to_real", "complex weights")):
        pairs = pair(widest, "estimator", better, "rademacher_sketch", by=("inputs", "degree"))
        for parity, odd in (("odd", 1), ("even", 0)):
            if alike := [two for two in pairs if two[0]["degree"] % 2 == odd]:
                claim = f"{ours} never have more variance than the Rademacher sketch at {parity} degrees"
                judged += _judge_never_more(claim, alike)
    judged += [_name_best(select(widest, inputs=each)) for each in names(widest, "inputs")]
    points = "settled points; the others, of high degrees or few features, have no interval"
    return [*judged, judge_coverage(records, "variance", "variance_predicted", points)]


def _judge_bounds(records: Sequence[Record]) -> Verdict:
    """Judge whether closed forms lie below the published bound, and no more intervals above it than chance lets."""
    above = points = beyond = settled = 0
    for record in records:
        over = np.asarray(record["variance_predicted"]) > record["bound"] * (1 + 1e-6)  # records have 8 digits
        low = np.asarray(record["variance_low"], np.float64)  # NaN where unsettled
        above, points = above + int(np.sum(over)), points + len(over)
        beyond, settled = beyond + int(np.sum(low > record["bound"])), settled + int(np.sum(np.isfinite(low)))
    return Verdict(
        "variances stay below their published bounds",
        f"{above} of {points} closed forms lie above their published bound, and so do {beyond} of {settled} "
        "intervals of settled points (a few by chance where a bound is reached)",
        decided="Does not hold" if above or beyond > 0.05 * settled else "Holds",
    )


def _judge_growth(ordered: Sequence[Record]) -> Verdict:
    """Judge whether the variance of equal rows grows by the factor that is claimed, from one degree to the next."""
    last = ordered[-1]
    # two of one parity, where there are: TensorSRHT tells odd degrees from even ones
    first = next((r for r in ordered[-2::-1] if (last["degree"] - r["degree"]) % 2 == 0), ordered[-2])
    (p, before), (q, after) = ((r["degree"], r["variance_predicted"][-1]) for r in (first, last))
    claimed, growth = BASES[last["estimator"]], (after / before) ** (1 / (q - p))
    seen = [r for r in ordered if r["variance_settled"][-1]]
    last_value = "no degree is settled by redraws"
    if seen:
        value = Estimate.of(seen[-1], "variance", place=-1)
        last_value = (
            f"at degree {seen[-1]['degree']} measured {value:.3g}, closed form {seen[-1]['variance_predicted'][-1]:.3g}"
        )
    name = SPOKEN[last["estimator"]]
    return Verdict(
        f"the variance of {f'the {name}' if name.endswith(' sketch') else name} grows as {claimed}^p",
        f"between equal rows ({last['inputs']}) it grows by a factor of {growth:.2f} per degree from {p} to {q}, "
        f"to {after / last['bound']:.0%} of its bound at m = {last['m']}",
        last_value,
        decided="Holds" if (growth > BETWEEN) == (claimed == 3) else "Does not hold",
    )


def _judge_never_more(claim: str, pairs: Sequence[tuple[Record, Record]]) -> list[Verdict]:
    """Judge whether the closed form of one sketch is nowhere above that of another one."""
    both = [np.asarray([r["variance_predicted"] for r in side]).ravel() for side in zip(*pairs, strict=True)]
    ratios = [above / below for above, below in zip(*both, strict=True) if below > 0]
    lower = sum(ratio <= 1 + 1e-6 for ratio in ratios)
    tally = Tally(lower, len(ratios) - lower, of="places")
    return [Verdict(claim, tally=tally, ratio=Ratio("the ratio of variances", ratios))] if ratios else []


def _name_best(records: Sequence[Record]) -> Verdict:
    """Name the sketch of the least variance at every degree and cosine."""
    parts = []
    for degree in names(records, "degree"):
        known = {r["estimator"]: np.asarray(r["variance_predicted"]) for r in select(records, degree=degree)}
        table = np.stack(list(known.values()))
        best = [
            " = ".join(SPOKEN[name] for name, value in zip(known, column, strict=True) if value <= 1.005 * column.min())
            for column in table.T
        ]
        runs: list[list[Any]] = []
        for cosine, name in zip(COSINES, best, strict=True):
            if runs and runs[-1][0] == name:
                runs[-1][2] = cosine
            else:
                runs.append([name, cosine, cosine])
        spans = (f"{name} ({low:g}{'' if low == high else f' to {high:g}'})" for name, low, high in runs)
        parts.append(f"degree {degree}: {', '.join(spans)}")
    where = f"Least variance by closed form, {records[0]['inputs']} rows, cosines in brackets"
    return Verdict("; ".join(parts), where=where)


LINES: dict[str, Any] = {  # TensorSketch and complex weights lie on each other
    "complex_to_real": (0, (6, 2)),
    "rademacher_sketch": (0, (3, 1.5)),
    "gaussian_sketch": ":",
}

HALF_DECADES = [part * 10**decade for decade in range(7) for part in (1, 3)]


def _draw(ax: Any, at: Sequence[float], estimator: str, theory: Any, points: Any, seen: Any) -> None:
    """Draw the closed form as a line, what redraws settle as points, and name both."""
    line = line_style(estimator) | {"linestyle": LINES.get(estimator, "-")}
    known = np.where(np.asarray(theory, float) > 1e-12, np.asarray(theory, float), np.nan)
    ax.plot(at, known, **line | ({"marker": ""} if len(at) > 1 else {"marker": "_", "markersize": 14}))
    settled = np.asarray(seen, bool) & np.isfinite(known)
    draw_bars(ax, at, [np.where(settled, each, np.nan) for each in points], line, width=0.8)
    ax.plot([], [], label=SPOKEN[estimator], **line)


def _at_equal_rows(records: Sequence[Record]) -> tuple[Any, Any, Any]:
    """Return m times the variance between equal rows: closed forms, measurements with their ends, and which settle."""
    m, fields = read_field(records, "m"), ("variance_predicted", "variance", "variance_low", "variance_high")
    theory, *points = (m * read_field(records, field, -1) for field in fields)
    return theory, points, [r["variance_settled"][-1] for r in records]


def draw_growth(records: Sequence[Record], ax: Any) -> None:
    """Draw m times the variance at equal rows against the degree, and the published bounds."""
    most = max(names(records, "m"))
    degrees = sorted(names(records, "degree"))
    ax.set(yscale="log", xlabel="degree p", ylabel=f"m × variance, m = {most}", xticks=degrees)
    write_numbers(ax.yaxis, HALF_DECADES)
    for estimator in names(records, "estimator"):
        _draw(ax, degrees, estimator, *_at_equal_rows(sort_by(select(records, estimator=estimator, m=most), "degree")))
    for estimator, label, line in (("tensor_sketch", "bound 2 + 3ᵖ", "-"), ("complex_to_real", "bound 2ᵖ⁺¹ − 2", ":")):
        level = [bound(estimator, p) for p in degrees]
        ax.plot(degrees, level, color=GREY, linestyle=line, linewidth=2.4, alpha=0.5, label=label)


def draw_against_cosine(records: Sequence[Record], ax: Any) -> None:
    """Draw the variance over that of the Gaussian sketch against the cosine, at the largest m."""
    last = select(records, m=max(names(records, "m")))
    base = select(last, estimator="gaussian_sketch")
    ax.set(yscale="log", xlabel="cosine of x and y", ylabel="variance over Gaussian sketch", xticks=COSINES)
    write_numbers(ax.yaxis, [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0])
    if not base:
        return
    unit = np.asarray(base[0]["variance_predicted"])
    for record in last:
        theory, *points = (
            np.asarray(record[field], float) / unit
            for field in ("variance_predicted", "variance", "variance_low", "variance_high")
        )
        _draw(ax, COSINES, record["estimator"], theory, points, record["variance_settled"])


def draw_against_m(records: Sequence[Record], ax: Any) -> None:
    """Draw m times the variance at equal rows against m: flat where the variance falls as 1/m."""
    ms = sorted(names(records, "m"))
    set_logarithmic(ax, "features m", "m × variance", ms, HALF_DECADES)
    for estimator in names(records, "estimator"):
        _draw(ax, ms, estimator, *_at_equal_rows(sort_by(select(records, estimator=estimator), "m")))


def _first(draw: Callable[..., None]) -> Callable[..., None]:
    """Return the drawing of the first kind of inputs alone."""
    return lambda records, ax: draw(select(records, inputs=names(records, "inputs")[0]), ax)


POLYNOMIAL_SKETCH = Preset(
    title="Sketches of the polynomial kernel",
    claim="The variance of products of real projections (Kar and Karnick 2012) and of TensorSRHT grows as 3^p / m with "
    "the degree p; TensorSketch (Pham and Pagh 2013) has the bound (2 + 3^p) / m (Avron, Nguyen and Woodruff 2014), "
    "which is read as the same growth. Complex weights bring it down to 2^p / m (Wacker, Ohana and Filippone 2022). "
    "TensorSRHT has no more variance than the Rademacher sketch at odd degrees (Wacker, Kanagawa and Filippone 2022). "
    "Trees of sketches, which are none of the maps here, need only polynomially many features (Ahle et al. 2020).",
    cost="quick 5, full 130 CPU seconds",
    sweep="kernattn.studies._presets.polynomial_sketch.measure:sweep",
    verdicts=verdicts,
    formula=r"\operatorname{Var} \hat{k}_{\mathrm{gaussian}} = \frac{1}{m} ((1 + 2 c^2)^p - c^{2 p}), "
    r"\quad c = x \cdot y, \quad |x| = |y| = 1",
    figures={
        "degree": Figure(
            "The variance between equal rows over the degree, and its bounds",
            "Closed forms (lines), measurements (points) where redraws settle them",
            draw_growth,
            by="inputs",
            shows="grows as",
        ),
        "cosine": Figure(
            "What sketches gain over the Gaussian sketch, over the angle between rows",
            "The first inputs, at the largest m: closed forms (lines), measurements (points)",
            _first(draw_against_cosine),
            by="degree",
            shows="never have more variance",
        ),
        "m": Figure(
            "The variance between equal rows over the number of features",
            "Equal rows, of the first inputs: closed forms (lines), measurements (points) where redraws settle them",
            _first(draw_against_m),
            by="degree",
            shows="intervals hold the closed form",
        ),
    },
    data=ROWS_OF_ONES_OWN,
)
