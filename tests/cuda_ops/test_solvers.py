"""Moments of arrays on a GPU, and what is predicted for them, on the emulation."""

import numpy as np
import pytest

import kernattn as ka
from cuda_ops.cases import array, to64
from kernattn.ops import OPS

RNG = np.random.default_rng(0)
X, Y, W = RNG.standard_normal((40, 3)), RNG.standard_normal((40, 2)), RNG.random(40)
SUMS = ("weight", "s", "gram", "cross", "y_sum", "y_gram")
MAPS = {
    "spec": ka.random_features(ka.kernels.Gaussian(), dim=3, num_features=12, rng=0),
    "computed": ka.features.nystrom(X, ka.kernels.Gaussian(), 6, rng=0),
}


@pytest.mark.parametrize("products", ["float64", "float32"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("phi", MAPS.values(), ids=MAPS)
def test_moments(cupy, monkeypatch, phi, weighted, products):
    monkeypatch.setattr("kernattn._arrays.shapes.STRIP", 16)
    x, y, w = (array(cupy, values, "float32") for values in (X, Y, W))
    assert OPS["gram"].choose(x) == "gpu"
    found = ka.solvers.moments(x, phi, y=y, weights=w if weighted else None, products=products)
    x, y, w = (to64(values) for values in (x, y, w))
    wanted = ka.solvers.moments(x, phi, y=y, weights=w if weighted else None)
    assert (found.n, found.products) == (40, products)
    for name in SUMS:
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-5, atol=2e-4, err_msg=name)


def test_predictions(cupy):
    phi = MAPS["spec"]
    m = ka.solvers.moments(X, phi, y=Y)
    fit, process, components = (
        ka.solvers.ridge(m, 1.0),
        ka.solvers.gp(m, noise=1.0, amplitude=1.0),
        ka.solvers.pca(m, 3),
    )
    x = array(cupy, X, "float32")
    for call in (fit.predict, fit.leverage, process.mean, process.variance, components.transform):
        got = call(x)
        assert isinstance(got, cupy.ndarray)
        assert got.dtype == "float32"
        np.testing.assert_allclose(to64(got), call(X), rtol=1e-4, atol=1e-4)
