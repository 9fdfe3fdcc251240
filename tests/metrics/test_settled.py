"""`where_settled` says where Student's interval holds: the skewness against quadrature, the coverage against draws."""

from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import stdtrit

import kernattn as ka
from kernattn.errors import DTypeError, NoClosedForm, ParameterError, ShapeError
from kernattn.metrics._settled import where_settled
from kernattn.metrics._tilted import tilted_moment

K = ka.kernels
TERMS = {
    "positive": lambda u, w, v: np.exp(v * u - v**2 / 2),
    "hyperbolic": lambda u, w, v: np.cosh(v * u) * np.exp(-(v**2) / 2),
    "trigonometric": lambda u, w, v: np.cos(w * u),
}


def by_quadrature(term, v, w):
    def mean(f):
        return quad(lambda u: f(term(u, w, v)) * np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi), -14, 14, limit=400)[0]

    first = mean(lambda t: t)
    return mean(lambda t: (t - first) ** 3) ** 2 / mean(lambda t: (t - first) ** 2) ** 3


@pytest.mark.parametrize(("estimator", "v", "w"), [*product(TERMS, (0.3, 1.0, 1.7), (0.5, 1.5))])
def test_skewness_against_quadrature(estimator, v, w):
    x, y = np.zeros((1, 3)), np.zeros((1, 3))
    x[0, :2], y[0, :2] = (v / 2, w / 2), (v / 2, -w / 2)  # |x + y| = v, |x - y| = w
    phi = ka.random_features(K.Softmax(1.0), 3, 8, estimator, "iid", rng=0)
    want = by_quadrature(TERMS[estimator], v, w)
    np.testing.assert_allclose(phi._tails(x, y).squared_skewness, want, rtol=1e-6)


@pytest.mark.parametrize(("tilt", "cut"), [(-0.3, False), (0.02, False), (0.09, True)])
def test_tilted_skewness_against_quadrature(tilt, cut):
    x = np.array([[0.6]])
    phi = ka.features.OptimalPositive(K.Softmax(1.0), ka.projections.Iid(), np.ones((4, 1)), tilt)
    same = ka.features.DenseExponential(phi.kernel, phi.projection, phi.omega, np.full(1, tilt), np.eye(1))
    found = [each._tails(x, x).squared_skewness for each in (phi, same)]
    if cut:  # 1 - 12 A < 0: no third moment
        assert not where_settled(phi, x, x, 10**9)
        assert not where_settled(same, x, x, 10**9)
        return
    b = np.sqrt(1 - 4 * tilt)
    want = by_quadrature(lambda u, w, v: np.exp(2 * tilt * u**2 + b * v * u), 1.2, 0.0)
    np.testing.assert_allclose(found, [[want]] * 2, rtol=1e-6)


@pytest.mark.statistical
@pytest.mark.parametrize("projection", ["iid", "orthogonal"])
@pytest.mark.parametrize("estimator", ["positive", "hyperbolic", "trigonometric", "optimal_positive"])
def test_printed_intervals_cover(estimator, projection):
    """Over pairs of many sizes, Student's intervals of settled ones cover 92 to 98 %; of tails out of reach, few do."""
    d, m, redraws, studies = 4, 16, 16, 250
    u, w = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in np.random.default_rng(0).standard_normal((2, 24, d)))
    sizes = np.linspace(0.1, 2.0, 24)[:, None]
    x, y = sizes * u, sizes * (0.6 * u + 0.4 * w)
    kernel = K.Softmax(1.0)
    rng = np.random.default_rng(1)
    phi = ka.random_features(kernel, d, m, estimator, projection, rng=0)
    known, exact = where_settled(phi, x, y, redraws), kernel.pairs(x, y)
    # the draws of all studies at once: blocks of a large map are those of small ones
    many = ka.random_features(kernel, d, m * redraws * studies, estimator, projection, rng=rng)
    q, k = many.query(x), many.key(y)
    terms = q * k
    per = terms.shape[1] // (redraws * studies)
    if estimator in ("hyperbolic", "trigonometric"):  # features of one frequency stand apart
        half = terms.shape[1] // 2
        terms, per = terms[:, :half] + terms[:, half:], per // 2
    estimates = terms.reshape(len(x), studies, redraws, per).sum(axis=-1) * (redraws * studies)
    half_width = stdtrit(redraws - 1, 0.975) * estimates.std(axis=-1, ddof=1) / redraws**0.5
    covered = np.abs(estimates.mean(axis=-1) - exact[:, None]) <= half_width
    assert 0.92 <= covered[known].mean() <= 0.98
    if estimator == "positive":
        assert known.any()
        assert not known.all()
        assert covered[~known].mean() < 0.85


