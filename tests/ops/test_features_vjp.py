"""Compiled pullbacks of features against those of array operations in float64."""

import tracemalloc

import numpy as np
import pytest

import kernattn as ka
import maps
from kernattn.ops.features_vjp import OP
from linear_ops import spec_of
from seam import PULLED
from xp import numpy_dtype

pytest.importorskip("numba")

EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
SHAPES = [((2,), 130, 7, 11), ((), 3, 16, 32), ((2, 3), 1, 1, 1), ((1,), 70, 20, 600)]  # leading axes, n, d, D


def drawn(spec, lead, n, d, dtype, size=0.5):
    rng = np.random.default_rng(3)
    x, g = size * rng.standard_normal((*lead, n, d)), rng.standard_normal((*lead, n, spec.num_features_of(d)))
    return x.astype(numpy_dtype(dtype)), g.astype(numpy_dtype(dtype))


def check(spec, x, g, tolerance):
    """Compare cotangents of rows, then those of numbers beside them, to the size of the largest."""
    name = x.dtype.name
    for learn in (False, True):
        found = OP.implementation(x, "cpu")(x, spec, g, learn)
        wanted = OP.implementation(x, "reference")(x.astype("f8"), spec, g.astype("f8"), learn)
        for at, (a, b) in enumerate(zip(found, wanted, strict=True)):
            assert (a is None) == (b is None)
            if a is None:
                continue
            own = EPS[name] if at == 0 else 0.0
            assert a.shape == b.shape
            assert a.dtype == (x.dtype if at == 0 else "f8" if name == "float64" else "f4")
            assert np.isfinite(a.astype("f8")).all()
            assert np.abs(a.astype("f8") - b).max() <= (tolerance + own) * max(1e-3, np.abs(b).max())


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("kind", PULLED)
def test_every_kind_and_shape(kind, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    for lead, n, d, frequencies in SHAPES:
        for elementwise in (False, True):
            spec = spec_of(kind, d, frequencies, elementwise=elementwise)
            check(spec, *drawn(spec, lead, n, d, dtype), 1e-12 if dtype == "float64" else 2e-5)


@pytest.mark.parametrize("name", ["favor_sharp", "favor_sharp_asymmetric"])
def test_rows_with_a_form(name):
    phi = maps.make(name)
    for spec in (phi.query_spec, phi.key_spec):
        check(spec, *drawn(spec, (2,), 70, maps.DIM, "float64"), 1e-12)


def test_chains_of_hadamard_transforms():
    phi = ka.random_features(ka.kernels.Softmax(), 20, 48, projection="hadamard", rng=0)
    check(phi.spec, *drawn(phi.spec, (2,), 70, 20, "float64"), 1e-12)


@pytest.mark.parametrize("kind", PULLED)
def test_rows_that_are_far_or_no_numbers(kind):
    """They are judged one by one: the others keep their bits."""
    spec = spec_of(kind, 7, 11)
    x, g = drawn(spec, (2,), 130, 7, "float64")
    run, by_arrays = (OP.implementation(x, backend) for backend in ("cpu", "reference"))
    clean, far = run(x, spec, g, False).x, x.copy()
    far[0, 3], far[0, 70], far[1, 5], far[1, 129, 2] = 1e160, 40 * np.sign(x[0, 70]), np.nan, np.inf
    g[0, 4] = 0
    clean[0, 4] = 0
    touched = np.zeros((2, 130), bool)
    touched[[0, 0, 1, 1], [3, 70, 5, 129]] = True
    found, wanted = run(far, spec, g, False).x, by_arrays(far, spec, g, False).x
    np.testing.assert_array_equal(found[~touched], clean[~touched])
    np.testing.assert_allclose(found[touched], wanted[touched], rtol=1e-8)
    far[1, 5], far[1, 129, 2] = 0, 0
    for a, b in zip(run(far, spec, g, True), by_arrays(far, spec, g, True), strict=True):
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-8)


def test_no_features_are_kept():
    spec = spec_of("exp", 8, 512)
    x, g = drawn(spec, (), 4096, 8, "float64")
    run = OP.implementation(x, "cpu")
    run(x, spec, g, True)
    tracemalloc.start()
    try:
        run(x, spec, g, True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < g.nbytes / 4


def test_threads_and_layouts_change_nothing(on_threads):
    spec = spec_of("cos", 7, 11)
    x, g = drawn(spec, (3,), 700, 7, "float64")
    found = []
    for threads in (1, 3):
        on_threads(threads)
        found.append(OP.implementation(x, "cpu")(x, spec, g, True))
        x, g = np.asfortranarray(x), np.asfortranarray(g)
        x.flags.writeable = g.flags.writeable = False
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
