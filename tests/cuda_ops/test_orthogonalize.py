"""The kernel `orthogonalize` on the emulation against QR in float64."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import kernattn as ka
import oracles
from cuda_ops.cases import DTYPES, array, to64
from cuda_ops.instances import LIMITS
from kernattn.ops.orthogonalize.gpu import launch

EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-23, "float64": 2.0**-52}
SHAPES = [(1, 1), (2, 3), (5, 8), (12, 12), (7, 37), (33, 33), (40, 70)]


@pytest.fixture(params=[232_448, 2_000], ids=["inside", "outside"])
def room(request, cupy, device_with):
    """Shared memory that holds these matrices, and one that holds none but the smallest."""
    device_with(request.param)
    return request.param


@pytest.mark.parametrize("dtype", DTYPES)
def test_orthogonalize(cupy, room, dtype):
    for shape in SHAPES:
        check(cupy, (2, 2, *shape), dtype, "gram_schmidt", sum(shape))


@given(
    lead=st.lists(st.integers(1, 3), max_size=2),
    d=st.integers(1, 40),
    shorter=st.integers(0, 39),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_shape(cupy, lead, d, shorter, dtype, seed):
    check(cupy, (*lead, max(1, d - shorter), d), dtype, "gram_schmidt", seed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_qr(cupy, dtype):
    for shape in ((1, 1), (3, 5, 8), (2, 2, 12, 12)):
        check(cupy, shape, dtype, "qr", 0)


def check(cupy, shape, dtype, method, seed):
    x = array(cupy, np.random.default_rng(seed).normal(size=shape), dtype)
    q = ka.projections.orthogonalize(x, method, backend="gpu")
    assert isinstance(q, cupy.ndarray)
    assert q.dtype == x.dtype
    a = to64(x)
    inner, size = min(EPS[dtype], EPS["float32"]), np.linalg.norm(a, axis=-1, keepdims=True)
    tolerance = 4 * EPS[dtype] + 8 * np.sqrt(shape[-1]) * inner * np.linalg.cond(a / size).max()
    np.testing.assert_allclose(to64(q), oracles.frames(a), rtol=0, atol=tolerance)
    gram = to64(q) @ np.swapaxes(to64(q), -1, -2)
    wanted = np.broadcast_to(np.eye(shape[-2]), gram.shape)
    np.testing.assert_allclose(gram, wanted, rtol=0, atol=4 * np.sqrt(shape[-1]) * EPS[dtype])


def test_sizes_of_entries_do_not_matter(cupy, room):
    blocks = np.random.default_rng(0).normal(size=(1, 20, 33))
    scales = np.ldexp(1.0, np.random.default_rng(1).integers(-100, 100, size=(20, 1)))
    q, scaled = (
        ka.projections.orthogonalize(array(cupy, x, "float32"), "gram_schmidt") for x in (blocks, blocks * scales)
    )
    np.testing.assert_allclose(to64(q), to64(scaled), atol=1e-5)


def test_a_row_that_adds_nothing(cupy, room):
    blocks = np.random.default_rng(0).normal(size=(4, 20, 33))
    blocks[0, 3], blocks[1, 5, 2], blocks[2, 7] = 0.0, np.nan, np.eye(33)[0]
    blocks[2, 0], blocks[2, 1:, 0] = 3 * np.eye(33)[0], 0.0
    blocks[2, 7] = 5 * np.eye(33)[0]
    with np.errstate(invalid="ignore"):
        q = to64(ka.projections.orthogonalize(array(cupy, blocks, "float32"), "gram_schmidt"))
    for i, first in enumerate((3, 5, 7, 20)):
        assert np.isfinite(q[i, :first]).all()
        assert np.isnan(q[i, first:]).all()


@pytest.mark.parametrize("method", ["gram_schmidt", "qr"])
def test_strides(cupy, method):
    spread = array(cupy, np.random.default_rng(0).normal(size=(4, 6, 27)), "float64")
    given = spread[::2, :, ::3]
    before = to64(spread)
    q = ka.projections.orthogonalize(given, method)
    np.testing.assert_allclose(to64(q), oracles.frames(to64(given)), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(to64(spread), before)


@pytest.mark.parametrize("arch", LIMITS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_launches(arch, dtype):
    limits = LIMITS[arch]
    for rows, d in [(1, 1), (3, 4), (64, 64), (100, 101), (200, 256), (256, 256), (1024, 1024), (1, 5000)]:
        how = launch(rows, d, dtype, limits)
        assert how.shared_bytes <= limits.shared_bytes
        assert how.stride >= d
        if how.inside:  # four lanes a row: 8 rows 4 numbers each lie in 32 different banks
            assert len({(i * how.stride + k) % 32 for i in range(8) for k in range(4)}) == 32
            assert how.stride < d + 8
        assert 1 <= how.warps <= 16
    assert launch(64, 64, dtype, limits).inside
    assert not launch(512, 512, dtype, limits).inside
