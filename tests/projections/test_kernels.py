"""Every projection with the kernels that it makes sense for, and which closed forms there are."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from saved import reloaded
from structured import CLOSED, SPECS, UNIFORM, z_score

P = ka.projections

KERNELS = [ka.kernels.Gaussian(0.9), ka.kernels.Matern(1.5), ka.kernels.RationalQuadratic(0.8)]


@pytest.mark.statistical
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("name", ["antithetic", "fastfood", "halton", "simplex", "sobol"])
def test_isotropic_kernels_are_unbiased(name, kernel):
    phi = ka.random_features(kernel, 4, 32, "phase", name, rng=0)
    x, y = np.zeros((2, 4)), np.array([[0.9, 0.0, 0.1, 0.0], [0.5, 0.5, -0.4, 0.5]])
    rng = np.random.default_rng(3)
    maps = (phi.redraw(rng) for _ in range(80))
    samples = np.stack([np.sum(each(x) * each(y), axis=-1) for each in maps])
    assert np.abs(z_score(samples, kernel.pairs(x, y))).max() < 4.5
    np.testing.assert_allclose(phi.bias(x, y), 0.0, atol=1e-12)


@pytest.mark.parametrize("name", P.PROJECTIONS)
def test_maps_with_every_projection(name, tmp_path):
    kernel, x = ka.kernels.Softmax(), np.random.default_rng(0).standard_normal((30, 6))
    phi = ka.random_features(kernel, 6, 16, projection=name, data=x, rng=2)
    assert reloaded(phi, tmp_path, x).projection == phi.projection == P.PROJECTIONS[name]()
    ka.random_features(ka.kernels.ArcCosine(1), 6, 16, projection=name, rng=0)
    ka.features.generalized("relu", 6, 16, projection=name, rng=0)


@pytest.mark.parametrize("name", SPECS)
def test_what_has_a_closed_form(name):
    x = np.ones((2, 6)) / 4
    phi = ka.random_features(ka.kernels.Softmax(), 6, 16, "positive", SPECS[name], rng=0)
    if name in UNIFORM:
        phi.mean(x, x)
    else:
        with pytest.raises(errors.NoClosedForm, match="uniform only as"):
            phi.mean(x, x)
    if name in CLOSED:
        phi.variance(x, x)
    else:
        with pytest.raises(errors.NoClosedForm, match="no closed form is known for the variance with"):
            phi.variance(x, x)
