"""Whether the running sums of causal linear attention lose digits with the length, in each dtype."""

from collections.abc import Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from kernattn._runtime.extras import numpy_dtype
from kernattn._warmup import preparation
from kernattn.attention import causal_linear_attention
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, elu1, random_features
from kernattn.kernels import Softmax
from kernattn.studies._palette import BLUE, GREY, SKY, VERMILION
from kernattn.studies._panels import draw_band, sort_by
from kernattn.studies._presets.preset import Figure, Options, Preset
from kernattn.studies._presets.verdict import Verdict, Word
from kernattn.studies._records import Record, names, select
from kernattn.studies._sweep import Cell, Sweep

DIM, FEATURES = 16, 32
MAPS = ("elu1", "favor+")
SUMS = ("naive", "reference", "cpu")
ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}  # half the gap between 1 and the next number


def sweep(**asked: Any) -> Sweep:
    """Return the design: normal queries and keys, values about 1; the error of the last half of the rows."""
    options = Options(**asked)
    known = tuple(name for name in ROUNDOFF if name != "bfloat16" or find_spec("ml_dtypes") is not None)
    full = {"map": MAPS, "dtype": known, "sums": SUMS, "n": (2**7, 2**9, 2**11, 2**13, 2**15, 2**17)}
    small = {"sums": ("naive", "reference"), "n": (2**6, 2**10)}

    @lru_cache(maxsize=8)
    def phi(name: str) -> FeatureMap:
        if name == "elu1":
            return elu1()
        return random_features(Softmax(), DIM, FEATURES, "positive", "orthogonal", rng=0)

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        dtype, feature_map, n = numpy_dtype(cell["dtype"]), phi(cell["map"]), cell["n"]
        q, k = (0.7 * rng.standard_normal((2, n, DIM))).astype(dtype)
        v = (1 + rng.standard_normal((n, 1))).astype(dtype)
        q64, k64, v64 = (x.astype(np.float64) for x in (q, k, v))
        exact, _ = causal_linear_attention(q64, k64, v64, feature_map, backend="reference")
        if cell["sums"] == "naive":
            out = naive(q, k, v, feature_map)
        else:
            out, _ = causal_linear_attention(q, k, v, feature_map, backend=cell["sums"])
        late = slice(n // 2, None)
        difference = out[late].astype(np.float64) - exact[late]
        return {"error": np.sqrt(np.mean(difference**2) / np.mean(exact[late] ** 2))}

    def facts(cell: Cell) -> dict[str, Any]:
        return {"where": f"{cell['map']}, {cell['dtype']}", "roundoff": ROUNDOFF[cell["dtype"]]}

    chosen = options.choose_axes(full, small, {"map": MAPS, "dtype": ROUNDOFF, "sums": SUMS})
    if "bfloat16" in chosen["dtype"] and "bfloat16" not in known:
        raise ParameterError("bfloat16 arrays take the package ml_dtypes, which is not installed")
    if min(chosen["n"]) < 2:
        raise ParameterError(f"n must be at least 2; got {min(chosen['n'])}")
    return Sweep(
        "dtype",
        chosen,
        trial,
        facts,
        paired=("map", "dtype", "sums"),
        stop=options.stop(5, 4),
        seed=options.seed,
        prepare=preparation(float32=("features", "key_state")),
    )


def naive(q: Any, k: Any, v: Any, phi: FeatureMap) -> Any:
    """Return causal attention whose running sums have the dtype of the inputs; products over features are float32."""
    features, rows = phi(k), phi(q).astype(np.float32)
    s = np.cumsum(features * v, axis=0, dtype=v.dtype).astype(np.float32)
    z = np.cumsum(features, axis=0, dtype=v.dtype).astype(np.float32)
    quotient = np.sum(rows * s, axis=1) / np.sum(rows * z, axis=1)
    return quotient[:, None].astype(v.dtype)


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge whose sums lose digits with n."""
    judged = []
    for where in names(records, "where"):
        for sums in names(records, "sums"):
            line = sort_by(select(records, where=where, sums=sums), "n")
            judged += [_judge(line)] if len(line) > 1 else []
    if "bfloat16" not in names(records, "dtype"):
        judged.append(Verdict("the dtype bfloat16 was left out: ml_dtypes was not installed, or it was not asked for"))
    return judged


SPOKEN = {"naive": "a running sum in that dtype", "reference": "kernattn's reference", "cpu": "kernattn's CPU loop"}


def _judge(records: Sequence[Record]) -> Verdict:
    """Judge whether the error grows with n: from the shortest to the longest sequence, by more than a factor of 2."""
    known, lost = ([r for r in records if (r["error"] is None) == none] for none in (False, True))
    overflow = f"from n = {lost[0]['n']} on the sums overflow" if lost else ""
    tell = partial(Verdict, "errors grow with n", where=f"for {SPOKEN[records[0]['sums']]}, {records[0]['where']}")
    if len(known) < 2:
        return tell(overflow, decided="Holds")
    first, last = known[0], known[-1]
    growth = last["error"] / first["error"]
    exponent = float(np.log(growth) / np.log(last["n"] / first["n"]))
    apart = None in (first["error_low"], last["error_low"]) or last["error_low"] > first["error_high"]
    units = [f"{r['error'] / r['roundoff']:.2g} u at n = {r['n']}" for r in (first, last)]
    said = f"the error is {' and '.join(units)}, that is as n^{exponent:.2f}"
    word: Word = "Holds" if lost or (growth > 2 and apart) else "Open" if growth > 2 else "Does not hold"
    return tell(said, overflow, decided=word)


LOOKS: dict[str, dict[str, Any]] = {
    "naive": {"color": VERMILION, "marker": "s", "linestyle": "-"},
    "reference": {"color": SKY, "marker": "o", "linestyle": (0, (3, 1.5)), "markerfacecolor": "white"},
    "cpu": {"color": BLUE, "marker": "D", "linestyle": "-"},
}


def draw_error(records: Sequence[Record], ax: Any) -> None:
    """Draw the relative error against n with 95% intervals, and lines of u, u sqrt(n) and u n."""
    ax.set(xscale="log", yscale="log", xlabel="length n", ylabel="relative error of the outputs", ylim=(1e-8, 3))
    ax.set_xscale("log", base=2)
    lengths = np.array(sorted(names(records, "n")), float)
    u = records[0]["roundoff"]
    ax.set_title(records[0]["where"])
    for line, level, label in (
        (":", u * np.ones_like(lengths), "u"),
        ("--", u * np.sqrt(lengths), "u √n"),
        ("-.", u * lengths, "u n"),
    ):
        ax.plot(lengths, np.where(level < 1, level, np.nan), color=GREY, linewidth=1.0, linestyle=line, label=label)
    for sums in names(records, "sums"):
        look = {"markersize": 4.0, "linewidth": 1.4} | LOOKS[sums]
        draw_band(ax, select(records, sums=sums), "n", "error", look, SPOKEN[sums].removesuffix(" in that dtype"))


DTYPE = Preset(
    title="Digits that running sums lose",
    claim="Rounding errors of a sum of n terms grow with n: by u n at most and like u √n as a rule, u the unit "
    "roundoff (Higham and Mary 2019), so a running sum in half precision loses its digits, and stagnates once terms "
    "are below half a unit in its last place. Here the sums of causal linear attention: kept in the dtype of the "
    "inputs, and as kernattn keeps them.",
    cost="quick 3, full 85 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.dtype:sweep",
    verdicts=verdicts,
    formula=r"|\hat{s} - s| \le \gamma_{n - 1} \sum_{i \le n} |x_i|, "
    r"\quad \gamma_n = \frac{n u}{1 - n u}, \quad n u < 1",
    figures={
        "error": Figure(
            "The error of a running sum and of kernattn's sums, over the length",
            "Relative error of the last half of the rows against float64 on the same inputs; u: unit roundoff of the "
            "dtype",
            draw_error,
            by="where",
            shows="errors grow with n",
        )
    },
    made="sequences of chosen lengths, and the digits of running sums",
)
