"""Nystrom maps of centres by k-means."""

import numpy as np
import pytest

import kernattn as ka
from features.nystrom_cases import GAUSSIAN, NEEDS_SKLEARN, clustered
from kernattn import errors
from kernattn.features._nystrom import choose
from kernattn.features._nystrom.landmarks import kmeans, minibatch_kmeans


@pytest.mark.statistical
def test_kmeans_finds_every_cluster():
    """Thirty clusters far apart, sixty centres that begin as k-means++ draws them: none is without a centre."""
    x = clustered()
    phi = ka.features.nystrom(x, GAUSSIAN, 60, method="kmeans", rng=0)
    assert phi.trace_residual(x) < 0.1
    distance = np.min(np.sum((x[:, None] - phi.landmarks) ** 2, axis=-1), axis=1)
    assert np.max(distance) < 4
    again = ka.features.nystrom(np.repeat(x[:2], 9, axis=0), GAUSSIAN, 5, method="kmeans", rng=0)
    np.testing.assert_allclose(again.trace_residual(x[:2]), 0, atol=1e-9)


@pytest.mark.statistical
@NEEDS_SKLEARN
def test_minibatch_kmeans():
    """The same draw gives the same centres, whoever else draws; they beat uniform rows; duplicates do no harm."""
    x = clustered(3000)

    def make(data=x, m=30, rng=1):
        return ka.features.nystrom(data, GAUSSIAN, m, method="minibatch_kmeans", rng=rng)

    phi = make()
    np.random.seed(5)  # noqa: NPY002
    np.testing.assert_array_equal(make().landmarks, phi.landmarks)
    assert make(rng=2).fingerprint != phi.fingerprint
    uniform = [ka.features.nystrom(x, GAUSSIAN, 30, rng=r).trace_residual(x) for r in range(5)]
    assert np.mean([make(rng=r).trace_residual(x) for r in range(5)]) < np.mean(uniform)
    same = make(np.ones((7, 3)), 4)
    np.testing.assert_allclose(same(np.ones((2, 3))) @ same(np.ones((2, 3))).T, 1, atol=1e-12)
    np.testing.assert_allclose(make(np.ones((1, 3)), 1).landmarks, np.ones((1, 3)))


def test_minibatch_kmeans_without_sklearn(monkeypatch):
    monkeypatch.setattr(choose, "find_spec", lambda name: None)
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    with pytest.raises(errors.MissingExtra, match="pip install scikit-learn"):
        ka.features.nystrom(np.ones((9, 2)), GAUSSIAN, 5, method="minibatch_kmeans", rng=rng)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("centres", [kmeans, minibatch_kmeans])
def test_centres_of_rows_beyond_float64_squared(centres):
    """They are found, and refused by name: no map takes landmarks so far out."""
    pytest.importorskip("sklearn")
    x = np.random.default_rng(0).standard_normal((20, 2))
    wanted = centres(x, 4, np.random.default_rng(0))
    with np.errstate(all="raise"):
        for unit in (2.0**600, 2.0**-600):
            np.testing.assert_array_equal(centres(x * unit, 4, np.random.default_rng(0)) / unit, wanted)
        with pytest.raises(ka.errors.ParameterError, match="landmarks must hold numbers up to"):
            ka.features.nystrom(x * 1e200, ka.kernels.Gaussian(), 4, method=centres.__name__, rng=0)
