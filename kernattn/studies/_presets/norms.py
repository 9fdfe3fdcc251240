"""What 16 bits cost attention, over the norm of queries and keys: kernattn, and torch in bfloat16."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from os import environ
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._arrays.precision import precision
from kernattn._runtime.extras import numpy_dtype
from kernattn._runtime.fork import import_whole
from kernattn._warmup import preparation
from kernattn.attention import causal_linear_attention, softmax_attention
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, elu1, random_features
from kernattn.kernels import Softmax
from kernattn.ops.dispatch import missing
from kernattn.studies._means import FEWEST_OF_MEDIANS, medians
from kernattn.studies._palette import BLUE, GREEN, GREY, ORANGE, PINK, SKY, VERMILION
from kernattn.studies._panels import draw_band, set_logarithmic
from kernattn.studies._presets.preset import Figure, Options, Preset
from kernattn.studies._presets.verdict import Tally, Verdict
from kernattn.studies._records import Record, names, select
from kernattn.studies._sweep import Cell, Sweep

FEATURES, CHUNK = 256, 64
DIMS = {"softmax": 64, "elu1": 128, "favor+": 64}
"""Of rows, by op: of elu1 the matrix unit takes rows of 128 numbers or more."""
OPS = tuple(DIMS)
UNIT, VARIABLE = "the matrix unit", "KERNATTN_MATRIX_UNIT"
MOST = 1.05
"""Of the error that rounding the exact answer has."""


class Way(NamedTuple):
    """A way of computing: the dtype of its arrays, what it takes, and how a figure shows it."""

    dtype: str
    takes: str | None  # a package, or the matrix unit
    label: str
    look: dict[str, Any]
    products: str = "float32"  # what `precision` is asked for


WAYS = {
    "float32": Way("float32", None, "kernattn, float32", {"color": GREY, "marker": "o"}),
    "float16": Way("float16", None, "kernattn, float16", {"color": SKY, "marker": "D"}),
    "bfloat16": Way("bfloat16", "ml_dtypes", "kernattn, bfloat16", {"color": BLUE, "marker": "D"}),
    "unit": Way("bfloat16", UNIT, "kernattn, bfloat16, matrix unit", {"color": GREEN, "marker": "^"}),
    "one-part": Way(
        "bfloat16", UNIT, "kernattn, bfloat16, matrix unit, one part", {"color": PINK, "marker": "v"}, "bfloat16"
    ),
    "torch": Way("bfloat16", "torch", "torch, bfloat16", {"color": VERMILION, "marker": "s"}),
}
"""By name: torch is its scaled_dot_product_attention, and for maps a loop over chunks all in bfloat16. The unit is used
for its own ways alone, whatever the environment says; an emulated one where the environment asks for that. Pairs serve
exact attention alone, so that maps have no such ways beside them.
"""


def sweep(**asked: Any) -> Sweep:
    """Return the design: rows of one norm; the error of causal attention against float64 on the same inputs."""
    options = Options(**asked)
    known = tuple(name for name, way in WAYS.items() if _missing(way) is None)
    full = {"op": OPS, "way": known, "norm": (1.0, 4.0, 8.0, 16.0), "n": (1024,)}
    small = {"norm": (1.0, 8.0), "n": (256,)}  # the fewest queries of exact attention that the unit takes
    chosen = options.choose_axes(full, small, {"op": OPS, "way": WAYS})
    for name in chosen["way"]:
        if (lacking := _missing(WAYS[name])) is not None:
            raise ParameterError(f"the way {name} takes {lacking}")

    def keep(cell: Mapping[str, Any]) -> bool:
        return WAYS[cell["way"]].takes != UNIT or cell["op"] == "softmax" or _serves_maps()

    if not any(keep({"op": op, "way": way}) for op in chosen["op"] for way in chosen["way"]):
        raise ParameterError(
            f"{UNIT} of this processor, AVX512_BF16, serves op=softmax alone; NUMBA_CPU_NAME=generic and "
            f"{VARIABLE}=emulated run other ops as AMX does; got op={', '.join(chosen['op'])}"
        )

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        way, phi = WAYS[cell["way"]], _map(cell["op"])
        dtype, n = numpy_dtype(way.dtype), cell["n"]
        q, k, v = rng.standard_normal((3, n, DIMS[cell["op"]]))
        q, k = (cell["norm"] * x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
        given = [x.astype(dtype) for x in (q, k, v)]
        q, k, v = (x.astype(np.float64) for x in given)
        exact = _ours(phi, q, k, v, backend="reference")
        with _unit_set("1" if way.takes == UNIT else "0"), precision(way.products):
            out = (_torch if cell["way"] == "torch" else _ours)(phi, *given)
        error, rounding = (_distance(x.astype(np.float64), exact) for x in (out, exact.astype(dtype)))
        return {"error": error, "rounding": rounding, "over_rounding": error / rounding}

    def facts(cell: Cell) -> dict[str, Any]:
        return {"dtype": WAYS[cell["way"]].dtype}

    return Sweep(
        "norms", chosen, trial, facts, reduce=medians, paired=("way", "op"),
        stop=options.stop(10, 6, least=FEWEST_OF_MEDIANS), seed=options.seed,
        prepare=preparation(float32=("causal", "softmax")), keep=keep,
    )  # fmt: skip


def _missing(way: Way) -> str | None:
    """Return which requirement of a way is missing: a package, that of bfloat16 besides its own, or the matrix unit."""
    if way.takes == UNIT:
        with _unit_set("1"):
            reason = missing("cpu") or import_whole("kernattn.ops._numba.matrix.unit").why_not()
        if reason is not None:
            return f"{UNIT}: {reason}"
    wanted = [None if way.takes == UNIT else way.takes, "ml_dtypes" if way.dtype == "bfloat16" else None]
    lacking = next((name for name in wanted if name is not None and find_spec(name) is None), None)
    return None if lacking is None else f"the package {lacking}, which is not installed"


def _serves_maps() -> bool:
    """Return whether the matrix unit that is used here serves linear attention too."""
    return bool(import_whole("kernattn.ops.key_state.matrix").SERVED)


@contextmanager
def _unit_set(value: str) -> Iterator[None]:
    """Ask for the matrix unit or for none; an emulated one stays so."""
    before = environ.get(VARIABLE)
    environ[VARIABLE] = before if before == "emulated" and value == "1" else value
    try:
        yield
    finally:
        if before is None:
            del environ[VARIABLE]
        else:
            environ[VARIABLE] = before


@lru_cache(maxsize=4)
def _map(op: str) -> FeatureMap | None:
    if op == "softmax":
        return None
    return elu1() if op == "elu1" else random_features(Softmax(), DIMS[op], FEATURES, "positive", "orthogonal", rng=0)


def _ours(phi: FeatureMap | None, q: Any, k: Any, v: Any, backend: str | None = None) -> Any:
    if phi is None:
        return softmax_attention(q, k, v, causal=True, backend=backend)
    return causal_linear_attention(q, k, v, phi, backend=backend)[0]


def _distance(out: Float64, exact: Float64) -> float:
    return float(np.sqrt(np.mean((out - exact) ** 2) / np.mean(exact**2)))


def _torch(phi: FeatureMap | None, q: Any, k: Any, v: Any) -> Any:
    """Return torch's outputs in bfloat16: fused attention, or a loop over chunks whose sums are in bfloat16 too."""
    torch = import_module("torch")
    q, k, v = (torch.from_numpy(x.astype(np.float32)).bfloat16() for x in (q, k, v))
    with torch.inference_mode():
        if phi is None:
            out = torch.nn.functional.scaled_dot_product_attention(*(x[None, None] for x in (q, k, v)), is_causal=True)[
                0, 0
            ]
        else:
            a, b = _features(torch, phi, q, k)
            out = _in_chunks(torch, a, b, v)
        return out.float().numpy()


