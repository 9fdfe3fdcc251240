"""The command line: ``kernattn study``, ``kernattn bench`` and ``kernattn info``."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from kernattn._version import __version__
from kernattn.errors import KernattnError

__all__ = ["main"]


STUDIES = {
    "softmax-kernel": "trigonometric against positive features, over angle and length of the inputs",
    "gaussian-kernel": "what orthogonal, simplex, coupled and low-discrepancy frequencies gain",
    "attention-error": "error of attention outputs against m, and what attending to all keys alike would err",
}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


ATTENTION = "random features against exact attention, on real tokens"
COST = "quick 11, full 97 CPU seconds"


class _List(argparse.Action):
    """Print the studies and end."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print."""
        from kernattn.studies import PRESETS

        for name, about in {**STUDIES, "attention": ATTENTION}.items():
            print(f"{name:<17}{about}\n{'':<17}{PRESETS[name].cost if name in PRESETS else COST}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="kernattn", description="Random-feature kernels and linear attention: studies and facts.")
    parser.add_argument("--version", action="version", version=f"kernattn {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)

    study = commands.add_parser("study", help="sweep settings, write records, a summary and figures")
    study.add_argument("--list", action=_List, help="print every study, what it asks and what it costs")
    studies = study.add_subparsers(metavar="study", required=True)
    for name, about in STUDIES.items():
        _add_preset(studies, name, about)
    attention = studies.add_parser(
        "attention",
        help=ATTENTION,
        description="Sweeps estimator x projection x m on real tokens and holds each against exact softmax attention "
        "and against uniform attention. Run again to go on after an interruption.",
    )
    attention.set_defaults(run=_attention)
    add = attention.add_argument
    add(
        "--data",
        type=Path,
        metavar="FILE.npz",
        help="your own q (n, d), k (l, d), v (l, e); default: photographs and digits",
    )
    _add_common(attention)
    add("--m", type=int, nargs="+", metavar="M", dest="num_features", help="numbers of features, even")
    add("--estimators", nargs="+", metavar="NAME", help="estimators (default: the five of the softmax kernel)")
    add("--projections", nargs="+", metavar="NAME", help="projections (default: iid orthogonal)")
    add("--scales", type=float, nargs="+", metavar="X", help="factors on queries and keys; logits grow with the square")
    add("--draws", type=int, metavar="N", help="redraws of every map")

    _add_bench(commands)
    commands.add_parser("info", help="versions, threads, backends, and what each op would run on").set_defaults(
        run=_info
    )
    return parser


def _add_common(study: argparse.ArgumentParser) -> None:
    add = study.add_argument
    add("--out", type=Path, default=Path("study"), metavar="DIR", help="folder of the study (default: %(default)s)")
    add("--seed", type=int, metavar="S", help="root of every random stream (default: 0)")
    add("--quick", action="store_true", help="a small sweep, in seconds")
    add("--precision", type=_share, metavar="P", help="redraw up to 16 times as often, until known to P, as 2%%")
    add(
        "--workers",
        type=int,
        metavar="W",
        help="processes of one thread each (default: one per core); 0 measures in this one",
    )


def _add_preset(studies: Any, name: str, about: str) -> None:
    parser = studies.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
    parser.set_defaults(run=_preset, study=name)
    _add_common(parser)
    parser.add_argument(
        "--set",
        type=_axis,
        nargs="+",
        default=[],
        metavar="AXIS=A,B",
        help="values of an axis, in place of the study's own; the folder keeps the cells that it has",
    )


def _axis(text: str) -> tuple[str, list[Any]]:
    """Return the name of an axis and its values: integers, floats or words."""
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise argparse.ArgumentTypeError(f"an axis is set as NAME=A,B; got {text!r}")
    return name, [_value(each) for each in values.split(",")]


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _add_bench(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="race the ops against their floor and their peers",
        description="Times our ops, and every peer that can be imported, in alternation in one process, and sets each "
        "beside the floor measured in the same run. Sizes default to those of the device.",
    )
    bench.set_defaults(run=_bench)
    add = bench.add_argument
    add("--device", choices=("cpu", "gpu"), default="cpu", help="(default: %(default)s)")
    add("--cases", nargs="+", metavar="NAME", help="cases to race (default: all, or none with --scaling or --start)")
    add("--n", type=int, nargs="+", metavar="N", help="tokens, one or several (default: 4096; gpu: 2048 to 65536)")
    add("--batch", type=int, metavar="B", help="gpu: batch (default: 4)")
    add("--heads", type=int, metavar="H", help="heads (default: 8; gpu: 16)")
    add("--dim", type=int, metavar="D", help="dimension of queries, keys and values (default: 64; gpu: 128)")
    add("--features", type=int, default=256, metavar="M", help="features of FAVOR+ (default: %(default)s)")
    add("--dtype", help="float32 or float64; gpu: also bfloat16, float16, tf32 (default: float32; gpu: bfloat16)")
    add("--rounds", type=int, default=15, help="turns of every contestant (default: %(default)s)")
    add("--asleep", action="store_true", help="cpu: turns begin after a rest, and are one call each")
    add("--scaling", action="store_true", help="cpu: time and memory for n from 2^10 to 2^20, and their figure")
    add("--start", action="store_true", help="cpu: what a new process waits for, and the compilation of the loops")
    add("--page", type=Path, metavar="FILE.md", help="cpu: make the tables of a page anew, all its runs in one go")
    add("--out", type=Path, metavar="DIR", help="write the rows as JSON, the tables and the figure there")


@contextmanager
def _warnings() -> Iterator[None]:
    """Print each warning as one line."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print(f"kernattn: warning: {message}", file=sys.stderr)
        warnings.simplefilter("always", UserWarning)
        yield


def _share(text: str) -> float:
    """Return a part of 1, given as such or in per cent."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a share such as 2% or 0.02; got {text!r}") from None


def _attention(options: argparse.Namespace) -> None:
    from kernattn._parallel import threads
    from kernattn.studies import attention_study, preset, verdicts

    given: dict[str, Any] = {} if options.data is None else {"sources": (), "scales": (1.0,)}
    for name in ("num_features", "estimators", "projections", "scales"):
        if getattr(options, name) is not None:
            given[name] = tuple(getattr(options, name))
    for name in ("seed", "draws", "precision"):
        if getattr(options, name) is not None:
            given[name] = getattr(options, name)
    with _warnings():
        workers = threads() if options.workers is None else options.workers
        records = attention_study(options.out, preset(options.quick, **given), options.data, None, workers)
    print(*verdicts(records), sep="\n")
    print(f"{len(records)} records, summary.md and figures are in {options.out}")


def _preset(options: argparse.Namespace) -> None:
    from kernattn._parallel import threads
    from kernattn.errors import ParameterError
    from kernattn.studies import PRESETS, study

    workers = threads() if options.workers is None else options.workers
    axes, seed = dict(options.set), options.seed or 0
    if len(axes) < len(options.set):
        raise ParameterError("--set takes each axis once, as d=4,8; got " + " ".join(name for name, _ in options.set))
    with _warnings():
        records = study(options.study, options.out, options.quick, seed, options.precision, axes, workers, None)
    print(*PRESETS[options.study].verdicts(records), sep="\n")
    print(f"{len(records)} records, summary.md and figures are in {options.out}")


def _bench(options: argparse.Namespace) -> None:
    from kernattn.bench import bench, device, table, write
    from kernattn.errors import ParameterError

    on = device(options.device)
    if on.name != "cpu" and (options.scaling or options.start or options.asleep or options.page):
        raise ParameterError("--scaling, --start, --asleep and --page are for device 'cpu'; on a GPU, give several --n")
    if options.page is not None:
        from kernattn.bench.cpu import make_page

        make_page(options.page, on.columns, lambda line: print(line, file=sys.stderr, flush=True))
        return
    given = {name: getattr(options, name) for name in ("batch", "heads", "dim", "features", "dtype")}
    sizes = replace(on.sizes, **{name: value for name, value in given.items() if value is not None})
    clock = None
    if options.asleep:
        from kernattn.bench.cpu import HostClock

        clock = HostClock(asleep=True)
    none = options.cases is None and (options.scaling or options.start)
    rows = bench(on, [] if none else options.cases, sizes, options.n, options.rounds, clock=clock)
    parts, more = [] if none else [table(rows, on.columns)], {}
    if options.scaling:
        from kernattn.bench.cpu import SCALING, scaling

        more["scaling"] = scaling([2**i for i in range(10, 21)], sizes.heads, sizes.dim, sizes.features)
        parts.append(table(more["scaling"], SCALING))
    if options.start:
        from kernattn.bench.cpu import START, start

        more["start"] = start()
        parts.append(table(more["start"], START))
    print(*parts, sep="\n")
    if options.out is not None:
        write(options.out, "bench" if on.name == "cpu" else "bench-gpu", on.machine(), rows, parts, **more)
        if options.scaling:
            from kernattn.bench.cpu import scaling_figure

            scaling_figure(options.out, more["scaling"])


def _info(options: argparse.Namespace) -> None:
    from kernattn._environment import describe

    print(describe())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command: argv -> exit status, 0 = done, 2 = a user's error in one line on stderr, 130 = interrupted.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; default those of the process.

    Returns
    -------
    int
        Exit status.

    Examples
    --------
    >>> from kernattn.cli import main
    >>> main(["info"])  # doctest: +ELLIPSIS
    Versions
    ...
    0
    """
    options = _parser().parse_args(argv)
    try:
        options.run(options)
    except (KernattnError, OSError) as error:
        print(f"kernattn: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("kernattn: interrupted; a study goes on when its command is run again", file=sys.stderr)
        return 130
    return 0
