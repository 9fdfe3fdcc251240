"""Asymmetric FAVOR#: unbiased, its variance in closed form, parameters that are a minimum, and where it gains."""

import re
from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.features._exponential.asymmetric import balance
from laws import arrays
from saved import reloaded
from xp import KINDS, to_numpy

K, P = ka.kernels, ka.projections
D, NAME = 4, "favor_sharp_asymmetric"


def queries(rows=400):
    return np.random.default_rng(1).standard_normal((rows, D)) * (1.5, 0.6, 0.3, 0.1) + (0.4, 0.0, -0.3, 0.2)


def keys(rows=400):
    return np.random.default_rng(2).standard_normal((rows, D)) * (0.2, 0.3, 0.6, 1.5) + (-0.1, 0.5, 0.0, 0.3)


def sharp(kernel=None, projection="iid", number=12, data=None):
    data = (queries(), keys()) if data is None else data
    return ka.random_features(kernel or K.Softmax(scale=1.0), D, number, NAME, projection, data=data, rng=0)


@pytest.mark.parametrize("kernel", [K.Softmax(), K.Gaussian((0.5, 1.0, 2.0, 3.0))], ids=["softmax", "ard"])
def test_the_formula_as_written(kernel):
    """det(I - 4A)^(1/4) exp(w'Aw + w'B(x - a) - |G(x - a)|^2 / 2 + x'b - a'b / 2) of queries, dense B, from scratch."""
    phi = sharp(kernel)
    x, y, scale = queries(5), keys(6), kernel.input_scale(D)
    tilt, omega = phi.inner.tilt, phi.inner.omega
    for rows, transform, mean, other, got in (
        (x * scale, phi.query_transform, phi.query_mean, phi.key_mean, phi.query(x)),
        (y * scale, phi.key_transform, phi.key_mean, phi.query_mean, phi.key(y)),
    ):
        b = np.diag(np.sqrt(1 - 4 * tilt)) @ transform
        log = omega**2 @ tilt + (rows - mean) @ b.T @ omega.T + np.sum(np.log(1 - 4 * tilt)) / 4
        row = -np.sum(((rows - mean) @ transform.T) ** 2, axis=-1) / 2 + rows @ other - mean @ other / 2
        if isinstance(kernel, K.Gaussian):
            row = row - np.sum(rows**2, axis=-1) / 2
        np.testing.assert_allclose(got, np.exp(log + row[:, None]) / np.sqrt(12), rtol=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize("kernel", [K.Softmax(scale=1.0), K.Gaussian()], ids=["softmax", "gaussian"])
def test_mean_and_variance(kernel):
    phi, draws = sharp(kernel), 10_000
    x, y = 0.5 * queries(4), 0.5 * keys(4)
    one = replace(phi, inner=replace(phi.inner, omega=P.Iid().draw(12 * draws, D, rng=5)))
    products = (one.query(x) * one.key(y)).reshape(4, draws, 12).sum(axis=-1) * draws  # M = 12, that many times
    np.testing.assert_allclose(phi.mean(x, y), kernel.pairs(x, y), rtol=1e-12)
    np.testing.assert_allclose(phi.bias(x, y), 0.0, atol=1e-12)
    z = (products.mean(axis=1) - kernel.pairs(x, y)) / (products.std(axis=1) / np.sqrt(draws))
    assert (np.abs(z) < 4.5).all(), z
    squares = (products - products.mean(axis=1, keepdims=True)) ** 2
    z = (squares.mean(axis=1) - phi.variance(x, y)) / (squares.std(axis=1) / np.sqrt(draws))
    assert (np.abs(z) < 4.5).all(), z


@pytest.mark.statistical
@pytest.mark.parametrize("projection", ["iid", "orthogonal", "antithetic", "sobol"])
def test_unbiased_under_every_projection_of_gaussian_rows(projection):
    certificate = ka.metrics.certify(sharp(projection=projection), redraws=100, rng=0)
    assert certificate.passed, str(certificate)


def test_balance():
    """Both covariances are one diagonal, of the singular values of the product of their roots."""
    found = balance(queries(), keys())
    np.testing.assert_allclose(found.query.T @ found.key, np.eye(D), atol=1e-12)
    np.testing.assert_allclose(found.query_mean, queries().mean(axis=0))
    q, k = shrunk(queries()), shrunk(keys())
    np.testing.assert_allclose(found.query @ q @ found.query.T, np.diag(found.variances), atol=1e-12)
    np.testing.assert_allclose(found.key @ k @ found.key.T, np.diag(found.variances), atol=1e-12)
    np.testing.assert_allclose(np.sort(found.variances), np.sort(np.linalg.eigvals(q @ k).real ** 0.5), rtol=1e-10)


def shrunk(rows):
    """The covariance of n rows and of one more, of their mean size along every axis."""
    covariance = np.cov(rows.T, bias=True)
    return (len(rows) * covariance + np.trace(covariance) / D * np.eye(D)) / (len(rows) + 1)


def log_second(tilt, g, h):
    """Mean logarithm of the second moment, less what nothing changes, for centred rows of these covariances."""
    p = np.diag(g @ shrunk(queries()) @ g.T) + np.diag(h @ shrunk(keys()) @ h.T)
    return np.sum(np.log(1 - 4 * tilt) - np.log(1 - 8 * tilt) / 2 + p / (1 - 8 * tilt))


def test_the_parameters_are_a_minimum():
    """Neither other tilts nor other transforms do better, near and far."""
    phi, rng = sharp(), np.random.default_rng(0)
    g, h, tilt = phi.query_transform, phi.key_transform, phi.inner.tilt
    least = log_second(tilt, g, h)
    for step in (1e-3, 1e-2, 0.1, 0.5):
        for _ in range(6):
            assert log_second(tilt * (1 + step * rng.standard_normal(D)).clip(0.1), g, h) > least
            turn = np.eye(D) + step * rng.standard_normal((D, D))
            assert log_second(tilt, turn @ g, np.linalg.inv(turn).T @ h) > least


def relative(phi, x, y):
    """Log of E t^2 / (E t)^2 of one term, over all pairs."""
    x, y = x[:, None], y[None]
    return np.log1p(phi.variance(x, y) * phi.num_features / phi.mean(x, y) ** 2)


def test_less_variance_than_the_symmetric_one_where_queries_and_keys_differ():
    x, y = queries(200), keys(200)
    for kernel in (K.Softmax(scale=1.0), K.Gaussian()):
        ours = sharp(kernel)
        symmetric = ka.random_features(kernel, D, 12, "favor_sharp", "iid", data=(queries(), keys()), rng=0)
        assert np.mean(relative(ours, x, y)) < np.mean(relative(symmetric, x, y)) - 0.5
        assert np.median(ours.variance(x[:, None], y[None])) < np.median(symmetric.variance(x[:, None], y[None]))


def test_a_shared_mean_costs_nothing():
    """All keys moved by one vector: relative variances stay as they are, those of the symmetric map grow."""
    rows = np.random.default_rng(3).standard_normal((400, D)) * 0.5
    still, moved = sharp(data=(rows, rows)), sharp(data=(rows, rows + 2.0))
    np.testing.assert_allclose(relative(moved, rows, rows + 2.0), relative(still, rows, rows), rtol=1e-7)
    symmetric = ka.random_features(K.Softmax(scale=1.0), D, 12, "favor_sharp", "iid", data=(rows, rows + 2.0), rng=0)
    assert np.mean(relative(symmetric, rows, rows + 2.0)) > np.mean(relative(moved, rows, rows + 2.0)) + 1.0


def test_no_gain_where_queries_and_keys_are_alike():
    """Of one law and mean 0 the two constructions are one, up to the row that shrinks covariances."""
    rows = np.concatenate([queries(4000), -queries(4000)])
    ours = sharp(data=rows)
    symmetric = ka.random_features(K.Softmax(scale=1.0), D, 12, "favor_sharp", "iid", data=rows, rng=0)
    x, y = rows[:30], rows[-30:]
    np.testing.assert_allclose(ours.variance(x, y), symmetric.variance(x, y), rtol=0.02)
    np.testing.assert_allclose(np.sort(ours.inner.tilt), np.sort(symmetric.tilt), rtol=5e-3)


def best_tilt(p):
    """FAVOR++, Likhosherstov et al. (2022): the tilt of the least variance at p, the mean of (x + y)^2."""
    return (1 - 2 * p - np.sqrt((2 * p + 1) ** 2 + 8 * p)) / 16


def test_other_estimators_are_shaped_by_pairs_of_a_query_and_a_key():
    q, k = queries() + 0.5, keys(300)
    sums = (q[:, None] + k).reshape(-1, q.shape[1]) * D**-0.25
    positive = ka.random_features(K.Softmax(), D, 12, "optimal_positive", data=(q, k), rng=0)
    assert positive.tilt == pytest.approx(best_tilt(np.mean(sums**2)))
    sharp = ka.random_features(K.Softmax(), D, 12, "favor_sharp", data=(q, k), rng=0)
    p, basis = np.linalg.eigh(sums.T @ sums / len(sums))
    np.testing.assert_allclose(sharp.tilt, best_tilt(p))
    np.testing.assert_allclose(np.abs(np.sum(sharp.basis * basis, axis=0)), 1)
    assert NAME in {choice.estimator for choice in ka.features.recommend((q, k), K.Softmax(), 12, rng=0).choices}


def test_rows_that_are_no_pair_stand_for_both():
    rows = queries()
    one, both = (ka.random_features(K.Softmax(), D, 8, NAME, data=data, rng=0) for data in (rows, (rows, rows)))
    assert one.fingerprint == both.fingerprint


def test_in_attention_saved_and_redrawn(tmp_path):
    phi = sharp(projection="orthogonal")
    q, k, v = arrays(4, (6, D), (9, D), (9, 3), dtype="float64")
    weights = phi.query(q) @ phi.key(k).T
    expected = weights @ v / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(ka.linear_attention(q, k, v, phi), expected, rtol=1e-9)
    out, _ = ka.causal_linear_attention(q, k[:6], v[:6], phi)
    np.testing.assert_allclose(out[-1], ka.linear_attention(q, k[:6], v[:6], phi)[-1], rtol=1e-9)
    reloaded(phi, tmp_path, k)
    other = phi.redraw(3)
    assert other.fingerprint != phi.fingerprint
    np.testing.assert_array_equal(other.query_transform, phi.query_transform)


def test_no_norm_overflows():
    phi = sharp()
    for features in (phi.scaled_query(1e4 * queries(3)), phi.scaled_key(1e4 * keys(3))):
        assert np.isfinite(features.values).all()
        assert np.isfinite(features.log_scale).all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_library(kind):
    phi, (x,) = sharp(), arrays(4, (6, D))
    got = phi.key(kind.asarray(x))
    np.testing.assert_allclose(to_numpy(got), phi.key(x), rtol=1e-4)
    assert "float32" in str(got.dtype)


def test_how_many_features():
    """The inner map's number, for its errors times the row factors."""
    phi, (x, y) = sharp(), (0.3 * queries(1), 0.3 * keys(1))
    number = phi.num_features_for(x, y, error=0.2, probability=0.9)
    large = ka.random_features(K.Softmax(scale=1.0), D, number, NAME, "iid", data=(queries(), keys()), rng=0)
    assert large.variance(x, y)[0] / 0.2**2 <= 0.1 * (1 + 1e-9)
    less = ka.random_features(K.Softmax(scale=1.0), D, number - 1, NAME, "iid", data=(queries(), keys()), rng=0)
    assert less.variance(x, y)[0] / 0.2**2 > 0.1


def refused(error, *words):
    return pytest.raises(error, match=".*".join(re.escape(str(word)) for word in words))


def test_refusals_before_any_draw():
    source = np.random.default_rng(0)
    before = source.bit_generator.state

    def make(kernel, projection="iid", data=None):
        return ka.random_features(kernel, D, 12, NAME, projection, data, source)

    with refused(errors.ParameterError, "data must be given", NAME):
        make(K.Softmax())
    with refused(errors.ParameterError, "estimator must be", "Matern"):
        make(K.Matern(), data=(queries(), keys()))
    for projection in (P.Orthogonal(norms="sqrt_d"), P.MomentMatched()):
        with refused(errors.ParameterError, "N(0, I)", NAME):
            make(K.Softmax(), projection, (queries(), keys()))
    with refused(errors.ParameterError, "queries of data must not all be equal"):
        make(K.Softmax(), data=(np.ones((3, D)), keys()))
    with refused(errors.ParameterError, "keys of data must not all be equal"):
        make(K.Softmax(), data=(queries(), keys(1)))
    with refused(errors.ParameterError, "a pair (queries, keys)", "tuple of 3"):
        make(K.Softmax(), data=(queries(), keys(), keys()))
    with refused(errors.ShapeError, "keys of data must be (n, d = 4)", "(5, 3)"):
        make(K.Softmax(), data=(queries(), np.ones((5, 3))))
    with refused(errors.ParameterError, "queries of data must be finite"):
        make(K.Softmax(), data=(queries() * np.nan, keys()))
    with refused(errors.ShapeError, "as many columns", "(400, 3)"):
        ka.features.recommend((queries(), keys()[:, :3]), K.Softmax(), 12, rng=0)
    with refused(errors.EmptyInputError, "keys of data must have rows"):
        make(K.Softmax(), data=(queries(), keys()[:0]))
    assert source.bit_generator.state == before
    with refused(errors.NoClosedForm, "with projection 'iid' there is one"):
        sharp(projection="orthogonal").variance(queries(1), keys(1))
    with refused(errors.ShapeError, "query_mean must be of shape (4,)"):
        replace(sharp(), query_mean=np.zeros(3))
    with refused(errors.ParameterError, "inverse of query_transform"):
        replace(sharp(), query_transform=2 * np.eye(D))
