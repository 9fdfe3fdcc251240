"""``__all__`` is exactly a module's public names, sorted, and each of them is documented formula first."""

from __future__ import annotations

import ast
import importlib
import inspect
import re

import pytest
from quality.tree import is_public, modules, source, syntax

import kernattn

PUBLIC = [name for name in modules() if is_public(name)]


def bindings(module: str) -> set[str]:
    """Public names that a module's top level defines; in an ``__init__`` the imported names count too."""
    names: set[str] = set()
    for node in syntax(module).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.ImportFrom) and source(module).name == "__init__.py" and node.module != "__future__":
            names |= {alias.asname or alias.name for alias in node.names}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("module", PUBLIC)
def test_all_is_the_public_names_sorted(module: str) -> None:
    exported = importlib.import_module(module).__all__
    assert list(exported) == sorted(set(exported))
    if module == "kernattn":
        assert set(exported) == {name for name in dir(kernattn) if not name.startswith("_")}
        return
    loaded = {name for name in bindings(module) if not inspect.ismodule(getattr(importlib.import_module(module), name))}
    assert {name for name in exported if not name.startswith("_")} >= loaded
    assert all(hasattr(importlib.import_module(module), name) for name in exported)


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


FORMULA = re.compile(r"[=~≈<>^]|->|->|\bO\(|\bexp\(|:math:")


@pytest.mark.parametrize("name", [name for name in kernattn.__all__ if inspect.isfunction(getattr(kernattn, name))])
def test_functions_open_with_their_formula(name: str) -> None:
    text = inspect.getdoc(getattr(kernattn, name)) or ""
    opening, _, _ = text.partition("Parameters\n")
    assert FORMULA.search(opening), f"kernattn.{name}: no formula before its parameters"
    assert "Examples\n" in text, f"kernattn.{name}: no example"
