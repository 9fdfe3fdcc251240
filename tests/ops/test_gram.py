"""Sums of outer products of features against their formula in float64."""

from itertools import product

import numpy as np
import pytest

import oracles
from kernattn.ops.gram import OP, reference
from seam import KINDS, MapSpec
from xp import to_numpy

SHAPES = [((), 1, 3, 5, 1), ((2,), 70, 16, 33, 2), ((3, 1), 200, 5, 16, 0)]  # lead, n, d, D, c


def spec_of(kind, d, frequencies):
    rng = np.random.default_rng(0)
    m = frequencies * KINDS[kind].parts
    weights = None if KINDS[kind].scale == "none" else rng.uniform(-1, 1, d) / d
    offset = rng.uniform(-1, 1, m) if KINDS[kind].offset != "none" else None
    return MapSpec(kind, rng.standard_normal((frequencies, d)) * d**-0.5, weights, offset, 0.7)


def formula(x, y, spec):
    x, y = x.astype("f8"), y.astype("f8")
    phi = (
        x
        if spec is None
        else oracles.from_spec(x, spec.kind, spec.omega, spec.row_weights, spec.offset, spec.amplitude).values
    )
    return np.swapaxes(phi, -1, -2) @ phi, np.swapaxes(phi, -1, -2) @ y


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", [None, *KINDS])
def test_formula(kind, shape, dtype):
    lead, n, d, frequencies, c = shape
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((*lead, n, d)).astype(dtype), rng.standard_normal((*lead, n, c)).astype(dtype)
    spec = None if kind is None else spec_of(kind, d, frequencies)
    wanted = formula(x, y, spec)
    tolerance = 1e-13 if dtype == "float64" else 5e-6
    for backend, wide in product(("reference", None), (False, True)):
        got = OP.implementation(x, backend)(x, y, spec, wide)
        for a, b in zip(got, wanted, strict=True):
            assert a.dtype == ("float64" if dtype == "float64" or wide else "float32")
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(initial=1e-30) * 4)


def test_the_reference_takes_every_kind_of_array(xp):
    x, y = np.random.default_rng(2).standard_normal((2, 30, 4))
    spec = spec_of("sincos", 4, 6)
    with xp.wide():
        got = xp.whole(lambda x, y: reference.gram(x, y, spec, False))(xp.asarray(x), xp.asarray(y))
        assert all(xp.holds(a) for a in got)
    for a, b in zip(got, formula(x, y, spec), strict=True):
        np.testing.assert_allclose(to_numpy(a), b, rtol=1e-12, atol=1e-12)


def test_rows_are_cut_into_parts(monkeypatch, on_threads):
    """Into as many whatever the number of threads, which changes no bit."""
    pytest.importorskip("numba")
    from kernattn.ops.gram.cpu import gram

    on_threads(3)
    x, y = np.random.default_rng(3).standard_normal((2, 2000, 4))
    spec, found = spec_of("exp", 4, 6), []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("KERNATTN_NUM_THREADS", threads)
        found.append(gram(x, y, spec, False))
    for a, b, *others in zip(formula(x, y, spec), *found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-9)
        for other in others:
            np.testing.assert_array_equal(other, b)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kind", [None, "sincos"])
def test_many_features(monkeypatch, kind, dtype, wide):
    """By BLAS: more rows than a block, more features than a tile, leading axes that broadcast."""
    pytest.importorskip("numba")
    from kernattn.ops.gram import blas, cpu

    monkeypatch.setattr(cpu, "FEW", 0)
    monkeypatch.setattr(blas, "ROWS", 16)
    monkeypatch.setattr(blas, "TILE", 4)
    rng = np.random.default_rng(4)
    spec = None if kind is None else spec_of(kind, 5, 7)
    for lead, y_lead, n, c in (((), (), 40, 1), ((2, 1), (3,), 33, 2), ((2,), (2,), 1, 0)):
        x, y = rng.standard_normal((*lead, n, 5)).astype(dtype), rng.standard_normal((*y_lead, n, c)).astype(dtype)
        given = x.copy(), y.copy()
        for a, b in zip(cpu.gram(x, y, spec, wide), formula(x, y, spec), strict=True):
            assert a.dtype == ("float64" if dtype == "float64" or wide else "float32")
            b = np.broadcast_to(b, a.shape)
            tolerance = 1e-13 if dtype == "float64" or (wide and spec is None) else 2e-6
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(initial=1e-30) * 4)
        np.testing.assert_array_equal(x, given[0])
        np.testing.assert_array_equal(y, given[1])


def test_sums_in_float64_have_no_negative_eigenvalues():
    """Of float32 features, more than rows: sums in float32 have some of order n eps."""
    x = np.random.default_rng(5).standard_normal((300, 8)).astype("f4")
    spec = spec_of("sincos", 8, 300)
    total, _ = OP.implementation(x)(x, x[:, :0], spec, True)
    values = np.linalg.eigvalsh(total)
    assert values[0] > -len(x) * np.finfo("f8").eps * values[-1]
    np.testing.assert_array_equal(total, total.T)
