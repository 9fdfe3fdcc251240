"""CuPy, imported when a name of it is first asked for: launches are planned, and tested, where there is none."""

from typing import Any


def __getattr__(name: str) -> Any:
    import cupy

    return getattr(cupy, name)
