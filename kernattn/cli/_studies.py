"""``kernattn study``, ``report`` and ``figures``."""

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from kernattn.cli._arguments import Parser, axis, plain, share


def add_studies(commands: Any) -> None:
    """Add ``study``, ``report`` and ``figures``."""
    study = commands.add_parser("study", help="sweep settings, write records, a summary and figures")
    study.fill = _add_each
    study.add_argument("--list", action=_List, help="print every study, what it asks and what it costs")
    report = commands.add_parser(
        "report",
        help="one HTML file of a study, or of a folder of studies",
        description="Writes verdicts, figures, tables and records of a study as one page that loads nothing.",
    )
    report.set_defaults(run=_report)
    report.add_argument("folder", type=Path, metavar="DIR", help="folder of a study, or one that holds such folders")
    report.add_argument("--out", type=Path, metavar="FILE.html", help="(default: report.html in the folder)")

    figures = commands.add_parser(
        "figures",
        help="draw figures of a study again, for a screen or for a page",
        description="Draws figures from the records of a study, in the sizes of a paper.",
    )
    figures.set_defaults(run=_figures)
    figures.add_argument("folder", type=Path, metavar="DIR", help="folder of a study")
    figures.add_argument("names", nargs="*", metavar="NAME", help="figures (default: all)")
    figures.add_argument("--only", nargs="+", default=[], metavar="NAME", help="figures, after other options")
    figures.add_argument("--size", default="screen", help="screen, page (both columns) or column (default: screen)")
    figures.add_argument("--formats", nargs="+", metavar="F", help="of pdf, png, svg (default: all)")
    figures.add_argument("--out", type=Path, metavar="DIR", help="where to (default: the folder)")
    figures.add_argument(
        "--where", type=axis, nargs="+", default=[], metavar="AXIS=A,B", help="draw records with these values alone"
    )
    figures.add_argument("--across", metavar="AXIS", help="of your own sweep: along which lines run")
    figures.add_argument("--by", metavar="AXIS", help="of your own sweep: a panel for each of its values")


def _add_each(study: Parser, words: Sequence[str]) -> None:
    """Add a command for each study: the table is read here, for it takes most of a second."""
    from kernattn.studies import PRESETS

    del words
    studies = study.add_subparsers(metavar="study", required=True)
    for name, preset in PRESETS.items():
        _add_preset(studies, name, preset)


def _add_preset(studies: Any, name: str, preset: Any) -> None:
    parser = studies.add_parser(name, help=plain(preset.title), description=preset.claim)
    parser.set_defaults(run=_preset, study=name)
    parser.end = partial(_axes, preset)
    add, folder = parser.add_argument, Path(f"study-{name}")
    add("--out", type=Path, default=folder, metavar="DIR", help="folder of the study (default: %(default)s)")
    add("--seed", type=int, default=0, metavar="S", help="root of every random stream (default: 0)")
    add("--quick", action="store_true", help="a small sweep, in seconds")
    add("--precision", type=share, metavar="P", help="redraw up to 16 times as often, until known to P, as 2%%")
    add("--draws", type=int, metavar="N", help="redraws of every cell (default: the study's own number)")
    add(
        "--workers",
        type=int,
        metavar="W",
        help="processes of one thread each (default: one per core); 0 measures in this one",
    )
    add("--data", type=Path, metavar="FILE", help=preset.data or argparse.SUPPRESS)
    add(
        "--set",
        type=axis,
        nargs="+",
        default=[],
        metavar="AXIS=A,B",
        help="values of an axis, in place of the study's own; the folder keeps the cells that it has",
    )
    if name == "attention":
        for option, old in OLD_OPTIONS.items():
            add(option, nargs="+", metavar="A", help=argparse.SUPPRESS, dest=f"old_{old}")


OLD_OPTIONS = {"--m": "m", "--estimators": "estimator", "--projections": "projection", "--scales": "scale"}


def _axes(preset: Any) -> str:
    """Return the axes of a study and their usual values, as --set takes them, and what else some take."""
    from kernattn.features import estimators
    from kernattn.kernels import Softmax
    from kernattn.projections import PROJECTIONS
    from kernattn.studies._worker import find_sweep

    axes = find_sweep(preset.sweep, {}).axes
    own = " ".join(f"{name}={','.join(map(str, values))}" for name, values in axes.items() if name != "tokens")
    text = f"Axes and their values: {own}."
    if "projection" in axes:
        text += f" Projections are {', '.join(PROJECTIONS)}."
    if "tokens" in axes:
        text += f" Estimators are {', '.join(estimators(Softmax()))}, or your own as module:object."
    return text


class _List(argparse.Action):
    """Print the studies and end."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print."""
        from kernattn.studies import PRESETS

        width = max(map(len, PRESETS)) + 2
        for name, preset in PRESETS.items():
            print(f"{name:<{width}}{preset.title}\n{'':<{width}}{preset.cost}")
        parser.exit()


def _preset(options: argparse.Namespace) -> None:
    from kernattn._runtime.parallel import threads
    from kernattn.errors import ParameterError
    from kernattn.studies import PRESETS, study

    given = [*options.set, *_old_axes(options)]
    axes = dict(given)
    if len(axes) < len(given):
        raise ParameterError("--set takes each axis once, as d=4,8; got " + " ".join(name for name, _ in given))
    if any(":" in str(name) for name in axes.get("estimator", ())):
        sys.path.insert(0, str(Path.cwd()))  # a module that lies here, as for python -m
    with _warnings():
        records = study(
            options.study,
            options.out,
            quick=options.quick,
            seed=options.seed,
            precision=options.precision,
            draws=options.draws,
            axes=axes,
            data=options.data,
            workers=threads() if options.workers is None else options.workers,
            progress=None,
        )
    print(*PRESETS[options.study].verdicts(records), sep="\n")
    print(f"{len(records)} records, summary.md and figures are in {options.out}")


def _old_axes(options: argparse.Namespace) -> Iterator[tuple[str, list[Any]]]:
    """Yield the axes that were set by options of kernattn 0.2, and say how they are set now."""
    for option, name in OLD_OPTIONS.items():
        if values := getattr(options, f"old_{name}", None):
            text = f"{name}={','.join(values)}"
            print(f"kernattn: warning: {option} is now --set {text}", file=sys.stderr)
            yield axis(text)


def _report(options: argparse.Namespace) -> None:
    from kernattn.studies import report

    with _warnings():
        print(f"the report is {report(options.folder, options.out)}")


def _figures(options: argparse.Namespace) -> None:
    from kernattn.studies import figures

    given = {} if options.formats is None else {"formats": _words(options.formats)}
    with _warnings():
        files = figures(
            options.folder,
            _words([*options.names, *options.only]) or None,
            options.out,
            options.size,
            where=dict(options.where),
            across=options.across,
            by=options.by,
            **given,
        )
    print(*files, sep="\n")


def _words(given: Sequence[str]) -> list[str]:
    """Return words that stand apart, or with commas between."""
    return [word for text in given for word in text.split(",") if word]


@contextmanager
def _warnings() -> Iterator[None]:
    """Print each warning as one line."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print(f"kernattn: warning: {message}", file=sys.stderr)
        warnings.simplefilter("always", UserWarning)
        yield
