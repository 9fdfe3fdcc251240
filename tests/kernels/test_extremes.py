"""Kernels at the ends of the floats: no NaN and no warning, and the right number where the dtype can say it."""

import numpy as np
import pytest

import kernattn as ka
from xp import to_numpy

K = ka.kernels
BOUNDED = {
    "Gaussian": K.Gaussian(0.5),
    "Gaussian 1e-30": K.Gaussian(1e-30),
    "Gaussian ARD": K.Gaussian(np.array([0.5, 1.0, 2.0])),
    "Laplacian": K.Laplacian(),
    "Cauchy": K.Cauchy(),
    "Matern 1/2": K.Matern(0.5),
    "Matern 0.7": K.Matern(0.7),
    "Matern 1": K.Matern(1.0),
    "Matern 3/2": K.Matern(1.5),
    "Matern 5/2": K.Matern(2.5),
    "Matern 1e30": K.Matern(1e30),
    "rational quadratic": K.RationalQuadratic(1.5),
    "rational quadratic 1e30": K.RationalQuadratic(1e30),
    "skewed chi2": K.SkewedChi2(),
    "skewed chi2 1e30": K.SkewedChi2(1e30),
    "skewed chi2 1e-30": K.SkewedChi2(1e-30),
    "Sech": K.Sech(),
}
UNBOUNDED = {
    "softmax": K.Softmax(),
    "softmax 1e30": K.Softmax(1e30),
    "polynomial": K.Polynomial(2),
    "cubic": K.Polynomial(3, gamma=0.5, coef0=1.0),
    "arc-cosine 0": K.ArcCosine(0),
    "arc-cosine 1": K.ArcCosine(1),
    "arc-cosine 2": K.ArcCosine(2),
    "additive chi2": K.AdditiveChi2(),
    "sum": K.Gaussian() + K.ArcCosine(1),
    "product": K.Gaussian() * K.Softmax(),
    "multiple": 1e30 * K.ArcCosine(1),
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


@pytest.mark.parametrize(("size", "dtype"), [(1e19, "f4"), (1e154, "f8")])
def test_what_the_dtype_can_say_is_said(size, dtype):
    kernel = K.Polynomial(1)
    x, y = np.array([[size, 0.5 / size]], dtype), np.array([[-size, size]], dtype)
    for form in every_form(kernel, x, x).values():
        np.testing.assert_allclose(form.ravel(), size**2, rtol=1e-6)
    for form in every_form(kernel, 10 * x, x).values():
        assert np.isinf(form).all() or (form == kernel(10 * x)).all()
    np.testing.assert_allclose(kernel(x, y), -(size**2), rtol=1e-6)
    np.testing.assert_allclose(kernel(x, y * np.array([0, 1], dtype)), 0.5, rtol=1e-6)


@pytest.mark.parametrize(("far", "apart"), [(0.0, 1e22), (0.0, 1e-24), (1e12, 1e22)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [K.Gaussian, K.Laplacian, K.Cauchy, K.Sech, K.RationalQuadratic, K.Matern])
def test_lengthscales_that_differ_widely(kind, dtype, far, apart, xp):
    """Rows alike along the axis where they are far count along the other one."""
    axis = 1 if apart > 1 else 0
    x = np.array([[far, 0.0]])
    y = x + apart * np.eye(2)[axis]
    kernel = kind(lengthscale=(1e-24, 1e22))
    wanted = kind()(np.zeros((1, 1)), np.ones((1, 1)))
    with xp.wide():
        x, y = xp.asarray(x.astype(dtype)), xp.asarray(y.astype(dtype))
        np.testing.assert_allclose(to_numpy(kernel(x, y)), wanted, rtol=1e-5)
        np.testing.assert_allclose(to_numpy(kernel.pairs(x, y)), wanted[0], rtol=1e-5)


@pytest.mark.parametrize(("large", "small", "dtype"), [(1e15, 1e-31, "f4"), (3e10, 1e-33, "f4"), (1e92, 1e-264, "f8")])
def test_histograms_of_unlike_sizes(large, small, dtype):
    x, y = np.array([[large]], dtype), np.array([[small]], dtype)
    kernel = K.AdditiveChi2()
    for found in (kernel(x, y), kernel(y, x), kernel.pairs(x, y), kernel.pairs(y, x)):
        np.testing.assert_allclose(found.ravel(), 2 * small, rtol=1e-6)


WIDE = pytest.mark.skipif(np.finfo(np.longdouble).maxexp < 10_000, reason="no wider float")


def z2(x, y):
    return np.sum((x - y) ** 2, axis=-1)


def cosine_kernel(x, y, order):
    sizes = [np.sqrt(np.sum(each * each, axis=-1)) for each in (x, y)]
    theta = np.arccos(np.clip(np.sum((x / sizes[0][..., None]) * (y / sizes[1][..., None]), axis=-1), -1, 1))
    j = np.sin(theta) + (np.pi - theta) * np.cos(theta) if order else np.pi - theta
    return (sizes[0] * sizes[1]) ** order * j / np.pi


FORMULAS = {  # of rowwise pairs, in longdouble
    "heavy tail": (K.RationalQuadratic(0.01), lambda x, y: np.exp(-0.01 * np.log1p(z2(x, y) / np.longdouble(0.02)))),
    "very heavy tail": (K.RationalQuadratic(1e-30), lambda x, y: np.ones(len(x))),
    "nearly Gaussian": (K.RationalQuadratic(1e30), lambda x, y: np.exp(-z2(x, y) / 2)),
    "smooth": (K.Matern(1e30), lambda x, y: np.exp(-z2(x, y) / 2)),
    "narrow": (K.Gaussian(1e-30), lambda x, y: np.exp(-z2(x, y) / np.longdouble(1e-30) ** 2 / 2)),
    "wide": (K.Cauchy(1e30), lambda x, y: np.prod(1 / (1 + ((x - y) / np.longdouble(1e30)) ** 2), axis=-1)),
    "step": (K.ArcCosine(0), lambda x, y: cosine_kernel(x, y, 0)),
    "neuron": (K.ArcCosine(1), lambda x, y: cosine_kernel(x, y, 1)),
    "histograms": (K.AdditiveChi2(), lambda x, y: np.sum(2 * x * y / (x + y), axis=-1)),
    "large constant": (K.SkewedChi2(1e30), lambda x, y: skewed(x, y, 1e30)),
    "small constant": (K.SkewedChi2(1e-30), lambda x, y: skewed(x, y, 1e-30)),
}


def skewed(x, y, c):
    x, y = x + np.longdouble(c), y + np.longdouble(c)
    return np.prod(2 * np.sqrt(x) * np.sqrt(y) / (x + y), axis=-1)


@WIDE
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FORMULAS)
def test_the_formula_at_every_size(name, dtype, xp):
    """Of parameters at their limits too, and of pairs of which one row is far and the other one not."""
    kernel, formula = FORMULAS[name]
    tolerance, largest = (1e-4, 1e37) if dtype == "float32" else (1e-8, 1e307)
    rng = np.random.default_rng(0)
    with xp.wide():
        sizes = [1e-36, 1e-20, 1.0, 1e10, 1e20, 1e30, 1e37] + [1e-300, 1e200, 1e307] * (dtype == "float64")
        for size in sizes[:: 1 if xp.name == "numpy" else 4]:
            for other in (size, 1.0):
                x, y = (rng.uniform(0.1, 1, (4, 3)) * each for each in (size, other))
                x, y = x.astype(dtype), y.astype(dtype)
                wanted = np.clip(formula(*(each.astype(np.longdouble) for each in (x, y))), 0, largest)
                x, y = xp.asarray(x), xp.asarray(y)
                for form, found in (("pairs", kernel.pairs(x, y)), ("matrix", kernel(x, y))):
                    values = to_numpy(found)
                    values = values if form == "pairs" else np.diagonal(values)
                    floor = np.finfo(dtype).tiny if name in ("neuron", "histograms") else 1e-30
                    np.testing.assert_allclose(
                        np.clip(values, 0, largest),
                        wanted,
                        rtol=tolerance,
                        atol=floor,
                        err_msg=f"{form} {size} {other}",
                    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BOUNDED | UNBOUNDED)
def test_far_rows_do_not_move_the_others(name, dtype):
    kernel = (BOUNDED | UNBOUNDED)[name]
    x, y = rows(name, dtype, 1.0)
    if "skewed" in name:
        y = y + 1
    wanted = kernel(x, y)
    x[4] *= SIZES[dtype][-1]
    np.testing.assert_array_equal(np.delete(kernel(x, y), 4, 0), np.delete(wanted, 4, 0))


@pytest.mark.parametrize("value", [0, -1.0, 9e-31, 1.1e30, 1e300, 1e-320, np.inf, np.nan])
def test_parameters_that_float32_cannot_hold_are_refused(value):
    made = (
        lambda: K.Gaussian(value), lambda: K.Laplacian([1.0, value]), lambda: K.Matern(nu=value),
        lambda: K.RationalQuadratic(alpha=value), lambda: K.SkewedChi2(value), lambda: K.Softmax(scale=value),
        lambda: K.Polynomial(2, gamma=value), lambda: value * K.Cauchy(),
        lambda: value * ka.features.elu1(),
    )  # fmt: skip
    for make in made:
        with pytest.raises(ka.errors.ParameterError, match=r"must be a .*number"):
            make()
    if value > 0 and np.isfinite(value):
        with pytest.raises(ka.errors.ParameterError, match=r"from 1e-30 to 1e\+30, or 0; got"):
            K.Polynomial(2, coef0=value)
