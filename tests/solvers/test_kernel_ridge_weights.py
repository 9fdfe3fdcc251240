"""Exact fits with weights, and to sparse rows: a weight of k is k copies, and CSR rows are the dense ones."""

import numpy as np
import pytest
from scipy import sparse

import kernattn as ka
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.solvers import kernel_ridge

RNG = np.random.default_rng(0)
X, Y, NEW = RNG.standard_normal((90, 3)), RNG.standard_normal((90, 2)), RNG.standard_normal((20, 3))
BITS = (RNG.random((90, 40)) < 0.2).astype(float)
COUNTS = RNG.integers(0, 4, 90).astype(float)
COPIES = np.repeat(np.arange(90), COUNTS.astype(int))
KERNEL = ka.kernels.Gaussian(1.5)
STEPS = {"num_landmarks": 20, "method": "rpcholesky", "tolerance": 1e-11, "rng": 0}


@pytest.fixture(params=["factor", "steps"])
def given(request, monkeypatch):
    """Solve by a factor, and by steps whatever the number of rows."""
    if request.param == "factor":
        return {}
    monkeypatch.setattr("kernattn.solvers._kernel_ridge.pays", lambda n, c: False)
    return STEPS


@pytest.mark.parametrize("columns", [0, slice(None)])
def test_a_weight_is_so_many_copies(columns, given):
    y = Y[:, columns]
    fit = kernel_ridge(X, y, KERNEL, penalty=0.1, weights=COUNTS, exact=True, **given)
    copies = kernel_ridge(X[COPIES], y[COPIES], KERNEL, penalty=0.1, exact=True, **given)
    assert fit.converged
    assert (fit.iterations > 2) == bool(given)
    np.testing.assert_allclose(fit.predict(NEW), copies.predict(NEW), atol=1e-9)
    some = COUNTS > 0
    np.testing.assert_array_equal(fit.points, X[some])
    matrix = KERNEL(X[some]) + 0.1 * np.diag(1 / COUNTS[some])
    np.testing.assert_allclose(fit.weights, np.linalg.solve(matrix, y[some]), atol=1e-9)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_weights_of_any_unit(unit, given):
    fit = kernel_ridge(X, Y, KERNEL, penalty=0.1 * unit, weights=unit * COUNTS, exact=True, **given)
    wanted = kernel_ridge(X, Y, KERNEL, penalty=0.1, weights=COUNTS, exact=True, **given)
    np.testing.assert_allclose(fit.predict(NEW), wanted.predict(NEW), atol=1e-9)


@pytest.mark.parametrize("kernel", [ka.kernels.Tanimoto(), ka.kernels.Polynomial(2), KERNEL])
@pytest.mark.parametrize("weights", [None, COUNTS])
def test_sparse_rows_are_the_dense_ones(kernel, weights, given):
    dense = kernel_ridge(BITS, Y, kernel, penalty=0.1, weights=weights, exact=True, **given)
    fit = kernel_ridge(sparse.csr_array(BITS), Y, kernel, penalty=0.1, weights=weights, exact=True, **given)
    wanted = dense.predict(BITS[:9])
    for rows in (BITS[:9], sparse.csr_array(BITS[:9]), BITS[:9].astype("f4")):
        got = fit.predict(rows)
        assert got.dtype == rows.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-9 if rows.dtype == "f8" else 1e-5)
    np.testing.assert_allclose(dense.predict(sparse.csr_array(BITS[:9])), wanted, atol=1e-12)
    assert "points, penalty=0.1" in repr(fit)


def test_steps_go_on_with_weights(given):
    rows = sparse.csr_array(X)
    how = {"penalty": 0.1, "weights": COUNTS, "exact": True, **given}
    first = kernel_ridge(rows, Y, KERNEL, **how | {"tolerance": 0.5})
    then = kernel_ridge(rows, Y, KERNEL, **how, start=first)
    np.testing.assert_allclose(then.residuals[0], first.residuals[-1], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(then.predict(NEW), kernel_ridge(X, Y, KERNEL, **how).predict(NEW), atol=1e-9)
    with pytest.raises(ParameterError, match="start must be a fit to these rows"):
        kernel_ridge(2 * rows, Y, KERNEL, **how, start=first)
    with pytest.raises(ParameterError, match="start must be a fit to these rows"):
        kernel_ridge(X, Y, KERNEL, **how, start=first)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"weights": COUNTS, "exact": False, "num_landmarks": 5}, ParameterError, "weights must come with exact=True"),
        ({"x": sparse.csr_array(X), "exact": False, "num_landmarks": 5}, ParameterError, "a CSR matrix x must come"),
        ({"weights": -COUNTS}, ParameterError, "weights must be 0 or more"),
        ({"weights": 0 * COUNTS}, ParameterError, "not 0 in all rows"),
        ({"weights": COUNTS[1:]}, ShapeError, r"weights must be \(90,\)"),
        ({"weights": COUNTS + np.inf}, ParameterError, "weights must be finite"),
        ({"weights": COUNTS.astype(int)}, DTypeError, "weights"),
        ({"x": sparse.csc_array(X)}, DTypeError, "must be in CSR format"),
        ({"x": sparse.csr_array(X * np.nan)}, ParameterError, "x must be finite"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_refused(given, error, words):
    with pytest.raises(error, match=words):
        kernel_ridge(**{"x": X, "y": Y, "kernel": KERNEL, "penalty": 0.1, "exact": True} | given)
