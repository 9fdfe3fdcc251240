"""The parser of commands, whose errors are one line, and the types of options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line; its commands and the end of its help, which take long, wait until asked for.

    `fill` adds the commands, or options, given the words, and `end` returns what its help ends with.
    """

    fill: Callable[[Parser, Sequence[str]], None] | None = None
    end: Callable[[], str] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self, sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        """Return the help."""
        if self.end is not None:
            self.epilog = plain(self.end())
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")


def plain(text: str) -> str:
    """Escape a text for argparse, which prints it unchanged."""
    return text.replace("%", "%%")


def axis(text: str) -> tuple[str, list[Any]]:
    """Parse ``NAME=A,B``: the name of an axis, and its values as integers, floats or words."""
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise argparse.ArgumentTypeError(f"an axis is set as NAME=A,B; got {text!r}")
    return name, [_parse_value(each) for each in values.split(",")]


def _parse_value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def share(text: str) -> float:
    """Parse a share: 0.02 or 2%."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a share such as 2% or 0.02; got {text!r}") from None
