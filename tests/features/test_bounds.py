"""`num_features_for` keeps its word, is the smallest that does by the bound, and refuses what cannot be."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import NoClosedForm, ParameterError
from laws import arrays

K, P = ka.kernels, ka.projections
D = 4


def some_pairs(number=5):
    x, y = arrays(1, (number, D), (number, D), dtype="float64")
    return 0.5 * x, 0.5 * y


@pytest.mark.parametrize("m", [1, 4])
def test_phase_and_trigonometric_need_what_hoeffding_and_bernstein_say(m):
    """By hand, iid: the least of Chebyshev, 2 exp(-D e^2 / 2c^2) and Bernstein is just below 1 - p at M."""
    x, y = some_pairs(1)
    z2 = float(np.sum((x - y) ** 2))
    k, p, error = np.exp(-z2 / 2), 0.97, 0.2 / m

    def failure(number, variance, size):
        return min(
            variance / number / error**2,
            2 * np.exp(-number * error**2 / (2 * size**2)),
            2 * np.exp(-number * error**2 / (2 * variance + 2 / 3 * (size + k) * error)),
        )

    for estimator, size, step in (("trigonometric", 1, 2), ("phase", 2, 1)):
        phi = ka.random_features(K.Gaussian(), D, 2, estimator, "iid")
        number = phi.num_features_for(x, y, error=error, probability=p)
        variance = (1 - np.exp(-z2)) ** 2 / 2 + (size == 2) * 0.5
        assert number % step == 0
        assert failure(number // step, variance, size) <= 1 - p < failure(number // step - 1, variance, size)


@pytest.mark.parametrize("projection", ["iid", "orthogonal", "simplex"])
@pytest.mark.parametrize("estimator", ["positive", "hyperbolic", "optimal_positive"])
def test_unbounded_terms_need_what_chebyshev_says(estimator, projection):
    """The exact variance at M is small enough, and at no smaller number."""
    x, y = some_pairs()
    kernel, error, p = K.Softmax(), 0.5, 0.9
    number = ka.random_features(kernel, D, 2, estimator, projection).num_features_for(x, y, error=error, probability=p)
    step = 2 if estimator == "hyperbolic" else 1
    enough = [
        float(np.sum(ka.random_features(kernel, D, m, estimator, projection).variance(x, y))) / error**2 <= 1 - p
        for m in range(step, number + 1, step)
    ]
    assert number == step * (1 + enough.index(True))


@pytest.mark.statistical
@pytest.mark.parametrize("projection", ["iid", "orthogonal", "antithetic", "fastfood"])
@pytest.mark.parametrize("estimator", ["trigonometric", "phase", "positive"])
def test_the_promise_is_kept(estimator, projection):
    if (estimator, projection) == ("positive", "fastfood"):
        phi = ka.random_features(K.Softmax(), D, 4, estimator, P.Fastfood())
        with pytest.raises(NoClosedForm):
            phi.num_features_for(*some_pairs(), error=0.5, probability=0.8)
        return
    x, y = some_pairs()
    kernel = K.Softmax() if estimator == "positive" else K.Gaussian()
    phi = ka.random_features(kernel, D, 4, estimator, projection)
    number = phi.num_features_for(x, y, error=0.3, probability=0.8)
    drawn, rng, draws = ka.random_features(kernel, D, number, estimator, projection), np.random.default_rng(2), 200
    exact, kept = kernel.pairs(x, y), 0
    for _ in range(draws):
        drawn = drawn.redraw(rng)
        kept += bool((np.abs(np.sum(drawn(x) * drawn(y), axis=-1) - exact) < 0.3).all())
    assert kept / draws > 0.8 - 4.5 * np.sqrt(0.16 / draws)


def test_more_is_asked_for_more():
    x, y = some_pairs()
    for estimator in ("trigonometric", "positive"):
        phi = ka.random_features(K.Gaussian(), D, 4, estimator)
        by_error = [phi.num_features_for(x, y, error=e, probability=0.9) for e in (0.4, 0.2, 0.1, 0.05)]
        by_probability = [phi.num_features_for(x, y, error=0.1, probability=p) for p in (0.5, 0.9, 0.99, 0.9999)]
        assert by_error == sorted(by_error)
        assert by_probability == sorted(by_probability)
        assert phi.num_features_for(x[0], y[0], error=0.1, probability=0.9) <= by_error[2]


def test_certain_pairs_need_the_least_there_is():
    x = some_pairs()[0]
    assert ka.random_features(K.Gaussian(), D, 4).num_features_for(x, x, error=1e-6, probability=0.999) == 2
    positive = ka.random_features(K.Softmax(), D, 4, "positive")
    assert positive.num_features_for(x, -x, error=1e-6, probability=0.999) == 1


def test_a_bias_beyond_the_error_is_refused():
    x, y = some_pairs()
    phi = ka.random_features(K.Gaussian(), D, 4, projection=P.Orthogonal(norms="sqrt_d"))
    bias = float(np.max(np.abs(phi.bias(x, y))))
    with pytest.raises(ParameterError, match=f"bias.*{bias:.3g}"):
        phi.num_features_for(x, y, error=0.9 * bias, probability=0.9)
    assert phi.num_features_for(x, y, error=2 * bias, probability=0.9) > 0


@pytest.mark.parametrize(("error", "probability"), [(0.0, 0.9), (-1.0, 0.9), (np.nan, 0.9), (0.1, 0.0), (0.1, 1.0)])
def test_refusals(error, probability):
    phi = ka.random_features(K.Gaussian(), D, 4)
    with pytest.raises(ParameterError, match=r"error|probability"):
        phi.num_features_for(*some_pairs(), error=error, probability=probability)


def test_hopeless_and_unknown():
    for size in (6, 40):
        x = size * np.ones((1, D))
        with pytest.raises(ParameterError, match="no number of features up to"):
            ka.random_features(K.Softmax(), D, 4).num_features_for(x, x, error=0.1, probability=0.9)
    with pytest.raises(NoClosedForm, match="depend on each other"):
        ka.random_features(K.Gaussian(), D, 4, projection="sobol").num_features_for(x, x, error=0.1, probability=0.9)
