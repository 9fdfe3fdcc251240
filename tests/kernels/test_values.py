"""Kernels are values with an algebra, and refuse what they have no meaning for."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, ParameterError, ShapeError
from xp import to_numpy

K = ka.kernels


def test_the_table():
    classes = {cls for name, cls in vars(K).items() if isinstance(cls, type) and issubclass(cls, K.Kernel)}
    assert set(K.KERNELS.values()) | set(K.ALGEBRA.values()) | {K.Kernel, K.Stationary} == classes
    for cls in K.KERNELS.values():
        kernel = cls()  # every parameter has a default
        assert kernel == cls()
        assert hash(kernel) == hash(cls())
        assert eval(repr(kernel), {cls.__name__: cls}) == kernel


def test_algebra_is_flat_and_exact():
    a, b, c = K.Gaussian(), K.Laplacian(2.0), K.Polynomial(2)
    assert a + b + c == K.Sum((a, b, c))
    assert a + (b + c) == K.Sum((a, b, c))
    assert a * b * c == K.Product((a, b, c))
    assert 2 * a == a * 2 == K.Scaled(2.0, a) == np.float64(2) * a
    assert 2 * a * b == a * (2 * b) == 2 * (a * b) == K.Scaled(2.0, a * b)  # whose frequencies add, as a * b's do
    x = np.abs(np.random.default_rng(0).standard_normal((5, 3)))
    kernel = 2 * a + b * c
    np.testing.assert_array_equal(kernel(x, x[:2]), 2 * a(x, x[:2]) + b(x, x[:2]) * c(x, x[:2]))
    np.testing.assert_array_equal(kernel.diag(x), 2 * a.diag(x) + b.diag(x) * c.diag(x))
    np.testing.assert_array_equal(kernel.input_scale(3), 1.0)


@pytest.mark.parametrize("other", [0, -1.0, np.nan, "2", None, [1.0]], ids=repr)
def test_multiples_are_positive_numbers(other):
    with pytest.raises(ParameterError, match="the factor of a kernel"):
        K.Gaussian() * other
    with pytest.raises(TypeError):
        K.Gaussian() + other


@pytest.mark.parametrize("bad", [(), [K.Gaussian()], (K.Gaussian(), 1), None], ids=repr)
def test_members_are_kernels(bad):
    for cls in (K.Sum, K.Product):
        with pytest.raises((ParameterError, DTypeError), match=r"kernels must be a tuple of kernels|a Kernel; got 1"):
            cls(bad)
    with pytest.raises(DTypeError, match="kernel must be a Kernel; got 'gaussian'"):
        K.Scaled(1.0, "gaussian")


@pytest.mark.parametrize(
    ("cls", "parameters"),
    [
        (K.Laplacian, {"lengthscale": 0}),
        (K.Cauchy, {"lengthscale": [1.0, -1.0]}),
        (K.Sech, {"lengthscale": np.inf}),
        (K.Matern, {"nu": 0}),
        (K.Matern, {"nu": -0.5}),
        (K.Matern, {"nu": np.inf}),
        (K.Matern, {"nu": 1.5, "lengthscale": None}),
        (K.RationalQuadratic, {"alpha": 0.0}),
        (K.RationalQuadratic, {"alpha": "1"}),
        (K.Polynomial, {"degree": 0}),
        (K.Polynomial, {"degree": 1.5}),
        (K.Polynomial, {"gamma": 0.0}),
        (K.Polynomial, {"coef0": -1.0}),
        (K.ArcCosine, {"order": 3}),
        (K.ArcCosine, {"order": True}),
        (K.ArcCosine, {"order": -1}),
        (K.SkewedChi2, {"skewedness": 0}),
    ],
    ids=str,
)
def test_parameters(cls, parameters):
    name = list(parameters)[-1]
    with pytest.raises(ParameterError, match=f"{name} must .*; got "):
        cls(**parameters)


def test_lengthscales_of_another_dimension():
    for cls in (K.Laplacian, K.Cauchy, K.Matern, K.RationalQuadratic, K.Sech):
        with pytest.raises(ShapeError, match="3 entries"):
            cls(lengthscale=[1.0, 2.0, 3.0])(np.ones((5, 4)))


@pytest.mark.parametrize("wrap", [lambda k: k, lambda k: 2 * k, lambda k: K.Gaussian() + k, lambda k: K.Gaussian() * k])
def test_domains(wrap, xp):
    good, bad = np.ones((3, 2)), np.array([[0.5, 0.5], [0.5, -0.1], [1.0, 0.0]])
    additive, skewed = wrap(K.AdditiveChi2()), wrap(K.SkewedChi2(0.1))
    x, y = xp.asarray(good, "float32"), xp.asarray(bad, "float32")
    for call in (lambda k: k(x, y), lambda k: k.pairs(x, y)):
        with pytest.raises(ParameterError, match="y must not be negative"):
            call(additive)
        with pytest.raises(ParameterError, match=r"y must be above -skewedness = -0\.1"):
            call(skewed)
    with pytest.raises(ParameterError, match="x must not be negative"):
        additive.diag(y)
    assert np.isfinite(to_numpy(additive.diag(xp.asarray(np.zeros((2, 2)), "float32")))).all()


@pytest.mark.parametrize("order", [np.True_, np.array([1, 2]), 1.0, "1", None], ids=repr)
def test_the_order_of_neurons_is_an_integer(order):
    with pytest.raises(ParameterError, match="order must be 0, 1 or 2"):
        ka.kernels.ArcCosine(order)
