"""The attention study: which random features approximate exact attention, on which tokens, and at what size."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from kernattn._warmup import preparation
from kernattn.errors import ParameterError
from kernattn.features import estimators
from kernattn.kernels import Softmax
from kernattn.studies._means import FEWEST_OF_MEDIANS
from kernattn.studies._presets.attention.delta import Independent
from kernattn.studies._presets.attention.findings import FIGURES, verdicts
from kernattn.studies._presets.attention.measure import Task
from kernattn.studies._presets.attention.own import check_own, has_size, is_own, make_map
from kernattn.studies._presets.attention.problem import Problem
from kernattn.studies._presets.attention.report import summary
from kernattn.studies._presets.preset import TOKENS_OF_ONES_OWN, Options, Preset
from kernattn.studies._sweep import Cell, Sweep, integer
from kernattn.studies._tokens import SOURCES, Tokens, own_tokens, shipped_tokens
from kernattn.studies._worker import load_named

FULL = {
    "source": ("china", "flower", "digits"),
    "scale": (0.5, 1.0, 2.0),
    "estimator": ("trigonometric", "phase", "positive", "hyperbolic", "optimal_positive"),
    "projection": ("iid", "orthogonal"),
    "m": (16, 32, 64, 128, 256),
    "queries": (64,),
    "keys": (512,),
}
SMALL = {"source": ("china", "flower"), "scale": (0.5, 2.0), "m": (16, 64), "queries": (32,), "keys": (128,)}


def sweep(**asked: Any) -> Sweep:
    """Return the design: estimators, projections and m on real tokens at some scales, which are read here.

    So what is wrong with them shows before any work. Axes `queries` and `keys` have one value, and are no axes of the
    sweep: a digest of the tokens names them in its cells.
    """
    options = Options(**read_options(asked))
    chosen = _choose_axes(options)
    tokens_of = {tokens.source: tokens for tokens in _read_tokens(options, chosen)}
    first = chosen["projection"][0]

    @lru_cache(maxsize=1)
    def problem(source: str, scale: float) -> Problem:
        return Problem(tokens_of[source].scaled(scale), options.seed)

    @lru_cache(maxsize=1)
    def independent(source: str, scale: float, estimator: str) -> Independent:
        return Independent.of(problem(source, scale), estimator)

    @lru_cache(maxsize=1)
    def task(cell: Cell) -> Task:
        delta = independent(cell["source"], cell["scale"], cell["estimator"])
        return Task(problem(cell["source"], cell["scale"]), cell, delta)

    def facts(cell: Cell) -> dict[str, Any]:
        exact = task(cell).problem
        return {"dataset": exact.tokens.name, "description": exact.tokens.description, **exact.facts}

    def keep(cell: Cell) -> bool:
        tokens, estimator = tokens_of[cell["source"]], cell["estimator"]
        if is_own(estimator) and cell["projection"] != first:
            return False
        return tokens.digest == cell["tokens"] and has_size(estimator, tokens.q.shape[1], cell["m"])

    for estimator in filter(is_own, chosen["estimator"]):
        _try(estimator, chosen["m"], first, tokens_of.values())
    return Sweep(
        name="attention",
        axes={
            "source": tuple(tokens_of),
            "tokens": tuple(dict.fromkeys(tokens.digest for tokens in tokens_of.values())),
            **{axis: chosen[axis] for axis in ("scale", "estimator", "projection", "m")},
        },
        keep=keep,
        facts=facts,
        trial=lambda cell, rng: task(cell).trial(rng),
        reduce=lambda cell, draws, facts: task(cell).numbers(draws),
        paired=("tokens", "estimator", "projection"),
        stop=options.stop(32, of="attention_mse"),
        version=4,
        seed=options.seed,
        prepare=preparation(float64=("features", "key_state", "attend")),
    )


OLD_AXES = {"source": "sources", "scale": "scales", "estimator": "estimators", "projection": "projections"}
OLD_AXES |= {"m": "num_features", "queries": "queries", "keys": "keys"}


def read_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as the fields of `Options`: folders of kernattn 0.2 hold a field for each axis."""
    if "num_features" not in settings:
        return dict(settings)
    given = {axis: settings[old] for axis, old in OLD_AXES.items() if settings[old] != []}
    axes = {axis: values if isinstance(values, list | tuple) else [values] for axis, values in given.items()}
    if settings["data"] is not None:
        del axes["keys"]
    return {"axes": axes} | {name: settings[name] for name in ("seed", "precision", "draws", "data")}


def _choose_axes(options: Options) -> dict[str, Any]:
    """Return the values of all axes, checked."""
    given = options.axes or {}
    own = [check_own(name) for name in given.get("estimator", ()) if is_own(name)]
    full, small, allowed = dict(FULL), dict(SMALL), {"estimator": (*estimators(Softmax()), *own), "source": SOURCES}
    if options.data is not None:
        if {"source", "keys"} & set(given):
            raise ParameterError("source and keys are those of the file given as data")
        full["scale"] = small["scale"] = (1.0,)
    chosen = options.choose_axes(full, small, allowed)
    if odd := [m for m in chosen["m"] if m % 2]:
        raise ParameterError(f"m must be even, for pairs count two features; got {odd[0]}")
    for axis in ("queries", "keys"):
        if len(chosen[axis]) > 1:
            raise ParameterError(f"{axis} takes one value; got {', '.join(map(str, chosen[axis]))}")
    if options.draws is not None:
        integer("draws", options.draws, FEWEST_OF_MEDIANS)  # before tokens are read
    return chosen


def _read_tokens(options: Options, chosen: Mapping[str, Any]) -> list[Tokens]:
    (queries,), (keys,) = chosen["queries"], chosen["keys"]
    if options.data is not None:
        return [own_tokens(Path(options.data), queries, options.seed)]
    return [shipped_tokens(source, queries, keys, options.seed) for source in chosen["source"]]


def _try(estimator: str, counts: Sequence[int], projection: str, sources: Iterable[Tokens]) -> None:
    """Try a map of one's own before any work."""
    for tokens in sources:
        dim = tokens.q.shape[1]
        sizes = [m for m in counts if has_size(estimator, dim, m)]
        if not sizes:
            raise ParameterError(
                f"{estimator} makes {load_named(estimator).num_features_of(dim)} features: name them as m"
            )
        for m in sizes:
            make_map(Softmax(), np.concatenate([tokens.q, tokens.k]), m, estimator, projection)


ATTENTION = Preset(
    title="Random features against exact attention, on real tokens",
    claim="Random features approximate softmax attention on real inputs at a linear cost (Choromanski et al. 2021; "
    "Peng et al. 2021). Neither paper asks how far attending to all keys alike would be from it.",
    cost="quick 11, full 97 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.attention.study:sweep",
    verdicts=verdicts,
    figures=FIGURES,
    formula=r"\hat{A} = \frac{\phi(q)^T \sum_j \phi(k_j) v_j^T}{\phi(q)^T \sum_j \phi(k_j)} \approx "
    r"\frac{\sum_j \exp(q^T k_j / \sqrt{d}) v_j^T}{\sum_j \exp(q^T k_j / \sqrt{d})}",
    expected={"variance_ratio": 1.0},
    data=TOKENS_OF_ONES_OWN,
    page=summary,
)
