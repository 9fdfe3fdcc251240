"""Packages that few need: imported where they are used, and missed with the command that installs them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from kernattn.errors import MissingExtra

__all__ = ["require"]


def require(module: str, package: str, why: str, extra: str = "study") -> ModuleType:
    """Import `module`; its absence names the package, what needs it and the pip command."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".", maxsplit=1)[0] != module.split(".", maxsplit=1)[0]:
            raise
        raise MissingExtra(f"{why} needs {package}, which is not installed: pip install 'kernattn[{extra}]'") from error
