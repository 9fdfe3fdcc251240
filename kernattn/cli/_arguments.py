"""What the commands' parsers share: errors of one line, texts as they are, and what options hold."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line; what takes long to say, its commands or its end, waits until it is asked.

    `fill` adds the commands, and `end` returns what its help ends with.
    """

    fill: Callable[[Parser], None] | None = None
    end: Callable[[], str] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        """Return the help."""
        if self.end is not None:
            self.epilog = plain(self.end())
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")


def plain(text: str) -> str:
    """Return a text that argparse prints as it is."""
    return text.replace("%", "%%")


def axis(text: str) -> tuple[str, list[Any]]:
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


def share(text: str) -> float:
    """Return a part of 1, given as such or in per cent."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a share such as 2% or 0.02; got {text!r}") from None
