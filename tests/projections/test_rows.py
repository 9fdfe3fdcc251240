"""Laws of rows: marginals, unbiasedness in every direction, and how far off rows are that are uniform only nearly."""

import numpy as np
import pytest
from scipy import stats

import kernattn as ka
from structured import DIRECTIONS, NEARLY, NORMAL, QUASI, SPECS, D, blocks_of, redraws, unit, z_score

Hadamard, Kac = ka.projections.Hadamard, ka.projections.Kac
BIASED = [  # relative bias of the Gaussian kernel at |x - y| = 1, d = 16, as the docstrings have it
    (Hadamard(chains=1), "axis", -0.102),
    (Hadamard(chains=2), "axis", 0.0095),
    (Hadamard(), "axis", -0.0015),
    (Hadamard(), "diagonal", 0.0),
    (Hadamard(), "random", 0.0),
    (Kac(steps=45), "axis", 0.111),
    (Kac(steps=89), "axis", 0.0215),
    (Kac(), "axis", 0.0),
    (Kac(), "diagonal", 0.0),
    (Kac(), "random", 0.0),
]


@pytest.mark.statistical
@pytest.mark.parametrize("name", NORMAL)
def test_every_row_is_standard_normal(name):
    d, m = (7, 8) if "fastfood" in name else (8, 16 if "antithetic" in name else 8)
    omega = redraws(name, m, d, 400 if name in QUASI else 1500)
    assert np.abs(z_score(omega, 0.0)).max() < 4.5
    assert np.abs(z_score(omega[..., :, None] * omega[..., None, :], np.eye(d))).max() < 4.5
    for row in (0, 1, m - 1):
        assert stats.kstest(np.sum(omega[:, row] ** 2, axis=-1), stats.chi2(d).cdf).pvalue > 1e-5
        for values in (omega[:, row, 0], omega[:, row] @ np.full(d, d**-0.5)):
            assert stats.kstest(values, stats.norm.cdf).pvalue > 1e-5


def terms(name, count, direction):
    """exp(w.s) and cos(w.s) over their means for w ~ N(0, I), averaged over the rows of a block, (count,) each."""
    u = redraws(name, 2 * D if "antithetic" in name else D, D, count, 4) @ direction
    return np.mean(np.exp(u - 0.5), axis=-1), np.mean(np.cos(u) * np.exp(0.5), axis=-1)


@pytest.mark.statistical
@pytest.mark.parametrize("direction", DIRECTIONS.values(), ids=DIRECTIONS)
@pytest.mark.parametrize("name", NORMAL)
def test_unbiased_in_every_direction(name, direction):
    for samples in terms(name, 400 if name in QUASI else 750, direction):
        assert abs(z_score(samples, 1.0)) < 4.5


@pytest.mark.parametrize(
    ("name", "d"), [(name, d) for name in NEARLY for d in ([8] if "hadamard" in name else [1, 7])]
)  # dimensions that nothing pads
def test_rows_of_a_block_are_orthogonal(name, d):
    for block in blocks_of(SPECS[name], 2 * d + 1, d):
        np.testing.assert_allclose(unit(block) @ unit(block).T, np.eye(len(block)), rtol=0, atol=1e-14)


@pytest.mark.statistical
@pytest.mark.parametrize(("spec", "direction", "bias"), BIASED)
def test_measured_bias(spec, direction, bias):
    u = spec.draw(1000 * D, D, 6).reshape(1000, D, D) @ DIRECTIONS[direction]
    samples = np.mean(np.cos(u) * np.exp(0.5), axis=-1) - 1
    assert abs(samples.mean() - bias) < 0.001 + 4.5 * samples.std() / np.sqrt(1000)


@pytest.mark.statistical
@pytest.mark.parametrize("name", NEARLY)
def test_linear_kernels_are_unbiased_all_the_same(name):
    """E w w^T = I, padded or not."""
    for d, m in ((8, 8), (6, 24)):
        omega = redraws(name, m, d, 1500)
        products = np.mean(omega[..., :, None] * omega[..., None, :], axis=1)
        spread = products.std(axis=0) / np.sqrt(1500)
        assert (np.abs(products.mean(axis=0) - np.eye(d)) <= 4.5 * spread + 1e-12).all()
