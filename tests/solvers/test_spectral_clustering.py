"""Spectral clustering: shapes that k-means cannot find, against dense eigenvectors, and scikit-learn's labels."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors


def rings(n=600, seed=0):
    """Two rings, and which each row is of."""
    rng = np.random.default_rng(seed)
    angle, ring = rng.uniform(0, 2 * np.pi, n), rng.integers(2, size=n)
    radius = 1 + 2 * ring + 0.1 * rng.standard_normal(n)
    return radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1), ring


def moons(n=600, seed=0):
    """Two half moons, one within reach of the other."""
    rng = np.random.default_rng(seed)
    angle, moon = rng.uniform(0, np.pi, n), rng.integers(2, size=n)
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (1 - 2 * moon[:, None]) + np.outer(moon, [1, 0.5])
    return x + 0.06 * rng.standard_normal((n, 2)), moon


def nystrom(x, lengthscale, m=120):
    return ka.features.nystrom(x, ka.kernels.Gaussian(lengthscale), m, rng=0)


def agreement(found, truth):
    """Share of rows that agree where two labels may be exchanged."""
    share = np.mean(np.asarray(found) == truth)
    return max(share, 1 - share)


@pytest.mark.parametrize(("shapes", "lengthscale"), [(rings, 0.3), (moons, 0.15)])
def test_shapes_are_told_apart(shapes, lengthscale):
    x, truth = shapes()
    found = ka.solvers.spectral_clustering(x, nystrom(x, lengthscale), 2, rng=0)
    assert found.labels.dtype == np.int64
    assert agreement(found.labels, truth) > 0.99
    new, new_truth = shapes(seed=1)
    assert agreement(found.predict(new), new_truth) > 0.99
    assert np.array_equal(found.predict(x), found.labels)


def test_eigenvalues_and_vectors_are_those_of_the_affinity_of_all_pairs():
    x, _ = moons(300)
    phi = nystrom(x, 0.3, 40)
    found = ka.solvers.spectral_clustering(x, phi, 3, rng=0)
    affinity = phi(x) @ phi(x).T
    degrees = affinity.sum(axis=1)
    values, vectors = np.linalg.eigh(affinity / np.sqrt(np.outer(degrees, degrees)))
    assert np.allclose(found.eigenvalues, values[::-1][:40], atol=1e-8)
    assert np.isclose(found.eigenvalues[0], 1)
    rows = vectors[:, ::-1][:, :3]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    ours = found.transform(x)
    assert np.allclose(np.abs(np.sum(ours * rows, axis=0)), np.sum(ours**2, axis=0), atol=1e-6)
    assert np.allclose(np.linalg.norm(ours, axis=1), 1)


def test_labels_are_those_of_scikit_learn():
    cluster = pytest.importorskip("sklearn.cluster")
    rng = np.random.default_rng(0)
    x = np.array([[0, 0], [3, 0], [0, 3]])[rng.integers(3, size=300)] + 0.5 * rng.standard_normal((300, 2))
    phi = nystrom(x, 0.7, 60)
    found = ka.solvers.spectral_clustering(x, phi, 3, rng=0).labels
    model = cluster.SpectralClustering(3, affinity="precomputed", random_state=0)
    theirs = model.fit_predict(np.maximum(phi(x) @ phi(x).T, 0))
    table = np.array([[np.sum((found == i) & (theirs == j)) for j in range(3)] for i in range(3)])
    assert np.sum(np.max(table, axis=1)) >= 297
    assert len(set(np.argmax(table, axis=1))) == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_positive_random_features_serve_too(dtype):
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=400)
    x = (truth[:, None] * [2.0, 0.0] - [1, 0] + 0.3 * rng.standard_normal((400, 2))).astype(dtype)
    phi = ka.random_features(ka.kernels.Gaussian(), 2, 256, "positive", rng=0)
    found = ka.solvers.spectral_clustering(x, phi, 2, rng=0)
    assert agreement(found.labels, truth) > 0.99
    assert found.transform(x).dtype == dtype
    assert found.transform(x[None, :5]).shape == (1, 5, 2)
    assert found.predict(x[None, :5]).shape == (1, 5)
    assert "2 clusters" in repr(found)


def test_a_seed_gives_the_same_clusters_and_blocks_the_same_as_a_whole(monkeypatch):
    x, _ = rings(300)
    phi = nystrom(x, 0.3, 50)
    whole, again = (ka.solvers.spectral_clustering(x, phi, 3, rng=2) for _ in range(2))
    assert np.array_equal(whole.labels, again.labels)
    monkeypatch.setattr("kernattn.solvers._spectral_clustering.BLOCK", 50 * 70)
    monkeypatch.setattr("kernattn.solvers._spectrum.BLOCK", 50 * 70)
    assert np.allclose(ka.solvers.spectral_clustering(x, phi, 3, rng=2).eigenvalues, whole.eigenvalues, atol=1e-12)


def test_labels_are_those_of_the_nearest_centre():
    x, _ = moons(300)
    found = ka.solvers.spectral_clustering(x, nystrom(x, 0.3, 40), 5, rng=0)
    distances = np.linalg.norm(found.transform(x)[:, None] - found.centres, axis=2)
    assert np.array_equal(found.labels, np.argmin(distances, axis=1))
    assert np.all(np.linalg.norm(found.centres, axis=1) <= 1)
    new = np.random.default_rng(1).uniform(-1, 2, (500, 2))
    distances = np.linalg.norm(found.transform(new)[:, None] - found.centres, axis=2)
    assert np.array_equal(found.predict(new), np.argmin(distances, axis=1))


def test_a_row_whose_features_vanish_is_0_in_transform_and_refused_in_a_fit():
    x, _ = rings(100)
    phi, far = nystrom(x, 0.3, 20), np.array([[50.0, 50.0]])
    assert not ka.solvers.spectral_clustering(x, phi, 2, rng=0).transform(far).any()
    with pytest.raises(errors.ParameterError, match="row 100 is 0, as of 1 of 101 rows"):
        ka.solvers.spectral_clustering(np.concatenate([x, far]), phi, 2)


def test_one_cluster_is_all_rows():
    x, _ = rings(100)
    assert not ka.solvers.spectral_clustering(x, nystrom(x, 0.5, 20), 1).labels.any()


def test_degrees_below_0_are_refused_by_row():
    x = 10 * np.random.default_rng(0).standard_normal((200, 3))
    phi = ka.random_features(ka.kernels.Gaussian(0.5), 3, 8, "trigonometric", rng=0)
    row = np.flatnonzero(phi(x) @ phi(x).sum(axis=0) <= 0)[0]
    with pytest.raises(errors.ParameterError, match=rf"row {row} is -.*Nystrom"):
        ka.solvers.spectral_clustering(x, phi, 2)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"phi": "gaussian"}, errors.DTypeError, "phi"),
        ({"num_clusters": 0}, errors.ParameterError, "num_clusters must be"),
        ({"num_clusters": 21}, errors.ParameterError, "num_clusters must be 20 at most"),
        ({"x": np.ones((1, 5, 2))}, errors.ShapeError, r"x must be \(n, d\)"),
        ({"x": np.full((5, 2), np.nan)}, errors.ParameterError, "NaN"),
    ],
)
def test_arguments_that_do_not_fit_are_named(change, error, match):
    x, _ = rings(100)
    with pytest.raises(error, match=match):
        ka.solvers.spectral_clustering(**{"phi": nystrom(x, 0.3, 20), "x": x, "num_clusters": 2} | change)
