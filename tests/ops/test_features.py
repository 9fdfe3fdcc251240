"""The features op: the formulas of MapSpec."""

import numpy as np
import pytest

import oracles
from kernattn.ops.features.reference import features, scaled
from kernattn.ops.features_vjp.reference import features_vjp
from laws import arrays
from seam import KINDS, MapSpec
from xp import dtype_name, to_numpy

TOLERANCE = {"float16": 4e-3, "bfloat16": 4e-2, "float32": 3e-6, "float64": 1e-14}


def specs():
    rng = np.random.default_rng(0)
    omega, weights = rng.standard_normal((6, 3)), -0.2 * rng.random(3)
    for kind, row in KINDS.items():
        offset = rng.standard_normal(6 * row.parts) if row.offset != "none" else None
        rows = weights if row.scale != "none" else None
        yield f"{kind} full", MapSpec(kind, omega, rows, offset, 0.7)
        yield f"{kind} plain", MapSpec(kind, omega)
        yield f"{kind} elementwise", MapSpec(kind, amplitude=1.3)


SPECS = dict(specs())


@pytest.mark.parametrize("name", SPECS)
def test_formula(name, xp):
    spec = SPECS[name]
    both = xp.whole(lambda x: (features(x, spec), scaled(x, spec)))
    for dtype in xp.dtypes:
        (x,) = arrays(1, (2, 5, 3), dtype=dtype)
        with xp.wide():
            got, (values, log_scale) = both(xp.asarray(x))
            assert xp.holds(got)
            assert dtype_name(got) == dtype
            assert dtype_name(values) == dtype_name(log_scale) == ("float64" if dtype == "float64" else "float32")
            wanted = oracles.from_spec(
                to_numpy(x), spec.kind, spec.omega, spec.row_weights, spec.offset, spec.amplitude
            ).values
            bound = TOLERANCE[dtype] * max(1.0, np.abs(wanted).max())
            np.testing.assert_allclose(to_numpy(got), wanted, atol=bound, rtol=TOLERANCE[dtype], err_msg=dtype)
            fine = TOLERANCE["float64" if dtype == "float64" else "float32"]
            product = to_numpy(values) * np.exp(to_numpy(log_scale))
            np.testing.assert_allclose(product, wanted, rtol=4 * fine, atol=4 * fine, err_msg=dtype)
    assert spec.num_features_of(3) == wanted.shape[-1]
    assert spec.dim == (None if spec.omega is None else 3)


def test_no_axis_but_rows(xp):
    """A row alone is the same as among others."""
    (x,) = arrays(2, (4, 3))
    for spec in list(SPECS.values())[:: 7 if xp.name == "jax" else 1]:  # JAX compiles for each
        run = xp.whole(lambda x, spec=spec: features(x, spec))
        whole, alone = (to_numpy(run(xp.asarray(rows))) for rows in (x, x[2:3]))
        np.testing.assert_allclose(alone[0], whole[2], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("octaves", [-140, -100, -17, 17, 120])
@pytest.mark.parametrize("kind", [kind for kind, row in KINDS.items() if row.homogeneous])
def test_rows_of_any_size_keep_their_digits(kind, octaves):
    """A factor of the row comes out of homogeneous features: their values are the same, bit for bit."""
    spec = SPECS[f"{kind} plain"]
    x = np.random.default_rng(3).integers(-255, 256, (5, 3)).astype(np.float32) / 256
    values, log_scale = scaled(x, spec)
    far, far_log_scale = scaled(np.ldexp(x, octaves), spec)
    moved = far_log_scale / np.log(2) + np.log2(far.max(-1, keepdims=True) / values.max(-1, keepdims=True))
    np.testing.assert_allclose(moved, octaves + log_scale / np.log(2), rtol=1e-6)
    np.testing.assert_array_equal(far / far.max(-1, keepdims=True), values / values.max(-1, keepdims=True))
    assert (far.max(-1) > 2.0**-17).all()


@pytest.mark.parametrize("kind", ["elu1", "relu"])
def test_slopes_at_a_kink_are_those_of_the_pullback(kind):
    """Also where a framework differentiates the array operations: its max(u, 0) has half of a slope at 0."""
    torch, spec = pytest.importorskip("torch"), SPECS[f"{kind} plain"]
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    phi = features(x, spec)
    (slope,) = torch.autograd.grad(phi.sum(), x)
    np.testing.assert_allclose(slope, features_vjp(np.zeros((2, 3)), spec, np.ones(tuple(phi.shape)), False).x)
