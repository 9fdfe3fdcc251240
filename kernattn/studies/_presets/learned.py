"""What a fit to data buys on rows that it never saw: by features, fitting rows and temperature, and on other data."""

from collections.abc import Mapping, Sequence
from functools import partial
from time import process_time
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.attention import linear_attention, softmax_attention
from kernattn.errors import ParameterError, ShapeError
from kernattn.features import FeatureMap, fit, random_features, recommend
from kernattn.kernels import Softmax
from kernattn.metrics import attention_mse, median_and_ci
from kernattn.studies import _panels as panels
from kernattn.studies._means import FEWEST_OF_MEDIANS
from kernattn.studies._palette import GREY, series
from kernattn.studies._presets.preset import TOKENS_OF_ONES_OWN, Figure, Options, Preset
from kernattn.studies._presets.verdict import Estimate, Ratio, Verdict, count_below
from kernattn.studies._records import ENDS, Record, names, select, with_intervals
from kernattn.studies._sweep import Cell, Sweep
from kernattn.studies._tokens import SOURCES, Tokens, shipped_tokens

HELD = 512  # rows that are judged on
DRAWS = 4  # of the random map that is best on the fitting rows
SHIFTED = {"china": "flower", "flower": "china", "digits": "china"}
SETTING = ("source", "temperature", "m", "rows", "kind")
Three = tuple[Float64, Float64, Float64]


def sweep(**asked: Any) -> Sweep:
    """Return the design: in every redraw other rows and another start, and the same rows for the random map."""
    options = Options(**asked)
    full: dict[str, Any] = {
        "source": ("china", "flower"),
        "temperature": (2.0, 0.5),
        "m": (16, 64),
        "rows": (32, 128, 512, 4096),
        "kind": ("hedgehog",),
    }
    small: dict[str, Any] = {"source": ("china",), "temperature": (1.0,), "m": (16,), "rows": (64,)}
    own = options.choose_tokens()
    known = tuple(SOURCES) if own is None else (own.label,)
    if own is not None:
        full["source"] = small["source"] = known
        most = len(own.k) - _held(own)
        full["rows"], small["rows"] = (tuple(n for n in axes["rows"] if n <= most) or (most,) for axes in (full, small))
    chosen = options.choose_axes(full, small, {"source": known, "kind": ("hedgehog", "exponential", "omega")})
    if own is not None and max(chosen["rows"]) > most:
        raise ParameterError(f"rows must be at most {most}, for the file's others judge; got {max(chosen['rows'])}")
    cut = _cut if own is None else partial(_cut_own, own)

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        seed, start = (int(part) for part in rng.integers(2**31, size=2))
        (q, k, _), held = cut(cell["source"], cell["rows"], seed)
        judged = {"": held}
        if own is None:
            judged["shifted_"] = _cut(SHIFTED[cell["source"]], 0, seed)[1]
        dim = q.shape[1]
        kernel = Softmax(scale=dim**-0.5 / cell["temperature"])
        began = process_time()
        with catch_warnings():
            simplefilter("ignore", UserWarning)  # of few rows, and of fits that do not help: both are measured here
            phi = fit(kernel, (q, k), cell["m"], kind=cell["kind"], rng=start)
        seconds = process_time() - began
        name = recommend((q, k), kernel, cell["m"], ["orthogonal"], start).best.estimator
        drawn = random_features(kernel, dim, cell["m"], name, data=(q, k), rng=start)
        draws = [drawn.redraw(rng) for _ in range(DRAWS)]
        fields: dict[str, Any] = {"cost": seconds, "helps": float(hasattr(phi, "random_error"))}
        for what, rows in judged.items():
            mine = _error(phi, kernel, rows)
            theirs = np.exp(np.mean([np.log(_error(each, kernel, rows)) for each in draws]))
            fields |= {f"{what}error": mine, f"{what}random": theirs, f"{what}ratio": mine / theirs}
        return fields

    return Sweep(
        "learned",
        chosen,
        trial,
        paired=SETTING,
        stop=options.stop(8, 6, of="error", least=FEWEST_OF_MEDIANS),
        seed=options.seed,
        reduce=_reduce,
        prepare=preparation(float64=("features", "scales", "softmax", "attend", "pullback")),
    )


def _cut(source: str, rows: int, seed: int) -> tuple[Three, Three]:
    """Return as many tokens as are asked for, and HELD others, mixed: q = k, and values."""
    tokens = shipped_tokens(source, rows + HELD, rows + HELD, seed)
    at = np.random.default_rng(seed).permutation(rows + HELD)
    q, k, v = (part[at] for part in (tokens.q, tokens.k, tokens.v))
    return (q[:rows], k[:rows], v[:rows]), (q[rows:], k[rows:], v[rows:])


