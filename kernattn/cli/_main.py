"""All commands, and how one ends."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

from kernattn._version import __version__
from kernattn.cli._arguments import Parser
from kernattn.cli._bench import add_bench
from kernattn.cli._features import add_features
from kernattn.cli._studies import add_studies
from kernattn.cli._transformer import add_transformer
from kernattn.cli._warmup import add_warmup
from kernattn.errors import KernattnError


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    whole = Parser(prog="kernattn", description="Random-feature kernels and linear attention: studies and facts.")
    whole.add_argument("--version", action="version", version=f"kernattn {__version__}")
    commands = whole.add_subparsers(metavar="command", required=True)
    add_studies(commands)
    add_features(commands)
    add_transformer(commands)
    add_bench(commands)
    add_warmup(commands)
    commands.add_parser("info", help="versions, threads, backends, and what each op would run on").set_defaults(
        run=_print_info
    )
    return whole


def _print_info(options: argparse.Namespace) -> None:
    from kernattn._environment import describe

    print(describe())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command: argv -> exit status, 0 = done, 1 = nobody reads the output any more, 2 = a user's error in one
    line on stderr, 130 = interrupted.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; default those of the process.

    Examples
    --------
    >>> from kernattn.cli import main
    >>> main(["info"])  # doctest: +ELLIPSIS
    Versions
    ...
    0
    """
    with _usable_streams():
        try:
            options = parser().parse_args(argv)
            options.run(options)
            sys.stdout.flush()
        except BrokenPipeError:  # whoever reads the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except (KernattnError, OSError, MemoryError) as error:
            _report(f"error: {error}", error)
            return 2
        except KeyboardInterrupt as error:
            _report("interrupted", error)
            return 130
        return 0


@contextmanager
def _usable_streams() -> Iterator[None]:
    """Make all text printable: a closed stream leads nowhere, and letters that a stream lacks are escaped."""
    with ExitStack() as restored:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None or stream.closed:
                nowhere = restored.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
                restored.callback(setattr, sys, name, stream)
                setattr(sys, name, nowhere)
            elif isinstance(stream, TextIOWrapper):
                restored.callback(_set_errors, stream, stream.errors)
                _set_errors(stream, "backslashreplace")
        yield


def _set_errors(stream: TextIOWrapper, errors: str | None) -> None:
    with suppress(OSError):  # what could not be written is told where it is printed
        stream.reconfigure(errors=errors)


def _report(what: str, error: BaseException) -> None:
    """Print in one line how a command ended, and the notes of its error, such as where its work is kept."""
    parts = (what, *getattr(error, "__notes__", ()))
    print("kernattn:", "; ".join(" ".join(part.split()) for part in parts), file=sys.stderr)
