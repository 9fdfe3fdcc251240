"""Random features, landmarks and components."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import kernattn as ka
from kernattn import errors
from public_reports import dense

K, F, S = ka.kernels, ka.features, ka.solvers
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 3.0])
def test_features_have_the_bandwidth_of_the_kernel(gamma):
    """scikit-learn/scikit-learn#3656: frequencies lacked a factor of 2, which a loose test did not see."""
    phi = ka.random_features(K.Gaussian((2 * gamma) ** -0.5), 1, 4096, projection="iid", rng=0)
    x, y = np.zeros((1, 1)), np.linspace(0.2, 2, 7)[:, None]
    errors_in_sd = ((phi(x) @ phi(y).T)[0] - np.exp(-gamma * y[:, 0] ** 2)) / phi.variance(x, y) ** 0.5
    assert np.max(np.abs(errors_in_sd)) < 4.5


def test_precomputed_kernels_of_fewer_landmarks():
    """scikit-learn/scikit-learn#29353: a precomputed kernel wanted as many components as rows."""
    x = RNG.standard_normal((60, 3))
    k = dense.gaussian(x, x, 2.0)
    phi = F.nystrom(k, "precomputed", landmarks=np.arange(20))
    found = phi(k[:, :20]) if phi.dim == 20 else phi(k)
    exact = k[:, :20] @ np.linalg.solve(k[:20, :20] + 1e-13 * np.eye(20), k[:20])
    assert_allclose(found @ found.T, exact, atol=1e-5)


def test_landmarks_that_are_equal():
    """scikit-learn/scikit-learn#4179: a singular matrix of landmarks had no inverse."""
    x = np.repeat(RNG.standard_normal((10, 3)), 3, axis=0)
    phi = F.nystrom(x, K.Gaussian(), landmarks=x)
    assert_allclose(phi(x) @ phi(x).T, dense.gaussian(x, x), atol=1e-7)


def test_landmarks_are_the_rows_that_are_named():
    """scikit-learn/scikit-learn#20554: the indices of the chosen rows were those of a permutation of all."""
    x = RNG.standard_normal((100, 3))
    for method in ("uniform", "rpcholesky"):
        phi = F.nystrom(x, K.Gaussian(), 10, method=method, rng=0)
        assert phi.indices.shape == (10,)
        assert_array_equal(phi.landmarks, x[phi.indices])


def test_more_landmarks_than_rows():
    """EpistasisLab/tpot#182: more components than rows were cut off with a warning."""
    with pytest.raises(errors.ParameterError, match="num_landmarks must be at most the 5 rows"):
        F.nystrom(RNG.standard_normal((5, 2)), K.Gaussian(), 6, rng=0)


def test_components_without_variance():
    """scikit-learn/scikit-learn#12141: coordinates of components of eigenvalue 0 were infinite in `transform` alone."""
    estimators = pytest.importorskip("kernattn.sklearn")
    x = np.repeat(RNG.standard_normal((4, 3)), 5, axis=0)  # three components have a variance
    pca = estimators.FeaturePCA(8, num_features=20, random_state=0)
    fitted = pca.fit_transform(x)
    assert_allclose(fitted, pca.transform(x), atol=1e-6)
    assert_allclose(fitted[:, 3:], 0, atol=1e-6)


def test_components_of_a_kernel_are_its_eigenvectors():
    """scikit-learn/scikit-learn#12140: nothing looked after eigenvalues that rounding makes negative."""
    x = RNG.standard_normal((40, 2))
    phi = F.nystrom(x, K.Gaussian(3.0), landmarks=x)
    fit = S.pca(S.moments(x, phi), 5)
    centred = np.eye(40) - 1 / 40
    values, vectors = np.linalg.eigh(centred @ dense.gaussian(x, x, 3.0) @ centred)
    assert_allclose(fit.variances, values[:-6:-1] / 40, rtol=1e-6)
    assert_allclose(np.abs(fit.transform(x)), np.abs(vectors[:, :-6:-1]) * values[:-6:-1] ** 0.5, atol=1e-5)


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda: ka.random_features(K.Gaussian(), 3, 16, rng=0), id="scikit-learn/scikit-learn#24317"),
        pytest.param(
            lambda: ka.random_features(K.SkewedChi2(1.0), 3, 16, projection="iid", rng=0),
            id="scikit-learn/scikit-learn#24350",
        ),
        pytest.param(
            lambda: F.nystrom(RNG.random((9, 3)), K.Gaussian(), 4, rng=0), id="scikit-learn/scikit-learn#11000"
        ),
    ],
)
def test_features_keep_the_dtype(draw):
    phi = draw()
    x = RNG.random((5, 3))
    single, double = phi(x.astype(np.float32)), phi(x)
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    assert_allclose(single, double, atol=1e-5)


@pytest.mark.parametrize("estimator", ["tensor_sketch", "rademacher_sketch"])
def test_sketches_take_a_constant_that_is_no_integer(estimator):
    """scikit-learn/scikit-learn#34213: the constant of a polynomial was documented as an integer."""
    kernel, x = K.Polynomial(2, coef0=0.5), RNG.standard_normal((2, 3))
    maps = (ka.random_features(kernel, 3, 64, estimator, rng=seed) for seed in range(400))
    found = np.array([float(phi(x[:1])[0] @ phi(x[1:])[0]) for phi in maps])
    exact = (x[0] @ x[1] + 0.5) ** 2
    assert abs(found.mean() - exact) < 4.5 * found.std() / 20


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda phi: pickle.loads(pickle.dumps(phi))],
    ids=["copy", "deepcopy", "pickle"],
)
@pytest.mark.parametrize("learnt", [False, True])
def test_copies_of_maps_read_what_the_map_remembers(copied, learnt):
    """cornellius-gp/gpytorch#907: kernels are to be kept as they are. States of a learnt map refused its copies."""
    phi = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0)
    if learnt:
        phi = ka.with_numbers(phi, omega=2 * np.asarray(phi.spec.omega))
    x = np.random.default_rng(1).standard_normal((9, 4))
    state = ka.key_state(x, x, phi)
    again = copied(phi)
    assert again.fingerprint == phi.fingerprint == state.fingerprint
    assert_array_equal(ka.attend(state, x, again), ka.attend(state, x, phi))


@pytest.mark.parametrize(
    ("column", "words"), [([1.0, 1.0], "1 to 1 along axis 1: leave out"), ([2.0, 1.0], "2 to 1 along axis 1$")]
)
def test_a_domain_names_the_column_without_width(column, words):
    """pymc-devs/pymc#8427: a column that is the same in all rows made a box without width, and zeros divided."""
    with pytest.raises(errors.ParameterError, match=words):
        F.hilbert(K.Gaussian(), np.array([[0.0, 1.0], column]), 20)
