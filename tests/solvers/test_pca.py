"""Principal components of features against the singular values of the rows."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, EmptyInputError, ParameterError
from solvers.test_moments import PHI, W, X
from xp import to_numpy

FOUND = PHI(X, backend="reference")


@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
def test_singular_values(weights):
    found = ka.solvers.pca(ka.solvers.moments(X, PHI, weights=weights), 4)
    w = np.ones(90) if weights is None else weights
    mean = w @ FOUND / w.sum()
    _, s, vt = np.linalg.svd(np.sqrt(w)[:, None] * (FOUND - mean), full_matrices=False)
    np.testing.assert_allclose(found.mean, mean, atol=1e-12)
    np.testing.assert_allclose(found.variances, s[:4] ** 2 / w.sum(), rtol=1e-9)
    np.testing.assert_allclose(found.explained, s[:4] ** 2 / np.sum(s**2), rtol=1e-9)
    vectors = vt[:4].T * np.sign(vt[np.arange(4), np.argmax(np.abs(vt[:4]), axis=1)])
    np.testing.assert_allclose(found.directions, vectors, atol=1e-8)
    np.testing.assert_allclose(found.transform(X), (FOUND - mean) @ vectors, atol=1e-8)
    np.testing.assert_allclose(ka.solvers.pca(ka.solvers.moments(X, PHI), 12).explained.sum(), 1)


@pytest.mark.parametrize("k", [None, 3])
def test_white(k):
    white = ka.solvers.whiten(ka.solvers.moments(X, PHI), k)
    z = white.transform(X)
    assert z.shape == (90, k or 12)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(z.T @ z / 90, np.eye(z.shape[1]), atol=1e-8)


def test_fewer_rows_than_features():
    m = ka.solvers.moments(X[:5], PHI)
    z = ka.solvers.whiten(m).transform(X[:5])
    assert z.shape == (5, 4)
    np.testing.assert_allclose(z.T @ z / 5, np.eye(4), atol=1e-7)
    with pytest.raises(ParameterError, match="num_components must be 4 at most"):
        ka.solvers.whiten(m, 5)


def test_arrays_of_every_kind(xp):
    found = ka.solvers.pca(ka.solvers.moments(X, PHI), 3)
    with xp.wide():
        x = xp.asarray(X.reshape(2, 45, 3), "float32")
        got = found.transform(x)
        assert xp.holds(got)
        assert got.dtype == x.dtype
        np.testing.assert_allclose(to_numpy(got).reshape(90, 3), found.transform(X), atol=1e-5)


def test_refusals():
    m = ka.solvers.moments(X, PHI)
    for call in (ka.solvers.pca, ka.solvers.whiten):
        for k in (13, 0, 2.5):
            with pytest.raises(ParameterError, match="num_components must be"):
                call(m, k)
        with pytest.raises(DTypeError, match="moments must be a Moments"):
            call(X, 2)
        with pytest.raises(EmptyInputError, match="2 rows at least; got 1"):
            call(ka.solvers.moments(X[:1], PHI), 2)
        for rows in (np.zeros((4, 3)), np.full((1000, 3), 0.3), np.full((1000, 3), 0.3, np.float32)):
            with pytest.raises(ParameterError, match="same in all rows"):
                call(ka.solvers.moments(rows, PHI), 2)


def test_directions_that_are_rounding_are_left_out():
    rows = X[:1] + 1e-5 * np.random.default_rng(0).standard_normal((300, 3))
    m = ka.solvers.moments(rows, PHI)
    white = ka.solvers.whiten(m)
    assert len(white.variances) == 3  # as rows have: the others are what the mean that was taken off has rounded
    z = white.transform(rows)
    np.testing.assert_allclose(z.T @ z / 300, np.eye(len(white.variances)), atol=1e-5)
