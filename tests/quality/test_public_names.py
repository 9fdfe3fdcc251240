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
ROOMS = ["kernattn.attention.gates", "kernattn.attention.patterns", "kernattn.torch.fla"]
ROOMS += [
    f"kernattn.{room}"
    for room in (
        "attention", "bench", "dask", "features", "huggingface", "jax", "kernels", "metrics", "projections", "sklearn",
        "solvers", "studies", "torch", "transfer", "transformer",
    )
]  # fmt: skip


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


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_lists_its_public_names_alone(room: str) -> None:
    loaded = importlib.import_module(room)
    assert dir(loaded) == sorted(loaded.__all__)


@pytest.mark.parametrize("room", ["kernattn", *ROOMS])
def test_no_name_shadows_a_module(room: str) -> None:
    loaded = importlib.import_module(room)
    for name in loaded.__all__:
        assert f"{room}.{name}" not in modules() or inspect.ismodule(getattr(loaded, name)), f"{room}.{name}"


def test_no_import_hides_the_module_that_it_is_from() -> None:
    known = set(modules())
    names = [f"{package}.{name}" for package in modules() for name in bindings(package)]
    assert known.isdisjoint(names)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_its_init(room: str) -> None:
    assert {name for name in modules() if name.startswith(f"{room}.") and is_public(name)} <= set(ROOMS)


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


@pytest.mark.parametrize("module", PUBLIC)
def test_methods_are_documented(module: str) -> None:
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        value = getattr(loaded, name)
        for method, member in inspect.getmembers(value) if inspect.isclass(value) else ():
            code = member.fget if isinstance(member, property) else member
            ours = inspect.isroutine(code) and str(getattr(code, "__module__", "")).startswith("kernattn")
            if ours and not method.startswith("_") and method not in getattr(value, "__dataclass_fields__", ()):
                assert inspect.getdoc(member), f"{module}.{name}.{method} has no docstring"


FILES = {"load", "load_state", "move_states", "save_state"}
FORMULA = re.compile(r"[=~≈^]|:math:")
FUNCTIONS = [name for name in kernattn.__all__ if inspect.isfunction(getattr(kernattn, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_documented_formula_first(name: str) -> None:
    function = getattr(kernattn, name)
    text = inspect.getdoc(function) or ""
    opening, _, rest = text.partition("\nParameters\n")
    assert FORMULA.search(opening) or name in FILES, f"kernattn.{name}: no formula before its parameters"
    for section in ("Returns", "Raises", "Examples"):
        if (name, section) == ("save_state", "Returns"):
            continue
        assert f"\n{section}\n---" in rest, f"kernattn.{name}: no section {section}"
    documented = set(re.findall(r"\w+", " ".join(re.findall(r"^([\w*, ]+) :", rest, re.MULTILINE))))
    missing = set(inspect.signature(function).parameters) - documented
    assert not missing, f"kernattn.{name} does not document {sorted(missing)}"
