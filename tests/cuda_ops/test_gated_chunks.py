"""Chunks that know no state, and the walk over them, on the emulation: the laws of `gated` for rows of 16 bits."""

import numpy as np
import pytest

from cuda_ops.cases import to64
from cuda_ops.test_gated import check, problem, rounded, run
from kernattn.ops._gated_chunks import gpu

CASES = [("delta", "channels", "float16"), ("none", "channels", "bfloat16"), ("delta", "scalar", "bfloat16")]
LATE = {"float16": 1e3, "bfloat16": 1e6}


@pytest.fixture(autouse=True)
def roomy(device_with):
    device_with(232_448)


@pytest.fixture
def stops(monkeypatch):
    """From which tokens on calls were left to the kernel of 16 tokens."""
    found, start = [], gpu.Chunked.start

    def watched(*given):
        left = start(*given)
        found.append(set(np.unique(left[0].get())))
        return left

    monkeypatch.setattr(gpu.Chunked, "start", watched)
    return found


@pytest.mark.parametrize(("rule", "gate", "dtype"), CASES)
def test_laws(cupy, monkeypatch, stops, rule, gate, dtype):
    """The recurrence, also in slabs; blind to what comes later, bit for bit, where that is not finite too."""
    n, d, e = 150, 21, 24
    given = problem(rule, gate, n, d, e)
    check(cupy, given, dtype, normalise=True)
    before, _ = run(rounded(cupy, given, dtype)[0])
    assert stops == [{n}] * 2
    for late in (LATE[dtype], np.nan):
        other = given | {"v": given["v"].copy(), "k": given["k"].copy()}
        other["v"][..., 70:, :], other["k"][..., 70:, :] = late, -other["k"][..., :80, :]
        after, _ = run(rounded(cupy, other, dtype)[0])
        np.testing.assert_array_equal(to64(after)[..., :70, :], to64(before)[..., :70, :])
        assert stops[-1] == {n if np.isfinite(late) else 70}
    monkeypatch.setattr(gpu, "ROOM", 1)
    again, _ = run(rounded(cupy, given, dtype)[0])
    np.testing.assert_array_equal(to64(again), to64(before))


def test_the_other_kernel_goes_on(cupy, stops):
    """After NaN, behind a reset, and from states that are not finite."""
    rule, gate, dtype = CASES[-1]
    given = problem(rule, gate, 150, 21, 24, masked=False, segments=0)
    given["v"] = given["v"].copy()
    given["v"][..., 66, 1] = np.nan
    check(cupy, given, dtype)
    given["state"][..., 3, 2] = np.inf
    arrays, _ = rounded(cupy, given, dtype)
    out, _ = run(arrays)
    assert stops == [{66}, {0, 66}]
    assert np.isfinite(to64(out)[..., 76:, 2]).all()  # after the reset


def test_slabs_are_whole_chunks(device_with):
    limits = device_with(232_448)
    how = gpu.launch(64, 1 << 20, 128, 128, "bfloat16", False, True, limits)
    assert how.slab % how.code.chunk == 0
    assert how.slab // how.code.chunk * how.code.left * 64 <= gpu.ROOM
    assert gpu.launch(64, 32, 128, 128, "bfloat16", False, True, limits) is None
    assert gpu.launch(64, 4096, 128, 128, "float32", False, True, limits) is None
