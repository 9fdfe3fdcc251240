"""CSR rows: never dense in sketches, a block at a time in other maps; the features of dense rows, and refusals."""

import numpy as np
import pytest
from scipy import sparse

import kernattn as ka
from kernattn import errors

D = 5
SKETCHES = [name for name in ka.features.estimators(ka.kernels.Polynomial()) if name != "exact"]


@pytest.mark.parametrize("coef0", [0.0, 0.5])
@pytest.mark.parametrize("name", SKETCHES)
def test_csr_rows(name, coef0, monkeypatch):
    x = np.random.default_rng(2).standard_normal((200, D)).astype(np.float32)
    x[np.abs(x) < 0.8] = 0
    x[3] = 0
    phi = ka.random_features(ka.kernels.Polynomial(2, 0.5, coef0), D, 32, name, rng=0)
    for dtype in (np.float32, np.float64):
        rows = x.astype(dtype)
        expected = phi(rows)
        with monkeypatch.context() as patch:
            for cls in (sparse.csr_array, sparse.csr_matrix):
                for method in ("toarray", "todense"):
                    patch.setattr(cls, method, lambda *args, **kwargs: pytest.fail("made dense"))
            for csr in (sparse.csr_array(rows), sparse.csr_matrix(rows)):
                got = phi(csr)
                assert type(got) is np.ndarray
                assert got.dtype == dtype
                np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
                np.testing.assert_array_equal(phi.key(csr), got)


class Derived(sparse.csr_matrix):
    """CSR of a user."""


def test_a_class_that_derives_from_csr():
    phi = ka.random_features(ka.kernels.Gaussian(), D, 8, rng=0)
    np.testing.assert_allclose(phi(Derived(np.eye(D))), phi(np.eye(D)), rtol=1e-12)


def test_csr_rows_that_are_refused():
    phi = ka.random_features(ka.kernels.Polynomial(3, gamma=0.7, coef0=0.5), D, 8, rng=0)
    rows = sparse.csr_array(np.ones((3, D)))
    with pytest.raises(errors.DTypeError, match=r"coo.*tocsr"):
        phi(rows.tocoo())
    with pytest.raises(errors.DTypeError, match="int64"):
        phi(rows.astype(np.int64))
    with pytest.raises(errors.ShapeError, match=rf"d = {D}.*\(3, 4\)"):
        phi(sparse.csr_array(np.ones((3, 4))))
    with pytest.raises(errors.EmptyInputError, match="rows"):
        phi(sparse.csr_array((0, D), dtype=np.float32))


def test_moments_and_fits_of_csr_rows(monkeypatch, tmp_path):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((300, D))
    x[np.abs(x) < 0.8] = 0
    y, weights = x[:, 0] * x[:, 1], rng.random(300)
    phi = ka.random_features(ka.kernels.Polynomial(2, 0.5, 0.5), D, 32, rng=0)
    csr = sparse.csr_array(x)
    for cls in (sparse.csr_array, sparse.csr_matrix):
        for method in ("toarray", "todense"):
            monkeypatch.setattr(cls, method, lambda *args, **kwargs: pytest.fail("made dense"))
    for w in (None, weights):
        dense, found = (ka.solvers.moments(rows, phi, y=y, weights=w) for rows in (x, csr))
        np.testing.assert_allclose(found.gram, dense.gram, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.cross, dense.cross, rtol=1e-12, atol=1e-12)
    blocks = [(csr[i : i + 100], y[i : i + 100]) for i in range(0, 300, 100)]
    first = ka.solvers.accumulate(blocks[:2], phi, checkpoint=tmp_path / "m.npz")
    resumed = ka.solvers.accumulate(blocks, phi, checkpoint=tmp_path / "m.npz")
    assert (first.n, resumed.n) == (200, 300)
    np.testing.assert_array_equal(resumed.gram, ka.solvers.accumulate(blocks, phi).gram)
    other = [(blocks[0][0] * 2, blocks[0][1]), *blocks[1:2], (blocks[2][0] * 2, blocks[2][1])]
    with pytest.raises(errors.StateMismatchError, match="those given are others"):
        ka.solvers.accumulate(other, phi, checkpoint=tmp_path / "m.npz")

    m = ka.solvers.moments(x, phi, y=y)
    fit, process, parts = ka.solvers.ridge(m), ka.solvers.gp(m), ka.solvers.pca(m, 3)
    for function in (fit.predict, fit.leverage, process.mean, process.variance, parts.transform):
        np.testing.assert_allclose(function(csr), function(x), rtol=1e-8, atol=1e-10)

    csr.data[7] = np.nan
    row = int(np.searchsorted(csr.indptr, 7, side="right")) - 1
    with pytest.raises(errors.ParameterError, match=f"x must be finite; NaN or infinity in row {row}$"):
        ka.solvers.moments(csr, phi, y=y)


