"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["replace"]


def replace(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file under a temporary name, and rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        write(file)
    temporary.replace(path)
