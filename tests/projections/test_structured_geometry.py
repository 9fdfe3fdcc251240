"""Structured projections: the angles and norms of their rows, and how evenly points fill the cube."""

import numpy as np
import pytest
from scipy import special, stats

import kernattn as ka
from kernattn.ops.walsh import padded, walsh_hadamard
from kernattn.projections import Pair
from kernattn.projections._coupling import partners
from structured import SPECS, unit

P = ka.projections


def blocks_of(spec, m, d, seed=2):
    return np.split(spec.draw(m, d, seed), np.cumsum(spec.blocks(m, d))[:-1])


@pytest.mark.parametrize(("name", "d"), [("hadamard", 8), ("hadamard 1", 8), ("kac", 7), ("kac 5", 7), ("kac", 1)])
def test_rows_of_a_block_are_orthogonal(name, d):
    for block in blocks_of(SPECS[name], 2 * d + 1, d):
        np.testing.assert_allclose(unit(block) @ unit(block).T, np.eye(len(block)), rtol=0, atol=1e-14)


@pytest.mark.parametrize("d", [2, 3, 7, 64])
@pytest.mark.parametrize("name", ["simplex", "simplex coupled"])
def test_corners_of_a_simplex(name, d):
    for block in blocks_of(SPECS[name], 2 * d + 1, d):
        wanted = np.where(np.eye(len(block)) > 0, 1.0, -1 / (d - 1))
        np.testing.assert_allclose(unit(block) @ unit(block).T, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("base", [P.Iid(), P.Orthogonal(), P.Simplex(norms="coupled"), P.Sobol()], ids=repr)
def test_antithetic_rows_are_those_of_the_base(base):
    omega = P.Antithetic(base).draw(14, 5, 3)
    np.testing.assert_array_equal(omega[::2], base.draw(7, 5, 3))
    np.testing.assert_array_equal(omega[1::2], -omega[::2])
    assert P.Antithetic(base).blocks(14, 5) == tuple(2 * size for size in base.blocks(7, 5))


@pytest.mark.parametrize("name", ["orthogonal coupled", "simplex coupled"])
def test_coupled_norms(name):
    """F(r) + F(r') = 1 for rows 0 and 1, 2 and 3, ... of each block; an odd one out is on its own."""
    d = 5
    for block in blocks_of(SPECS[name], 14, d):
        p = stats.chi(d).cdf(np.linalg.norm(block, axis=-1))
        np.testing.assert_allclose(p[: len(p) // 2 * 2].reshape(-1, 2).sum(axis=-1), 1.0, rtol=1e-12)
    assert SPECS[name].pairs(14, d) == {
        Pair(0.0 if "orth" in name else -1 / 4): 20 + 20 + 12 - 12,
        Pair(0.0 if "orth" in name else -1 / 4, "coupled"): 12,
    }


@pytest.mark.parametrize("d", [1, 2, 16, 512])
def test_partners_in_both_tails(d):
    r = stats.chi(d).isf([1e-12, 1e-3, 0.3, 0.5, 0.9, 1 - 1e-9])
    other = partners(r, d)
    np.testing.assert_allclose(stats.chi(d).cdf(other), stats.chi(d).sf(r), rtol=1e-7)
    np.testing.assert_allclose(partners(other, d), r, rtol=1e-6)


@pytest.mark.parametrize("k", [0, 1, 5, 8])
def test_sobol_is_stratified(k):
    """Of 2^k points one lies in each of 2^k intervals, along every axis."""
    cells = np.floor(special.ndtr(P.sobol(2**k, 6, k)) * 2**k).astype(int)
    np.testing.assert_array_equal(np.sort(cells, axis=0), np.arange(2**k)[:, None] + np.zeros(6, int))


@pytest.mark.parametrize(("axis", "base", "k"), [(0, 2, 6), (1, 3, 4), (2, 5, 3), (4, 11, 2)])
def test_halton_is_stratified(axis, base, k):
    cells = np.floor(special.ndtr(P.halton(base**k, 5, 1)[:, axis]) * base**k).astype(int)
    np.testing.assert_array_equal(np.sort(cells), np.arange(base**k))


def test_walsh_hadamard():
    h = np.array([[(-1) ** (i & j).bit_count() for j in range(16)] for i in range(16)]) / 4
    x = np.random.default_rng(0).standard_normal((3, 16, 5))
    np.testing.assert_allclose(walsh_hadamard(x), h @ x, atol=1e-14)
    assert [padded(d) for d in (1, 2, 3, 4, 5, 16, 17)] == [1, 2, 4, 4, 8, 16, 32]


@pytest.mark.parametrize("name", ["fastfood sqrt_d", "hadamard 1", "kac 5", "simplex sqrt_d", "sobol sqrt_d"])
def test_constant_norms(name):
    np.testing.assert_allclose(np.linalg.norm(SPECS[name].draw(20, 8, 0), axis=-1), np.sqrt(8), rtol=1e-13)
