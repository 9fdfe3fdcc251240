"""The package and the repository as these tests see them."""

from __future__ import annotations

import ast
import pkgutil
from functools import cache
from pathlib import Path

import kernattn

ROOT = Path(__file__).parents[2]
PACKAGE = Path(kernattn.__file__).parent
SIBLINGS = ("reference", "cpu", "gpu")


@cache
def modules() -> tuple[str, ...]:
    """Dotted names of all modules of the package, itself included, found without importing them."""
    found = pkgutil.walk_packages([str(PACKAGE)], "kernattn.", onerror=lambda name: None)
    return "kernattn", *sorted(info.name for info in found)


def is_public(module: str) -> bool:
    """Whether users may import from it: no underscore anywhere, and no op."""
    parts = module.split(".")
    return "ops" not in parts and not any(part.startswith("_") for part in parts)


def source(module: str) -> Path:
    """File that holds a module."""
    base = PACKAGE.joinpath(*module.split(".")[1:])
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


@cache
def syntax(module: str) -> ast.Module:
    """Syntax tree of a module."""
    return ast.parse(source(module).read_text(encoding="utf-8"))