def _features(torch: Any, phi: FeatureMap, q: Any, k: Any) -> list[Any]:
    if phi.dim is None:
        return [torch.nn.functional.elu(x) + 1 for x in (q, k)]
    omega = torch.from_numpy(np.asarray(phi.spec.omega).T).to(q.dtype)  # type: ignore[union-attr]  # with the scale in it
    a, b = q @ omega, k @ omega - (k * k).sum(-1, keepdim=True) * (0.5 * DIMS["favor+"] ** -0.5)
    return [(a - a.amax(-1, keepdim=True)).exp(), (b - b.amax()).exp()]


def _in_chunks(torch: Any, a: Any, b: Any, v: Any) -> Any:
    values = torch.cat([v, torch.ones_like(v[:, :1])], dim=-1)
    mask = torch.tril(torch.ones(CHUNK, CHUNK, dtype=v.dtype))
    s = torch.zeros(a.shape[-1], values.shape[-1], dtype=v.dtype)
    outs = []
    for x, y, w in zip(*(part.split(CHUNK) for part in (a, b, values)), strict=True):
        inside = (x @ y.T) * mask[: len(x), : len(x)]
        fraction = x @ s + inside @ w
        outs.append(fraction[:, :-1] / fraction[:, -1:])
        s = s + y.T @ w
    return torch.cat(outs)


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge where an answer is as near as one that was rounded."""
    judged = []
    for op in names(records, "op"):
        for way in (name for name in names(records, "way") if WAYS[name].dtype != "float32"):
            mine = select(records, op=op, way=way)
            judged += [_judge(op, way, mine)] if mine else []
    for name, way in WAYS.items():
        ops = [op for op in names(records, "op") if not select(records, op=op, way=name)]
        if name in names(records, "way") and ops:
            judged.append(Verdict(f"the way {name} was left out for {' and '.join(ops)}: pairs serve softmax alone"))
        elif name not in names(records, "way"):
            lacked = {None: "", UNIT: f"{UNIT} was missing, or "}.get(way.takes, f"{way.takes} was not installed, or ")
            judged.append(Verdict(f"the way {name} was left out: {lacked}it was not asked for"))
    return judged


def _judge(op: str, way: str, records: Sequence[Record]) -> Verdict:
    known = [r for r in records if None not in (r["over_rounding_low"], r["over_rounding_high"])]
    below, above = (sum(test(r) for r in known) for test in (_near, _far))
    tally = Tally(below, above, len(records) - below - above, "norms")
    said = [f"{r['over_rounding']:.3g} at norm {r['norm']:g}" for r in records if r["over_rounding"] is not None]
    where = f"for {WAYS[way].label}, {op}"
    return Verdict(
        "the error is that of rounding the exact answer",
        f"the ratio of the two is {', '.join(said)}",
        where=where,
        tally=tally,
    )


def _near(record: Record) -> bool:
    return bool(record["over_rounding_high"] < MOST)


def _far(record: Record) -> bool:
    return bool(record["over_rounding_low"] > MOST)


def draw_error(records: Sequence[Record], ax: Any) -> None:
    """Draw the relative error over the norm, with 95% intervals, and that of rounding to bfloat16 and to float16."""
    set_logarithmic(ax, "norm of queries and keys", "relative error of the outputs")
    ax.set_xscale("log", base=2)
    for way in names(records, "way"):
        mine = select(records, way=way)
        look = {"markersize": 4.0, "linewidth": 1.4, **WAYS[way].look}
        draw_band(ax, mine, "norm", "error", look, WAYS[way].label)
        if way in ("bfloat16", "float16"):
            rounded = {"linewidth": 1.0, "linestyle": ":", "color": ORANGE}
            draw_band(ax, mine, "norm", "rounding", rounded, "rounding alone" if way == "bfloat16" else None)


NORMS = Preset(
    title="What 16 bits cost attention, over the norm",
    claim="A sum of n products of 16-bit numbers that is kept in float32 and rounded at its end has the error of that "
    "rounding, as float32's own errors, of the order of n u, are far below (Higham and Mary 2019). So arrays of 16 "
    "bits should cost attention the rounding of its answer, whatever the norms. Exponents multiply errors: a product "
    "that is rounded to bfloat16 before the exponential, or a weight after it, costs more.",
    cost="quick 3, full 20 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.norms:sweep",
    verdicts=verdicts,
    formula=r"|\mathrm{fl}(y) - y| \le u |y|, \quad u = 2^{-8} \text{ for bfloat16}, 2^{-11} \text{ for float16}",
    figures={
        "error": Figure(
            "The error of causal attention on 16-bit arrays, over the norm",
            "Median relative error against float64 on the same inputs; dotted: the exact answer, rounded",
            draw_error,
            by="op",
            shows="the error is that of rounding",
        )
    },
    made="rows of chosen norms",
)