@pytest.fixture
def blocks(monkeypatch):
    """Blocks of 37 rows of 20 columns: the largest that is made dense is noted."""
    made = [0]
    monkeypatch.setattr("kernattn._arrays.csr.ROOM", 20 * 37)

    def toarray(x, plain=sparse.csr_array.toarray):
        made[0] = max(made[0], x.shape[0] * x.shape[1])
        return plain(x)

    monkeypatch.setattr(sparse.csr_array, "toarray", toarray)
    return made


def thin(n, seed):
    return sparse.random_array((n, 20), density=0.2, format="csr", rng=seed)


DIFFERENCES = [
    ka.kernels.Gaussian(np.linspace(1.0, 3.0, 20)),
    ka.kernels.Laplacian(4.0),
    ka.kernels.Matern(1.5, 2.0),
    2.0 * ka.kernels.Gaussian(2.0) + ka.kernels.Cauchy(3.0),
]


@pytest.mark.parametrize("kernel", DIFFERENCES, ids=lambda kernel: type(kernel).__name__)
def test_kernels_of_csr_rows_by_dense_blocks(kernel, blocks):
    x, y = thin(90, 0), thin(50, 1)
    far, near = (rows @ np.eye(20) for rows in (x, y))
    v = np.random.default_rng(0).standard_normal((50, 2))
    for function, sparse_rows, dense in (
        (kernel, (x,), (far,)),
        (kernel, (x, y), (far, near)),
        (kernel, (x, near), (far, near)),
        (kernel, (far, y), (far, near)),
        (kernel.diag, (x,), (far,)),
        (kernel.pairs, (x[:50], y), (far[:50], near)),
        (kernel.pairs, (near, x[:50]), (near, far[:50])),
        (kernel.matmul, (x, y, v), (far, near, v)),
        (kernel.matmul, (y, None, v[:, 0]), (near, None, v[:, 0])),
    ):
        np.testing.assert_allclose(function(*sparse_rows), function(*dense), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(np.diagonal(kernel(x)), kernel.diag(x))
    assert 0 < blocks[0] <= 20 * 37
    with pytest.raises(errors.ShapeError, match="last axis"):
        kernel(x, near[:, :7])
    with pytest.raises(errors.DTypeError, match=r"coo.*tocsr"):
        kernel(x.tocoo())


def test_maps_and_fits_of_csr_rows_by_dense_blocks(blocks):
    """Random features, landmarks and sums of both; moments, and fits of them, and what they predict."""
    x = thin(120, 2)
    rows, kernel = x @ np.eye(20), ka.kernels.Gaussian(2.0)
    assert ka.kernels.usual_lengthscale(x) == ka.kernels.usual_lengthscale(rows)
    random = ka.random_features(kernel, 20, 32, rng=0)
    for method in ("uniform", "leverage", "rpcholesky", "greedy"):
        made, wanted = (ka.features.nystrom(each, kernel, 12, method=method, rng=0) for each in (x, rows))
        assert made.fingerprint == wanted.fingerprint
    np.testing.assert_allclose(made.trace_residual(x), made.trace_residual(rows), rtol=1e-12)
    for phi in (random, made, random + made, ka.features.elu1()):
        np.testing.assert_allclose(phi(x), phi(rows), rtol=1e-12, atol=1e-12)
        assert phi(x.astype(np.float32)).dtype == np.float32
    one, other = (ka.solvers.gp(ka.solvers.moments(each, made, y=rows[:, 0])) for each in (x, rows))
    for name in ("mean", "variance", "covariance"):
        np.testing.assert_allclose(getattr(one, name)(x), getattr(other, name)(rows), rtol=1e-7, atol=1e-10)
    assert 0 < blocks[0] <= 20 * 37
    for given in ({"method": "kmeans"}, {"kernel": "precomputed"}):
        with pytest.raises(errors.ParameterError, match="takes dense data"):
            ka.features.nystrom(x, given.pop("kernel", kernel), 4, **given)
    x.data[0] = np.inf
    with pytest.raises(errors.ParameterError, match="NaN or infinity in row 0"):
        ka.features.nystrom(x, kernel, 4)
