"""The attention study: which random features approximate exact attention, on which tokens, and at what size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kernattn._runtime.checks import checked_path, instance_of
from kernattn._runtime.compiling import teller
from kernattn._runtime.extras import require
from kernattn._warmup import preparation
from kernattn.errors import ParameterError
from kernattn.kernels import Softmax
from kernattn.studies._presets.attention.delta import Independent
from kernattn.studies._presets.attention.measure import Task
from kernattn.studies._presets.attention.own import is_own, map_of, measured_at
from kernattn.studies._presets.attention.preset import ATTENTION
from kernattn.studies._presets.attention.problem import Problem
from kernattn.studies._presets.attention.settings import AttentionSettings
from kernattn.studies._presets.attention.tokens import Tokens, own_tokens, shipped_tokens
from kernattn.studies._presets.draw import write
from kernattn.studies._records import RECORDS
from kernattn.studies._run import run
from kernattn.studies._sweep import Cell, Stop, Sweep
from kernattn.studies._worker import named

AXES = {
    "source": "sources",
    "scale": "scales",
    "estimator": "estimators",
    "projection": "projections",
    "m": "num_features",
}


def attention_study(
    out: str | PathLike[str],
    settings: AttentionSettings,
    data: str | PathLike[str] | None = None,
    *,
    workers: int = 0,
    progress: bool | None = False,
) -> list[dict[str, Any]]:
    """Sweep estimator x projection x m, each cell by its errors against softmax attention softmax(q k^T / sqrt(d)) v.

    Estimators and projections of one data set and m are compared on the same random numbers. `kernattn.studies.run`
    says how a study is stored, interrupted, continued, grown and shared among processes. Beside the records, `out` then
    holds summary.md and figures.

    Parameters
    ----------
    out : str or PathLike
        Folder of the study, created if needed.
    settings : AttentionSettings
        What to sweep.
    data : str or PathLike, optional
        The user's tokens, an .npz with q (n, d), k (l, d), v (l, e), in place of the shipped ones.
    workers : int
        Processes of one thread each; 0 measures in this process.
    progress : bool or None
        Show a progress bar on stderr; None shows it on a terminal only.

    Returns
    -------
    list of dict
        The records, one per cell, in the order of the sweep.

    Raises
    ------
    StudyConflict
        `out` holds another study, or another process is writing to it.
    FileFormatError, ShapeError, DTypeError, ParameterError
        The data is not what it should be.
    MissingExtra
        A package of the `study` extra is not installed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from kernattn.studies import AttentionSettings, attention_study
    >>> x = np.random.default_rng(0).standard_normal((20, 4))
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "mine.npz", q=x, k=x, v=x)
    ...     chosen = {"estimators": ("positive",), "num_features": (8,), "draws": 6}
    ...     settings = AttentionSettings(sources=(), scales=(1.0,), **chosen)
    ...     records = attention_study(Path(folder) / "out", settings, data=Path(folder) / "mine.npz")
    >>> [(record["dataset"], record["projection"], record["m"]) for record in records]
    [('mine@1', 'iid', 8), ('mine@1', 'orthogonal', 8)]
    """
    out, data = checked_path("out", out), None if data is None else checked_path("data", data).absolute()
    instance_of("settings", settings, AttentionSettings)
    require("matplotlib", "matplotlib", "the study's figures")
    require("tqdm", "tqdm", "the study's progress bar")
    if not (out / RECORDS).exists():
        teller.expect()  # tokens are read first, which takes a while
    words = {"data": None if data is None else str(data), **asdict(settings)}
    name = "kernattn.studies._presets.attention.study:sweep"
    records = run(name, out, workers=workers, progress=progress, settings=words)
    write(ATTENTION, out, records)
    return records


def by_axes(
    quick: bool = False, seed: int = 0, precision: float | None = None, axes: Mapping[str, Any] | None = None
) -> Sweep:
    """Return the design as every preset does."""
    if unknown := sorted(set(axes or {}) - set(AXES)):
        raise ParameterError(f"this study has the axes {', '.join(AXES)}; got {', '.join(unknown)}")
    given: dict[str, Any] = {AXES[axis]: tuple(values) for axis, values in (axes or {}).items()}
    make = AttentionSettings.quick if quick else AttentionSettings
    return sweep(**asdict(make(seed=seed, precision=precision, **given)))


def sweep(data: str | None = None, **settings: Any) -> Sweep:
    """Return the study's design: its tokens are read here, so that what is wrong with them shows before any work."""
    given = AttentionSettings(**settings)
    own = [estimator for estimator in given.estimators if is_own(estimator)]
    sources = {tokens.source: tokens for tokens in _sources(given, None if data is None else Path(data))}

    @lru_cache(maxsize=1)
    def problem(source: str, scale: float) -> Problem:
        return Problem(sources[source].scaled(scale), given.seed)

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
        tokens, estimator = sources[cell["source"]], cell["estimator"]
        if is_own(estimator) and cell["projection"] != given.projections[0]:
            return False
        return tokens.digest == cell["tokens"] and measured_at(estimator, tokens.q.shape[1], cell["m"])

    for estimator in own:
        _try(estimator, given, sources.values())
    return Sweep(
        name="attention",
        axes={
            "source": tuple(sources),
            "tokens": tuple(dict.fromkeys(tokens.digest for tokens in sources.values())),
            "scale": given.scales,
            "estimator": given.estimators,
            "projection": given.projections,
            "m": given.num_features,
        },
        keep=keep,
        facts=facts,
        trial=lambda cell, rng: task(cell).trial(rng),
        reduce=lambda cell, draws, facts: task(cell).numbers(draws),
        paired=("tokens", "estimator", "projection"),
        stop=Stop(given.draws, given.precision, of="attention_mse"),
        version=4,
        seed=given.seed,
        prepare=preparation(float64=("features", "key_state", "attend")),
    )


def _try(estimator: str, given: AttentionSettings, sources: Iterable[Tokens]) -> None:
    """Try a map of one's own before any work."""
    for tokens in sources:
        dim = tokens.q.shape[1]
        sizes = [m for m in given.num_features if measured_at(estimator, dim, m)]
        if not sizes:
            raise ParameterError(f"{estimator} makes {named(estimator).num_features_of(dim)} features: name them as m")
        for m in sizes:
            map_of(Softmax(), np.concatenate([tokens.q, tokens.k]), m, estimator, given.projections[0])


def _sources(settings: AttentionSettings, data: Path | None) -> list[Tokens]:
    if data is not None:
        return [own_tokens(data, settings.queries, settings.seed)]
    return [shipped_tokens(source, settings.queries, settings.keys, settings.seed) for source in settings.sources]
