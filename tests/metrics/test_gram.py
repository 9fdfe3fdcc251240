"""Errors of Gram matrices are the norms they are called after."""

import numpy as np

from kernattn.metrics import gram_errors


def test_gram_errors_are_the_norms():
    rng = np.random.default_rng(6)
    k, error = rng.standard_normal((5, 4)), 1e-3 * rng.standard_normal((5, 4))
    found = gram_errors(k + error, k)
    np.testing.assert_allclose(found.mse, np.mean(error**2), rtol=1e-9)
    np.testing.assert_allclose(found.max, np.max(np.abs(error)), rtol=1e-9)
    np.testing.assert_allclose(found.frobenius, np.linalg.norm(error) / np.linalg.norm(k), rtol=1e-9)
    np.testing.assert_allclose(found.spectral, np.linalg.norm(error, 2) / np.linalg.norm(k, 2), rtol=1e-9)


def test_gram_errors_do_not_see_rotations():
    rng = np.random.default_rng(7)
    k, estimate = rng.standard_normal((2, 6, 6))
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    there, back = gram_errors(estimate, k), gram_errors(turn @ estimate, turn @ k)
    np.testing.assert_allclose([there.frobenius, there.spectral], [back.frobenius, back.spectral], rtol=1e-12)
