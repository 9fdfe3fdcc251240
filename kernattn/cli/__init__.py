"""The command line: ``kernattn study``, ``report``, ``figures``, ``bench`` and ``info``."""

from kernattn.cli._main import main

__all__ = ["main"]


def __dir__() -> list[str]:
    return __all__
