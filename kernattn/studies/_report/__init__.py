"""A study, or a folder of them, as one page that needs nothing else."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from kernattn._runtime.checks import checked_path
from kernattn._runtime.extras import require
from kernattn._runtime.files import replace_text
from kernattn.errors import ParameterError
from kernattn.studies._presets.folder import of_this_version, read_study
from kernattn.studies._presets.table import PRESETS
from kernattn.studies._records import RECORDS
from kernattn.studies._report.page import html


def report(folder: str | PathLike[str], out: str | PathLike[str] | None = None) -> Path:
    """Write a study as one HTML file that loads nothing: verdicts, what is not settled, figures, tables, the records.

    The path of the file is returned. Formulas take latex2mathml, figures Matplotlib.

    Parameters
    ----------
    folder : str or PathLike
        Of a study, a preset's or one's own; or one that holds folders of studies, which make one page.
    out : str or PathLike, optional
        The file; default ``report.html`` in the folder.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from kernattn.studies import Stop, Sweep, report, run
    >>> def trial(cell, rng):
    ...     return {"mean": rng.random(cell["n"]).mean()}
    >>> with TemporaryDirectory() as folder:
    ...     records = run(Sweep("uniform", {"n": (10, 100)}, trial, stop=Stop(draws=50)), folder)
    ...     text = report(folder).read_text(encoding="utf-8")
    >>> text.startswith("<!doctype html>"), text.count("<table>")
    (True, 2)
    """
    folder = checked_path("folder", folder)
    if out is None and not folder.is_dir():
        raise ParameterError(f"folder must be the folder of a study, or one that holds such folders; got {folder}")
    target = folder / "report.html" if out is None else checked_path("out", out)
    if target.is_dir() or not target.parent.is_dir():
        raise ParameterError(f"out must be a file in a folder that is there; got {target}")
    require("matplotlib", "matplotlib", "a report")
    studies = [read_study(each) for each in _folders(folder)]
    with of_this_version(folder):
        text = html(studies)
    try:
        replace_text(target, text)
    except OSError as error:
        raise ParameterError(f"{target} cannot be written to: {error.strerror or error}") from error
    return target


def _folders(folder: Path) -> list[Path]:
    """Return the folder, or those in it that hold studies, presets first."""
    if (folder / RECORDS).is_file() or not folder.is_dir():
        return [folder]
    order = list(PRESETS)
    inner = sorted(
        (each for each in folder.iterdir() if (each / RECORDS).is_file()),
        key=lambda each: (order.index(each.name) if each.name in order else len(order), each.name),
    )
    return inner or [folder]
