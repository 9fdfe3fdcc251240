"""Rows in float32 are answered as the same rows in float64: factors are large where eigenvalues are small."""

from functools import cache

import numpy as np
import pytest

import kernattn as ka
from xp import JAX, KINDS, dtype_name, to_numpy

RNG = np.random.default_rng(0)
X, NEW = (RNG.uniform(-2, 2, (n, 2)).astype("f4").astype("f8") for n in (1500, 60))
TRUTH, WANTED = (np.sin(2 * x[:, 0]) * np.cos(x[:, 1]) for x in (X, NEW))
KERNEL = ka.kernels.Gaussian(2.0)
SOLVERS = ["ridge", "leverage", "gp", "gp's variance", "pca", "whiten", "logistic"]
MAPS = ["random features", "landmarks"]
ANSWERS = [
    "kernel_ridge",
    *(f"{solver}, {name}" for name in MAPS for solver in SOLVERS),
    "spectral_clustering",
    "spectral_clustering's labels",
]


@cache
def maps():
    """Maps by name."""
    landmarks = ka.features.nystrom(X, KERNEL, 150, cutoff=1e-10, rng=0)
    return dict(zip(MAPS, (ka.random_features(KERNEL, 2, 150, rng=0), landmarks), strict=True))


@cache
def answers():
    """What answers rows, by name."""
    labels = (TRUTH > 0).astype("f8")
    landmarks = ka.features.nystrom(X, ka.kernels.Gaussian(0.5), 40, rng=0)
    clusters = ka.solvers.spectral_clustering(X, landmarks, 3, rng=0)
    found = {
        "kernel_ridge": ka.solvers.kernel_ridge(X, TRUTH, KERNEL, penalty=1e-9, num_landmarks=150, rng=0).predict,
        "spectral_clustering": clusters.transform,
        "spectral_clustering's labels": clusters.predict,
    }
    for name, phi in maps().items():
        m = ka.solvers.moments(X, phi, y=TRUTH)
        floor = ka.solvers.ridge(m, 1.0)._spectrum.floor
        made = [
            ka.solvers.ridge(m, floor * 2).predict,
            ka.solvers.ridge(m, floor * 1e3).leverage,
            ka.solvers.gp(m, noise=1e-6, amplitude=1.0).mean,
            ka.solvers.gp(m, noise=1e-4, amplitude=1.0).variance,
            ka.solvers.pca(m, 40).transform,
            ka.solvers.whiten(m).transform,
            ka.solvers.logistic(X, m.phi, y=labels, penalty=1e-9, max_iterations=9).scores,
        ]
        found |= {f"{solver}, {name}": answer for solver, answer in zip(SOLVERS, made, strict=True)}
    return found


@pytest.mark.parametrize("name", ANSWERS)
def test_answers(name):
    wanted = answers()[name](NEW)
    for xp in KINDS:
        got = answers()[name](xp.asarray(NEW, "float32"))
        assert xp.holds(got)
        assert dtype_name(got) == "float32" or "labels" in name
        np.testing.assert_allclose(to_numpy(got), wanted, rtol=1e-5, atol=1e-11 + 1e-6 * np.max(np.abs(wanted)))


def test_predictions_are_right():
    """What the others are compared with: a smooth function without noise is found."""
    for name in ("kernel_ridge", "ridge, landmarks", "gp, random features"):
        np.testing.assert_allclose(answers()[name](NEW), WANTED, atol=5e-3)


@pytest.mark.parametrize("name", MAPS)
def test_moments_and_the_rank_of_whitening(name):
    """Far rows, whose phases float32 does not hold."""
    x, phi = X + 1000.0, maps()[name]
    rows = x.astype("f4")
    phi = ka.features.nystrom(rows, KERNEL, 150, rng=0) if name == "landmarks" else phi
    one, other = (ka.solvers.moments(each, phi, weights=np.ones(len(x))) for each in (rows, rows.astype("f8")))
    np.testing.assert_array_equal(one.gram, other.gram)
    np.testing.assert_array_equal(ka.solvers.whiten(one).transform(rows), ka.solvers.whiten(other).transform(rows))


@pytest.mark.skipif(JAX not in KINDS, reason="JAX is not installed")
def test_traced_rows_are_warned_of():
    import jax

    wide = answers()["ridge, random features"]

    def answer(rows):
        return wide(rows)  # a frame of this file, to which the warning belongs

    with pytest.warns(UserWarning, match="jax_enable_x64") as told:
        assert jax.jit(answer)(JAX.asarray(NEW, "float32")).dtype == "float32"
    assert {each.filename for each in told} == {__file__}
    with JAX.wide():
        np.testing.assert_allclose(jax.jit(answer)(JAX.asarray(NEW)), answer(NEW), atol=1e-7)
