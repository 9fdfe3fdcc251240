"""Bias and variance of attention's output against Monte Carlo over redraws."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.integrate import simpson
from scipy.special import hyp1f1

import kernattn as ka
from covering import turns
from kernattn.errors import DTypeError, NoClosedForm, ShapeError
from kernattn.features._moments.orthogonal import orthogonal_cross
from kernattn.metrics import attention_delta_method
from laws import arrays

D, M, DRAWS = 3, 60, 6000
ESTIMATORS = ["positive", "hyperbolic", "optimal_positive", "favor_sharp", "trigonometric"]
SOFTMAX, GAUSSIAN = ka.kernels.Softmax(1.0), ka.kernels.Gaussian(1.3)
PROBLEMS = [("iid", SOFTMAX), ("orthogonal", GAUSSIAN), ("orthogonal", SOFTMAX), ("iid", GAUSSIAN)]
Q, KEYS, V = (0.4 * a for a in arrays(7, (3, D), (5, D), (5, 2), dtype="float64"))


def sampled(phi):
    """N and Z of each redraw."""
    rng, batches, spec = np.random.default_rng(4), [], phi.projection
    for _ in range(10):  # blocks of a large draw are those of small ones, for m is a multiple of d
        many = replace(phi, omega=spec.draw(M * DRAWS // 10, D, rng))
        a, b = (many(x) for x in (Q, KEYS))
        terms = np.einsum("nr,lr->nlr", a, b).reshape(len(Q), len(KEYS), -1, DRAWS // 10, M)
        batches.append(np.moveaxis(terms.sum(axis=(2, 4)), 2, 0) * (DRAWS // 10))
    weights = np.concatenate(batches)  # (R, n, l)
    return weights @ V, weights.sum(axis=-1)


@pytest.mark.statistical
@pytest.mark.parametrize(("estimator", "projection", "kernel"), turns(ESTIMATORS, PROBLEMS))
def test_closed_form_against_redraws(estimator, projection, kernel):
    if (estimator, projection) == ("favor_sharp", "orthogonal"):
        pytest.skip("no closed form with tilts that differ")
    number = M * (2 if estimator in ("hyperbolic", "trigonometric") else 1)
    phi = ka.random_features(
        kernel, D, number, estimator, projection, data=np.concatenate([Q, KEYS]) * [2.0, 1.0, 0.5], rng=0
    )
    predicted = attention_delta_method(Q, KEYS, V, phi)
    n, z = sampled(phi)
    exact = kernel(Q, KEYS)
    c, total = (exact @ V) / exact.sum(axis=1, keepdims=True), exact.sum(axis=1, keepdims=True)
    residual = (n - c * z[..., None]) / total  # mean 0, its second moment is the variance predicted
    shift = (z - total[:, 0]) / total[:, 0]
    influence = -residual * shift[..., None]  # whose mean is the bias predicted
    for samples, want in (
        (residual**2, predicted.variance),
        (influence, predicted.bias),
        (shift**2, predicted.relative_sd**2),
    ):
        score = (samples.mean(axis=0) - want) / (samples.std(axis=0) / np.sqrt(DRAWS))
        assert (np.abs(score) < 4.5).all(), score
    if projection == "iid":
        third, slack = shift**3, 4.5 * (shift**3).std(axis=0) / np.sqrt(DRAWS)
        size = predicted.tail * predicted.relative_sd**2
        settled = predicted.tail < 0.2
        assert np.count_nonzero(settled) >= 2
        assert (np.abs(np.abs(third.mean(axis=0)) - size) < slack)[settled].all()
    error = n / z[..., None] - c  # of attention itself: the next order is a few relative sd squared away
    slack = 4.5 * error.std(axis=0) / np.sqrt(DRAWS)
    assert (np.abs(error.mean(axis=0) - predicted.bias) < slack + 0.2 * np.abs(predicted.bias)).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_orthogonal_rows_against_quadrature(sign):
    """In two dimensions: one angle and two norms."""
    a, b = np.array([0.9, -0.4]), np.array([0.3, 1.1])
    r = np.linspace(0, 16, 4001)
    angle = np.linspace(0, 2 * np.pi, 64, endpoint=False)[:, None]
    rows = np.cos(angle) * a[0] + np.sin(angle) * a[1], np.cos(angle) * b[1] - np.sin(angle) * b[0]
    f = np.cosh if sign > 0 else np.cos  # the mean over both ways to turn a row
    first, second = (simpson(r * np.exp(-(r**2) / 2) * f(row * r), x=r) for row in rows)  # chi of two dimensions
    want = np.mean(first * second)
    found = orthogonal_cross(np.array([a @ a]), np.array([b @ b]), np.array([a @ b]), 2, sign)
    np.testing.assert_allclose(found, want, rtol=1e-9)
    v2 = np.array([0.5, 9.0])
    np.testing.assert_allclose(orthogonal_cross(v2, v2, v2, 7, sign), hyp1f1(7, 3.5, sign * v2 / 2), rtol=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("m", "scale", "estimator"), turns(product([16, 64, 256], [0.5, 1.0, 1.5]), ["positive", "trigonometric"])
)
def test_where_it_is_trusted_it_is_right(estimator, m, scale):
    """Over maps and sizes: measured over predicted error is near 1 where theory trusts the expansion."""
    d, keys, draws = 4, 24, 400
    q, k, v = arrays(3, (6, d), (keys, d), (keys, 3), dtype="float64")
    q, k = 0.7 * scale * q, 0.7 * scale * k
    kernel = ka.kernels.Softmax(1.0)
    phi = ka.random_features(kernel, d, m, estimator, "iid", rng=0)
    predicted = attention_delta_method(q, k, v, phi)
    trusted = predicted.trusted
    exact = ka.softmax_attention(q, k, v, scale=1.0)
    found = np.stack([ka.linear_attention(q, k, v, phi.redraw(seed)) for seed in range(draws)])
    measured = np.mean((found - exact) ** 2, axis=(0, 2))
    quotient = measured / np.mean(predicted.variance + predicted.bias**2, axis=1)
    assert (np.abs(quotient[trusted] - 1) < 0.35).all()
    # beyond, tails are long, and sd(Z)/Z says little of them
    assert trusted.any() == (scale == 0.5 and (estimator, m) != ("positive", 16))


def test_one_key_has_no_error():
    phi = ka.random_features(ka.kernels.Softmax(), D, M, "positive", "iid", rng=0)
    out = attention_delta_method(Q, KEYS[:1], V[:1], phi)
    np.testing.assert_allclose(out.bias, 0, atol=1e-15)
    np.testing.assert_allclose(out.variance, 0, atol=1e-15)


@pytest.mark.parametrize(
    ("estimator", "projection"), [("positive", "simplex"), ("phase", "iid"), ("favor_sharp", "orthogonal")]
)
def test_no_closed_form(estimator, projection):
    phi = ka.random_features(ka.kernels.Softmax(), D, M, estimator, projection, data=KEYS * [2.0, 1.0, 0.5], rng=0)
    with pytest.raises(NoClosedForm, match="covariance of two estimates is"):
        attention_delta_method(Q, KEYS, V, phi)


def test_shapes():
    phi = ka.random_features(ka.kernels.Softmax(), D, M, "positive", "iid", rng=0)
    with pytest.raises(ShapeError, match="matrix"):
        attention_delta_method(Q[0], KEYS, V, phi)
    with pytest.raises(ShapeError, match="got"):
        attention_delta_method(Q, KEYS, V[:2], phi)


def test_a_map():
    with pytest.raises(DTypeError, match="phi must be a FeatureMap; got 'positive'"):
        attention_delta_method(Q, KEYS, V, "positive")
