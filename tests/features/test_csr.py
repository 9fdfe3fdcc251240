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
    phi = ka.random_features(ka.kernels.Polynomial(2, 0.5, coef0), D, 32, name)
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
    phi = ka.random_features(ka.kernels.Polynomial(3, gamma=0.7, coef0=0.5), D, 8)
    rows = sparse.csr_array(np.ones((3, D)))
    with pytest.raises(errors.DTypeError, match=r"coo.*tocsr"):
        phi(rows.tocoo())
    with pytest.raises(errors.DTypeError, match="int64"):
        phi(rows.astype(np.int64))
    with pytest.raises(errors.ShapeError, match=rf"d = {D}.*\(3, 4\)"):
        phi(sparse.csr_array(np.ones((3, 4))))
    with pytest.raises(errors.EmptyInputError, match="rows"):
        phi(sparse.csr_array((0, D), dtype=np.float32))
