"""``__all__`` is exactly a module's public names, sorted, and each of them is documented formula first."""

from __future__ import annotations

import ast
import importlib
import inspect
import re

import pytest

import kernattn
from quality.tree import is_public, modules, syntax

PUBLIC = [name for name in modules() if is_public(name)]


def bindings(module: str) -> set[str]:
    """Public functions and classes of a module; those of a package include what it imports from its own modules."""
    names: set[str] = set()
    for node in syntax(module).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{module}."):
            names |= {alias.asname or alias.name for alias in node.names}
    return {name for name in names if not name.startswith("_")}


def constants_classes_functions(name: str) -> tuple[int, str]:
    """Order of ``__all__``: CONSTANTS, Classes, functions and modules, each by name."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


@pytest.mark.parametrize("module", PUBLIC)
def test_all_is_the_public_names_sorted(module: str) -> None:
    loaded = importlib.import_module(module)
    exported = list(loaded.__all__)
    assert exported == sorted(set(exported), key=constants_classes_functions)
    assert all(hasattr(loaded, name) for name in exported)
    assert set(exported) >= bindings(module)
    assert set(exported) <= set(dir(loaded))


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_documented(module: str) -> None:
    loaded = importlib.import_module(module)
    assert inspect.getdoc(loaded), f"{module} has no docstring"
    for name in loaded.__all__:
        value = getattr(loaded, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        text = value.__doc__
        assert text, f"{module}.{name} has no docstring"
        opening = re.split(r"\n\s*\w[\w ]*\n\s*---", text)[0]
        assert len(opening.split()) >= 3, f"{module}.{name} opens without prose"


FORMULA = re.compile(r"[=~≈^]|:math:")
FUNCTIONS = [name for name in kernattn.__all__ if inspect.isfunction(getattr(kernattn, name)) and name != "load"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_open_with_their_formula(name: str) -> None:
    text = inspect.getdoc(getattr(kernattn, name)) or ""
    opening, _, _ = text.partition("Parameters\n")
    assert FORMULA.search(opening), f"kernattn.{name}: no formula before its parameters"
    assert "Examples\n" in text, f"kernattn.{name}: no example"
