"""Parameters out of range are refused by errors that name them."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from refusals import refused, x
from xp import KINDS


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, "1", None, True, [1.0]], ids=repr)
def test_scales(scale):
    if scale is not None:
        with refused(errors.ParameterError, "scale", repr(scale)):
            ka.softmax_attention(x(5, 4), x(5, 4), x(5, 2), scale=scale)
        with refused(errors.ParameterError, "scale", repr(scale)):
            ka.kernels.Softmax(scale=scale)
    with refused(errors.ParameterError, "scale", repr(scale)):
        ka.features.generalized("relu", 4, 8, scale=scale, rng=0)


def test_softmax_kernel_has_no_negative_scale():
    with refused(errors.ParameterError, "scale", "-0.5"):
        ka.kernels.Softmax(scale=-0.5)


@pytest.mark.parametrize(
    "lengthscale", [0.0, -1.0, np.nan, np.inf, "1", [1.0, -1.0], np.ones((2, 2)), np.array([]), [1.0, np.nan]], ids=repr
)
def test_lengthscales(lengthscale):
    with refused((errors.ParameterError, errors.ShapeError), "lengthscale"):
        ka.kernels.Gaussian(lengthscale)


def test_kernels_check_their_input():
    kernel = ka.kernels.Gaussian(np.ones(4))
    with refused(errors.ShapeError, "lengthscale", "4", "d = 3"):
        kernel(x(5, 3))
    with refused(errors.ShapeError, "(5, 4)", "(5, 3)"):
        ka.kernels.Softmax()(x(5, 4), x(5, 3))
    with refused(errors.DTypeError, "int64"):
        kernel(np.ones((5, 4), np.int64))
    with refused(errors.MixedLibraryError, "numpy", "array_api_strict"):
        kernel(x(5, 4), KINDS[2].asarray(x(5, 4)))


@pytest.mark.parametrize("number", [0, -3, 2.5, "8", None, True], ids=repr)
def test_sizes(number):
    kernel = ka.kernels.Softmax()
    with refused(errors.ParameterError, "num_features", repr(number)):
        ka.random_features(kernel, 4, number, rng=0)
    with refused(errors.ParameterError, "dim", repr(number)):
        ka.random_features(kernel, number, 8, rng=0)
    with refused(errors.ParameterError, repr(number)):
        ka.features.generalized("relu", 4, number, rng=0)
    with refused(errors.ParameterError, repr(number)):
        ka.features.generalized("relu", number, 8, rng=0)
    with refused(errors.ParameterError, "degree", repr(number)):
        ka.features.polynomial(number)
    with refused(errors.ParameterError, repr(number)):
        ka.projections.Orthogonal().draw(number, 4)
    with refused(errors.ParameterError, repr(number)):
        ka.projections.Iid().draw(4, number)


def test_names():
    kernel = ka.kernels.Softmax()
    with refused(errors.ParameterError, "estimator", "'favor'", "positive", "trigonometric"):
        ka.random_features(kernel, 4, 8, estimator="favor", rng=0)
    for given in (np.ones(3), None, ["positive"]):
        for of in (kernel, ka.kernels.Polynomial(), kernel * ka.kernels.Polynomial()):
            with refused(errors.ParameterError, "estimator must be"):
                ka.random_features(of, 4, 8, estimator=given, rng=0)
    with refused(errors.ParameterError, "'no_such'", "iid", "orthogonal"):
        ka.random_features(kernel, 4, 8, projection="no_such", rng=0)
    with refused(errors.ParameterError, "'no_such'", "iid", "orthogonal"):
        ka.features.generalized("relu", 4, 8, projection="no_such", rng=0)
    with refused(errors.ParameterError, "'nothing'", "relu"):
        ka.features.generalized("nothing", 4, 8, rng=0)
    with refused(errors.ParameterError, "norms", "'unit'", "chi", "sqrt_d"):
        ka.projections.Orthogonal(norms="unit")
    with refused(errors.ParameterError, "norms", "'unit'", "chi", "sqrt_d"):
        ka.projections.Iid(norms="unit")
    with refused(errors.ParameterError, "method", "'svd'", "qr", "gram_schmidt"):
        ka.projections.Orthogonal(method="svd")
    with refused(errors.ParameterError, "rng", "-1"):
        ka.random_features(kernel, 4, 8, rng=-1)
    for given in ("softmax", None, ka.kernels.Softmax):
        with refused(errors.DTypeError, "kernel" if given is not ka.kernels.Softmax else "Softmax", "Gaussian"):
            ka.random_features(given, 4, 8, rng=0)


@pytest.mark.parametrize("estimator", ["trigonometric", "hyperbolic"])
def test_pairs_need_an_even_number(estimator):
    with refused(errors.ParameterError, estimator, "even", 7):
        ka.random_features(ka.kernels.Softmax(), 4, 7, estimator=estimator, rng=0)


def test_lengthscale_of_another_dimension():
    with refused(errors.ShapeError, 3, 4):
        ka.random_features(ka.kernels.Gaussian(np.ones(3)), 4, 8, rng=0)


def test_data():
    kernel = ka.kernels.Softmax()
    for shape in ((5, 3), (4,), (2, 5, 4)):
        with refused(errors.ShapeError, "data", shape):
            ka.random_features(kernel, 4, 8, data=x(*shape), rng=0)
    with refused(errors.EmptyInputError, "data", "(0, 4)"):
        ka.random_features(kernel, 4, 8, data=x(0, 4), rng=0)
    with refused(errors.ParameterError, "data", "finite"):
        ka.random_features(kernel, 4, 8, data=np.full((5, 4), np.nan), rng=0)
    with refused(errors.DTypeError, "data", "int64"):
        ka.random_features(kernel, 4, 8, data=np.ones((5, 4), np.int64), rng=0)


def test_tilt():
    phi = ka.random_features(ka.kernels.Softmax(), 4, 8, estimator="optimal_positive", rng=0)
    for tilt in (0.125, 1.0, np.nan):
        with refused(errors.ParameterError, "tilt", tilt):
            replace(phi, tilt=tilt)


@pytest.mark.parametrize("method", ["mean", "bias", "variance"])
@pytest.mark.parametrize("phi", [ka.features.elu1(), ka.features.taylor2(), ka.features.polynomial(2)], ids=repr)
def test_pairs_of_deterministic_maps_are_checked(phi, method):
    rows, of_pairs = np.ones((3, 4)), getattr(phi, method)
    for other in (np.ones((3, 5)), np.ones((2, 4)), np.array(1.0)):
        for pair in ((rows, other), (other, rows)):
            with pytest.raises(errors.ShapeError):
                of_pairs(*pair)
    with pytest.raises(errors.DTypeError, match="complex128"):
        of_pairs(rows, rows * 1j)


def test_bias_of_what_is_no_array():
    for wrong in (None, 3, np.array(1.0)):
        with pytest.raises((errors.DTypeError, errors.ShapeError)):
            ka.random_features(ka.kernels.AdditiveChi2(), 4, 12, rng=0).bias(wrong, np.ones((3, 4)))
