"""CSR rows: never made dense, the features of dense rows, and what is refused."""

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
    with pytest.raises(errors.DTypeError, match="sketches of polynomials take CSR"):
        ka.solvers.moments(csr, ka.random_features(ka.kernels.Gaussian(), D, 32, rng=0), y=y)
