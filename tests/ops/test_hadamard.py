"""Chains of Hadamard transforms against SciPy's matrix."""

import numpy as np
import pytest
from scipy.linalg import hadamard as sylvester

from kernattn.ops.features import OP as FEATURES
from kernattn.ops.features.crossover import FASTER_ABOVE
from kernattn.ops.hadamard import OP, reference
from seam import KINDS, Chains, MapSpec
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
    features = KINDS[kind].parts * m
    weights = None if KINDS[kind].scale == "none" else rng.uniform(-0.2, 0.2, d) / d
    return MapSpec(kind, omega, weights, rng.uniform(-1, 1, features) if KINDS[kind].offset != "none" else None, 0.7)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_reference_is_the_matrix(size, xp):
    d, m = size
    chains, omega = chain(d, m)
    x = np.random.default_rng(2).standard_normal((2, 7, d))
    with xp.wide():
        u = reference.hadamard(xp.asarray(x), chains)
        assert xp.holds(u)
    np.testing.assert_allclose(to_numpy(u), x @ omega.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_implementations_agree_with_the_matrix(size, dtype):
    d, m = size
    chains, omega = chain(d, m)
    x = rows(d, dtype)
    close([OP.implementation(x, backend)(x, chains) for backend in ("reference", None)], x.astype("f8") @ omega.T, x)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_features_agree_with_those_of_the_matrix(kind, size, dtype, monkeypatch):
    d, m = size
    chains, omega = chain(d, m)
    x = rows(d, dtype)
    wanted = FEATURES.implementation(x, "reference")(x.astype("f8"), spec_of(kind, omega, d, m))
    for backend in FASTER_ABOVE:
        monkeypatch.setitem(FASTER_ABOVE, backend, 0)
    spec = spec_of(kind, chains, d, m)
    close([FEATURES.implementation(x, backend)(x, spec) for backend in ("reference", None)], wanted, x)
    assert "dense" not in vars(chains)


def rows(d, dtype):
    return (0.5 * np.random.default_rng(3).standard_normal((3, 19, d))).astype(dtype)


def close(found, wanted, x):
    tolerance = {"float16": 2e-3, "float32": 4e-6, "float64": 1e-13}[x.dtype.name] * np.abs(wanted).max()
    for got in found:
        assert got.dtype == x.dtype
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)
