"""Bias and variance of attention's output against Monte Carlo over redraws."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, NoClosedForm, ShapeError
from kernattn.metrics import attention_delta_method, ratio_delta_method
from laws import arrays

D, M, DRAWS = 3, 64, 6000
Q, KEYS, V = (0.4 * a for a in arrays(7, (3, D), (5, D), (5, 2), dtype="float64"))


def sampled(phi):
    """N and Z of each redraw."""
    rng, batches = np.random.default_rng(4), []
    for _ in range(10):
        many = replace(phi, omega=rng.standard_normal((M * DRAWS // 10, D)))
        a, b = (many(x).reshape(len(x), -1, M) for x in (Q, KEYS))
        batches.append(np.einsum("nrm,lrm->rnl", a, b) * (DRAWS // 10))
    weights = np.concatenate(batches)  # (R, n, l)
    return weights @ V, weights.sum(axis=-1)


@pytest.mark.statistical
@pytest.mark.parametrize("kernel", [ka.kernels.Softmax(1.0), ka.kernels.Gaussian(1.3)], ids=["softmax", "gaussian"])
@pytest.mark.parametrize("estimator", ["positive", "optimal_positive", "favor_sharp"])
def test_closed_form_against_redraws(estimator, kernel):
    phi = ka.random_features(kernel, D, M, estimator, "iid", data=np.concatenate([Q, KEYS]) * [2.0, 1.0, 0.5])
    predicted = attention_delta_method(Q, KEYS, V, phi)
    n, z = sampled(phi)
    measured = ratio_delta_method(n, z)
    exact = kernel(Q, KEYS)
    c, total = (exact @ V) / exact.sum(axis=1, keepdims=True), exact.sum(axis=1, keepdims=True)
    residual = (n - c * z[..., None]) / total  # mean 0, its second moment is the variance predicted
    influence = -residual * (z - total[:, 0])[..., None] / total  # whose mean is the bias predicted
    for samples, want in ((residual**2, predicted.variance), (influence, predicted.bias)):
        score = (samples.mean(axis=0) - want) / (samples.std(axis=0) / np.sqrt(DRAWS))
        assert (np.abs(score) < 4.5).all(), score
    np.testing.assert_allclose(measured.relative_sd, predicted.relative_sd, rtol=0.1)
    error = n / z[..., None] - c  # of attention itself: the next order is a few relative sd squared away
    slack = 4.5 * error.std(axis=0) / np.sqrt(DRAWS)
    assert (np.abs(error.mean(axis=0) - predicted.bias) < slack + 0.2 * np.abs(predicted.bias)).all()


def test_one_key_has_no_error():
    phi = ka.random_features(ka.kernels.Softmax(), D, M, "positive", "iid")
    out = attention_delta_method(Q, KEYS[:1], V[:1], phi)
    np.testing.assert_allclose(out.bias, 0, atol=1e-15)
    np.testing.assert_allclose(out.variance, 0, atol=1e-15)


@pytest.mark.parametrize(("estimator", "projection"), [("positive", "orthogonal"), ("trigonometric", "iid")])
def test_no_closed_form(estimator, projection):
    phi = ka.random_features(ka.kernels.Softmax(), D, M, estimator, projection)
    with pytest.raises(NoClosedForm, match="'positive', 'optimal_positive'"):
        attention_delta_method(Q, KEYS, V, phi)


def test_shapes():
    phi = ka.random_features(ka.kernels.Softmax(), D, M, "positive", "iid")
    with pytest.raises(ShapeError, match="matrix"):
        attention_delta_method(Q[0], KEYS, V, phi)
    with pytest.raises(ShapeError, match="got"):
        attention_delta_method(Q, KEYS, V[:2], phi)


def test_a_map():
    with pytest.raises(DTypeError, match="phi must be a FeatureMap; got 'positive'"):
        attention_delta_method(Q, KEYS, V, "positive")
