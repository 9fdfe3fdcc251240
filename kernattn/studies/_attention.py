"""The attention study: which random features approximate exact attention, on which tokens, and at what size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

from kernattn._check import checked_path, instance_of
from kernattn._environment import versions
from kernattn._extras import require
from kernattn._files import replace_text
from kernattn._version import __version__
from kernattn.studies._fields import fault
from kernattn.studies._figures import write_figures
from kernattn.studies._measure import measure
from kernattn.studies._problem import Problem
from kernattn.studies._records import Records
from kernattn.studies._report import summary
from kernattn.studies._settings import Settings
from kernattn.studies._tokens import Tokens, own_tokens, shipped_tokens

__all__ = ["attention_study"]


def attention_study(
    out: str | PathLike[str],
    settings: Settings,
    data: str | PathLike[str] | None = None,
    progress: bool | None = False,
) -> list[dict[str, Any]]:
    """Sweep estimator x projection x m, each cell by its errors against softmax attention softmax(q k^T / sqrt(d)) v.

    Every cell draws from its own random stream, named by the seed and the cell, so that neither the order nor an
    interruption changes a record. A cell's line is on the disk before the next cell starts; a second call with the
    same arguments goes on where the first one ended. Writes records.jsonl, summary.md and figures into `out`. Lines
    that are no records, for a disk or a hand damaged them, are moved to records.rejected.jsonl with a warning that
    names them, and their cells run again.

    Parameters
    ----------
    out : str or PathLike
        Folder of the study, created if needed.
    settings : Settings
        What to sweep.
    data : str or PathLike, optional
        The user's tokens, an .npz with q (n, d), k (l, d), v (l, e), in place of the shipped ones.
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
    >>> from kernattn.studies import attention_study, preset
    >>> x = np.random.default_rng(0).standard_normal((20, 4))
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "mine.npz", q=x, k=x, v=x)
    ...     settings = preset(sources=(), scales=(1.0,), estimators=("positive",), num_features=(8,), draws=6)
    ...     records = attention_study(Path(folder) / "out", settings, data=Path(folder) / "mine.npz")
    >>> [record["cell"] for record in records]
    ['mine@1/positive/iid/8', 'mine@1/positive/orthogonal/8']
    """
    out, data = checked_path("out", out), None if data is None else checked_path("data", data)
    instance_of("settings", settings, Settings, "as preset() gives them")
    require("matplotlib", "matplotlib", "the study's figures")
    tqdm = require("tqdm", "tqdm", "the study's progress bar").tqdm
    scaled = {tokens.name: tokens for source in _sources(settings, data) for tokens in _at_scales(source, settings)}
    cells = settings.cells(list(scaled))
    with Records(out, _identity(settings, scaled), versions(), fault) as records:
        todo = [cell for cell in cells if cell.name not in records.done]
        bar = tqdm(total=len(cells), initial=len(cells) - len(todo), unit="cell", disable=_disable(progress))
        problem: Problem | None = None
        with bar:
            for cell in todo:
                if problem is None or problem.tokens.name != cell.dataset:
                    problem = Problem(scaled[cell.dataset], settings.seed)
                bar.set_postfix_str(cell.name)
                records.append(measure(problem, cell, settings.seed, settings.draws))
                bar.update()
        found = [records.done[cell.name] for cell in cells]
        replace_text(out / "summary.md", summary(found, write_figures(out, found)))
    return found


def _disable(progress: bool | None) -> bool | None:
    return None if progress is None else not progress


def _sources(settings: Settings, data: Path | None) -> list[Tokens]:
    if data is not None:
        return [own_tokens(data, settings.queries, settings.seed)]
    return [shipped_tokens(source, settings.queries, settings.keys, settings.seed) for source in settings.sources]


def _at_scales(tokens: Tokens, settings: Settings) -> Iterator[Tokens]:
    return (tokens.scaled(scale) for scale in settings.scales)


def _identity(settings: Settings, scaled: dict[str, Tokens]) -> dict[str, Any]:
    """What the records depend on, and what a folder is therefore compared by."""
    return {
        "study": "attention",
        "kernattn": __version__,
        **asdict(settings),
        "tokens": {name: tokens.digest() for name, tokens in scaled.items()},
    }
