"""Running a preset: its records, its figures and its page of verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any

from kernattn._check import boolean, checked_path, one_of
from kernattn._extras import require
from kernattn._files import replace_text
from kernattn.studies._presets.preset import Figure, Preset
from kernattn.studies._presets.table import PRESETS
from kernattn.studies._records import Record, names, select
from kernattn.studies._run import run
from kernattn.studies._style import canvas, save

__all__ = ["study"]


def study(
    name: str,
    out: str | PathLike[str],
    quick: bool = False,
    seed: int = 0,
    precision: float | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
    workers: int = 0,
    progress: bool | None = False,
) -> list[Record]:
    """Run one of the PRESETS: what the field claims, what we measure, and a verdict = whether the two agree.

    `kernattn.studies.run` says how a study is stored, interrupted, continued and grown. Beside the records, `out` then
    holds summary.md and figures.

    Parameters
    ----------
    name : str
        A name in PRESETS.
    out : str or PathLike
        Folder of the study, created if needed.
    quick : bool
        A small form of it, in seconds.
    seed : int
        Root of every random stream.
    precision : float, optional
        Redraw up to 16 times as often, until the leading figure is known so well, as 0.02.
    axes : mapping, optional
        Values of axes, in place of the preset's own.
    workers : int
        Processes of one thread each; 0 measures in this process.
    progress : bool or None
        Show a progress bar on stderr; None shows it on a terminal only.

    Returns
    -------
    list of dict
        The records, one per cell.

    Raises
    ------
    ParameterError
        No such preset or axis, or `out` cannot be written to.
    StudyConflict
        `out` holds another study, or another process is writing to it.
    MissingExtra
        A package of the `study` extra is not installed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from kernattn.studies import PRESETS, study
    >>> axes = {"projection": ["iid", "orthogonal"], "d": [8]}
    >>> with TemporaryDirectory() as folder:
    ...     records = study("softmax-kernel", folder, quick=True, axes=axes)
    >>> for record in records:
    ...     print(record["estimator"], record["projection"], record["draws"])
    trigonometric iid 200
    trigonometric orthogonal 200
    positive iid 200
    positive orthogonal 200
    """
    preset = PRESETS[one_of("name", name, PRESETS)]
    out = checked_path("out", out)
    settings = {
        "quick": boolean("quick", quick),
        "seed": seed,
        "precision": precision,
        "axes": {axis: list(values) for axis, values in (axes or {}).items()},
    }
    require("matplotlib", "matplotlib", "the study's figures")
    records = run(preset.sweep, out, workers, progress, settings)
    files = [
        file for stem, figure in preset.figures.items() for file in save(out, stem, partial(_drawn, figure, records))
    ]
    replace_text(out / "summary.md", _page(preset, records, files))
    return records


def _drawn(figure: Figure, records: Sequence[Record]) -> Any:
    """Return the figure with all its panels, and one legend above them."""
    values = [None] if figure.by is None else names(records, figure.by)
    columns = min(len(values), 3)
    rows = -(-len(values) // columns)
    whole = canvas(figure.title, figure.subtitle, max(3.6 * columns + 1.05, 10.6), 3.4 * rows + 2.1)
    grid = whole.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for panel, value in zip(grid, values, strict=False):
        figure.draw(records if figure.by is None else select(records, **{figure.by: value}), ax=panel)
        if figure.by is not None:
            panel.set_title(f"{figure.by} = {value}".replace("_", " "), loc="left")
        panel.label_outer()
    for panel in grid[len(values) :]:
        panel.set_visible(False)
    labelled: dict[str, Any] = {}
    for panel in grid[: len(values)]:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            labelled.setdefault(label, handle)
    width, height = whole.get_size_inches()
    if labelled:
        whole.legend(
            labelled.values(),
            labelled.keys(),
            loc="center left",
            bbox_to_anchor=(0.15 / width, 1 - 1.02 / height),
            ncols=min(len(labelled), 5),
            handlelength=2.6,
            columnspacing=1.2,
        )
    return whole


def _page(preset: Preset, records: Sequence[Record], files: Sequence[str]) -> str:
    first = records[0]
    stops = {reason: sum(record["stopped"] == reason for record in records) for reason in names(records, "stopped")}
    why = ", ".join(f"{count} by {reason}" for reason, count in stops.items())
    lines = [f"# {preset.title}", "", f"**The field's claim.** {preset.claim}", "", "**Verdict.**", ""]
    lines += [f"- {verdict}" for verdict in preset.verdicts(records)]
    lines += ["", f"{len(records)} cells, seed {first['seed']['entropy']}; they stopped {why}.", ""]
    lines += [f"![{file.removesuffix('.png')}]({file})\n" for file in files if file.endswith(".png")]
    return "\n".join(lines)
