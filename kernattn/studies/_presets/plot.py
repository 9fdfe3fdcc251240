"""Figures of a folder, drawn again: into files, or into a panel of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from kernattn._runtime.checks import checked_path, one_of, shown
from kernattn._runtime.elsewhere import hint_at
from kernattn._runtime.extras import require
from kernattn.errors import ParameterError
from kernattn.studies._panels import write_short_logs
from kernattn.studies._presets.draw import EMPTY, draw_figure, split, write_figures
from kernattn.studies._presets.folder import Study, of_this_version, read_study
from kernattn.studies._presets.preset import Figure
from kernattn.studies._records import choose, names
from kernattn.studies._style import FORMATS, SIZES, style

MOST = 20  # values that an error lists


def figures(
    folder: str | PathLike[str],
    only: str | Sequence[str] | None = None,
    out: str | PathLike[str] | None = None,
    size: str = "screen",
    formats: str | Sequence[str] = FORMATS,
    *,
    where: Mapping[str, Any] | None = None,
    across: str | None = None,
    by: str | None = None,
) -> list[Path]:
    """Draw figures of a study from its records, sized for a screen or for a page, and return the files.

    Each says in its metadata what it shows. In the sizes of a paper, one that is higher than a
    page of 9 inches is drawn in parts, name-1, name-2 and so on. A sweep of one's own
    has a figure for each field that redraws measured.

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
    where : mapping, optional
        Values of axes, one or a list of them, of which records to draw.
    across, by : str, optional
        Of a sweep of one's own: the axis along which lines run, by default that with most numbers, and one that has a
        panel for each value, by default none.
    """
    folder = checked_path("folder", folder)
    study = _chosen(read_study(folder), where or {})
    target = folder if out is None else checked_path("out", out)
    drawn = _drawn(study, across, by)
    stems = [one_of("only", name, drawn) for name in (drawn if only is None else _several(only))]
    kinds = [one_of("formats", form, FORMATS) for form in _several(formats)]
    one_of("size", size, SIZES)
    require("matplotlib", "matplotlib", "figures")
    try:
        target.mkdir(parents=True, exist_ok=True)
        with of_this_version(folder):
            verdicts = [] if where else study.verdicts()  # they speak of all records
            asked = None if only is None else stems
            files = write_figures(drawn, verdicts, target, study.records, study.config, asked, size, kinds)
    except OSError as error:
        raise ParameterError(f"{target} cannot be written to: {error.strerror or error}") from error
    return [target / file for file in files]


def _several(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def plot(
    folder: str | PathLike[str],
    name: str,
    ax: Any = None,
    size: str = "screen",
    *,
    across: str | None = None,
    by: str | None = None,
    **where: Any,
) -> Any:
    """Draw a figure of a study, and return it: all its panels, or one of them into axes of one's own.

    Parameters
    ----------
    folder : str or PathLike
        Of the study.
    name : str
        Of the figure; of a sweep of one's own, of a field that redraws measured.
    ax : matplotlib.axes.Axes, optional
        Where one panel goes, without a legend: ``ax.legend()`` makes it.
    size : {"screen", "page", "column"}
        Of a figure that is made here.
    across, by : str, optional
        As `figures` takes them.
    **where : str, int, float or list
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
    study = _chosen(read_study(folder), where)
    drawn = _drawn(study, across, by)
    records, figure = study.records, drawn[one_of("name", name, drawn)]
    mpl = require("matplotlib", "matplotlib", "figures")
    with of_this_version(folder), mpl.rc_context(style(size)):
        values = [] if figure.by is None else names(records, figure.by)
        several = ", ".join(f"{figure.by}={value!r}" for value in values)
        if ax is None:
            if len(split(figure, records, size)) > 1:
                raise ParameterError(f"{name} is higher than a page in the size {size}; choose some of {several}")
            whole = draw_figure(figure, records, size)
            if whole is None:
                raise ParameterError(EMPTY.format(name))
            return whole
        if len(values) > 1:
            raise ParameterError(f"{name} has a panel for each of {several}; say which goes into ax")
        figure.draw(records, ax=ax)
        write_short_logs(ax)
        return ax.figure


def _list(values: Any) -> str:
    return " or ".join(map(str, values)) if isinstance(values, list | tuple) else str(values)


def _chosen(study: Study, where: Mapping[str, Any]) -> Study:
    """Return a study with the records that have these values, and axes of no others."""
    if not where:
        return study
    first, known = study.records[0], list(study.config["axes"])
    for axis, values in where.items():
        if axis not in first or isinstance(first[axis], list):
            hint = hint_at("where", axis, known)
            raise ParameterError(f"where takes axes of {study.name}, {', '.join(known)}; got {shown(axis)}{hint}")
        there = names(study.records, axis)
        for value in values if isinstance(values, list | tuple) else (values,):
            if not choose(study.records, {axis: value}):
                some = ", ".join(map(str, there[:MOST])) + f" and {len(there) - MOST} others" * (len(there) > MOST)
                raise ParameterError(f"{axis} must be one of {some}, which the records have; got {shown(value)}")
    records = choose(study.records, where)
    if not records:
        wanted = ", ".join(f"{axis} = {_list(values)}" for axis, values in where.items())
        raise ParameterError(f"no record has all of {wanted}")
    lacking = study.config.get("cells", len(study.records)) - len(study.records)  # whichever they are
    axes = {axis: names(records, axis) for axis in study.config["axes"]}
    return study._replace(records=records, config={**study.config, "axes": axes, "cells": lacking + len(records)})


def _drawn(study: Study, across: str | None, by: str | None) -> Mapping[str, Figure]:
    figures = study.figures(across, by)
    if not figures:
        raise ParameterError(f"{study.name} has no figure: no field with an interval along an axis of two values")
    return figures
