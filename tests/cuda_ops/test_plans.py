"""Launch plans are integers: they fit every device, cover every row, and need none to be made."""

import math

import numpy as np
import pytest

from cuda_ops.instances import DTYPES, LIMITS, instances
from kernattn.errors import ShapeError
from kernattn.ops import _cuda, _cuda_linear


@pytest.mark.parametrize("arch", LIMITS)
def test_every_launch_fits(arch):
    every = instances(LIMITS[arch], DTYPES, ("exp", "sincos", "values"), sizes=((16, 8), (64, 64), (300, 300)))
    assert {x.op for x in every} == set(_cuda.HEADERS)
    assert max(x.shared_bytes for x in every) <= LIMITS[arch].shared_bytes


@pytest.mark.parametrize("n", [1, 63, 64, 1000, 1 << 20])
@pytest.mark.parametrize("wanted", [1, 7, 500])
def test_slabs_cover_the_rows(n, wanted):
    slabs = _cuda_linear.cut(n, wanted, 64)
    assert slabs.count <= wanted
    assert slabs.rows % 64 == 0
    assert (slabs.count - 1) * slabs.rows < n <= slabs.count * slabs.rows


@pytest.mark.parametrize(
    ("queries", "keys"),
    [((), ()), ((3,), (3,)), ((2, 3, 4), (2, 3, 1)), ((1, 3), (2, 1)), ((2, 1, 2), (1, 2, 1)), ((5, 1, 2, 2), (2, 1))],
)
def test_leading_axes(queries, keys):
    out = np.broadcast_shapes(queries, keys)
    size0, size1, size2, *strides = (int(x) for x in _cuda_linear.batch(out, queries, keys))
    assert size0 * size1 * size2 == math.prod(out)
    for lead, (a, b, c) in ((queries, strides[:3]), (keys, strides[3:])):
        wanted = np.broadcast_to(np.arange(math.prod(lead)).reshape(lead), out).ravel()
        i, j, k = np.unravel_index(np.arange(math.prod(out)), (size0, size1, size2))
        np.testing.assert_array_equal(i * a + j * b + k * c, wanted)


def test_leading_axes_that_alternate_too_often():
    with pytest.raises(ShapeError, match="more than three times"):
        _cuda_linear.batch((2, 2, 2, 2), (2, 1, 2, 1), (1, 2, 1, 2))


def test_a_block_too_large_is_refused(cupy, monkeypatch):
    from kernattn.errors import BackendUnavailable

    limits = _cuda.Limits(75, 1000, 1)
    monkeypatch.setattr(_cuda, "limits", lambda: limits)
    with pytest.raises(BackendUnavailable, match="2000 bytes"):
        _cuda.launch(None, (1,), 32, 2000, ())
