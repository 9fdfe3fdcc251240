"""The command line, ``kernattn``: a command a module."""

from kernattn.cli._main import main

__all__ = ["main"]


def __dir__() -> list[str]:
    return __all__
