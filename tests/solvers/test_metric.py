"""Learned metrics: gradients, what a rotation does, copies and order, targets that depend on one direction."""

import array_api_strict as xp
import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.solvers._metric import Sample, follow, gradient_product

K = ka.kernels
RNG = np.random.default_rng(0)
X = RNG.standard_normal((150, 3))
DIRECTION = np.array([2.0, -1.0, 0.5]) / np.sqrt(5.25)
Y = np.sin(3 * X @ DIRECTION)
NOISE = RNG.standard_normal((150, 2))
SMALL = {"num_landmarks": 24, "rounds": 2, "times": (1.0,)}


def learn(x, y, *args, **options):
    return ka.solvers.learn_metric(x, y, *args, **SMALL | options)


@pytest.mark.parametrize(
    "kernel", [K.Gaussian(1.5), K.Matern(0.5, 2.0), K.Matern(2.5, 2.0), K.Laplacian(3.0)], ids=repr
)
def test_the_product_of_gradients_is_that_of_differences(kernel):
    phi = ka.features.nystrom(X, kernel, 12, rng=0)
    fit = ka.solvers.ridge(ka.solvers.moments(X, phi, y=np.stack([Y, X[:, 0]], axis=1)), 0.1)
    new, weights, step = RNG.standard_normal((5, 3)), np.array([1.0, 0.0, 2.0, 0.5, 1.0]), 1e-6
    slopes = np.stack(
        [(fit.predict(new + e) - fit.predict(new - e)) / (2 * step) for e in step * np.eye(3)]
    )  # (d, n, c)
    expected = np.einsum("n,inc,jnc->ij", weights / weights.sum(), slopes, slopes)
    np.testing.assert_allclose(gradient_product(fit, new, weights), expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kernel", [K.Gaussian(1.0), K.Matern(0.5, 2.0)], ids=repr)
def test_a_rotation_turns_full_metrics(kernel):
    turn = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
    sample = Sample(X, Y[:, None] / Y.std(), np.ones(150))
    turned = follow(sample._replace(x=X @ turn), kernel, "full", 2, 20)
    for one, other in zip(follow(sample, kernel, "full", 2, 20), turned, strict=True):
        np.testing.assert_allclose(turn.T @ one.factor @ turn, other.factor, atol=1e-6)
        np.testing.assert_allclose(one.predict(X), other.predict(X @ turn), atol=1e-6)


def test_factors_leave_the_usual_lengthscale():
    sample = Sample(100.0 * X, Y[:, None] / Y.std(), np.ones(150))
    for step in follow(sample, K.Gaussian(100.0), "diagonal", 2, 20):
        np.testing.assert_allclose(K.usual_lengthscale(100.0 * X @ step.factor), K.usual_lengthscale(100.0 * X))
        assert np.count_nonzero(step.factor) == 3, "it stays diagonal"


def test_a_target_of_one_direction_is_found():
    metric = learn(X, Y)
    assert metric.form == "full"
    found = np.linalg.eigh(metric.matrix)[1][:, -1]
    assert abs(found @ DIRECTION) > 0.98
    assert metric.errors["full"][metric.rounds] < 0.7 * metric.errors["full"][0]
    along = learn(X, np.sin(2 * X[:, 1]), form="diagonal")
    assert along.form == "diagonal"
    assert np.argmax(np.diagonal(along.factor)) == 1
    assert np.diagonal(along.factor)[1] > 3 * np.diagonal(along.factor)[[0, 2]].max()


def test_noise_has_no_metric():
    metric = learn(X, NOISE)
    assert (metric.form, metric.rounds) == ("none", 0)
    np.testing.assert_array_equal(metric.factor, np.eye(3))
    np.testing.assert_array_equal(metric.transform(X), X)
    phi = ka.features.nystrom(X, K.Gaussian(), 5, rng=0)
    np.testing.assert_array_equal(ka.features.Transformed(phi, metric.factor)(X), phi(X))


def test_neither_order_nor_copies_have_a_part():
    before = learn(X, Y).factor
    order = RNG.permutation(150)
    np.testing.assert_array_equal(learn(X[order], Y[order]).factor, before)
    counts = RNG.integers(0, 3, 150)
    again = np.repeat(np.arange(150), counts)
    copied = learn(X[again], Y[again])
    np.testing.assert_allclose(copied.factor, learn(X, Y, weights=counts.astype(float)).factor, rtol=1e-6, atol=1e-9)


def test_targets_that_are_the_same_count_for_nothing():
    before = learn(X, Y)
    beside = learn(X, np.stack([np.full(150, 7.0), 1e6 + 3 * Y], axis=1))
    np.testing.assert_allclose(beside.factor, before.factor, rtol=1e-5, atol=1e-7)
    assert learn(X, np.full(150, 0.3)).form == "none"
    assert learn(X[:10], Y[:10]).form == "none", "too few rows"
    assert learn(np.ones((150, 3)), Y).form == "none", "rows that are the same"


def test_neither_units_nor_libraries_have_a_part():
    before = learn(X, Y, K.Gaussian(1.0)).factor
    np.testing.assert_allclose(learn(X, 1e200 * Y, K.Gaussian(1.0)).factor, before, rtol=1e-6, atol=1e-9)
    x, y, weights = map(xp.asarray, (X, Y, np.ones(150)))
    strict = learn(x, y, K.Gaussian(1.0), weights=weights)
    np.testing.assert_array_equal(strict.factor, before)
    np.testing.assert_allclose(np.asarray(strict.transform(x)), X @ before, rtol=1e-12)


def test_classes_are_columns_of_0_and_1():
    labels = np.digitize(X @ DIRECTION, [-0.4, 0.4])
    metric = learn(X, np.eye(3)[labels])
    found = np.linalg.eigh(metric.matrix)[1][:, -1]
    assert abs(found @ DIRECTION) > 0.9


def test_a_product_over_axes_has_diagonal_metrics():
    assert list(learn(X, np.sin(3 * X[:, 1]), K.Laplacian(2.0)).errors) == ["diagonal"]
    with pytest.raises(ParameterError, match=r"form must be 'diagonal' for Laplacian"):
        learn(X, Y, K.Laplacian(), form="full")


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"kernel": K.Softmax()}, ParameterError, r"kernel must be one of Cauchy, Gaussian, .*got Softmax"),
        ({"kernel": K.Gaussian([1.0, 2.0, 3.0])}, ParameterError, "one lengthscale"),
        ({"form": "low rank"}, ParameterError, "form"),
        ({"times": ()}, ParameterError, "times"),
        ({"rounds": 0}, ParameterError, "rounds"),
        ({"weights": -np.ones(150)}, ParameterError, "weights"),
        ({"weights": np.zeros(150)}, ParameterError, "weights"),
        ({"weights": np.ones(3)}, ShapeError, "weights"),
        ({"y": Y[:5]}, ShapeError, "y must be"),
        ({"y": np.where(Y > 0, np.nan, Y)}, ParameterError, "y must be finite"),
    ],
)
def test_refusals(given, error, match):
    with pytest.raises(error, match=match):
        ka.solvers.learn_metric(**{"x": X, "y": Y, "kernel": None} | given)


def test_sparse_rows_are_refused():
    from scipy.sparse import csr_matrix

    with pytest.raises(DTypeError, match=r"x must be dense rows"):
        learn(csr_matrix(X), Y)