def test_every_map_answers_or_says_that_nothing_is_known():
    x = 0.3 * np.random.default_rng(0).standard_normal((5, 1, 4))
    y = np.swapaxes(x, 0, 1)[:, :3]
    for estimator, projection in product(ka.features.estimators(K.Softmax()), ka.projections.PROJECTIONS):
        if (estimator, projection) in {("favor_sharp", "moment_matched"), ("favor_sharp_asymmetric", "moment_matched")}:
            continue
        phi = ka.random_features(K.Softmax(), 4, 16, estimator, projection, data=x[:, 0], rng=0)
        found = where_settled(phi, x, y, 1000)
        assert found.shape == (5, 3)
        assert found.all()
    assert where_settled(ka.features.taylor2(), x, y, 1).all()
    with pytest.raises(NoClosedForm, match="nothing is known of the tails of TensorSketch"):
        where_settled(ka.random_features(K.Polynomial(2), 4, 16, rng=0), x, y, 8)


def test_refusals():
    phi = ka.random_features(K.Softmax(), 4, 8, rng=0)
    with pytest.raises(DTypeError, match="FeatureMap"):
        where_settled("positive", np.ones((1, 4)), np.ones((1, 4)), 8)
    with pytest.raises(ShapeError, match="d = 4"):
        where_settled(phi, np.ones((1, 3)), np.ones((1, 3)), 8)
    with pytest.raises(ParameterError, match="redraws must be a positive integer"):
        where_settled(phi, np.ones((1, 4)), np.ones((1, 4)), 0)


@pytest.mark.statistical
@pytest.mark.parametrize("projection", ["iid", "orthogonal"])
@pytest.mark.parametrize("estimator", ["positive", "hyperbolic", "optimal_positive"])
def test_tilted_frequencies_reach_the_tail(estimator, projection):
    """At |x + y|^2 up to 36, where redraws see nothing, the map's own terms have the moments of the closed form."""
    x = np.array([[0.5, 0.2, 0.0], [1.5, -0.5, 1.0], [2.0, 2.0, 1.0]])
    y = np.array([[0.4, 0.0, 0.1], [1.0, 0.5, 1.0], [2.0, 2.0, 1.0]])
    phi = ka.random_features(K.Softmax(1.0), 3, 32, estimator, projection, rng=0)
    assert not where_settled(phi, x, y, 100)[1:].all()
    moments = phi._moments(x, y)
    for power, want in ((1, moments.mean), (2, moments.second)):
        value, low, high = tilted_moment(phi, x, y, power=power, confidence=1 - 1e-5)
        assert ((low <= want * (1 + 1e-6)) & (want * (1 - 1e-6) <= high)).all()
        np.testing.assert_allclose(value, want, rtol=0.15)
    with pytest.raises(NoClosedForm, match="no mode is known"):
        tilted_moment(ka.random_features(K.Softmax(1.0), 3, 32, "trigonometric", rng=0), x, y)


def test_tilted_frequencies_come_from_the_generator_that_is_given():
    phi = ka.random_features(K.Softmax(1.0), 3, 32, "hyperbolic", "iid", rng=0)
    x, y = np.full((2, 1, 3), 0.5)
    first, again, other = (tilted_moment(phi, x, y, power=2, samples=64, rng=seed).low for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("d", [16, 64])
@pytest.mark.parametrize("power", [1, 2])
def test_tilted_frequencies_follow_the_width_too(d, power):
    """The p-th power of a tilted exponential is a normal density of another width: its samples have no spread left."""
    x = np.eye(d)[:1]
    phi = ka.random_features(K.Softmax(1.0), d, 2 * d, "optimal_positive", "iid", rng=0)
    moments = phi._moments(x, x)
    value, low, high = tilted_moment(phi, x, x, power=power, samples=64)
    np.testing.assert_allclose(value, (moments.mean, moments.second)[power - 1], rtol=1e-9)
    np.testing.assert_allclose(low, high, rtol=1e-9)


def test_infinite_moments_are_refused():
    phi = ka.features.OptimalPositive(K.Softmax(1.0), ka.projections.Iid(), np.ones((4, 1)), 0.09)
    x = np.ones((1, 1))
    np.testing.assert_allclose(tilted_moment(phi, x, x, power=2).value, phi._moments(x, x).second)
    with pytest.raises(ParameterError, match=r"power must be below 2\.78"):
        tilted_moment(phi, x, x, power=3)


@pytest.mark.parametrize(
    "phi",
    [
        ka.random_features(K.Softmax(), 4, 16, "positive", rng=0),
        ka.random_features(K.Gaussian(), 4, 16, "trigonometric", rng=0),
    ],
    ids=["positive", "trigonometric"],
)
def test_a_factor_leaves_tails_as_they_are(phi):
    x, y = np.random.default_rng(0).standard_normal((2, 9, 4))
    assert np.array_equal(where_settled(2.0 * phi, x, y, 8), where_settled(phi, x, y, 8))
    assert where_settled(ka.random_features(2 * K.Softmax(), 4, 16, rng=0), 0.1 * x, 0.1 * y, 50).all()


def test_features_of_logarithms_have_the_tails_of_features():
    phi = ka.random_features(K.SkewedChi2(), 4, 16, projection="iid", rng=0)
    x, y = np.exp(np.random.default_rng(0).standard_normal((2, 9, 4)))
    c = phi.kernel.skewedness
    assert np.array_equal(where_settled(phi, x, y, 2), where_settled(phi.inner, np.log(x + c), np.log(y + c), 2))
