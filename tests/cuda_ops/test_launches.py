"""Launches are integers: they fit every device, cover every row, and need none to be made."""

import math

import numpy as np
import pytest

import kernattn as ka
from cuda_ops.cases import array, features_of, specs, to64
from cuda_ops.instances import DTYPES, LIMITS, instances, map_code
from cuda_ops.runs import RUNS, arrays, error
from cuda_ops.test_causal_vjp import problem as caused
from cuda_ops.test_orders import SMALL
from kernattn.errors import BackendUnavailable, ShapeError
from kernattn.ops._cuda import linear, runtime, sources
from kernattn.ops._cuda.axes import batch
from kernattn.ops._cuda.linear import cut, linear_code
from kernattn.ops.causal import gpu as causal
from kernattn.ops.causal_vjp.gpu import causal_vjp
from seam import Chains


@pytest.mark.parametrize("arch", LIMITS)
def test_every_launch_fits(arch):
    every = instances(LIMITS[arch], DTYPES, ("exp", "sincos", "values"), sizes=((16, 8), (64, 64), (300, 300)))
    assert {x.op for x in every} == set(sources.HEADERS) - ({"_gated_chunks"} if arch == 75 else set())
    refused = {(x.op, x.dtype) for x in every if x.shared_bytes > LIMITS[arch].shared_bytes}
    assert refused == ({("causal_vjp", "float64")} if arch == 75 else set())


@pytest.mark.parametrize("n", [1, 63, 64, 1000, 1 << 20])
@pytest.mark.parametrize("wanted", [1, 7, 500])
def test_slabs_cover_the_rows(n, wanted):
    slabs = cut(n, wanted, 64)
    assert slabs.count <= wanted
    assert slabs.rows % 64 == 0
    assert (slabs.count - 1) * slabs.rows < n <= slabs.count * slabs.rows


@pytest.mark.parametrize(("name", "m", "resident"), [("elementwise", 128, 1), ("exp", 128, 1), ("exp", 256, 1)])
def test_a_walk_stays_in_shared_memory_and_fills_the_device(name, m, resident):
    limits = LIMITS[90]
    code = linear_code(map_code("bfloat16", name, 128, limits), "bfloat16", 128, limits)
    how = causal.launch(64, 8192, 128, m, causal.walk_code(code, 128, m, limits), limits)
    assert how.state_room == 0
    assert resident * (how.shared_bytes + 1024) <= limits.shared_bytes + 1024
    assert 0.9 < how.grid[0] / (resident * limits.multiprocessors) <= 1


@pytest.mark.parametrize(
    ("queries", "keys"),
    [((), ()), ((3,), (3,)), ((2, 3, 4), (2, 3, 1)), ((1, 3), (2, 1)), ((2, 1, 2), (1, 2, 1)), ((5, 1, 2, 2), (2, 1))],
)
def test_leading_axes(queries, keys):
    out = np.broadcast_shapes(queries, keys)
    size0, size1, size2, *strides = (int(x) for x in batch(out, queries, keys))
    assert size0 * size1 * size2 == math.prod(out)
    for lead, (a, b, c) in ((queries, strides[:3]), (keys, strides[3:])):
        wanted = np.broadcast_to(np.arange(math.prod(lead)).reshape(lead), out).ravel()
        i, j, k = np.unravel_index(np.arange(math.prod(out)), (size0, size1, size2))
        np.testing.assert_array_equal(i * a + j * b + k * c, wanted)


def test_leading_axes_that_alternate_too_often():
    with pytest.raises(ShapeError, match="more than three times"):
        batch((2, 2, 2, 2), (2, 1, 2, 1), (1, 2, 1, 2))


@pytest.mark.parametrize("op", ["causal_vjp", "gram"])
def test_a_device_with_little_shared_memory(cupy, monkeypatch, op):
    """Of Turing: chunks have half as many rows, tiles of products are narrower."""
    monkeypatch.setattr(runtime, "limits", lambda: LIMITS[75])
    assert error(RUNS[op](cupy, *SMALL[op])) < 1e-4


