"""Moment matching: exact sample moments, the law of its rows, closed means and variances, what is refused."""

import re

import numpy as np
import pytest
from scipy import stats

import kernattn as ka
from kernattn import errors
from saved import reloaded

K, P = ka.kernels, ka.projections
D = 3
MATCHED = P.MomentMatched()


def z_score(samples, expected):
    return (samples.mean(axis=0) - expected) / (samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))


def draws(m, d, count, seed=1):
    rng = np.random.default_rng(seed)
    return np.stack([MATCHED.draw(m, d, rng) for _ in range(count)])


@pytest.mark.parametrize(("m", "d"), [(2, 1), (4, 3), (12, 3), (65, 64), (300, 64)])
def test_the_sample_has_the_moments_of_its_law(m, d):
    for seed in range(5):
        omega = MATCHED.draw(m, d, seed)
        np.testing.assert_allclose(omega.mean(axis=0), 0.0, atol=1e-13)
        np.testing.assert_allclose(omega.T @ omega / m, np.eye(d), atol=1e-12)


def test_it_is_the_whitened_sample():
    """As Shen et al. write it: (w - mean) by a square root of the inverse covariance, the symmetric one."""
    m, d = 20, 4
    w = np.random.default_rng(3).standard_normal((m, d))
    centred = w - w.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / m)
    np.testing.assert_allclose(
        P.MomentMatched().draw(m, d, 3), centred @ (vectors / np.sqrt(values)) @ vectors.T, atol=1e-12
    )


def test_a_simplex_where_there_are_d_plus_1_rows():
    omega = MATCHED.draw(6, 5, 0)
    np.testing.assert_allclose(omega @ omega.T, 6 * np.eye(6) - 1, atol=1e-12)


@pytest.mark.statistical
def test_laws_of_rows():
    """One row is cut from a sphere in m - 1 dimensions; any two have the same joint law."""
    m, d = 7, D
    omega = draws(m, d, 3000)
    for row in (0, m - 1):
        beta = stats.beta(d / 2, (m - 1 - d) / 2)
        assert stats.kstest(np.sum(omega[:, row] ** 2, axis=-1) / (m - 1), beta.cdf).pvalue > 1e-5
    products = omega[:, :, None, :, None] * omega[:, None, :, None, :]  # (draws, m, m, d, d)
    expected = np.einsum("ij,ab->ijab", (m * np.eye(m) - 1) / (m - 1), np.eye(d))
    assert np.abs(z_score(products, expected)).max() < 4.5


@pytest.mark.statistical
@pytest.mark.parametrize("estimator", ["trigonometric", "phase", "positive", "hyperbolic"])
@pytest.mark.parametrize(("kernel", "m"), [(K.Gaussian((0.5, 1.0, 2.0)), 7), (K.Softmax(), 4)], ids=["ard", "softmax"])
def test_mean_and_variance(kernel, m, estimator):
    number, count = 2 * m if estimator in ("trigonometric", "hyperbolic") else m, 400
    phi = ka.random_features(kernel, D, number, estimator, "moment_matched", rng=0)
    x = np.array([[0.9, 0.0, 0.0], [0.5, 0.5, -0.4], [0.3, -0.2, 0.1]]) / kernel.input_scale(D)
    y = np.array([[-0.6, 0.0, 0.0], [0.1, 0.2, 0.7], [0.3, -0.2, 0.1]]) / kernel.input_scale(D)
    rng = np.random.default_rng(2)
    estimates = np.stack([np.sum(f(x) * f(y), axis=-1) for f in (phi.redraw(rng) for _ in range(count))])
    mean, variance = phi.mean(x, y), phi.variance(x, y)
    np.testing.assert_allclose(phi.bias(x, y), mean - kernel.pairs(x, y), rtol=1e-9, atol=1e-14)
    random = estimates.std(axis=0) > 1e-10
    np.testing.assert_allclose(estimates[0, ~random], mean[~random], rtol=1e-9)
    assert (variance[~random] < 1e-15).all()
    estimates = estimates[:, random]
    assert np.abs(z_score(estimates, mean[random])).max() < 4.5
    assert np.abs(z_score((estimates - estimates.mean(axis=0)) ** 2, variance[random])).max() < 4.5


@pytest.mark.statistical
def test_opposites_and_products_of_kernels():
    kernel = K.Gaussian() * K.Gaussian(0.8)
    x, y = np.zeros((2, D)), np.array([[0.8, 0.0, 0.1], [0.5, 0.5, -0.4]])
    for phi in (
        ka.random_features(kernel, D, 10, "trigonometric", "moment_matched", rng=0),
        ka.random_features(K.Softmax(scale=1.0), D, 10, "positive", P.Antithetic(MATCHED), rng=0),
    ):
        rng = np.random.default_rng(3)
        samples = np.stack([np.sum(f(x) * f(y), axis=-1) for f in (phi.redraw(rng) for _ in range(400))])
        assert np.abs(z_score(samples, phi.mean(x, y))).max() < 4.5
        assert np.abs(z_score((samples - samples.mean(axis=0)) ** 2, phi.variance(x, y))).max() < 4.5


@pytest.mark.statistical
@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_means(order):
    phi = ka.random_features(K.ArcCosine(order), D, 5, projection="moment_matched", rng=0)
    x, y = np.array([[0.9, 0.1, 0.0], [0.5, 0.5, -0.4]]), np.array([[0.6, 0.0, -0.9], [0.1, 0.2, 0.7]])
    rng = np.random.default_rng(4)
    samples = np.stack([np.sum(f(x) * f(y), axis=-1) for f in (phi.redraw(rng) for _ in range(400))])
    assert np.abs(z_score(samples, phi.mean(x, y))).max() < 4.5
    if order < 2:  # homogeneous of degree 0 and 2 in the frequencies
        np.testing.assert_allclose(phi.bias(x, y), 0.0, atol=1e-12)


