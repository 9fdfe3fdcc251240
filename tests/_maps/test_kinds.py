"""The table of kinds: every implementation reads it, and numbers mean the same in all of them."""

import re
from pathlib import Path

import numpy as np
import pytest

from kernattn import ops
from kernattn._maps.kinds import LOGS, TABLE, VALUES
from kernattn.ops.features.reference import scaled
from seam import KINDS, MapSpec


def test_numbers_are_places():
    assert [kind.number for kind in TABLE] == list(range(len(TABLE)))
    assert {kind.name: kind for kind in TABLE} == KINDS | {"values": VALUES, "logs": LOGS}


def test_the_header_has_the_same_kinds():
    """A struct each in the CUDA header, and nothing about a kind anywhere else."""
    folder = Path(ops.__file__).parent
    header = (folder / "_cuda" / "kinds.cuh").read_text(encoding="utf-8")
    assert sorted(re.findall(r"struct (\w+) : Kind", header)) == sorted(kind.name for kind in TABLE)
    for kind in TABLE:
        (body,) = re.findall(
            rf"struct {kind.name} : Kind {{(.*?)^}};|struct {kind.name} : Kind {{}};", header, re.S | re.M
        )
        assert ("parts = 2" in body) == (kind.parts == 2)
        assert ("scaled = true" in body) == (kind.scale != "none")
        assert ("per_feature = true" in body) == kind.per_feature
    others = [*folder.rglob("*.cuh"), *folder.rglob("*.cu")]
    for path in others:
        if path.name != "kinds.cuh":
            assert "KIND" not in path.read_text(encoding="utf-8"), path


def test_the_loops_compute_kinds_in_one_file():
    """Everywhere else they ask the columns of the row; one kind has a pass of its own, by the same formula."""
    folder = Path(ops.__file__).parent
    names = re.compile(rf"\b({'|'.join(kind.name.upper() for kind in KINDS.values())})\b|\.kind (==|in)\b")
    loops = {*folder.glob("_numba/**/*.py"), *folder.glob("*/loops.py"), *folder.glob("*/_*.py")}
    assert len(loops) > 20
    knowing = {path.relative_to(folder).as_posix() for path in loops if names.search(path.read_text(encoding="utf-8"))}
    assert knowing == {"_numba/kinds.py", "_numba/tiles/moderate.py"}


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_columns_say_what_the_formula_does(kind):
    u = 30 * np.random.default_rng(0).standard_normal((2, 4, 3))
    found = kind.formula(np, u)
    assert found.shape == (2, 4, 3 * kind.parts)
    assert kind.bounded == bool((np.abs(found) <= 1).all())
    assert kind.positive == bool(kind.scale == "none" and (found >= 0).all())
    vanishing = kind.formula(np, -np.abs(u))
    assert kind.exponential_tail == (not kind.per_feature and np.array_equal(vanishing, np.exp(-np.abs(u))))
    if kind.moderate:
        inside = kind.formula(np, np.linspace(-kind.moderate, kind.moderate, 100))
        assert inside.min() > 2.0**-16
        assert inside.max() < 2.0**16
    values, log_scale = scaled(u, MapSpec(kind.name, row_weights=np.ones(3)))
    assert (log_scale.shape[-1] > 1) == kind.per_feature
    assert (values.shape[-1] == 1) == kind.per_feature
