"""One small map of every kind that a file can hold, between them every kernel and every projection."""

from functools import cache

import numpy as np

import kernattn as ka
from seam import MapSpec, QuadraticForm

DIM = 3
DATA = np.random.default_rng(7).standard_normal((12, DIM))
KEYS = DATA[:, ::-1] + 1.0
ARD = ka.kernels.Gaussian(np.array([0.7, 1.0, 1.5]))
SOFTMAX = ka.kernels.Softmax()
POLYNOMIAL = ka.kernels.Polynomial(2, gamma=0.5, coef0=1.0)
PROJECTIONS = ka.projections


def _random(kernel, estimator="auto", number=8, **options):
    return ka.random_features(kernel, DIM, number, estimator, rng=3, **options)


def _gram():
    return ka.kernels.Gaussian()(DATA)


def _fitted():
    """A map such as fits make: of queries with a quadratic form, of keys with features that sum to 1."""
    rng = np.random.default_rng(3)
    form = QuadraticForm(rng.standard_normal((2, DIM)), *rng.standard_normal((2, DIM)))
    queries = MapSpec("exp", rng.standard_normal((8, DIM)), row_form=form)
    keys = MapSpec("exp_pair", rng.standard_normal((4, DIM)), offset=rng.standard_normal(8), normalised=True)
    return ka.features.Fitted(SOFTMAX, "omega", queries, keys, 0.1, "positive", 0.2)


MAKERS = {
    "trigonometric": lambda: _random(ARD, "trigonometric"),
    "phase": lambda: _random(ARD, "phase"),
    "positive": lambda: _random(SOFTMAX, "positive"),
    "hyperbolic": lambda: _random(ka.kernels.Softmax(0.3), "hyperbolic"),
    "optimal_positive": lambda: _random(ka.kernels.Gaussian(2.0), "optimal_positive"),
    "favor_sharp": lambda: _random(SOFTMAX, "favor_sharp", data=DATA),
    "favor_sharp_asymmetric": lambda: _random(SOFTMAX, "favor_sharp_asymmetric", data=(DATA, KEYS)),
    "antithetic": lambda: _random(ARD, "phase", projection=PROJECTIONS.Antithetic(PROJECTIONS.Simplex())),
    "fastfood": lambda: _random(ARD, projection=PROJECTIONS.Fastfood(norms="sqrt_d")),
    "hadamard": lambda: _random(SOFTMAX, projection="hadamard"),
    "halton": lambda: _random(ARD, projection="halton"),
    "iid": lambda: _random(ARD, projection="iid"),
    "kac": lambda: _random(ARD, projection=PROJECTIONS.Kac(steps=5)),
    "moment_matched": lambda: _random(ARD, projection="moment_matched"),
    "orthogonal": lambda: _random(ARD, projection=PROJECTIONS.Orthogonal("gram_schmidt", "coupled")),
    "sobol": lambda: _random(ARD, projection="sobol"),
    "matern": lambda: _random(ka.kernels.Matern(2.5, 1.5)),
    "rational_quadratic": lambda: _random(ka.kernels.RationalQuadratic(0.7)),
    "laplacian": lambda: _random(ka.kernels.Laplacian(), projection="iid"),
    "cauchy": lambda: _random(ka.kernels.Cauchy(), projection="iid"),
    "sech": lambda: _random(ka.kernels.Sech(), projection="iid"),
    "convolution": lambda: _random(ka.kernels.Gaussian() * ka.kernels.Matern(1.5)),
    "skewed_chi2": lambda: _random(ka.kernels.SkewedChi2(2.0), projection="iid"),
    "additive_chi2": lambda: _random(ka.kernels.AdditiveChi2(), number=3 * DIM),
    "minwise": lambda: _random(ka.kernels.Tanimoto(), "minwise"),
    "consistent": lambda: _random(ka.kernels.Tanimoto(), "consistent"),
    "neurons": lambda: _random(ka.kernels.ArcCosine(1)),
    "squared_neurons": lambda: _random(ka.kernels.ArcCosine(2), projection="hadamard"),
    "cosformer": lambda: ka.features.cosformer(7),
    "elementwise": ka.features.elu1,
    "generalized": lambda: ka.features.generalized("sigmoid", DIM, 8, scale=2.0, rng=3),
    "generalized_chains": lambda: ka.features.generalized("relu", DIM, 8, projection="hadamard", rng=3),
    "exact_polynomial": lambda: ka.features.polynomial(2, 0.5, 1.0),
    "taylor2": lambda: ka.features.taylor2(0.5),
    "quadrature": lambda: ka.features.quadrature(SOFTMAX, DIM, 2, "smolyak"),
    "fitted": _fitted,  # written by 0.2
    "tensor_sketch": lambda: _random(POLYNOMIAL, "tensor_sketch"),
    "gaussian_sketch": lambda: _random(POLYNOMIAL, "gaussian_sketch"),
    "rademacher_sketch": lambda: _random(POLYNOMIAL, "rademacher_sketch"),
    "complex_to_real": lambda: _random(POLYNOMIAL, "complex_to_real"),
    "complex_to_real_gaussian": lambda: _random(POLYNOMIAL, "complex_to_real_gaussian"),
    "tensor_srht": lambda: _random(POLYNOMIAL, "tensor_srht"),
    "nystrom": lambda: ka.features.nystrom(DATA, ka.kernels.Gaussian() + ka.kernels.Cauchy(), 4, rng=3),
    "nystrom_chi2": lambda: ka.features.nystrom(np.abs(DATA), ka.kernels.AdditiveChi2(), 4, rng=3),
    "nystrom_precomputed": lambda: ka.features.nystrom(_gram(), "precomputed", 4, rng=3),
    "nystrom_kmeans": lambda: ka.features.nystrom(DATA, 2 * ARD, 4, landmarks=DATA[:4] + 0.1, rng=3),
    "hilbert": lambda: ka.features.hilbert(ka.kernels.Gaussian(), [[-3.0, 3.0]] * DIM, 20),
    "hilbert_periodic": lambda: ka.features.hilbert(ka.kernels.Periodic(), [[0.0, 1.0]] * DIM, 20),
    "linear": lambda: ka.features.linear(lengthscale=[0.5, 1.0, 2.0], center=[0.0, 1.0, -1.0]),
    "concatenated": lambda: _random(ka.kernels.Gaussian() + SOFTMAX),
    "tensor": lambda: _random(SOFTMAX * ka.kernels.Polynomial(2)),
    "transformed": lambda: ka.features.Transformed(_random(ARD), np.tril(np.ones((DIM, DIM)))),
    "multiple": lambda: _random(2 * SOFTMAX),
}


@cache
def make(name):
    """The map of that name."""
    return MAKERS[name]()


def reloaded(phi, folder, *rows):
    """What a file of the map gives: the same features of these rows, fingerprint, redraws; no array can be written."""
    phi.save(folder / "map.npz")
    again = ka.load(folder / "map.npz")
    assert type(again) is type(phi)
    assert again.fingerprint == phi.fingerprint
    for x in rows:
        for ours, theirs in ((phi, again), (phi.redraw(5), again.redraw(5))):
            np.testing.assert_array_equal(theirs.query(x), ours.query(x))
            np.testing.assert_array_equal(theirs.key(x), ours.key(x))
    for each in (phi, again):
        for value in vars(each).values():
            assert not isinstance(value, np.ndarray) or not value.flags.writeable
    return again