def test_leading_bias():
    """-|x - y|^4 / 4m of the kernel."""
    x = np.array([[0.5, 0.0, 0.0], [0.3, -0.3, 0.6]])
    z2 = np.sum(x**2, axis=-1)
    for m in (200, 400):
        phi = ka.random_features(K.Gaussian(), D, 2 * m, "trigonometric", "moment_matched", rng=0)
        np.testing.assert_allclose(phi.bias(x, 0 * x), -(z2**2) / (4 * m) * np.exp(-z2 / 2), rtol=3 / m + z2.max() / m)


def test_its_bias_is_found():
    """By a test on redraws, where it is claimed; and none where there is none."""
    phi = ka.random_features(K.Gaussian(), 4, 12, "trigonometric", "moment_matched", rng=0)
    assert not ka.metrics.certify(phi, redraws=1000, rng=0).passed
    phi = ka.random_features(K.ArcCosine(1), 4, 12, projection="moment_matched", rng=0)
    assert ka.metrics.certify(phi, redraws=300, rng=0).passed


def test_errors_are_of_fourth_order_in_every_draw():
    """Quadratic terms are exact: halving the distance divides the error by 16."""
    phi = ka.random_features(K.Gaussian(), 8, 32, "trigonometric", "moment_matched", rng=0)
    direction = np.random.default_rng(1).standard_normal((1, 8)) / 8**0.5
    errors_ = []
    for size in (0.1, 0.05):
        x = size * direction
        errors_.append((phi(x) @ phi(0 * x).T - phi.kernel(x, 0 * x)).item())
    assert abs(errors_[0] / errors_[1] - 16) < 0.5


def test_mean_squared_error_beside_other_projections():
    """At equal size, d = 16, m = 64: the figures of the docstring."""
    z = np.zeros((4, 16))
    z[:, 0] = [0.25, 0.5, 1.0, 2.0]

    def error(projection, kernel, estimator, number):
        phi = ka.random_features(kernel, 16, number, estimator, projection, rng=0)
        return phi.variance(z, 0 * z) + phi.bias(z, 0 * z) ** 2

    for case, figures in (
        ((K.Gaussian(), "trigonometric", 128), [0.0003, 0.004, 0.07, 0.70]),
        ((K.Softmax(scale=1.0), "positive", 64), [0.0006, 0.009, 0.10, 0.31]),
    ):
        matched = error("moment_matched", *case)
        np.testing.assert_allclose(matched / error("iid", *case), figures, rtol=0.15)
        assert (matched < error("orthogonal", *case))[:3].all()
        assert (matched < error("simplex", *case))[:3].all()


def test_what_has_no_closed_form():
    x = np.ones((2, D)) / 4
    with pytest.raises(errors.NoClosedForm, match="padding was dropped"):
        ka.random_features(K.Softmax(), D, 8, "optimal_positive", "moment_matched", rng=0).variance(x, x)
    phi = ka.random_features(K.Gaussian(), D, 16, "trigonometric", "moment_matched", rng=0)
    with pytest.raises(errors.NoClosedForm, match="all rows depend on each other"):
        phi.num_features_for(x, x / 2, error=0.5, probability=0.9)


def refused(*words):
    return pytest.raises(errors.ParameterError, match=".*".join(re.escape(word) for word in words))


def test_refusals_before_any_draw():
    source = np.random.default_rng(0)
    before = source.bit_generator.state
    for m, d in ((3, 3), (1, 1), (2, 8)):
        with refused("m must be above d", f"got {m} frequencies"):
            MATCHED.draw(m, d, source)
    with refused("m must be above d = 4", "got 4 frequencies", "a pair of features has one"):
        ka.random_features(K.Gaussian(), 4, 8, "trigonometric", "moment_matched", rng=source)
    for kernel in (K.Matern(1.5), K.RationalQuadratic(2.0)):
        with refused("'moment_matched' is for normal frequencies", "Norms"):
            ka.random_features(kernel, 4, 32, projection="moment_matched", rng=source)
    for kernel in (K.Laplacian(), K.Cauchy(), K.SkewedChi2()):
        with refused("projection must be 'iid'"):
            ka.random_features(kernel, 4, 32, projection="moment_matched", rng=source)
    with refused("frequencies N(0, I)", "MomentMatched"):
        data = np.random.default_rng(1).standard_normal((9, 4))
        ka.random_features(K.Softmax(), 4, 8, "favor_sharp", "moment_matched", data=data, rng=source)
    assert source.bit_generator.state == before


def test_auto_takes_what_the_size_allows():
    """Eight frequencies or four pairs in d = 5: pairs are too few."""
    data = 0.3 * np.random.default_rng(1).standard_normal((20, 5))
    phi = ka.random_features(K.Gaussian(), 5, 8, projection="moment_matched", data=data, rng=0)
    assert len(phi.omega) == 8
    assert len(ka.random_features(K.Gaussian(), 5, 8, projection="moment_matched", rng=0).omega) == 8
    with refused("m must be above d = 5", "got 4 frequencies"):
        ka.random_features(K.Gaussian(), 5, 4, projection="moment_matched", rng=0)


def test_a_value_that_is_saved(tmp_path):
    assert eval(repr(MATCHED), vars(P)) == MATCHED == P.resolve("moment_matched")
    phi = ka.random_features(K.Softmax(), 4, 8, "positive", "moment_matched", rng=0)
    reloaded(phi, tmp_path)
