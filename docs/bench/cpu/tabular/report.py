"""What rows of races on tables say: each table's scores, and each contestant over all tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bench.cpu.tabular.contestants import CLASSIFIERS, REGRESSORS
from kernattn.bench import Column, table
from kernattn.bench._tables import number_column, text_column

MATTERS = 0.005  # of R2, or of the log loss
Row = Mapping[str, Any]
Scores = dict[str, dict[str, float]]  # by table and contestant: the mean over seeds, the larger the better

SUMMARY = (
    text_column("contestant", "model"),
    text_column("tables", "tables", right=True),
    number_column("median", "median", ".4f"),
    number_column("mean", "mean", ".4f"),
    text_column("best or .005 from it", "best", right=True),
    text_column("below the line by .005", "below", right=True),
    text_column("of these by 2 s.e.", "certain", right=True),
    number_column("by in all", "lost", ".3f"),
    number_column("median CPU s", "seconds", ".2f"),
    number_column("CPU s in all", "total_seconds", ".0f"),
)


def parts(rows: Sequence[Row], title: str = "tables") -> dict[str, str]:
    """Return tables by name: regression and classes, over all tables and one by one."""
    found = {}
    for name, classes, contestants in (("regression", False, REGRESSORS), ("classes", True, CLASSIFIERS)):
        of = [row for row in rows if row["classes"] is classes]
        models = [model for model in contestants if any(row["model"] == model for row in of)]
        if models:
            found[f"{title}-{name}"] = table(summary(of, models, classes), _summary_columns(classes))
            found[f"{title}-{name}-each"] = table(each(of, models, classes), _columns(models))
    return found


def scores(rows: Sequence[Row], classes: bool, key: str = "score") -> Scores:
    """Return means over seeds, of the log loss with a minus: the larger the better. A failure is worth nothing."""
    found: dict[str, dict[str, list[float]]] = {}
    sign = -1.0 if classes and key == "score" else 1.0
    for row in rows:
        if key in row:
            found.setdefault(row["table"], {}).setdefault(row["model"], []).append(sign * row[key])
    return {name: {model: float(np.mean(values)) for model, values in of.items()} for name, of in found.items()}


def summary(rows: Sequence[Row], models: Sequence[str], classes: bool) -> list[dict[str, Any]]:
    """Return a row for each contestant, over the tables that it was raced on."""
    by_score, by_accuracy, found = scores(rows, classes), scores(rows, classes, "accuracy"), []
    for model in models:
        mine = {name: of[model] for name, of in by_score.items() if model in of}
        seconds = [row["seconds"] for row in rows if row["model"] == model and "failed" not in row]
        row: dict[str, Any] = {"model": model, "seconds": np.median(seconds or [np.nan]), "total_seconds": sum(seconds)}
        right = [of[model] for of in by_accuracy.values() if model in of]
        row |= {"accuracy": np.mean(right)} if right else {}
        row["tables"] = len(mine) or len(right)
        if mine:
            values = np.array([*mine.values()])
            best = sum(value >= max(by_score[name].values()) - MATTERS for name, value in mine.items())
            row |= {"median": np.median(values) * (-1 if classes else 1), "best": best}
            row |= {"mean": np.mean(np.maximum(values, -10.0)) * (-1 if classes else 1)}
            lines = [(name, by_score[name]["line"], value) for name, value in mine.items() if "line" in by_score[name]]
            lost = [line - value for _, line, value in lines if line - value > MATTERS]
            certain = sum(line - value > MATTERS and _is_certain(rows, name, model) for name, line, value in lines)
            row |= {"below": len(lost), "certain": certain, "lost": sum(lost)} if model != "line" else {}
        found.append(row)
    return found


def _is_certain(rows: Sequence[Row], name: str, model: str) -> bool:
    """Return whether a contestant is apart from the line on a table by two standard errors of the mean over seeds."""
    of = {(row["model"], row["seed"]): row["score"] for row in rows if row["table"] == name and "score" in row}
    apart = [score - of["line", seed] for (who, seed), score in of.items() if who == model and ("line", seed) in of]
    if len(apart) < 2:
        return False
    return bool(abs(np.mean(apart)) > 2 * np.std(apart, ddof=1) / np.sqrt(len(apart)))


def each(rows: Sequence[Row], models: Sequence[str], classes: bool) -> list[dict[str, Any]]:
    """Return a row for each table, with the scores of all and who is best."""
    by_score, found = scores(rows, classes), []
    for name, of in by_score.items():
        first = next(row for row in rows if row["table"] == name)
        row: dict[str, Any] = {"table": name, "rows": first["rows"], "dim": first["dim"]}
        row |= {model: of[model] * (-1 if classes else 1) for model in models if model in of}
        row["bold"] = [model for model, value in of.items() if value >= max(of.values()) - MATTERS]
        found.append(row)
    return found


def _summary_columns(classes: bool) -> Sequence[Column]:
    score = "log loss" if classes else "R²"
    named = [
        column._replace(title=f"{column.title} {score}") if column.title in ("median", "mean") else column
        for column in SUMMARY
    ]
    return [*named[:4], number_column("mean accuracy", "accuracy", ".4f"), *named[4:]] if classes else named


def _columns(models: Sequence[str]) -> Sequence[Column]:
    """Return columns of a table of tables, the best of a row in bold."""
    shown = [
        text_column("table", "table"),
        text_column("rows", "rows", right=True),
        text_column("d", "dim", right=True),
    ]
    return [*shown, *(Column(SHORT.get(model, model), partial(_cell, model)) for model in models)]


def _cell(model: str, row: Row) -> str:
    if model not in row:
        return ""
    text = f"{row[model]:.3f}"
    return f"**{text}**" if model in row["bold"] else text


SHORT = {
    "RBFSampler + RidgeCV": "RBFSampler",
    "Nystroem + RidgeCV": "Nystroem",
    "RBFSampler + LogisticRegression": "RBFSampler",
    "Nystroem + LogisticRegression": "Nystroem",
    "GaussianProcessRegressor": "GPR",
    "HistGradientBoosting": "HGB",
    "HistGradientBoosting, searched": "HGB, searched",
}
