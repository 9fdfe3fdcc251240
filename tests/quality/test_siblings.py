"""Implementations of an op share one signature, read from the source so that no device is needed."""

from __future__ import annotations

import ast

import pytest

from quality.tree import PACKAGE, SIBLINGS

OPS = sorted(path.parent.name for path in (PACKAGE / "ops").glob("*/reference.py"))


def signature(op: str, sibling: str) -> str:
    """Parameters and result of the op's function in one sibling, as source text."""
    tree = ast.parse((PACKAGE / "ops" / op / f"{sibling}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == op:
            return f"({ast.unparse(node.args)}) -> {node.returns and ast.unparse(node.returns)}"
    raise AssertionError(f"ops/{op}/{sibling}.py defines no function {op}")


@pytest.mark.parametrize("op", OPS)
def test_siblings_share_a_signature(op: str) -> None:
    present = [sibling for sibling in SIBLINGS if (PACKAGE / "ops" / op / f"{sibling}.py").exists()]
    found = {sibling: signature(op, sibling) for sibling in present}
    assert len(set(found.values())) == 1, found


def test_every_op_has_a_reference() -> None:
    folders = {path.parent.name for path in (PACKAGE / "ops").glob("[!_]*/__init__.py")}
    assert folders
    assert folders == set(OPS)


@pytest.mark.parametrize("op", OPS)
def test_what_numba_compiles_stands_in_loops(op: str) -> None:
    files = [
        path for path in (PACKAGE / "ops" / op).glob("*.py") if "codegen.compile import" in path.read_text("utf-8")
    ]
    assert all(path.name.endswith("loops.py") for path in files), files
