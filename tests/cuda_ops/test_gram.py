"""The kernel `gram` on the emulation against the sums as written."""

import numpy as np
import pytest

from cuda_ops.cases import DTYPES, OPERAND_EPS, array, features_of, specs, to64
from kernattn.ops._cuda import runtime
from kernattn.ops._cuda.maps import map_code

CASES = [(kind, "float32") for kind in ("exp_pair", "sincos", "elementwise", None)] + [("exp", x) for x in DTYPES[1:]]


@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_gram(cupy, monkeypatch, kind, dtype):
    from kernattn.ops.gram import gpu

    rng = np.random.default_rng(0)
    spec = None if kind is None else specs(rng, kind, 5, 37)
    for n, c, room in ((70, 35, gpu.ROOM), (3, 0, gpu.ROOM), (150, 3, 40_000), (1, 1, 1)):
        monkeypatch.setattr(gpu, "ROOM", room)
        x, y = (array(cupy, 0.5 * rng.normal(size=(2, n, columns)), dtype) for columns in (5, c))
        phi = to64(x) if spec is None else features_of(to64(x), spec).values
        outer, moment = gpu.gram(x, y, spec, False)
        eps = (4 * OPERAND_EPS[dtype] + (2.0**-20 if dtype != "float64" else 0)) * n
        assert outer.dtype == moment.dtype == ("float64" if dtype == "float64" else "float32")
        np.testing.assert_allclose(
            to64(outer), np.swapaxes(phi, -1, -2) @ phi, rtol=eps, atol=eps * np.abs(phi).max() ** 2
        )
        wanted = np.swapaxes(phi, -1, -2) @ to64(y)
        np.testing.assert_allclose(to64(moment), wanted, rtol=eps, atol=eps * np.abs(phi).max() * 3)
        np.testing.assert_array_equal(to64(outer), np.swapaxes(to64(outer), -1, -2))


@pytest.mark.parametrize(("dtype", "frequencies", "kind"), [("bfloat16", 150, "exp"), ("float64", 70, None)])
def test_many_tiles_and_parts(cupy, dtype, frequencies, kind):
    """More features than a tile has, and more rows than a part."""
    from kernattn.ops.gram.gpu import gram, launch

    rng = np.random.default_rng(1)
    spec = None if kind is None else specs(rng, kind, 6, frequencies)
    n = 1100
    x, y = (array(cupy, 0.3 * rng.normal(size=(n, c)), dtype) for c in (6 if spec else frequencies, 2))
    phi = to64(x) if spec is None else features_of(to64(x), spec).values
    limits = runtime.limits()
    how = launch(1, n, frequencies, 2, map_code(dtype, spec, False, x.shape[-1], limits), limits)
    assert how.parts > 1
    assert how.slots > how.side
    for got, right in zip(gram(x, y, spec, False), (phi, to64(y)), strict=True):
        wanted = phi.T @ right
        eps = (4 * OPERAND_EPS[dtype]) * np.sqrt(n)
        np.testing.assert_allclose(to64(got), wanted, atol=4 * eps * np.abs(phi).max() * np.abs(right).max())


@pytest.mark.parametrize("kind", ["exp", None])
def test_sums_in_float64(cupy, kind):
    from kernattn.ops.gram.gpu import gram

    rng = np.random.default_rng(2)
    spec = None if kind is None else specs(rng, kind, 5, 20)
    x, y = (array(cupy, 0.5 * rng.normal(size=(2, 70, c)), "float32") for c in (5, 2))
    phi = to64(x) if spec is None else features_of(to64(x), spec).values
    for got, right in zip(gram(x, y, spec, True), (phi, to64(y)), strict=True):
        assert got.dtype == "float64"
        wanted = np.swapaxes(phi, -1, -2) @ right
        np.testing.assert_allclose(
            to64(got), wanted, rtol=0, atol=(1e-14 if spec is None else 1e-6) * np.abs(wanted).max() * 4
        )
