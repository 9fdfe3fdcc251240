"""Digests of rows, by which folds and landmarks are chosen."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from kernattn.solvers._digests import digests_of, distinct


def test_an_entry_that_is_stored_twice_is_the_sum():
    dense = np.array([[3.0, 0.5, 0.0], [0.0, 0.0, 2.0], [3.0, 0.5, 0.0]])
    x = sparse.csr_array((np.array([0.5, 1.0, 2.0, 2.0, 3.0, 0.5]), [1, 0, 0, 2, 0, 1], [0, 3, 4, 6]), shape=(3, 3))
    np.testing.assert_array_equal(x.toarray(), dense)
    np.testing.assert_array_equal(digests_of(x), digests_of(dense))
    for mine, wanted in zip(distinct(x), distinct(dense), strict=True):
        np.testing.assert_array_equal(mine, wanted)
    assert x.nnz == 6


@pytest.mark.parametrize("as_given", [np.asarray, sparse.csr_array])
def test_digests_do_not_copy_all_rows(as_given):
    x = as_given(np.ones((50_000, 40), np.float32))
    tracemalloc.start()
    try:
        distinct(x)
        assert tracemalloc.get_traced_memory()[1] < 20e6  # copies of all rows in float64 are of 16 MB, and were four
    finally:
        tracemalloc.stop()
