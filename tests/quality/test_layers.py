"""Every module has a layer, and none reaches around the layers through the top-level package."""

from __future__ import annotations

import ast
import re
import tomllib

from quality.tree import ROOT, modules, syntax


def layered() -> set[str]:
    """Names of the package's direct children that the import contract ranks."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in config["contracts"] if contract["type"] == "layers")
    return {name for layer in layers for name in re.findall(r"\w+", layer)}


def test_every_module_has_a_layer() -> None:
    children = {name.split(".")[1] for name in modules() if name != "kernattn"}
    assert children <= layered(), f"add to the layers in pyproject.toml: {sorted(children - layered())}"


def test_no_import_of_the_top_level() -> None:
    below = [name for name in modules() if name != "kernattn"]
    children = {name.split(".")[1] for name in below}
    for module in below:
        for node in ast.walk(syntax(module)):
            if isinstance(node, ast.Import):
                assert "kernattn" not in {alias.name for alias in node.names}, f"{module}:{node.lineno}"
            elif isinstance(node, ast.ImportFrom) and node.module == "kernattn":
                assert {alias.name for alias in node.names} <= children, f"{module}:{node.lineno}"
