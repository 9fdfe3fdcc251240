"""float32 rounds its products only inside `precision("tf32")`, on the emulation: near the oracle, and not the same."""

import numpy as np
import pytest

import kernattn as ka
import oracles
from cuda_ops.cases import OPERAND_EPS, array, assert_close, features_of, specs, to64
from kernattn.ops._cuda import runtime
from kernattn.ops._cuda.maps import map_code, operand
from seam import MapSpec


def differs(rounded, plain):
    """As tf32 does from float32: beyond the rounding of float32, and not beyond that of tf32."""
    a, b = to64(rounded), to64(plain)
    return np.abs(a - b).max() > 2.0**-18 * np.abs(b).max()


@pytest.mark.parametrize(
    "kind", ["exp", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("elementwise", "sincos"))]
)
def test_attention(cupy, kind):
    from kernattn.ops.attend.gpu import attend
    from kernattn.ops.causal.gpu import causal
    from kernattn.ops.key_state.gpu import key_state

    rng = np.random.default_rng(0)
    n, d, e = 70, 15, 9
    spec = specs(rng, kind, d, 37)
    q, k, v = (array(cupy, rng.normal(size=(2, n, c)), "float32") for c in (d, d, e))

    def run():
        return causal(q, k, v, spec, spec, None, None, None, False)[0], attend(
            key_state(k, v, spec, None), q, spec, v.dtype, False
        )[0]

    plain = run()
    with ka.precision("tf32"):
        rounded = run()
    for out, may in zip(rounded, (oracles.allowed(n, n, causal=True), None), strict=True):
        assert_close(out, q, k, v, spec, "float16", may)  # whose products are tf32 ones too
    assert all(map(differs, rounded, plain))
    for again, before in zip(run(), plain, strict=True):
        np.testing.assert_array_equal(to64(again), to64(before))


@pytest.mark.parametrize("kind", ["exp", pytest.param("sincos", marks=pytest.mark.slow)])
def test_features_and_their_sums(cupy, kind):
    from kernattn.ops.features.gpu import features
    from kernattn.ops.gram.gpu import gram

    rng = np.random.default_rng(1)
    spec = specs(rng, kind, 15, 37)
    x, y = (array(cupy, rng.normal(size=(70, c)), "float32") for c in (15, 3))
    plain = features(x, spec), *gram(x, y, spec, False)
    with ka.precision("tf32"):
        rounded = features(x, spec), *gram(x, y, spec, False)
    assert all(map(differs, rounded, plain))
    wanted = features_of(to64(x), spec)
    phi, size = wanted.values, np.exp(wanted.size) + np.zeros_like(wanted.values)
    eps = OPERAND_EPS["float16"] * (4 + oracles.reach(to64(x), spec.omega, spec.row_weights, spec.offset))
    for got, wanted, scale in (
        (rounded[0], phi, size),
        (rounded[1], phi.T @ phi, size.T @ size),
        (rounded[2], phi.T @ to64(y), size.T @ np.abs(to64(y))),
    ):
        assert (np.abs(to64(got) - wanted) <= 2 * eps * np.max(scale)).all()


def test_exact_attention(cupy):
    q, k, v = (array(cupy, x, "float32") for x in np.random.default_rng(2).normal(size=(3, 2, 70, 15)))
    plain = ka.softmax_attention(q, k, v, causal=True, backend="gpu")
    with ka.precision("tf32"):
        rounded = ka.softmax_attention(q, k, v, causal=True, backend="gpu")
    assert differs(rounded, plain)
    may = oracles.allowed(70, 70, causal=True)
    wanted, _ = oracles.softmax_attention(*map(to64, (q, k, v)), may=may)
    np.testing.assert_allclose(to64(rounded), wanted, atol=8 * OPERAND_EPS["float16"] * np.abs(to64(v)).max())


@pytest.mark.parametrize("capability", [70, 75, 80, 90])
def test_who_rounds(capability):
    new = capability >= 80
    rounded = {"float64": "double", "float32": "tf32_t" if new else "float"}
    with ka.precision("tf32"):
        assert {dtype: operand(dtype, capability) for dtype in rounded} == rounded
        with ka.precision("float32"):
            assert operand("float32", capability) == "float"
        assert operand("float16", capability) == rounded["float32"]
    assert operand("float32", capability) == "float"
    assert operand("bfloat16", capability) == ("bf16_t" if new else "float")


def test_frequencies_keep_their_precision():
    """They are multiplied in two parts."""
    limits = runtime.Limits(90, 232448, 132)
    spec = MapSpec("exp", np.zeros((8, 16)))
    with ka.precision("tf32"):
        code = map_code("float32", spec, True, 16, limits)
    assert code.split
    assert not map_code("float32", spec, True, 16, limits).split
