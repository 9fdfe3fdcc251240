"""The command line: ``kernattn study``, ``report``, ``figures``, ``features``, ``transformer``, ``bench``, ``warmup`` and ``info``."""

from kernattn.cli._main import main

__all__ = ["main"]


def __dir__() -> list[str]:
    return __all__