def test_what_has_no_room_is_refused_with_the_reason(cupy, monkeypatch):
    """In double precision, gradients of causal attention on Turing."""
    monkeypatch.setattr(runtime, "limits", lambda: LIMITS[75])
    spec, *_ = arrays(cupy, "exp", 1, 5, 7, 37)
    options = {"masked": False, "segments": 0, "resumed": False}
    given = caused(cupy, spec, "float64", (2,), (2,), 70, 5, 7, **options)
    with pytest.raises(BackendUnavailable, match=r"needs \d+ bytes of shared memory; this device offers 65536"):
        causal_vjp(*given, True)


def test_half_the_rows_where_a_walk_has_no_room():
    rows = {}
    for arch in (75, 89):
        limits = LIMITS[arch]
        for dtype in DTYPES:
            code = linear_code(map_code(dtype, "exp", 128, limits), dtype, 128, limits)
            walk = causal.walk_code(code, 128, 256, limits)
            assert causal.launch(64, 4096, 128, 256, walk, limits).shared_bytes <= limits.shared_bytes
            rows[arch, dtype] = walk.linear.map.rows, walk.linear.map.db
    assert {rows[75, dtype][0] for dtype in DTYPES} == {32}
    assert {rows[89, dtype][0] for dtype in ("float32", "bfloat16", "float16")} == {64}
    assert rows[75, "float64"][1] < rows[89, "float64"][1]


def test_a_block_too_large_is_refused(cupy, monkeypatch):
    limits = runtime.Limits(75, 1000, 1)
    monkeypatch.setattr(runtime, "limits", lambda: limits)
    with pytest.raises(BackendUnavailable, match="2000 bytes"):
        runtime.Launch((), (1,), 32, 2000).start("features", "features")


def test_a_grid_too_large_is_refused(cupy):
    with pytest.raises(ShapeError, match="needs \\(1, 65536\\)"):
        runtime.Launch((), (1, 65_536), 32, 0).start("features", "features")


def test_entries_are_counted_in_x(cupy, monkeypatch):
    monkeypatch.setattr(runtime, "GRID", (2**31 - 1, 1))
    monkeypatch.setattr(linear, "SLAB_TILES", 1)
    rng = np.random.default_rng(0)
    q, k, v = (cupy.asarray(rng.normal(size=(5, 130, 8)).astype(np.float32)) for _ in range(3))
    phi = ka.random_features(ka.kernels.Softmax(), 8, 16, rng=0)
    out, _ = ka.causal_linear_attention(q, k, v, phi, backend="gpu")
    one, _ = ka.causal_linear_attention(q[4], k[4], v[4], phi, backend="gpu")
    np.testing.assert_allclose(to64(out[4]), to64(one), rtol=1e-4, atol=1e-5)
    ka.linear_attention(q, k, v, phi, backend="gpu")
    ka.softmax_attention(q, k, v, backend="gpu")


def test_tiles_are_counted_in_x(cupy, monkeypatch):
    from kernattn.ops.gram.gpu import gram
    from kernattn.ops.hadamard.gpu import hadamard

    monkeypatch.setattr(runtime, "GRID", (2**31 - 1, 1))
    rng = np.random.default_rng(0)
    x = array(cupy, rng.normal(size=(2, 20, 5)), "float32")
    spec = specs(rng, "sincos", 5, 100)
    phi = features_of(to64(x), spec).values
    outer, moment = gram(x, x, spec, False)
    np.testing.assert_allclose(to64(outer), np.swapaxes(phi, -1, -2) @ phi, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(to64(moment), np.swapaxes(phi, -1, -2) @ to64(x), rtol=1e-4, atol=1e-4)
    chains = Chains(rng.choice([-1.0, 1.0], size=(3, 2, 8)), rng.random(20), 5)
    np.testing.assert_allclose(to64(hadamard(x, chains)), to64(x) @ chains.T, atol=1e-5)
