"""Squared errors of tensor sketches on real data, beside scikit-learn's at equal output dimension."""

import numpy as np
import pytest

import kernattn as ka


@pytest.mark.statistical
@pytest.mark.parametrize("degree", [2, 3])
def test_tensor_sketch_errs_as_little_as_scikit_learns(degree):
    """At equal output dimension: the ratio of mean squared Gram errors on digits, standard error below 12 %."""
    sklearn = pytest.importorskip("sklearn.kernel_approximation")
    seeds, m = 240, 256
    x = pytest.importorskip("sklearn.datasets").load_digits().data[:60]
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    kernel = ka.kernels.Polynomial(degree)
    exact = kernel(x)

    def error(features):
        gram = np.einsum("im,jm->ij", features, features)  # small: a BLAS would wake its threads
        return np.sum((gram - exact) ** 2) / np.sum(exact**2)

    phi, rng = ka.random_features(kernel, 64, m, "tensor_sketch", rng=0), np.random.default_rng(1)
    ours = np.array([error(phi.redraw(rng)(x)) for _ in range(seeds)])
    other = [sklearn.PolynomialCountSketch(degree=degree, n_components=m, random_state=i) for i in range(seeds)]
    theirs = np.array([error(each.fit_transform(x)) for each in other])
    ratio = ours.mean() / theirs.mean()
    spread = ratio * np.sqrt((ours.var() / ours.mean() ** 2 + theirs.var() / theirs.mean() ** 2) / seeds)
    assert spread < 0.12
    assert ratio < 1 + 3 * spread
    expected = np.sum(phi.variance(x[:, None], x[None])) / np.sum(exact**2)
    assert abs(ours.mean() - expected) < 4.5 * ours.std() / np.sqrt(seeds)
