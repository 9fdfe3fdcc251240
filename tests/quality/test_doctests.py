"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import importlib.util

import pytest

from quality.tree import modules, source

NEEDS = {"cpu": "numba"}
EDGES = {"dask": "dask", "huggingface": "transformers", "jax": "jax", "sklearn": "sklearn", "torch": "torch"}


@pytest.mark.parametrize("module", [module for module in modules() if ">>>" in source(module).read_text("utf-8")])
def test_docstring_examples(module: str) -> None:
    needed = EDGES.get(".".join(module.split(".")[1:2]), NEEDS.get(module.rpartition(".")[2]))
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(importlib.import_module(module), optionflags=flags).failed == 0
