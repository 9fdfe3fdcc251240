"""Log scales that are quadratic forms: against the formula in float64, and the same digits whatever stands beside."""

import sys

import numpy as np
import pytest

pytest.importorskip("numba")

from kernattn._sums.row_scale import row_scale
from kernattn.ops.features.normalised import normalised_logs, normalisers_and_shares
from kernattn.ops.features.reference import scaled
from kernattn.ops.features.sides import given_scales
from seam import MapSpec, QuadraticForm


def spec_of(rank, d, weighted):
    rng = np.random.default_rng(rank)
    form = QuadraticForm(rng.standard_normal((rank, d)) * d**-0.5, *rng.standard_normal((2, d)))
    return MapSpec("exp", rng.standard_normal((8, d)), rng.uniform(-1, 1, d) if weighted else None, row_form=form)


@pytest.mark.parametrize(("rank", "d", "weighted"), [(5, 5, False), (3, 17, True), (64, 64, False)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_formula(rank, d, weighted, dtype):
    spec, dtype = spec_of(rank, d, weighted), np.dtype(dtype)
    x = np.random.default_rng(1).standard_normal((3, 70, d)).astype(dtype)
    far = [(0, 3), (1, 0), (2, 69)]
    for at, size in zip(far, (1e15, 1e25, 1e5), strict=True):
        x[at] *= size  # squares of the second are beyond float32
    x[1, 5, 0] = np.nan
    scales = given_scales(x, spec, dtype).reshape(3, 70)
    own = row_scale(np, x.astype(np.float64), spec)[..., 0]
    limit, near = float(np.finfo(dtype).max) / 64, 200 * np.finfo(dtype).eps
    held = np.abs(own) > limit  # a sum of two or three is finite
    assert held[1, 0] == (dtype == np.float32)
    np.testing.assert_allclose(scales[~held], own[~held], rtol=near, atol=near)
    assert (np.abs(scales[held]) >= limit).all()
    assert (np.abs(scales[held]) < 4 * limit).all()
    np.testing.assert_array_equal(np.sign(scales[held]), np.sign(own[held]))


@pytest.mark.parametrize("kind", ["exp", "exp_pair"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_features(kind, dtype):
    """Of rows that are normalised: far ones too, whose projections no float holds."""
    rng, dtype = np.random.default_rng(1), np.dtype(dtype)
    spec = MapSpec(kind, rng.standard_normal((12 if kind == "exp" else 6, 5)), None, np.arange(12.0), normalised=True)
    x = rng.standard_normal((3, 70, 5)).astype(dtype)
    x[1, 0] *= 1e20
    x[2, 69] *= 1e37 if dtype == np.float32 else 1e307
    scales = given_scales(x, spec, dtype).reshape(3, 70)
    with np.errstate(over="ignore"):
        own = row_scale(np, x.astype(np.float64), spec)[..., 0]
    near = 200 * np.finfo(dtype).eps
    np.testing.assert_allclose(scales[:2], own[:2], rtol=near, atol=near)
    assert np.isfinite(scales).all()
    assert np.isfinite(own).all()
    assert scales[2, 69] < -1e30
    again, shares = normalisers_and_shares(x, spec, dtype)
    np.testing.assert_array_equal(again, scales)
    logs = normalised_logs(x, spec, dtype)
    wanted = scaled(x[:1].astype(np.float64), spec).log_scale  # amplitude 1
    np.testing.assert_allclose(logs[:1], wanted, rtol=near, atol=near)
    np.testing.assert_allclose(shares[:1], np.exp(wanted), rtol=near)
    np.testing.assert_allclose(shares.sum(axis=-1), 1, rtol=near)
    np.testing.assert_allclose(shares[2, 69], np.exp(logs[2, 69]), rtol=near, atol=near)


def test_neighbours_change_no_digit():
    spec, x = spec_of(64, 64, False), np.random.default_rng(1).standard_normal((200, 64)).astype(np.float32)
    x[::7] *= np.float32(1e25)
    scales = given_scales(x, spec, x.dtype)
    shares = MapSpec("exp_pair", spec.omega, normalised=True)
    sums = given_scales(x, shares, x.dtype)
    for rows in (1, 2, 63, 65, 130):
        np.testing.assert_array_equal(given_scales(x[200 - rows :].copy(), spec, x.dtype), scales[200 - rows :])
        np.testing.assert_array_equal(given_scales(x[200 - rows :].copy(), shares, x.dtype), sums[200 - rows :])


def test_far_rows_are_computed_by_the_loop(monkeypatch):
    """No call of Python is made for each of them."""
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "1")
    spec, x = spec_of(8, 8, True), np.random.default_rng(1).standard_normal((3000, 8)).astype(np.float32)

    def calls(rows):
        made = []
        sys.setprofile(lambda frame, event, arg: made.append(event))
        try:
            given_scales(rows, spec, x.dtype)
        finally:
            sys.setprofile(None)
        return made.count("call") + made.count("c_call")

    given_scales(x, spec, x.dtype)
    assert calls(np.float32(1e25) * x) == calls(x) < 1000
