"""Races on tables: CPU seconds of fits and predictions on one thread, and their scores, seed by seed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from time import process_time
from typing import Any
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from bench.cpu.tabular.contestants import CLASSIFIERS, REGRESSORS, Contestant, judge
from bench.cpu.tabular.sources import Split, Table, split, tables
from kernattn._runtime.parallel import VARIABLE
from kernattn.errors import ParameterError
from kernattn.sklearn import FeatureLogistic, FeatureRidge

Row = dict[str, Any]


def known_models() -> list[str]:
    """Return the names of all contestants."""
    return list(REGRESSORS | CLASSIFIERS)


def race(
    names: Sequence[str] | None,
    models: Sequence[str] | None,
    seeds: int,
    kept: Iterable[Row],
    report: Callable[[list[Row]], None],
    most: int | None = None,
) -> list[Row]:
    """Return a row for each table, seed and contestant; rows that are kept are not measured again.

    One seed is raced on all tables before the next. `report` is told all rows so far after each. `most` is how many
    rows of a table are learnt from at most.
    """
    known = tables(most)
    chosen = list(known) if names is None else names
    wanted = known_models() if models is None else models
    _check("tables", chosen, known)
    _check("models", wanted, known_models())
    if {"FeatureRidge", "FeatureLogistic"} & {*wanted}:
        _compile()
    rows = {(row["table"], row["seed"], row["model"]): row for row in kept}
    for seed in range(seeds):
        for name in chosen:
            table = known[name]
            contestants = CLASSIFIERS if table.classes else REGRESSORS
            missing = [m for m in contestants if m in wanted and (name, seed, m) not in rows]
            if not missing:
                continue
            data = split(table, seed)
            for model in missing:
                if contestants[model].here(len(data.x)):
                    row = {"table": name, "classes": table.classes, "seed": seed, "model": model}
                    rows[name, seed, model] = row | _measure(contestants[model], table, data, seed)
            report(list(rows.values()))
    return list(rows.values())


def _compile() -> None:
    """Compile the loops that fits of ours call, so that no time holds it."""
    x = np.random.default_rng(0).standard_normal((60, 2))
    FeatureRidge(random_state=0).fit(x, x[:, 0] * x[:, 1] + x[:, 0]).predict(x)
    FeatureLogistic(random_state=0).fit(x, x[:, 0] > 0).predict(x)


def _measure(contestant: Contestant, table: Table, data: Split, seed: int) -> Row:
    """Return what a fit scores and takes, or how it failed."""
    level = None if table.classes else np.mean(data.y)
    row: Row = {"rows": len(data.x), "dim": data.x.shape[1]}
    with threadpool_limits(1), patch.dict(os.environ, {VARIABLE: "1"}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = process_time()
        try:
            model = contestant.fit(data.x, data.y, seed)
            row["fit_seconds"] = process_time() - begin
            row |= judge(model, table.classes, data.new_x, data.new_y, level)
        except Exception as error:  # of a peer, whose failure is a result
            row["failed"] = f"{type(error).__name__}: {error}"[:200]
        row["seconds"] = process_time() - begin
    return row


def _check(what: str, given: Sequence[str], known: Iterable[str]) -> None:
    if unknown := [name for name in given if name not in known]:
        raise ParameterError(f"{what} are {', '.join(known)}; got {', '.join(unknown)}")
