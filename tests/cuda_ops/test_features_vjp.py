"""The kernel `features_vjp` on the emulation against array operations in float64."""

from dataclasses import replace

import numpy as np
import pytest

from cuda_ops.cases import array, specs
from cuda_ops.pullbacks import CASES, agree, wide
from kernattn.ops.features_vjp import reference
from seam import QuadraticForm


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_features_vjp(cupy, kind, dtype):
    from kernattn.ops.features_vjp.gpu import features_vjp

    for seed, (n, d, frequencies) in enumerate([(330, 5, 37), (3, 70, 16)]):
        rng = np.random.default_rng(seed)
        spec = specs(rng, kind, d, frequencies)
        x = array(cupy, 0.5 * rng.normal(size=(2, n, d)), dtype)
        g = array(cupy, rng.normal(size=(2, n, spec.num_features_of(d))), dtype)
        found = features_vjp(x, spec, g, True)
        assert found.x.dtype == x.dtype
        wanted = reference.features_vjp(wide(x), spec, wide(g), True)
        agree(found, wanted, dtype, 2.0)
        np.testing.assert_array_equal(features_vjp(x, spec, g, False).x.get(), found.x.get())


@pytest.mark.slow
def test_a_quadratic_form(cupy):
    from kernattn.ops.features_vjp.gpu import features_vjp

    rng = np.random.default_rng(2)
    form = QuadraticForm(rng.normal(size=(3, 5)), rng.normal(size=5), rng.normal(size=5))
    spec = replace(specs(rng, "exp", 5, 20), row_form=form)
    x, g = (array(cupy, 0.5 * rng.normal(size=(40, c)), "float32") for c in (5, 20))
    agree(features_vjp(x, spec, g, True), reference.features_vjp(wide(x), spec, wide(g), True), "float32")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["exp", "exp_pair"])
def test_features_over_their_sum(cupy, kind):
    """Cotangents pass through the sum too, to omega and to offsets."""
    from kernattn.ops.features_vjp.gpu import features_vjp

    rng = np.random.default_rng(3)
    spec = replace(specs(rng, kind, 5, 20), row_weights=None, normalised=True)
    x = array(cupy, 0.5 * rng.normal(size=(40, 5)), "float32")
    g = array(cupy, rng.normal(size=(40, spec.num_features_of(5))), "float32")
    found = features_vjp(x, spec, g, True)
    agree(found, reference.features_vjp(wide(x), spec, wide(g), True), "float32")
    assert found.row_weights is None
