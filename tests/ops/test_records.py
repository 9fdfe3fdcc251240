"""The record of an op agrees with its siblings. That a new op reaches every framework by it, test_adding.py shows."""

import inspect
from importlib import import_module

import numpy as np
import pytest

from kernattn._sums.cotangents import MapCotangent
from kernattn.ops.records import RECORDS
from seam import PeakedSum

OWN = [name for name in RECORDS if name not in ("linear_attention", "decayed", "step")]  # those by other ops apart


@pytest.mark.parametrize("name", OWN)
def test_siblings_take_what_the_record_says(name):
    record = RECORDS[name]
    taken = [*inspect.signature(import_module(f"kernattn.ops.{name}.reference").__dict__[name]).parameters]
    assert tuple(taken[: len(record.inputs)]) == record.names
    options = record.options(dict.fromkeys(record.names, np.zeros(1)), True) if record.options else ()
    assert len(taken) == len(record.inputs) + len(options)
    pullback = record.pullback.name
    taken = [*inspect.signature(import_module(f"kernattn.ops.{pullback}.reference").__dict__[pullback]).parameters]
    kept = sum(each.kept and not each.before_rounding for each in record.outputs)
    cotangents = sum(each.differentiable for each in record.outputs)
    assert tuple(taken[: len(record.inputs)]) == record.names
    assert len(taken) == len(record.inputs) + kept + cotangents + bool(record.maps)


@pytest.mark.parametrize("name", OWN)
def test_leaves_and_cotangents_return_to_where_they_came_from(name):
    record = RECORDS[name]
    given = []
    for each in record.inputs:
        size = np.zeros((2,) * len(each.axes)) if each.kind == "array" else None
        given.append(PeakedSum(*np.zeros((3, 2, 2, 2))) if each.kind == "sums" else size)
    leaves, constants = record.flat(given)
    assert len(leaves) == len(record.leaves)
    assert len(constants) == sum(each.kind in ("map", "constant") for each in record.inputs)
    sides = [each for each in record.inputs if each.differentiable and each.kind != "map"]
    found = [
        PeakedSum(1, 2, 3)
        if each.kind == "sums"
        else MapCotangent(each.name, f"{each.name} omega")
        if each.through
        else each.name
        for each in sides
    ]
    by_name = dict(zip((leaf.name for leaf in record.leaves), record.leaf_cotangents(tuple(found)), strict=True))
    for each in sides:
        if each.kind == "array":
            assert by_name[each.name] == each.name
        if each.through:
            assert by_name[f"{each.through}_omega"] == f"{each.name} omega"
