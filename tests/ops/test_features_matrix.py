"""Features of 16-bit rows whose projections the matrix unit takes, emulated where there is none."""

import ml_dtypes
import numpy as np
import pytest

import kernattn as ka

pytestmark = pytest.mark.usefixtures("matrix_unit")

BFLOAT16 = ml_dtypes.bfloat16
MAPS = {
    "positive": ka.random_features(ka.kernels.Softmax(), 40, 72, rng=0),
    "trigonometric": ka.random_features(ka.kernels.Gaussian(lengthscale=6.0), 40, 72, rng=0),
    "relu": ka.random_features(ka.kernels.ArcCosine(1), 40, 72, rng=0),
}


@pytest.mark.parametrize("dtype", [BFLOAT16, np.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", MAPS)
def test_rows_are_projected_to_float32_and_rounded_once(name, dtype, by_floats):
    x = (np.random.default_rng(0).standard_normal((259, 40)) / 2).astype(dtype)
    phi, eps = MAPS[name], float(ml_dtypes.finfo(dtype).eps)
    found, wanted = phi(x), phi(x.astype("f8"), backend="reference")
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype("f8"), wanted, rtol=0.51 * eps, atol=2e-6)
    same = found == by_floats(phi, x)
    assert same.mean() > 0.98


@pytest.mark.parametrize("name", MAPS)
def test_floats_answer_the_rows_that_tiles_cannot_hold_and_no_other_row_moves(name, by_floats):
    phi, far = MAPS[name], {3: np.nan, 64: np.inf, 70: 1e35, 71: 1e-39, 258: -1e13}
    x = np.random.default_rng(0).standard_normal((259, 40)).astype(BFLOAT16)
    kept = phi(x)
    for row, value in far.items():
        x[row, 7] = value
    with np.errstate(all="ignore"):
        found, wanted = phi(x), by_floats(phi, x)
    rows = np.isin(np.arange(259), list(far))
    np.testing.assert_array_equal(found[rows].astype("f4"), wanted[rows].astype("f4"))
    np.testing.assert_array_equal(found[~rows].astype("f4"), kept[~rows].astype("f4"))
