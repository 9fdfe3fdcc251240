"""FAVOR#: unbiased, its variance in closed form, and never above that of the isotropic optimum on the data."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import NoClosedForm, ParameterError, ShapeError
from laws import arrays
from saved import reloaded

K, P = ka.kernels, ka.projections
D = 5


def anisotropic(rows=400, scales=(1.6, 0.8, 0.4, 0.2, 0.1)):
    rng = np.random.default_rng(1)
    rotation = np.linalg.qr(rng.standard_normal((D, D)))[0]
    return (rng.standard_normal((rows, D)) * scales + 0.1) @ rotation


def sharp(kernel=None, projection="iid", number=12, data=None):
    data = anisotropic() if data is None else data
    return ka.random_features(kernel or K.Softmax(scale=1.0), D, number, "favor_sharp", projection, data=data, rng=0)


@pytest.mark.parametrize("kernel", [K.Softmax(), K.Gaussian((0.5, 1.0, 2.0, 3.0, 1.5))], ids=["softmax", "ard"])
def test_the_formula_as_written(kernel):
    """phi = m^(-1/2) det(I - 4A)^(1/4) exp(w'Aw + w'Bx - (1 - c)|x'|^2), with A and B dense matrices."""
    phi = sharp(kernel)
    x = arrays(3, (7, D), dtype="float64")[0]
    scaled, c = x * kernel.input_scale(D), 0.5 if isinstance(kernel, K.Softmax) else 0.0
    a = np.diag(phi.tilt)
    b = np.sqrt(np.eye(D) - 4 * a) @ phi.basis.T
    np.testing.assert_allclose(b.T @ np.linalg.inv(np.eye(D) - 4 * a) @ b, np.eye(D), atol=1e-12)
    log = np.einsum("mi,ij,mj->m", phi.omega, a, phi.omega) + scaled @ b.T @ phi.omega.T
    log += np.log(np.linalg.det(np.eye(D) - 4 * a)) / 4 - (1 - c) * np.sum(scaled**2, axis=-1, keepdims=True)
    np.testing.assert_allclose(phi(x), np.exp(log) / np.sqrt(12), rtol=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize("kernel", [K.Softmax(scale=1.0), K.Gaussian()], ids=["softmax", "gaussian"])
def test_mean_and_variance(kernel):
    phi, draws = sharp(kernel), 10_000
    x, y = 0.35 * anisotropic(6)[:3], 0.35 * anisotropic(6)[3:]
    one = phi.redraw(2)
    one = replace(one, omega=P.Iid().draw(12 * draws, D, rng=5))
    products = (one(x) * one(y)).reshape(3, draws, 12).sum(axis=-1) * draws  # M = 12, that many times
    z = (products.mean(axis=1) - kernel.pairs(x, y)) / (products.std(axis=1) / np.sqrt(draws))
    assert (np.abs(z) < 4.5).all(), z
    np.testing.assert_allclose(phi.mean(x, y), kernel.pairs(x, y), rtol=1e-12)
    squares = (products - products.mean(axis=1, keepdims=True)) ** 2
    z = (squares.mean(axis=1) - phi.variance(x, y)) / (squares.std(axis=1) / np.sqrt(draws))
    assert (np.abs(z) < 4.5).all(), z


@pytest.mark.statistical
@pytest.mark.parametrize("projection", ["iid", "orthogonal", "simplex", "antithetic", "sobol"])
def test_unbiased_under_every_projection_of_gaussian_rows(projection):
    certificate = ka.metrics.certify(sharp(projection=projection), redraws=100, rng=0)
    assert certificate.passed, str(certificate)


@pytest.mark.statistical
def test_variance_of_antithetic_pairs():
    phi, draws = sharp(projection=P.Antithetic(P.Iid()), number=12), 20_000
    x, y = 0.35 * anisotropic(6)[:3], 0.35 * anisotropic(6)[3:]
    half = P.Iid().draw(6 * draws, D, rng=5).reshape(draws, 6, D)
    one = replace(phi, omega=np.concatenate([half, -half], axis=1).reshape(-1, D))
    products = (one(x) * one(y)).reshape(3, draws, 12).sum(axis=-1) * draws
    squares = (products - products.mean(axis=1, keepdims=True)) ** 2
    z = (squares.mean(axis=1) - phi.variance(x, y)) / (squares.std(axis=1) / np.sqrt(draws))
    assert (np.abs(z) < 4.5).all(), z


DEPENDENT = [P.Orthogonal(), P.Orthogonal(norms="coupled"), P.Simplex(), P.Antithetic(P.Orthogonal())]


@pytest.mark.parametrize("projection", DEPENDENT, ids=str)
def test_variance_where_all_tilts_are_one_number(projection):
    """That of optimal positive features: the law of dependent rows does not see the basis."""
    x, y = 0.35 * anisotropic(8)[:4], 0.35 * anisotropic(8)[4:]
    for kernel in (K.Softmax(scale=1.0), K.Gaussian()):
        for tilt in (-0.3, 0.0, 0.05):
            phi = replace(sharp(kernel, projection), tilt=np.full(D, tilt))
            one = ka.random_features(kernel, D, 12, "optimal_positive", projection, rng=0)
            np.testing.assert_allclose(phi.variance(x, y), replace(one, tilt=tilt).variance(x, y), rtol=1e-9)
    rows = np.concatenate([np.eye(D), -np.eye(D)])
    assert (sharp(projection=projection, data=rows).variance(x, y) > 0).all()


@pytest.mark.statistical
@pytest.mark.parametrize("projection", [P.Orthogonal(), P.Simplex()], ids=str)
def test_variance_of_dependent_rows(projection):
    draws = 20_000
    phi = replace(sharp(projection=projection, number=D), tilt=np.full(D, -0.2))
    x, y = 0.35 * anisotropic(6)[:3], 0.35 * anisotropic(6)[3:]
    many = replace(phi, omega=projection.draw(D * draws, D, rng=5))
    products = (many(x) * many(y)).reshape(3, draws, D).sum(axis=-1) * draws
    squares = (products - products.mean(axis=1, keepdims=True)) ** 2
    z = (squares.mean(axis=1) - phi.variance(x, y)) / (squares.std(axis=1) / np.sqrt(draws))
    assert (np.abs(z) < 4.5).all(), z
    iid = replace(phi, projection=P.Iid())
    assert (phi.variance(x, y) < iid.variance(x, y)).all()


def log_seconds(phi, data):
    x, y = data[:, None], data[None]
    return np.log(phi.variance(x, y) * len(phi.omega) + phi.mean(x, y) ** 2)


def test_better_than_the_isotropic_optimum_on_anisotropic_data():
    data = anisotropic()
    for kernel in (K.Softmax(scale=1.0), K.Gaussian()):
        isotropic = ka.random_features(kernel, D, 12, "optimal_positive", "iid", data=data, rng=0)
        ours = sharp(kernel, data=data)
        assert np.mean(log_seconds(ours, data)) < np.mean(log_seconds(isotropic, data)) - 0.5
        x, y = data[:, None], data[None]
        assert np.median(ours.variance(x, y)) < np.median(isotropic.variance(x, y))
        assert np.mean(ours.variance(x, y)) < np.mean(isotropic.variance(x, y))


def test_equal_on_isotropic_data():
    rows = np.concatenate([np.eye(D), -np.eye(D)])
    kernel = K.Softmax(scale=1.0)
    isotropic = ka.random_features(kernel, D, 12, "optimal_positive", "iid", data=rows, rng=0)
    ours = sharp(kernel, data=rows)
    np.testing.assert_allclose(ours.tilt, isotropic.tilt, rtol=1e-12)
    np.testing.assert_allclose(ours.variance(rows, rows[::-1]), isotropic.variance(rows, rows[::-1]), rtol=1e-10)


def test_the_parameters_are_a_minimum():
    """Neither other tilts nor another basis have a smaller expected log second moment."""
    data, rng = anisotropic(60), np.random.default_rng(0)
    phi = sharp(data=data)
    least = np.mean(log_seconds(phi, data))
    for step in (1e-3, 1e-2):
        for _ in range(4):
            assert np.mean(log_seconds(replace(phi, tilt=phi.tilt * (1 + step * rng.standard_normal(D))), data)) > least
            turned = np.linalg.qr(phi.basis + step * rng.standard_normal((D, D)))[0]
            assert np.mean(log_seconds(replace(phi, basis=turned), data)) > least


def test_in_attention_saved_and_redrawn(tmp_path):
    phi = sharp(projection="orthogonal")
    q, k, v = arrays(4, (6, D), (9, D), (9, 3), dtype="float64")
    weights = phi(q) @ phi(k).T
    np.testing.assert_allclose(
        ka.linear_attention(q, k, v, phi), weights @ v / weights.sum(axis=1, keepdims=True), rtol=1e-9
    )
    reloaded(phi, tmp_path)
    other = phi.redraw(3)
    assert other.fingerprint != phi.fingerprint
    np.testing.assert_array_equal(other.tilt, phi.tilt)


def test_refusals():
    with pytest.raises(ParameterError, match="data must be given"):
        ka.random_features(K.Softmax(), D, 8, "favor_sharp", rng=0)
    with pytest.raises(ParameterError, match=r"N\(0, I\)"):
        sharp(projection=P.Orthogonal(norms="sqrt_d"))
    with pytest.raises(ParameterError, match="estimator must be"):
        ka.random_features(K.Matern(), D, 8, "favor_sharp", data=anisotropic(), rng=0)
    with pytest.raises(NoClosedForm, match="iid"):
        sharp(projection="orthogonal").variance(np.ones((1, D)), np.ones((1, D)))
    with pytest.raises(ParameterError, match="1/8"):
        replace(sharp(), tilt=np.full(D, 0.2))
    with pytest.raises(ShapeError, match="basis"):
        replace(sharp(), basis=np.eye(D - 1))


def test_auto_leaves_it_out_where_norms_are_constant():
    phi = ka.random_features(K.Softmax(scale=1.0), D, 12, projection=P.Iid("sqrt_d"), data=anisotropic(), rng=0)
    assert not isinstance(phi, ka.features.DenseExponential)
