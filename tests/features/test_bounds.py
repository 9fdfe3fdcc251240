"""`num_features_for` keeps its word, is the smallest that does by the bound, and refuses what cannot be."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import EmptyInputError, NoClosedForm, ParameterError, ShapeError
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
        phi = ka.random_features(K.Gaussian(), D, 2, estimator, "iid", rng=0)
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
    number = ka.random_features(kernel, D, 2, estimator, projection, rng=0).num_features_for(
        x, y, error=error, probability=p
    )
    step = 2 if estimator == "hyperbolic" else 1
    enough = [
        float(np.sum(ka.random_features(kernel, D, m, estimator, projection, rng=0).variance(x, y))) / error**2 <= 1 - p
        for m in range(step, number + 1, step)
    ]
    assert number == step * (1 + enough.index(True))


@pytest.mark.statistical
@pytest.mark.parametrize("projection", ["iid", "orthogonal", "antithetic", "fastfood"])
@pytest.mark.parametrize("estimator", ["trigonometric", "phase", "positive"])
def test_the_promise_is_kept(estimator, projection):
    if (estimator, projection) == ("positive", "fastfood"):
        phi = ka.random_features(K.Softmax(), D, 4, estimator, P.Fastfood(), rng=0)
        with pytest.raises(NoClosedForm):
            phi.num_features_for(*some_pairs(), error=0.5, probability=0.8)
        return
    x, y = some_pairs()
    kernel = K.Softmax() if estimator == "positive" else K.Gaussian()
    phi = ka.random_features(kernel, D, 4, estimator, projection, rng=0)
    number = phi.num_features_for(x, y, error=0.3, probability=0.8)
    drawn, rng, draws = (
        ka.random_features(kernel, D, number, estimator, projection, rng=0),
        np.random.default_rng(2),
        200,
    )
    exact, kept = kernel.pairs(x, y), 0
    for _ in range(draws):
        drawn = drawn.redraw(rng)
        kept += bool((np.abs(np.sum(drawn(x) * drawn(y), axis=-1) - exact) < 0.3).all())
    assert kept / draws > 0.8 - 4.5 * np.sqrt(0.16 / draws)


def test_more_is_asked_for_more():
    x, y = some_pairs()
    for estimator in ("trigonometric", "positive"):
        phi = ka.random_features(K.Gaussian(), D, 4, estimator, rng=0)
        by_error = [phi.num_features_for(x, y, error=e, probability=0.9) for e in (0.4, 0.2, 0.1, 0.05)]
        by_probability = [phi.num_features_for(x, y, error=0.1, probability=p) for p in (0.5, 0.9, 0.99, 0.9999)]
        assert by_error == sorted(by_error)
        assert by_probability == sorted(by_probability)
        assert phi.num_features_for(x[0], y[0], error=0.1, probability=0.9) <= by_error[2]


def test_certain_pairs_need_the_least_there_is():
    x = some_pairs()[0]
    assert ka.random_features(K.Gaussian(), D, 4, rng=0).num_features_for(x, x, error=1e-6, probability=0.999) == 2
    positive = ka.random_features(K.Softmax(), D, 4, "positive", rng=0)
    assert positive.num_features_for(x, -x, error=1e-6, probability=0.999) == 1


def test_a_bias_beyond_the_error_is_refused():
    x, y = some_pairs()
    phi = ka.random_features(K.Gaussian(), D, 4, projection=P.Orthogonal(norms="sqrt_d"), rng=0)
    bias = float(np.max(np.abs(phi.bias(x, y))))
    with pytest.raises(ParameterError, match=f"bias.*{bias:.3g}"):
        phi.num_features_for(x, y, error=0.9 * bias, probability=0.9)
    assert phi.num_features_for(x, y, error=2 * bias, probability=0.9) > 0


@pytest.mark.parametrize(("error", "probability"), [(0.0, 0.9), (-1.0, 0.9), (np.nan, 0.9), (0.1, 0.0), (0.1, 1.0)])
def test_refusals(error, probability):
    phi = ka.random_features(K.Gaussian(), D, 4, rng=0)
    with pytest.raises(ParameterError, match=r"error|probability"):
        phi.num_features_for(*some_pairs(), error=error, probability=probability)


def test_hopeless_and_unknown():
    for size in (6, 40):
        x = size * np.ones((1, D))
        with pytest.raises(ParameterError, match="no number of features up to"):
            ka.random_features(K.Softmax(), D, 4, rng=0).num_features_for(x, x, error=0.1, probability=0.9)
    with pytest.raises(NoClosedForm, match="depend on each other"):
        ka.random_features(K.Gaussian(), D, 4, projection="sobol", rng=0).num_features_for(
            x, x, error=0.1, probability=0.9
        )


def kept(phi, x, y, kernel, error, draws=200):
    """The share of draws that keep the error for all pairs."""
    rng, exact = np.random.default_rng(3), kernel.pairs(x, y)
    maps = (phi.redraw(rng) for _ in range(draws))
    return np.mean([(np.abs(np.sum(each(x) * each(y), axis=-1) - exact) < error).all() for each in maps])


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("kernel", "error"),
    [
        (K.ArcCosine(0), 0.3),
        (K.ArcCosine(1), 0.5),
        (K.SkewedChi2(), 0.3),
        (2 * K.Gaussian(), 0.6),
        (K.Gaussian() + K.Laplacian(), 0.5),
        (K.Gaussian() + (K.ArcCosine(1) + 2 * K.Softmax()), 2.0),
        (K.Laplacian() * K.Softmax(), 0.5),
    ],
    ids=repr,
)
def test_the_promise_of_other_maps_is_kept(kernel, error):
    x, y = (np.clip(rows, -0.9, None) for rows in some_pairs())
    phi = ka.random_features(kernel, D, 12, projection="iid", rng=0)
    number = phi.num_features_for(x, y, error=error, probability=0.8)
    assert number > 12
    big = ka.random_features(kernel, D, number, projection="iid", rng=0)
    assert kept(big, x, y, kernel, error) > 0.8 - 4.5 * np.sqrt(0.16 / 200)


def test_neurons_need_what_chebyshev_and_hoeffding_say():
    x, y = some_pairs(1)
    for order in (1, 2):
        phi = ka.random_features(K.ArcCosine(order), D, 4, projection="iid", rng=0)
        number = phi.num_features_for(x, y, error=0.1, probability=0.9)
        variance = [
            ka.random_features(K.ArcCosine(order), D, m, projection="iid", rng=0).variance(x, y) for m in (1, number)
        ]
        assert variance[1] / 0.01 <= 0.1 < variance[0] / (number - 1) / 0.01
    steps = ka.random_features(K.ArcCosine(0), D, 4, rng=0)  # orthogonal: no variance is known, but steps are bounded
    number = steps.num_features_for(x, y, error=0.1, probability=1 - 1e-6)
    blocks = np.log(2e6) * 2 * 2**2 / 0.1**2  # of d weights, by Hoeffding
    assert D * (np.ceil(blocks) - 1) < number <= D * np.ceil(blocks)
    with pytest.raises(NoClosedForm, match="depend on each other"):
        ka.random_features(K.ArcCosine(1), D, 4, rng=0).num_features_for(x, y, error=0.1, probability=0.9)


def test_sums_and_products_need_what_chebyshev_says():
    """Growing by multiples of their own sizes, at the least of them."""
    x, y = some_pairs()
    gaussian, softmax = (ka.random_features(k, D, 4, "positive", "iid", rng=0) for k in (K.Gaussian(), K.Softmax()))
    exact = ka.features.polynomial(2)
    for phi, features in (
        (gaussian + softmax, lambda n: 8 * n),
        (gaussian + exact, lambda n: 4 * n + 10),
        (gaussian * softmax, lambda n: 16 * n**2),
        (3.0 * (gaussian * exact), lambda n: 40 * n),
    ):
        number = phi.num_features_for(x, y, error=0.5, probability=0.9)

        def failure(n, phi=phi):
            def grown(part):
                if isinstance(part, ka.features.Positive):
                    return ka.random_features(part.kernel, D, 4 * n, "positive", "iid", rng=0)
                return part

            if isinstance(phi, ka.features.ScaledMap):
                inner = type(phi.inner)(tuple(map(grown, phi.inner.maps)))
                return np.sum((phi.factor * inner).variance(x, y)) / 0.25
            return np.sum(type(phi)(tuple(map(grown, phi.maps))).variance(x, y)) / 0.25

        n = next(n for n in range(1, 10_000) if features(n) == number)
        assert failure(n) <= 0.1 < failure(n - 1)


def test_maps_without_randomness():
    x, y = (np.abs(rows) + 0.1 for rows in some_pairs())
    exact = ka.features.polynomial(2)
    assert exact.num_features_for(x, y, error=1e-9, probability=0.999) == 10
    sampled = ka.random_features(K.AdditiveChi2(), D, D, rng=0)
    for error in (0.1, 0.01, 0.001):
        number = sampled.num_features_for(x, y, error=error, probability=0.9)
        assert np.max(np.abs(ka.random_features(K.AdditiveChi2(), D, number, rng=0).bias(x, y))) < error
        fewer = ka.random_features(K.AdditiveChi2(), D, number - 2 * D, rng=0)
        assert np.max(np.abs(fewer.bias(x, y))) >= error
    both = sampled + exact
    assert both.num_features_for(x, y, error=0.03, probability=0.9) > 10


def test_parts_of_maps_without_a_bound():
    x, y = some_pairs()
    sketch = ka.random_features(K.Gaussian(), D, 8, projection="fastfood", rng=0)
    assert sketch.num_features_for(x, y, error=0.3, probability=0.9) > 8  # bounded terms, no variance
    with pytest.raises(NoClosedForm, match="as part of another map"):
        (sketch + ka.features.polynomial(2)).num_features_for(x, y, error=0.3, probability=0.9)
    with pytest.raises(NoClosedForm, match="Generalized"):
        ka.features.generalized("tanh", D, 8, rng=0).num_features_for(x, y, error=0.3, probability=0.9)
    with pytest.raises(EmptyInputError, match="pairs"):
        sketch.num_features_for(x[:0], y[:0], error=0.3, probability=0.9)
    with pytest.raises(ShapeError, match="d = 4"):
        sketch.num_features_for(x[:, :2], y[:, :2], error=0.3, probability=0.9)
