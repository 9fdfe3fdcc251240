"""Drawing a map from data and applying it to them takes memory linear in the number of rows."""

import tracemalloc

import numpy as np
import pytest

import kernattn as ka

ROWS, DIM = 6000, 4
KERNELS = (ka.kernels.Softmax(), ka.kernels.Gaussian(), ka.kernels.Polynomial(2))
CASES = [(kernel, name) for kernel in KERNELS for name in ("auto", *ka.features.estimators(kernel))]


@pytest.mark.parametrize(("kernel", "estimator"), CASES, ids=lambda x: x if isinstance(x, str) else type(x).__name__)
def test_no_matrix_of_all_pairs(kernel, estimator):
    x = np.random.default_rng(1).standard_normal((ROWS, DIM))
    m = 10 if estimator == "exact" else 16  # monomials of degree 2, or any even number
    ka.random_features(kernel, DIM, m, estimator, data=x[:100], rng=0).query(
        x[:100]
    )  # loops are compiled, modules imported
    tracemalloc.start()
    try:
        ka.random_features(kernel, DIM, m, estimator, data=x, rng=0).query(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * ROWS**2 / 12