def _held(own: Tokens) -> int:
    """Return how many tokens of a file judge: half of them at most."""
    if len(own.q) != len(own.k) or len(own.k) < 64:
        raise ShapeError(f"this study takes as many queries as keys, at least 64; got {len(own.q)} and {len(own.k)}")
    return min(HELD, len(own.k) // 2)


def _cut_own(own: Tokens, source: str, rows: int, seed: int) -> tuple[Three, Three]:
    """Return as many tokens of a file as are asked for, and others that judge."""
    del source
    at = np.random.default_rng(seed).permutation(len(own.k))
    fitted, judged = at[:rows], at[len(at) - _held(own) :]
    first, second = ((own.q[i], own.k[i], own.v[i]) for i in (fitted, judged))
    return first, second


def _error(phi: FeatureMap, kernel: Softmax, rows: Three) -> float:
    """Return the squared error of attention's outputs over uniform attention's, of the values that the source has."""
    q, k, v = rows
    exact = softmax_attention(q, k, v, scale=kernel.scale)
    uniform = float(attention_mse(np.mean(v, axis=0, keepdims=True) + 0 * exact, exact))
    return float(attention_mse(linear_attention(q, k, v, phi), exact)) / uniform


def _reduce(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return medians over redraws, and in how many the fit was kept."""
    del cell, facts
    fields = {name: values for name, values in draws.items() if name != "helps"}
    return with_intervals(median_and_ci, **fields) | {"kept": float(np.mean(draws["helps"]))}


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge where a fit errs less than the random map, on its own data and on other data, and say what it costs."""
    judged = []
    for source in names(records, "source"):
        here = select(records, source=source)
        claims = {"ratio": f"a fit errs less than the best random map on rows of {source} that it never saw"}
        if source in SHIFTED:
            other = SHIFTED[source]
            claims["shifted_ratio"] = f"a fit to {source} errs less than the random map on rows of {other}"
        for field, claim in claims.items():
            low, high = (np.log(panels.read_field(here, f"{field}{end}")) for end in ENDS[1:])
            ratio = Ratio("the ratio of squared errors", [Estimate.of(r, field, _place(r)) for r in here])
            tally = count_below(0.0, low, high, here[0]["draws"])
            judged.append(Verdict(claim, source="Zhang et al. 2024", tally=tally, ratio=ratio))
    costs = [Estimate.of(r, "cost", _place(r)) for r in records]
    return [*judged, Verdict("a fit takes CPU seconds", ratio=Ratio("its time", costs, ".2g", " seconds"))]


def _place(record: Record) -> str:
    return f"temperature {record['temperature']:g}, m = {record['m']}, {record['rows']} rows"


def draw_error(records: Sequence[Record], ax: Any, what: str = "") -> None:
    """Draw errors over the fitting rows, a line for each m: of the fit, and dashed of the random map."""
    if f"{what}error" not in records[0]:  # of a file there are no other data
        return
    temperature = names(records, "temperature")[-1]
    here = select(records, temperature=temperature, kind=names(records, "kind")[0])
    rows = sorted(names(here, "rows"))
    panels.set_logarithmic(ax, "fitting rows", "error over uniform attention's", rows)
    ax.yaxis.minorticks_off()
    for place, m in enumerate(sorted(names(here, "m"))):
        line = panels.sort_by(select(here, m=m), "rows")
        panels.draw_band(ax, line, "rows", f"{what}error", series(place), f"fit, m = {m}")
        dashed = series(place) | {"linestyle": (0, (3, 1.5)), "markerfacecolor": "white"}
        panels.draw_band(ax, line, "rows", f"{what}random", dashed, f"random, m = {m}")
    panels.draw_uniform(ax)


def draw_seconds(records: Sequence[Record], ax: Any) -> None:
    """Draw the CPU seconds of a fit over the fitting rows, a line for each m."""
    here = select(records, temperature=names(records, "temperature")[-1], kind=names(records, "kind")[0])
    panels.set_logarithmic(ax, "fitting rows", "CPU seconds of a fit", sorted(names(here, "rows")))
    for place, m in enumerate(sorted(names(here, "m"))):
        line = panels.sort_by(select(here, m=m), "rows")
        panels.draw_band(ax, line, "rows", "cost", series(place), f"m = {m}")
    ax.axhline(10.0, color=GREY, linewidth=1.0, linestyle=":")


LEARNED = Preset(
    title="Maps that are fitted to data",
    claim="Feature maps that are learnt, a softmax over the features of projections, stand for softmax attention where "
    "random ones of as many features do not (Hedgehog, Zhang et al. 2024). Theirs are learnt with a model, on a GPU. "
    "Here one is fitted to rows in seconds of CPU time, and judged on other rows of the same data, and on other data, "
    "against the random map that is best on the fitting rows.",
    cost="quick 8, full 700 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.learned:sweep",
    verdicts=verdicts,
    formula=r"\phi_a(x) = \frac{\exp(\omega_a^T x + b_a)}{\sum_{c} \exp(\omega_c^T x + b_c)}",
    figures={
        "rows": Figure(
            "The error of fitted and of random maps over the fitting rows",
            "On rows that the fit never saw; last temperature; medians over redraws of rows and starts, 95% intervals",
            draw_error,
            by="source",
            shows="that it never saw",
        ),
        "shift": Figure(
            "The error of fitted and of random maps on other data",
            "Fitted to the source, judged on the other photograph; last temperature; medians, 95% intervals",
            partial(draw_error, what="shifted_"),
            by="source",
            shows="a fit to",
        ),
        "seconds": Figure(
            "What a fit costs", "Medians of CPU seconds, with 95% intervals; dotted: ten", draw_seconds, by="source"
        ),
    },
    data=TOKENS_OF_ONES_OWN,
)
