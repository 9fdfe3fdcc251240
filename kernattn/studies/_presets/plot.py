"""Figures of a folder, drawn again: into files, or into a panel of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from kernattn._runtime.checks import checked_path, one_of, shown
from kernattn._runtime.extras import require
from kernattn.errors import ParameterError
from kernattn.studies._presets.draw import draw_figure, write_figures
from kernattn.studies._presets.folder import Study, of_this_version, read_study
from kernattn.studies._presets.preset import Preset
from kernattn.studies._records import names, select
from kernattn.studies._style import FORMATS, SIZES, style


def figures(
    folder: str | PathLike[str],
    only: str | Sequence[str] | None = None,
    out: str | PathLike[str] | None = None,
    size: str = "screen",
    formats: str | Sequence[str] = FORMATS,
) -> list[Path]:
    """Draw figures of a study from its records, sized for a screen or for a page, and return the files.

    Each says in its metadata what it shows.

    Parameters
    ----------
    folder : str or PathLike
        Of the study.
    only : str or sequence of str, optional
        Names of figures, or one; default all of the study.
    out : str or PathLike, optional
        Folder to write to; default that of the study.
    size : {"screen", "page", "column"}
        10.6 inches with a title; 7 or 3.4 inches without one, for both columns of a page or one.
    formats : {"pdf", "png", "svg"} or sequence of them
        Kinds of files.
    """
    folder = checked_path("folder", folder)
    preset, study = _preset(folder)
    target = folder if out is None else checked_path("out", out)
    stems = [one_of("only", name, preset.figures) for name in (preset.figures if only is None else _several(only))]
    kinds = [one_of("formats", form, FORMATS) for form in _several(formats)]
    one_of("size", size, SIZES)
    require("matplotlib", "matplotlib", "figures")
    try:
        target.mkdir(parents=True, exist_ok=True)
        with of_this_version(folder):
            files = write_figures(preset, target, study.records, study.config, stems, size, kinds)
    except OSError as error:
        raise ParameterError(f"{target} cannot be written to: {error.strerror or error}") from error
    return [target / file for file in files]


def _several(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def plot(folder: str | PathLike[str], name: str, ax: Any = None, size: str = "screen", **where: Any) -> Any:
    """Draw a figure of a study, and return it: all its panels, or one of them into axes of one's own.

    Parameters
    ----------
    folder : str or PathLike
        Of the study.
    name : str
        Of the figure.
    ax : matplotlib.axes.Axes, optional
        Where one panel goes, without a legend: ``ax.legend()`` makes it.
    size : {"screen", "page", "column"}
        Of a figure that is made here.
    **where : str, int or float
        Values of axes, of which records to draw.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from matplotlib.figure import Figure
    >>> from kernattn.studies import plot, study
    >>> ax = Figure().subplots()
    >>> with TemporaryDirectory() as folder:
    ...     axes = {"projection": ["iid"], "d": [4]}
    ...     records = study("softmax-kernel", folder, quick=True, axes=axes)
    ...     figure = plot(folder, "variance_1.5", ax=ax, d=4)
    >>> ax.get_xlabel()
    'angle between x and y, degrees'
    """
    folder = checked_path("folder", folder)
    preset, study = _preset(folder)
    records = study.records
    figure = preset.figures[one_of("name", name, preset.figures)]
    if unknown := [axis for axis in where if axis not in records[0]]:
        raise ParameterError(f"records of {records[0]['study']} have no field {', '.join(unknown)}")
    records = select(records, **where)
    if not records:
        raise ParameterError(f"no record has {', '.join(f'{axis} = {shown(value)}' for axis, value in where.items())}")
    mpl = require("matplotlib", "matplotlib", "figures")
    with of_this_version(folder), mpl.rc_context(style(size)):
        if ax is None:
            return draw_figure(figure, records, size)
        if figure.by is not None and len(names(records, figure.by)) > 1:
            several = ", ".join(f"{figure.by}={value!r}" for value in names(records, figure.by))
            raise ParameterError(f"{name} has a panel for each of {several}; say which goes into ax")
        figure.draw(records, ax=ax)
        return ax.figure


def _preset(folder: Path) -> tuple[Preset, Study]:
    study = read_study(folder)
    if study.preset is None:
        own = "a sweep of your own, which has no figures: draw them from its records"
        raise ParameterError(f"{folder} holds {study.name}, {own}")
    return study.preset, study
