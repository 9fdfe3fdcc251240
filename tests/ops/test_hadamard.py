"""Chains of Hadamard transforms against SciPy's matrix."""

import numpy as np
import pytest
from scipy.linalg import hadamard as sylvester

from kernattn.ops.chains import Chains
from kernattn.ops.hadamard import OP, reference
from kernattn.ops.kinds import KINDS
from kernattn.ops.spec import MapSpec
from xp import to_numpy

SIZES = [(1, 1), (2, 5), (3, 4), (5, 20), (16, 16), (33, 100)]  # d, m


def chain(d, m, seed=0):
    """Chains, and the dense matrix that they make up."""
    rng = np.random.default_rng(seed)
    p = 1 << (d - 1).bit_length()
    diagonals = rng.choice([-1.0, 1.0], (-(-m // p), 3, p))
    diagonals[:, 0] *= rng.uniform(0.5, 2, p)  # an input scale
    norms = rng.uniform(0.5, 1.5, m)
    h = sylvester(p) / np.sqrt(p)
    blocks = [h @ np.diag(a[2]) @ h @ np.diag(a[1]) @ h @ np.diag(a[0]) for a in diagonals]
    return Chains(diagonals, norms, d), norms[:, None] * np.concatenate(blocks)[:m, :d]


def spec_of(kind, omega, d, m):
    rng = np.random.default_rng(1)
    features = 2 * m if kind in ("sincos", "exp_pair") else m
    weights = None if kind in ("elu1", "relu") else rng.uniform(-0.2, 0.2, d) / d
    return MapSpec(
        kind, omega, weights, rng.uniform(-1, 1, features) if kind in ("cos", "exp", "exp_pair") else None, 0.7
    )


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_reference_is_the_matrix(size, xp):
    d, m = size
    chains, omega = chain(d, m)
    x = np.random.default_rng(2).standard_normal((2, 7, d))
    with xp.wide():
        u = reference.hadamard(xp.asarray(x), chains, None)
        assert xp.holds(u)
    np.testing.assert_allclose(to_numpy(u), x @ omega.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", [None, *KINDS])
def test_implementations_agree_with_the_dense_map(kind, size, dtype):
    from kernattn.ops.features import reference as features

    d, m = size
    chains, omega = chain(d, m)
    x = (0.5 * np.random.default_rng(3).standard_normal((3, 19, d))).astype(dtype)
    wide = x.astype("f8")
    wanted = wide @ omega.T if kind is None else features.features(wide, spec_of(kind, omega, d, m))
    spec = None if kind is None else spec_of(kind, None, d, m)
    tolerance = {"float16": 2e-3, "float32": 4e-6, "float64": 1e-13}[dtype] * np.abs(wanted).max()
    for backend in ("reference", None):
        got = OP.implementation(x, backend)(x, chains, spec)
        assert got.dtype == x.dtype
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)
