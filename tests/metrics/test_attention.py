"""Errors of attention: outputs, and rows of weights."""

import numpy as np
import pytest
from scipy.special import rel_entr

from kernattn.errors import ShapeError
from kernattn.metrics import attention_kl, attention_mse


def test_attention_mse_keeps_leading_axes():
    out, exact = np.random.default_rng(8).standard_normal((2, 3, 4, 5))
    np.testing.assert_allclose(attention_mse(out, exact), ((out - exact) ** 2).mean(axis=(1, 2)))
    np.testing.assert_allclose(attention_mse(out, exact[0])[0], attention_mse(out[0], exact[0]))


def test_attention_mse_broadcasts_either_side():
    out, exact = np.random.default_rng(8).standard_normal((2, 3, 4, 5))
    uniform = out[0].mean(axis=0, keepdims=True)
    wanted = ((uniform - exact) ** 2).mean(axis=(1, 2))
    np.testing.assert_allclose(attention_mse(uniform, exact), wanted)
    np.testing.assert_allclose(attention_mse(exact, uniform), wanted)
    np.testing.assert_allclose(attention_mse(uniform[0], exact), wanted)
    with pytest.raises(ShapeError, match=r"\(2, 5\) and \(4, 5\)"):
        attention_mse(out[0, :2], exact[0])


def test_row_kl():
    rng = np.random.default_rng(9)
    p, q = rng.dirichlet(np.ones(6), size=(2, 4))
    p[0, :2] = 0
    p[0] /= p[0].sum()
    np.testing.assert_allclose(attention_kl(q, p), rel_entr(p, q).sum(axis=-1), rtol=1e-12)
    np.testing.assert_allclose(attention_kl(p, p), 0, atol=1e-15)
    q[1, 3] = -1e-9
    q[0, 0] = -1.0  # where p is 0
    found = attention_kl(q, p)
    assert np.isinf(found[1])
    assert np.all(np.isfinite(found[[0, 2, 3]]))
