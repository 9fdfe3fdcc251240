"""Each case says whose report it replays, as owner/repository#number."""

import ast
import re
from pathlib import Path

import pytest

FILES = sorted(path.name for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name)


@pytest.mark.parametrize("name", FILES)
def test_every_case_names_its_report(name):
    tree = ast.parse((Path(__file__).parent / name).read_text())
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    assert tests
    for test in tests:
        said = " ".join([ast.get_docstring(test) or "", *map(ast.unparse, test.decorator_list)])
        assert re.search(r"\b[\w-]+/[\w.-]+#\d+", said), test.name
