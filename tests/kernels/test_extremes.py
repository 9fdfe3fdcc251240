"""Kernels at the ends of the floats: no NaN and no warning, and the right number where the dtype can say it."""

import numpy as np
import pytest

import kernattn as ka

K = ka.kernels
BOUNDED = {
    "Gaussian": K.Gaussian(0.5),
    "Gaussian ARD": K.Gaussian(np.array([0.5, 1.0, 2.0])),
    "Laplacian": K.Laplacian(),
    "Cauchy": K.Cauchy(),
    "Matern 1/2": K.Matern(0.5),
    "Matern 0.7": K.Matern(0.7),
    "Matern 1": K.Matern(1.0),
    "Matern 3/2": K.Matern(1.5),
    "Matern 5/2": K.Matern(2.5),
    "rational quadratic": K.RationalQuadratic(1.5),
    "skewed chi2": K.SkewedChi2(),
    "Sech": K.Sech(),
}
UNBOUNDED = {
    "softmax": K.Softmax(),
    "polynomial": K.Polynomial(2),
    "cubic": K.Polynomial(3, gamma=0.5, coef0=1.0),
    "arc-cosine 0": K.ArcCosine(0),
    "arc-cosine 1": K.ArcCosine(1),
    "arc-cosine 2": K.ArcCosine(2),
    "additive chi2": K.AdditiveChi2(),
    "sum": K.Gaussian() + K.ArcCosine(1),
    "product": K.Gaussian() * K.Softmax(),
}
SIZES = {
    "float32": [1e-45, 1e-20, 1e2, 1e10, 1e19, 1e20, 1e30, 1e38],
    "float64": [1e-320, 1e20, 1e154, 1e160, 1e300, 1e307],
}


def rows(name, dtype, size):
    """Rows of that size, one of them in both, and one at the origin."""
    x, y = np.random.default_rng(0).uniform(-3, 3, (2, 6, 3))
    if "chi2" in name:
        x, y = np.abs(x), np.abs(y)
    y[1], y[0] = x[2], 0
    return (x * size).astype(dtype), (y * size).astype(dtype)


def every_form(kernel, x, y):
    return {"matrix": kernel(x, y), "own": kernel(x), "pairs": kernel.pairs(x, y), "diag": kernel.diag(x)}


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("name", BOUNDED)
def test_a_bounded_kernel_stays_within_its_bounds(name, dtype):
    kernel = BOUNDED[name]
    for size in SIZES[dtype]:
        x, y = rows(name, dtype, size)
        found = every_form(kernel, x, y)
        for form, values in found.items():
            assert ((values >= 0) & (values <= 1 + 1e-6)).all(), (size, form)
        np.testing.assert_allclose(found["diag"], 1, rtol=1e-6)
        np.testing.assert_array_equal(np.diagonal(found["own"]), found["diag"])
        np.testing.assert_allclose(found["matrix"][2, 1], 1, rtol=1e-3)
        if size > 1e3 and "chi2" not in name:
            assert found["matrix"][0, 2] < 1e-3
            assert found["pairs"][0] < 1e-3


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("name", UNBOUNDED)
def test_an_unbounded_kernel_is_a_number_or_beyond_its_dtype(name, dtype):
    for size in SIZES[dtype]:
        for form, values in every_form(UNBOUNDED[name], *rows(name, dtype, size)).items():
            assert not np.isnan(values).any(), (size, form)


@pytest.mark.parametrize(
    "name", ["arc-cosine 0", "arc-cosine 1", "additive chi2", *(n for n in BOUNDED if "chi2" in n)]
)
def test_large_rows_agree_with_a_wider_dtype(name):
    kernel = (BOUNDED | UNBOUNDED)[name]
    x, y = rows(name, "float32", 1e18 if name == "arc-cosine 1" else 1e37)
    for narrow, wide in zip(
        every_form(kernel, x, y).values(), every_form(kernel, x.astype("f8"), y.astype("f8")).values(), strict=True
    ):
        np.testing.assert_allclose(narrow, wide, rtol=3e-3 if "arc" in name else 1e-5, atol=1e-6 * wide.max())


@pytest.mark.parametrize("kernel", [ka.kernels.Gaussian(2.0), ka.kernels.Laplacian(3.0), ka.kernels.Matern(1.5, 7.0)])
@pytest.mark.parametrize(("near", "beyond", "dtype"), [(1e38, 3e38, "f4"), (6e307, 1.7e308, "f8")])
def test_far_rows_that_differ_are_far_apart(kernel, near, beyond, dtype):
    x, y = np.full((1, 1), near, dtype), np.full((1, 1), beyond, dtype)
    assert kernel(x, y) == kernel(y, x) == 0
    assert kernel(x) == kernel(y) == 1
