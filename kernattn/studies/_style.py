"""How figures are made: sizes, titles and legends that fit, and files written whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from kernattn._runtime.checks import one_of
from kernattn._runtime.files import replace_bytes
from kernattn.studies._palette import Look

FORMATS = ("pdf", "png", "svg")
DPI = 140


class Size(NamedTuple):
    """Of a figure: inches across, points of its text, panels side by side at most, inches down per panel, most rows."""

    width: float
    font: float
    columns: int
    height: float
    rows: int  # of panels: a page is 9 inches high
    titled: bool  # a paper has the title in its caption


SIZES = {
    "screen": Size(10.6, 9.0, 3, 2.9, 99, titled=True),
    "page": Size(7.0, 7.5, 3, 2.2, 3, titled=False),  # both columns of a page
    "column": Size(3.4, 7.0, 1, 2.1, 4, titled=False),
}


def style(size: str = "screen") -> dict[Any, Any]:
    """Return the settings of Matplotlib (rcParams) under which the project draws.

    Parameters
    ----------
    size : {"screen", "page", "column"}
        What the text is sized for: a screen, both columns of a page, or one.

    Examples
    --------
    >>> from kernattn.studies import style
    >>> style("column")["font.size"]
    7.0
    """
    points = SIZES[one_of("size", size, SIZES)].font
    return {
        "axes.axisbelow": True,
        "axes.edgecolor": "#888888",
        "axes.grid": True,
        "axes.labelcolor": "#333333",
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": points + 0.5,
        "axes.titlelocation": "left",
        "font.family": "DejaVu Sans",
        "font.size": points,
        "grid.color": "#e6e6e6",
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.fontsize": points,
        "pdf.fonttype": 42,
        "svg.fonttype": "none",
        "svg.hashsalt": "kernattn",
        "text.color": "#222222",
        "xtick.color": "#555555",
        "ytick.color": "#555555",
    }


def make_canvas(title: str, subtitle: str, width: float, height: float) -> Any:
    """Return an empty figure, its panels laid out in width x height inches below a message that breaks where it must.

    Either text may be empty. Room for a legend is made by `legend`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06))
    FigureCanvasAgg(figure)
    texts: tuple[tuple[str, Look, float], ...] = (
        (title, {"fontsize": 13, "fontweight": "bold"}, 0.26),
        (subtitle, {"fontsize": 9, "color": "#555555"}, 0.18),
    )
    for text, look, line in texts:
        for each in _break_lines(figure, text, look, width - 0.3):
            top = _make_room(figure, line)
            figure.text(0.1 / width, 1 - (top + line / 2) / figure.get_figheight(), each, va="center", **look)
    return figure


def put_legend(figure: Any, labelled: Mapping[str, Any]) -> None:
    """Put one legend, of handles by label, between message and panels, in as many columns as fit."""
    if not labelled:
        return
    width = figure.get_figwidth()
    renderer = figure.canvas.get_renderer()
    for columns in range(min(len(labelled), 8), 0, -1):
        box = figure.legend(
            labelled.values(),
            labelled.keys(),
            loc="upper left",
            borderaxespad=0.0,
            borderpad=0.3,
            ncols=columns,
            handlelength=2.6,
            columnspacing=1.2,
        )
        box.set_in_layout(False)
        extent = box.get_window_extent(renderer)
        if extent.width / figure.dpi <= 0.92 * width or columns == 1:
            break
        box.remove()
    top = _make_room(figure, extent.height / figure.dpi + 0.06)
    box.set_bbox_to_anchor((0.02 / width, 1 - top / figure.get_figheight()))


def _make_room(figure: Any, inches: float) -> float:
    """Make room between the texts of a figure and its panels, and return where it begins, in inches from the top."""
    engine = figure.get_layout_engine()
    height = figure.get_figheight()
    panels = height * engine.get()["rect"][3]
    for text in figure.texts:
        text.set_y(1 - (1 - text.get_position()[1]) * height / (height + inches))
    figure.set_figheight(height + inches)
    engine.set(rect=(0, 0, 1, panels / (height + inches)))
    return float(height - panels)


def _break_lines(figure: Any, text: str, look: Look, width: float) -> list[str]:
    """Break a text into lines of that many inches."""
    lines: list[str] = []
    renderer = figure.canvas.get_renderer()
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        probe = figure.text(0, 0, longer, **look)
        fits = probe.get_window_extent(renderer).width / figure.dpi <= width
        probe.remove()
        if lines and fits:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def save(
    folder: Path,
    name: str,
    draw: Callable[[], Any],
    size: str = "screen",
    formats: Sequence[str] = FORMATS,
    about: str = "",
) -> list[str]:
    """Draw a figure under this style and write it in every format; return the names of the files.

    `about` is what the files say of themselves.
    """
    files = {f"{name}.{form}": content for form, content in render(name, draw, size, formats, about).items()}
    for file, content in files.items():
        replace_bytes(folder / file, content)
    return list(files)


def render(name: str, draw: Callable[[], Any], size: str, formats: Sequence[str], about: str) -> dict[str, bytes]:
    """Return a figure in every format; in none where nothing is drawn."""
    import matplotlib as mpl

    marks = {}
    with mpl.rc_context(style(size)):
        figure = draw()
        for form in formats if figure is not None else ():
            buffer = BytesIO()
            figure.savefig(buffer, format=form, dpi=DPI, metadata=_metadata(form, name, about))
            marks[form] = buffer.getvalue()
    return marks


def _metadata(form: str, name: str, about: str) -> dict[str, Any]:
    """Return the metadata of a file: nothing that changes from one run to the next."""
    field = "Subject" if form == "pdf" else "Description"
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(form, {})
    return {"Title": name, **undated, **({field: about} if about else {})}
