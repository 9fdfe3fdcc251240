"""The kernel `hadamard` on the emulation against the dense matrix that its chains make up."""

import numpy as np
import pytest
import scipy.linalg

import oracles
from cuda_ops.cases import DTYPES, OPERAND_EPS, array, to64
from seam import KINDS, Chains, MapSpec

CASES = [(kind, "float32") for kind in ("exp", "sincos", "cos", "relu", "exp_pair", None)]
CASES += [("exp", dtype) for dtype in DTYPES[1:]]


def dense(diagonals, norms, d):
    """Omega (m, d)."""
    p = diagonals.shape[-1]
    h = scipy.linalg.hadamard(p) / np.sqrt(p)
    blocks = []
    for links in diagonals:
        matrix = np.eye(p)
        for diagonal in links:
            matrix = h @ (diagonal[:, None] * matrix)
        blocks.append(matrix)
    return (np.concatenate(blocks)[: len(norms)] * norms[:, None])[:, :d]


@pytest.mark.parametrize(("kind", "dtype"), CASES)
@pytest.mark.parametrize("room", [232_448, 256])
def test_hadamard(cupy, device_with, kind, dtype, room):
    from kernattn.ops.hadamard.gpu import chain_features

    device_with(room)
    for seed, (n, d, p, links, m) in enumerate([(5, 5, 8, 3, 20), (3, 30, 32, 1, 32), (2, 3, 1024, 2, 1024)]):
        if room == 256 and p != 8:
            continue
        rng = np.random.default_rng(seed)
        diagonals, norms = rng.choice([-1.0, 1.0], size=(-(-m // p), links, p)), rng.random(m) + 0.5
        x = array(cupy, rng.normal(size=(2, n, d)), dtype)
        omega = dense(diagonals, norms, d)
        row = KINDS.get(kind)
        offset = rng.normal(size=row.parts * m) if row is not None and row.offset != "none" else None
        weights = rng.normal(size=d) * 0.1
        spec = None if kind is None else MapSpec(kind, None, weights, offset, 0.7)
        out = chain_features(x, Chains(diagonals, norms, d), spec)
        assert out.dtype == x.dtype
        wanted = (
            to64(x) @ omega.T if kind is None else oracles.from_spec(to64(x), kind, omega, weights, offset, 0.7).values
        )
        rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype, OPERAND_EPS[dtype])
        eps = rounding + (2.0**-20 if dtype != "float64" else 2.0**-46) * np.abs(to64(x) @ omega.T).max()
        np.testing.assert_allclose(to64(out), wanted, rtol=eps, atol=eps * np.abs(wanted).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensor_srht(cupy, monkeypatch, dtype):
    """The sketch whose every factor is a chain of one transform, from the map down."""
    import kernattn as ka
    from kernattn.features._polynomial.sketches import tensor_srht

    monkeypatch.setattr(tensor_srht, "FASTER_ABOVE", {"gpu": 0})
    phi = ka.random_features(ka.kernels.Polynomial(3, coef0=0.5), 5, 20, "tensor_srht", rng=0)
    x = array(cupy, np.random.default_rng(0).normal(size=(2, 7, 5)), dtype)
    out = phi(x)
    assert isinstance(out, cupy.ndarray)
    assert out.dtype == x.dtype
    rows = np.concatenate([to64(x), np.full((2, 7, 1), 0.5**0.5)], axis=-1)
    wanted = np.prod(np.einsum("bnd,pmd->bpnm", rows, phi.omega), axis=1) / np.sqrt(20)
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-20, "float64": 2.0**-46}[dtype]
    np.testing.assert_allclose(to64(out), wanted, rtol=0, atol=eps * np.abs(wanted).max())
