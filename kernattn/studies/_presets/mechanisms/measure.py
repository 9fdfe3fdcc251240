"""What the study of mechanisms measures: whole matrices of weights against those of exact attention."""

from collections.abc import Mapping
from functools import lru_cache
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.attention import softmax_attention
from kernattn.errors import ParameterError
from kernattn.metrics import median_and_ci
from kernattn.studies._means import FEWEST_OF_MEDIANS
from kernattn.studies._presets.mechanisms.budgets import DRAWN, FITTED, MECHANISMS, Inputs, Mechanism, Rows
from kernattn.studies._presets.mechanisms.sources import MOST, SOURCES, read, read_unseen, tokens_of
from kernattn.studies._presets.preset import Options
from kernattn.studies._records import with_intervals
from kernattn.studies._sweep import Cell, Sweep
from kernattn.studies._tokens import Tokens

FIELDS = ("error", "error_without_self", "mass", "flops")  # of a record, with intervals over redraws


class Problem(NamedTuple):
    """Inputs at a temperature, and what exact attention makes of them."""

    q: Float64
    k: Float64
    v: Float64
    weights: Float64  # (n, n)
    out: Float64
    apart: Float64  # the same without each row's own key
    uniform: float  # the mean square error of attending to all keys alike
    uniform_apart: float
    unseen: Rows | None  # others of the same source, at the same temperature


def sweep(**asked: Any) -> Sweep:
    """Return the design: mechanisms at equal flops, over sources and temperatures; redraws of what is random."""
    options = Options(**asked)
    full = {
        "source": SOURCES,
        "length": (1024,),
        "temperature": (4.0, 1.0, 0.25),
        "budget": (1 / 32, 1 / 16, 1 / 8, 3 / 16, 1 / 4),
        "mechanism": tuple(MECHANISMS),
    }
    unfitted = tuple(name for name in MECHANISMS if name not in FITTED)
    small = {
        "source": ("photographs",),
        "length": (256,),
        "temperature": (4.0, 0.25),
        "budget": (1 / 16, 1 / 4),
        "mechanism": unfitted,
    }
    own = None if options.data is None else read(options.data, options.seed)
    if own is not None:
        if set(options.axes or {}) & {"source", "length"}:
            raise ParameterError("source and length are those of the file given as data")
        small |= {"source": (own.source,), "length": (len(own.k),)}
        full |= {"source": (own.source,), "length": (len(own.k),), "mechanism": unfitted}
    allowed: dict[str, Any] = {"mechanism": MECHANISMS if own is None else unfitted, "source": full["source"]}
    axes = options.choose_axes(full, small, allowed)
    if max(axes["length"]) > MOST:
        raise ParameterError(f"length must be at most {MOST}; got {max(axes['length'])}")
    if max(axes["budget"]) > 1:
        raise ParameterError(f"budget is a share of exact attention's flops, 1 at most; got {max(axes['budget'])}")

    @lru_cache(maxsize=2)
    def problem(source: str, length: int, temperature: float) -> Problem:
        tokens = tokens_of(source, length, options.seed) if own is None else own
        q, k, v = _at(temperature, tokens)
        other = None if own is not None else _at(temperature, read_unseen(source, length, options.seed))
        weights = softmax_attention(q, k, np.eye(len(k)))
        out, apart, alike = weights @ v, _apart(weights) @ v, np.full_like(weights, 1 / len(k))
        uniform = _square(alike @ v - out), _square(_apart(alike) @ v - apart)
        return Problem(q, k, v, weights, out, apart, *uniform, other)

    def at(cell: Cell) -> Problem:
        return problem(cell["source"], cell["length"], cell["temperature"])

    def make(cell: Cell, rng: np.random.Generator) -> Mechanism:
        given = at(cell)
        inputs = Inputs(given.q, given.k, given.v.shape[1], given.unseen)
        return MECHANISMS[cell["mechanism"]](inputs, cell["budget"], rng)

    @lru_cache(maxsize=1)
    def measure_fixed(cell: Cell) -> dict[str, Any]:
        return measure(at(cell), make(cell, np.random.default_rng(0)))

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        return measure(at(cell), make(cell, rng)) if cell["mechanism"] in DRAWN else measure_fixed(cell)

    def facts(cell: Cell) -> dict[str, Any]:
        given = at(cell)
        keys = effective_keys(given.weights)
        return {
            "uniform": given.uniform,
            "effective_keys": keys,
            "self_weight": float(np.mean(np.diag(given.weights))),
            "setting": f"{cell['source']}, temperature {cell['temperature']:g}: {keys:.0f} effective keys",
        }

    def reduce(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        given, outputs = at(cell), draws["out"]
        variance = np.mean(np.var(outputs, axis=0, ddof=1)) / given.uniform
        off = _square(np.mean(outputs, axis=0) - given.out) / given.uniform
        return {
            **with_intervals(median_and_ci, **{name: draws[name] for name in FIELDS}),
            "squared_bias": float(off - variance / len(outputs)),
            "variance": float(variance),
            "apply_seconds": float(np.median(draws["apply_seconds"])),
        }

    extra = {} if own is None else {"tokens": (own.digest,)}
    return Sweep(
        "mechanisms",
        {**axes, **extra},
        trial,
        facts,
        paired=("temperature", "budget", "mechanism"),
        stop=options.stop(8, of="error", least=FEWEST_OF_MEDIANS),
        seed=options.seed,
        reduce=reduce,
        prepare=preparation(float64=("key_state", "attend", "softmax", "pullback")),
    )


def measure(given: Problem, mechanism: Mechanism) -> dict[str, Any]:
    """Return one draw's outputs, errors over uniform attention's, softmax mass that its weights retain, and time."""
    q, k, v, exact = given.q, given.k, given.v, given.weights
    weights = mechanism.attend(q, k, np.eye(len(k)))
    start = process_time()
    out = mechanism.attend(q, k, v)
    seconds = process_time() - start
    return {
        "out": out,
        "error": _square(out - given.out) / given.uniform,
        "error_without_self": _square(_apart(weights) @ v - given.apart) / given.uniform_apart,
        "mass": float(np.mean(np.sum(np.minimum(exact, np.maximum(weights, 0)), axis=1))),
        "flops": mechanism.flops,
        "apply_seconds": seconds,
    }


def _at(temperature: float, tokens: Tokens) -> Rows:
    return tokens.q / temperature**0.5, tokens.k / temperature**0.5, tokens.v


def effective_keys(weights: Float64) -> float:
    """Return e^H, the number of keys over which uniform weights have the entropy H of a row; the mean over rows."""
    entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1.0)), axis=1)
    return float(np.mean(np.exp(entropy)))


def _apart(weights: Float64) -> Float64:
    """Return weights without each row's own key; a row that has no other is 0."""
    rest = np.where(np.eye(len(weights), dtype=bool), 0.0, weights)
    total = np.sum(rest, axis=1, keepdims=True)
    return np.asarray(np.where(total == 0, 0.0, rest / np.where(total == 0, 1.0, total)))


def _square(x: Float64) -> float:
    return float(np.mean(x**2))
