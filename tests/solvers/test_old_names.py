"""Old names, keywords and fields of the solvers work for one version."""

import numpy as np
import pytest

import kernattn as ka

X = np.random.default_rng(0).standard_normal((40, 2))
PHI = ka.features.elu1()
M = ka.solvers.moments(X, PHI, y=X[:, 0], backend="reference")
KERNEL = ka.kernels.Gaussian()


def warns(match):
    return pytest.warns(DeprecationWarning, match=match)


@pytest.mark.parametrize("landmarks", [7, X[:5], np.arange(5), ka.features.nystrom(X, KERNEL, 6, rng=1)])
def test_cg(landmarks):
    with warns(r"cg is now kernattn\.solvers\.kernel_ridge"):
        found = ka.solvers.cg(KERNEL, X, X[:, 0], landmarks, ridge=0.1)
    name = "num_landmarks" if isinstance(landmarks, int) else "phi" if hasattr(landmarks, "kernel") else "landmarks"
    fit = ka.solvers.kernel_ridge(X, X[:, 0], KERNEL, penalty=0.1, rng=0, **{name: landmarks})
    np.testing.assert_array_equal(found.weights, fit.weights)
    with warns(r"KernelRidge\.ridge is now \.penalty"):
        assert found.ridge == 0.1


def test_merge():
    with warns(r"merge is now a \+ b"):
        assert ka.solvers.merge(M, M).n == ka.solvers.merge(a=M, b=M).n == 80


def test_keywords_and_fields():
    with warns(r"ridge\(m=\) is now moments="):
        fit = ka.solvers.ridge(m=M, penalty=1.0)
    with warns(r"ridge\(ridge=\) is now penalty="):
        assert ka.solvers.ridge(M, ridge=2.0).penalty[0] == 2.0
    with warns(r"Ridge\.ridge is now \.penalty"):
        assert fit.ridge == fit.penalty
    with warns(r"RidgePath\.ridge is now \.penalty"):
        assert fit.path(np.ones(1)).ridge == 1
    with warns(r"at\(ridge=\) is now penalty="):
        assert fit.at(ridge=3.0).penalty == 3
    with warns(r"cross_validate\(ridges=\) is now penalties="):
        found = ka.solvers.cross_validate([M, M], ridges=np.ones(1))
    with warns(r"CrossValidation\.ridge is now \.penalty"):
        assert found.ridge == 1
    with warns(r"logistic\(ridge=\) is now penalty="):
        fit = ka.solvers.logistic(X, PHI, y=X[:, 0] > 0, ridge=1.0)
    with warns(r"Logistic\.ridge is now \.penalty"):
        assert fit.ridge == 1
    with warns(r"pca\(k=\) is now num_components="):
        assert len(ka.solvers.pca(M, k=1).variances) == 1
    with warns(r"spectral_clustering\(k=\) is now num_clusters="):
        assert len(ka.solvers.spectral_clustering(X, PHI, k=2, rng=0).centres) == 2
    with warns(r"gp\(\) takes noise=, amplitude= by keyword only"):
        assert ka.solvers.gp(M, 0.2, 1.0).noise == 0.2
    with warns(r"initial_moments\(\) takes targets= by keyword only"):
        assert ka.solvers.initial_moments(PHI, 2, dim=3).cross.shape == (3, 2)
    with warns(r"mmd\(mx=\) is now a="):
        assert ka.solvers.mmd(mx=M, b=M).p_value > 0.5


def test_maps_before_arrays():
    first = r"\(phi, ...\) is now \w+\("
    with warns(first), warns("takes y= by keyword only"):
        found = ka.solvers.moments(PHI, X, X[:, 0])
    np.testing.assert_array_equal(found.cross, M.cross)
    with warns(first):
        assert ka.solvers.moments(PHI, x=X).n == 40
    with warns(first):
        assert ka.solvers.accumulate(PHI, [X]).n == 40
    with warns(first), warns("takes y= by keyword only"):
        ka.solvers.logistic(PHI, X, X[:, 0] > 0, penalty=1.0)
    with warns(first):
        ka.solvers.spectral_clustering(PHI, X, 2, rng=0)
    phi = ka.random_features(KERNEL, dim=2, num_features=8, rng=0)
    with warns(first):
        old = ka.solvers.tune(phi, X, X[:, 0], max_iterations=2)
    assert old.after == ka.solvers.tune(X, X[:, 0], phi, max_iterations=2).after
