"""Tests on features: statistics as written over pairs, tails as integrated, and rejections where there is nothing."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2

import kernattn as ka
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, StateMismatchError
from kernattn.solvers._hypotheses.tail import upper_tail
from solvers.test_moments import PHI, W, X, Y

OTHER = ka.random_features(ka.kernels.Gaussian(), dim=2, num_features=10, rng=5)


def imhof(q, weights):
    """The tail by inverting the characteristic function (Imhof 1961)."""

    def integrand(u):
        theta = np.sum(np.arctan(weights * u)) / 2 - q * u / 2
        return np.sin(theta) / (u * np.prod((1 + (weights * u) ** 2) ** 0.25))

    return 0.5 + quad(integrand, 0, np.inf, limit=2000, epsabs=1e-10)[0] / np.pi


@pytest.mark.parametrize("degrees", [1, 2, 5, 50])
def test_tails_of_equal_weights(degrees):
    for p in (0.99, 0.5, 0.1, 0.05, 0.01, 1e-6, 1e-30):
        q = chi2.isf(p, degrees)
        assert upper_tail(3 * q, np.full(degrees, 3.0)) == pytest.approx(p, rel=0.04)


@pytest.mark.parametrize("q", [1e4, 1e16, 1e30, 1e300])
def test_tails_beyond_float64_are_0(q):
    assert upper_tail(q, np.array([1.0, 0.5, 1e-9])) == 0.0


def test_tails_of_other_weights():
    for weights in (0.5 ** np.arange(8.0), 1 / np.arange(1.0, 40) ** 2, np.random.default_rng(0).random(30)):
        for q in np.sum(weights) * np.array([0.3, 0.7, 1.0, 1.00001, 1.5, 2.5]):
            assert upper_tail(q, weights) == pytest.approx(imhof(q, weights), rel=0.04)
            assert upper_tail(q * 1e-20, weights * 1e-20) == pytest.approx(upper_tail(q, weights), rel=1e-6)
    values = [upper_tail(q, 0.5 ** np.arange(8.0)) for q in np.linspace(0.1, 60, 300)]
    assert np.all(np.diff(values) < 0)
    assert upper_tail(0.0, np.ones(3)) == 1.0
    assert 0 <= upper_tail(1e4, np.ones(3)) < 1e-100


def test_mmd_over_pairs():
    x, y = X[:50], X[50:] + 0.3
    a, b = PHI(x), PHI(y)
    within = [(np.sum(f @ f.T) - np.sum(f**2)) / (len(f) * (len(f) - 1)) for f in (a, b)]
    found = ka.solvers.mmd(ka.solvers.moments(x, PHI), ka.solvers.moments(y, PHI))
    assert found.statistic == pytest.approx(sum(within) - 2 * np.mean(a @ b.T), rel=1e-9)


def test_hsic_over_pairs():
    found = ka.solvers.hsic(ka.solvers.moments(X, PHI, y=OTHER(Y)))
    centre = np.eye(90) - 1 / 90
    a, b = centre @ PHI(X) @ PHI(X).T @ centre, centre @ OTHER(Y) @ OTHER(Y).T @ centre
    wanted = np.sum(a * b) / 89**2 - np.trace(a) * np.trace(b) / 89**3
    assert found.statistic == pytest.approx(wanted, rel=1e-8)


def permuted(rng, x, y):
    """The share of permutations of the rows whose statistic is as large."""
    both, n = PHI(np.concatenate([x, y])), len(x)

    def gap(rows):
        return np.sum((rows[:n].mean(axis=0) - rows[n:].mean(axis=0)) ** 2)

    return np.mean([gap(rng.permutation(both)) >= gap(both) for _ in range(1000)])


@pytest.mark.statistical
def test_p_values_are_those_of_permutations():
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.1, 0.2):
        x, y = rng.standard_normal((150, 3)), rng.standard_normal((100, 3)) + shift
        p, wanted = ka.solvers.mmd(ka.solvers.moments(x, PHI), ka.solvers.moments(y, PHI)).p_value, permuted(rng, x, y)
        assert abs(p - wanted) < 4.5 * np.sqrt(p * (1 - p) / 1000) + 0.02


def two_samples(rng):
    x, y = rng.standard_normal((120, 3)), rng.standard_normal((200, 3))
    return ka.solvers.mmd(ka.solvers.moments(x, PHI), ka.solvers.moments(y, PHI)).p_value


def two_variables(rng):
    return ka.solvers.hsic(
        ka.solvers.moments(rng.standard_normal((150, 3)), PHI, y=OTHER(rng.random((150, 2))))
    ).p_value


def samples_of_rare_rows(rng):
    """One sample is small: its covariance by itself is too small as often as it holds no such row."""
    x, y = (np.where(rng.random((n, 1)) < 0.02, 20.0, 0.0) + 0.1 * rng.standard_normal((n, 3)) for n in (100, 500))
    return ka.solvers.mmd(ka.solvers.moments(x, PHI), ka.solvers.moments(y, PHI)).p_value


@pytest.mark.statistical
@pytest.mark.parametrize("draw", [two_samples, two_variables, samples_of_rare_rows])
def test_rejections_where_there_is_nothing(draw):
    rng = np.random.default_rng(4)
    values = np.array([draw(rng) for _ in range(1000)])
    for level in (0.5, 0.1, 0.05, 0.01):
        z = (np.sum(values < level) - 1000 * level) / np.sqrt(1000 * level * (1 - level))
        assert abs(z) < 3, (level, np.mean(values < level))


@pytest.mark.statistical
@pytest.mark.parametrize("test", ["mmd", "hsic"])
def test_rejections_of_few_rows_with_many_features(test):
    """The eigenvalues of few rows are more spread than those of the law: without correction hsic never rejects here."""
    rng = np.random.default_rng(6)
    phi, psi = (ka.random_features(ka.kernels.Gaussian(0.3), dim=3, num_features=m, rng=m) for m in (128, 64))

    def p_value():
        x, y = rng.standard_normal((2, 50, 3))
        if test == "mmd":
            return ka.solvers.mmd(ka.solvers.moments(x, phi), ka.solvers.moments(y, phi)).p_value
        return ka.solvers.hsic(ka.solvers.moments(x, phi, y=psi(y))).p_value

    values = np.array([p_value() for _ in range(500)])
    for level in (0.5, 0.1, 0.05, 0.01):
        assert abs(np.sum(values < level) - 500 * level) < 3.3 * np.sqrt(500 * level * (1 - level)), level


def test_where_no_permutation_changes_the_statistic():
    """Features that are orthogonal in all rows tell nothing."""
    phi = ka.features.relu()
    x, y = np.split(np.eye(16), 2)
    assert ka.solvers.mmd(ka.solvers.moments(x, phi), ka.solvers.moments(y, phi)).p_value == 1.0
    assert ka.solvers.hsic(ka.solvers.moments(np.eye(8), phi, y=np.random.default_rng(0).random((8, 2)))).p_value == 1.0


def test_p_values_know_no_unit():
    x, y = np.random.default_rng(7).random((2, 40, 5))
    phi = ka.features.relu()
    pairs = [[ka.solvers.moments(unit * rows, phi) for rows in (x, y)] for unit in (1.0, 1e-90, 1e90)]
    np.testing.assert_allclose([ka.solvers.mmd(*pair).p_value for pair in pairs], ka.solvers.mmd(*pairs[0]).p_value)


def test_differences_are_found():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((400, 3))
    scaled = ka.solvers.mmd(ka.solvers.moments(x, PHI), ka.solvers.moments(1.5 * rng.standard_normal((400, 3)), PHI))
    assert scaled.p_value < 1e-6
    assert scaled.statistic > 0
    z = np.stack([x[:, 0] ** 2, rng.standard_normal(400)], axis=1) + 0.3 * rng.standard_normal((400, 2))
    assert ka.solvers.hsic(ka.solvers.moments(x, PHI, y=OTHER(z))).p_value < 1e-6


def test_refusals():
    m, constant = ka.solvers.moments(X, PHI, y=Y), ka.solvers.moments(np.zeros((5, 3)), PHI, y=np.ones((5, 1)))
    with pytest.raises(StateMismatchError, match="one draw"):
        ka.solvers.mmd(m, ka.solvers.moments(X, PHI.redraw(1)))
    with pytest.raises(DTypeError, match="b must be a Moments"):
        ka.solvers.mmd(m, X)
    with pytest.raises(ParameterError, match="a must be of rows without weights"):
        ka.solvers.mmd(ka.solvers.moments(X, PHI, weights=W), m)
    with pytest.raises(ParameterError, match="a must be of rows without weights"):  # though they add up to n
        ka.solvers.mmd(ka.solvers.moments(X, PHI, weights=np.tile([0.5, 1.5], len(X) // 2)), m)
    ka.solvers.mmd(ka.solvers.moments(X, PHI, weights=np.arange(len(X)) % 2.0), m)  # rows that count, and others
    with pytest.raises(EmptyInputError, match="b must hold 2 rows at least; got 1"):
        ka.solvers.mmd(m, ka.solvers.moments(X[:1], PHI))
    with pytest.raises(ParameterError, match="features must not be the same"):
        ka.solvers.mmd(constant, constant)
    with pytest.raises(EmptyInputError, match="without y"):
        ka.solvers.hsic(ka.solvers.moments(X, PHI))
    with pytest.raises(ParameterError, match="features must not be the same"):
        ka.solvers.hsic(constant)
    rounded = ka.solvers.moments(np.full((1000, 3), 0.3), PHI, y=np.full((1000, 1), 0.1))
    with pytest.raises(ParameterError, match="features must not be the same"):
        ka.solvers.mmd(rounded, rounded)
    with pytest.raises(ParameterError, match="features must not be the same"):
        ka.solvers.hsic(rounded)
    with pytest.raises(ParameterError, match="targets must not be the same"):
        ka.solvers.hsic(ka.solvers.moments(X, PHI, y=np.ones(90)))
    with pytest.raises(DTypeError, match="moments must be a Moments"):
        ka.solvers.hsic(PHI)


@pytest.mark.statistical
def test_tails_without_a_variance_leave_the_usual_lengthscale_one():
    """At Cauchy tails a lengthscale by the variance shows few rows alone: of 80 tests at 1 % it rejects nine."""
    rejected = 0
    for r in range(80):
        x, z = np.random.default_rng([r, 1]).standard_cauchy((2, 300, 2))
        kernels = (ka.kernels.Gaussian(ka.kernels.usual_lengthscale(rows)) for rows in (x, z))
        a, b = (ka.random_features(kernel, 2, 32, rng=2 * r + i) for i, kernel in enumerate(kernels))
        rejected += ka.solvers.hsic(ka.solvers.moments(x, a, y=b(z))).p_value < 0.01
    assert rejected <= 4
