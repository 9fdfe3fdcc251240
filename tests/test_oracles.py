"""The oracles against each other: a wrong oracle would bless a wrong library."""

import numpy as np
import pytest

import oracles


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("kind", ["elu1", "relu", "exp", "exp_pair", "cos", "sincos"])
@pytest.mark.parametrize("packed", [False, True])
def test_dense_equals_recurrent(kind, packed):
    q, k, v, omega = draw(2, 9, 3), draw(2, 9, 3, seed=1), draw(2, 9, 4, seed=2), draw(5, 3, seed=3)
    mask = np.array([True, False, True, True, True, False, True, True, True])
    ids = np.array([0, 0, 0, 1, 1, 0, 0, 0, 2]) if packed else None
    offset = draw(5, seed=4) if kind == "cos" else None
    fq, fk = (oracles.from_spec(x, kind, omega, 0.1 * np.ones(3), offset, 0.7) for x in (q, k))
    dense, condition = oracles.linear_attention(
        fq, fk, v, oracles.allowed(9, 9, causal=True, key_mask=mask, segment_ids=ids)
    )
    loop = oracles.recurrent(fq, fk, v, key_mask=mask, segment_ids=ids)
    known = np.isfinite(condition)  # not those that are all rounding
    np.testing.assert_allclose(dense[known], loop[known], rtol=1e-10, atol=1e-11 * condition[known].max())


def test_estimators_approach_their_kernels():
    d, m = 4, 200_000
    x, y, omega = 0.5 * draw(3, d), 0.5 * draw(3, d, seed=1), draw(m, d, seed=2)
    offset = np.random.default_rng(3).uniform(0, 2 * np.pi, m)
    for softmax, c, kernel in [
        (True, np.full(d, d**-0.25), oracles.softmax_kernel(x, y)),
        (False, 1 / np.arange(1.0, d + 1), oracles.gaussian_kernel(x, y, np.arange(1.0, d + 1))),
    ]:
        for name, parameters in [
            ("trigonometric", ()),
            ("phase", (offset,)),
            ("positive", ()),
            ("hyperbolic", ()),
            ("optimal_positive", (-0.05,)),
        ]:
            fx, fy = (getattr(oracles, name)(z, omega, c, *parameters, softmax=softmax) for z in (x, y))
            np.testing.assert_allclose(fx.values @ fy.values.T, kernel, rtol=0.03, err_msg=name)


def test_optimal_parameter_is_the_closed_form():
    for square, d in [(9.0, 16), (0.5, 4), (100.0, 64)]:
        p = square / d
        closed = (1 - 2 * p - np.sqrt((2 * p + 1) ** 2 + 8 * p)) / 16
        assert abs(oracles.optimal_parameter(square, d) - closed) < 1e-4 * abs(closed)


def test_huge_norms_stay_finite():
    q, k, v, omega = 1000 * draw(6, 3), 1000 * draw(6, 3, seed=1), draw(6, 2, seed=2), draw(5, 3, seed=3)
    fq, fk = (oracles.from_spec(x, "exp", omega, -0.5 * np.ones(3), None, 1.0) for x in (q, k))
    out, _ = oracles.linear_attention(fq, fk, v, oracles.allowed(6, 6, causal=True))
    assert np.isfinite(out).all()
    assert (out >= np.minimum.accumulate(v) - 1e-12).all()
    np.testing.assert_allclose(out[0], v[0])


def test_softmax_rows():
    q, k, v = draw(5, 3), draw(7, 3, seed=1), draw(7, 2, seed=2)
    out, lse = oracles.softmax_attention(q, k, v, may=oracles.allowed(5, 7, key_mask=np.zeros(7, bool)))
    assert (out == 0).all()
    assert (lse == -np.inf).all()
    kernel = oracles.softmax_kernel(q, k)
    out, lse = oracles.softmax_attention(q, k, v)
    np.testing.assert_allclose(out, kernel @ v / kernel.sum(1, keepdims=True))
    np.testing.assert_allclose(np.exp(lse), kernel.sum(1))
