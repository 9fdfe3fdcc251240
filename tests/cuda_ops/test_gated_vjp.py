"""The kernels of `gated_vjp` on the emulation against array operations in float64."""

import numpy as np
import pytest

from cuda_ops.cases import array, to64
from cuda_ops.test_gated import COLUMNS, NAMES, USUAL, cases, problem, rounded
from kernattn.ops.gated.reference import gated
from kernattn.ops.gated_vjp import reference
from kernattn.ops.gated_vjp.gpu import gated_vjp

pytestmark = pytest.mark.usefixtures("one_multiprocessor")

TOLERANCE = {"float32": 1e-6, "float64": 1e-12, "float16": 2e-2, "bfloat16": 8e-2}


def arguments(given, normalise):
    *rows, state, mask, ids = (given[name] for name in NAMES)
    return (*rows, 0.7, normalise, state, mask, ids)


def pullbacks(cupy, given, dtype, normalise):
    """The cotangents that the kernels find, and those of array operations in float64."""
    arrays, plain = rounded(cupy, given, dtype)
    outs = gated(*arguments(plain, normalise))
    rng = np.random.default_rng(1)
    kinds = dtype, "float64" if dtype == "float64" else "float32"
    sides = [array(cupy, rng.normal(size=x.shape), kind) for x, kind in zip(outs, kinds, strict=True)]
    found = gated_vjp(*arguments(arrays, normalise), *sides)
    wanted = reference.gated_vjp(*arguments(plain, normalise), *map(to64, sides))
    return found, wanted, arrays


def check(cupy, given, dtype, normalise=False):
    found, wanted, arrays = pullbacks(cupy, given, dtype, normalise)
    for name, x, y in zip(NAMES, found, wanted, strict=False):
        assert (x is None) == (y is None) == (arrays[name] is None), name
        if x is not None:
            assert x.dtype == arrays[name].dtype
            assert x.shape == y.shape
            size = np.max(np.abs(y))
            np.testing.assert_allclose(to64(x), y, rtol=0, atol=TOLERANCE[dtype] * size, err_msg=name)


@pytest.mark.parametrize(("rule", "gate", "dtype"), cases(("none", "scalar", "bfloat16"), *USUAL))
def test_cotangents(cupy, monkeypatch, rule, gate, dtype):
    """Several groups of windows, chunks cut short, more columns than a block has; heads that share."""
    monkeypatch.setattr("kernattn.ops.gated_vjp.gpu.reference", None)
    for n, heads, normalise in ((150, (2, 1), True), (21, (2, 3), False)):
        check(cupy, problem(rule, gate, n, 21, COLUMNS[gate], heads=heads), dtype, normalise)
    if (rule, gate) != ("delta", "scalar"):  # with channels these do both
        check(cupy, problem(rule, gate, 20, 8, 70, masked=False, segments=0, resumed=False), dtype)


@pytest.mark.parametrize("rule", ["delta", "pair"])
def test_blind_to_what_was_forgotten(cupy, rule):
    """Tokens of a segment have no cotangent of what is no number before it."""
    given = problem(rule, "scalar", 40, 8, COLUMNS["scalar"], masked=False, segments=0)
    given["v"][..., 7, 1] = np.nan
    given["segment_ids"] = np.repeat([0, 1], [23, 17])
    late = {name: x if x is None or name == "state" else x[..., 23:] for name, x in given.items()}
    late |= {name: given[name][..., 23:, :] for name in ("q", "k", "v", "read", "write") if given[name] is not None}
    late |= {"state": None, "segment_ids": None}
    arrays, _ = rounded(cupy, given, "float32")
    _, plain = rounded(cupy, late, "float32")
    side = np.random.default_rng(1).normal(size=arrays["v"].shape).astype(np.float32)
    side[..., :23, :] = 0
    found = gated_vjp(*arguments(arrays, False), array(cupy, side, "float32"), None)
    wanted = reference.gated_vjp(*arguments(plain, False), side[..., 23:, :].astype(np.float64), None)
    for name, x, y in zip(NAMES[:-3], found, wanted, strict=False):
        if y is not None:
            own = to64(x)[..., 23:] if name in ("g", "beta") else to64(x)[..., 23:, :]
            np.testing.assert_allclose(own, y, rtol=0, atol=3e-6 * np.max(np.abs(y)), err_msg=name)
    given["v"][..., 7, 1], found = 0, []
    for number in (0, np.nan):  # a query without a cotangent is nothing to others
        given["q"][..., 3, :] = number
        arrays, _ = rounded(cupy, given, "float32")
        found.append(gated_vjp(*arguments(arrays, False), array(cupy, side, "float32"), None))
    for x, y in zip(*found, strict=True):
        assert x is y is None or np.array_equal(to64(x), to64(y))


def test_states_without_room_are_left_to_array_operations(cupy, device_with):
    device_with(1_000)
    check(cupy, problem("pair", "scalar", 5, 4, 3), "float32")
