"""Figures of a preset and its page, from the records alone."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kernattn._runtime.files import replace_text
from kernattn.errors import ParameterError
from kernattn.studies._panels import has_data, thin_ticks, write_short_logs
from kernattn.studies._presets.preset import Figure, Preset
from kernattn.studies._presets.verdict import Verdict
from kernattn.studies._records import Record, choose, names, read_config, select, spell
from kernattn.studies._style import FORMATS, SIZES, make_canvas, put_legend, save, style

MANY = 6  # values of an axis that a caption lists
EMPTY = "{} has nothing to show: these records have no value for it"
HIGHEST = 9.0  # inches of a page, without its margins


def draw_figure(figure: Figure, records: Sequence[Record], size: str = "screen") -> Any:
    """Return the figure with all its panels that have data, and one legend above them; None where none has."""
    room = SIZES[size]
    values = [None] if figure.by is None else names(records, figure.by)
    columns = min(len(values), room.columns, 2 if len(values) == 4 else len(values))
    rows = -(-len(values) // columns)
    headings = (figure.title, figure.subtitle) if room.titled else ("", "")
    whole = make_canvas(*headings, room.width, room.height * rows + 0.3)
    grid = whole.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    labelled: dict[str, Any] = {}
    for i, (panel, value) in enumerate(zip(grid, values, strict=False)):
        figure.draw(records if figure.by is None else select(records, **{figure.by: value}), ax=panel)
        if figure.by is not None and not panel.get_title(loc="left"):
            panel.set_title(spell(f"{figure.by} = {value}"), loc="left")
        if i % columns:
            panel.set_ylabel("")
        if i + columns < len(values):
            panel.set_xlabel("")
        else:
            panel.xaxis.set_tick_params(labelbottom=True)
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            labelled.setdefault(label, handle)
    drawn = [value for panel, value in zip(grid, values, strict=False) if has_data(panel)]
    if not drawn:
        return None
    if figure.by is not None and len(drawn) < len(values):
        return draw_figure(figure, [record for record in records if record[figure.by] in drawn], size)
    for panel in grid[len(values) :]:
        panel.remove()
    for panel in grid[: len(values)]:
        write_short_logs(panel)
        thin_ticks(panel, (room.width - 0.7) / columns - 0.2)
    put_legend(whole, labelled)
    return whole


def caption(figure: Figure, records: Sequence[Record], config: Mapping[str, Any], verdicts: Sequence[Verdict]) -> str:
    """Return the caption of a figure: what is drawn, what was found, what was varied, how often it was redrawn."""
    axes = {axis: values for axis, values in config["axes"].items() if axis != "tokens"}
    varied = "; ".join(f"{spell(axis)} {_list_values(values)}" for axis, values in axes.items())
    draws = sorted(names(records, "draws"))
    redraws = f"{draws[0]}" if len(draws) == 1 else f"{draws[0]} to {draws[-1]}"
    parts = (
        f"{figure.title}. {figure.subtitle}.",
        figure.findings(verdicts),
        f"{varied[0].upper()}{varied[1:]}.",
        f"{len(records)} cells of {redraws} redraws, seed {config['seed']}, kernattn {config['kernattn']}.",
    )
    return " ".join(filter(None, parts))


def _list_values(values: Sequence[Any]) -> str:
    shown = [f"{value:g}" if isinstance(value, float) else spell(str(value)) for value in values]
    if len(shown) > MANY and not isinstance(values[0], str):
        return f"{shown[0]} to {shown[-1]} in {len(shown)} steps"
    return ", ".join(shown)


def write(preset: Preset, out: Path, records: Sequence[Record]) -> None:
    """Write figures and summary.md into the folder of a study."""
    files = write_figures(preset.figures, preset.verdicts(records), out, records, read_config(out))
    text = preset.page(records, files) if preset.page is not None else _page(preset, records, files)
    replace_text(out / "summary.md", text)


def write_figures(
    figures: Mapping[str, Figure],
    verdicts: Sequence[Verdict],
    out: Path,
    records: Sequence[Record],
    config: Mapping[str, Any],
    stems: Sequence[str] | None = None,
    size: str = "screen",
    formats: Sequence[str] = FORMATS,
) -> list[str]:
    """Write figures, and one that is too high for a page in parts; return the files' names.

    By default they are those that have data; of `stems`, all must.
    """
    files = []
    for stem in figures if stems is None else stems:
        figure, mine = figures[stem], list[str]()
        about = caption(figure, records, config, verdicts)
        for suffix, part in split(figure, records, size):
            mine += save(out, f"{stem}{suffix}", partial(draw_figure, figure, part, size), size, formats, about)
        if stems is not None and not mine:
            raise ParameterError(EMPTY.format(stem))
        files += mine
    return files


def split(figure: Figure, records: Sequence[Record], size: str) -> list[tuple[str, Sequence[Record]]]:
    """Return the parts of a figure, each no higher than its size allows: what their names end with, their records."""
    room = SIZES[size]
    by = figure.by
    if by is None:
        return [("", records)]
    values = names(records, by)

    def shares(rows: int) -> list[Sequence[Record]]:
        most = rows * room.columns
        return [choose(records, {by: values[i : i + most]}) for i in range(0, len(values), most)]

    rows = min(room.rows, -(-len(values) // room.columns))
    if rows < 2:
        return [("", records)]
    if not room.titled:
        above = max(_height(figure, share, size) for share in shares(rows)) - rows * room.height
        rows = max(1, min(rows, int((HIGHEST - above) / room.height)))
    parts = shares(rows)
    return [("", records)] if len(parts) == 1 else [(f"-{i}", part) for i, part in enumerate(parts, start=1)]


def _height(figure: Figure, records: Sequence[Record], size: str) -> float:
    """Return the inches of a figure with its legend, whose lines are known when it is drawn."""
    import matplotlib as mpl

    with mpl.rc_context(style(size)):
        whole = draw_figure(figure, records, size)
        return 0.0 if whole is None else float(whole.get_figheight())


def _page(preset: Preset, records: Sequence[Record], files: Sequence[str]) -> str:
    first = records[0]
    stops = {reason: sum(record["stopped"] == reason for record in records) for reason in names(records, "stopped")}
    why = ", ".join(f"{count} by {reason}" for reason, count in stops.items())
    lines = [f"# {preset.title}", "", f"**The field's claim.** {preset.claim}", "", "**Verdict.**", ""]
    lines += [f"- {verdict}" for verdict in preset.verdicts(records)]
    lines += ["", f"{len(records)} cells, seed {first['seed']['entropy']}; they stopped {why}.", ""]
    lines += [f"![{file.removesuffix('.png')}]({file})\n" for file in files if file.endswith(".png")]
    return "\n".join(lines)
