"""Orthogonal rows: frames that are Haar distributed, and norms of their own."""

import numpy as np
import pytest
from scipy import stats

import kernattn as ka
import oracles
from structured import BASIC, DIRECTIONS, D, z_score

SHAPES = [(1, 1), (5, 1), (1, 6), (3, 6), (6, 6), (7, 6), (20, 6), (130, 64)]  # m, d
ORTHOGONAL = [name for name in BASIC if not name.startswith("iid")]
WITH_CHI = ["iid-chi", "qr-chi", "gram_schmidt-chi"]


@pytest.mark.parametrize("norms", ["chi", "sqrt_d"])
@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_gram_schmidt_is_the_signed_qr(m, d, norms):
    """One Gaussian block has one frame with a positive diagonal of R."""
    qr, by_rows = (ka.projections.Orthogonal(method, norms).draw(m, d, 3) for method in ("qr", "gram_schmidt"))
    np.testing.assert_allclose(qr, by_rows, rtol=0, atol=1e-10 * np.sqrt(d))


def test_blocks():
    assert ka.projections.Iid().blocks(3, 8) == (1, 1, 1)
    assert ka.projections.Orthogonal().blocks(3, 8) == (3,)
    assert ka.projections.Orthogonal().blocks(16, 8) == (8, 8)
    assert ka.projections.Orthogonal().blocks(19, 8) == (8, 8, 3)
    assert ka.projections.Orthogonal().blocks(2, 1) == (1, 1)


def test_few_rows_of_many_columns_take_room_for_themselves():
    """A frame would take 180 GB."""
    omega = ka.projections.Orthogonal().draw(3, 150_000, 1)
    unit = omega / np.linalg.norm(omega, axis=-1, keepdims=True)
    np.testing.assert_allclose(unit @ unit.T, np.eye(3), rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ORTHOGONAL)
@pytest.mark.parametrize(("m", "d"), [*SHAPES, (300, 256)])
def test_rows_of_a_block_are_orthogonal(name, m, d):
    spec = BASIC[name]
    omega = spec.draw(m, d, 1)
    for block in np.split(omega, np.cumsum(spec.blocks(m, d))[:-1]):
        unit = block / np.linalg.norm(block, axis=-1, keepdims=True)
        np.testing.assert_allclose(unit @ unit.T, np.eye(len(block)), rtol=0, atol=1e-14)


@pytest.mark.parametrize("method", ["qr", "gram_schmidt"])
def test_a_frame_is_that_of_the_seeds_normals(method):
    omega = ka.projections.Orthogonal(method).draw(20, 6, 3)
    normals = np.random.default_rng(3).standard_normal((20, 6))
    for rows in (slice(0, 6), slice(6, 12), slice(12, 18), slice(18, 20)):
        unit = omega[rows] / np.linalg.norm(omega[rows], axis=-1, keepdims=True)
        np.testing.assert_allclose(unit, oracles.frames(normals[rows]), rtol=0, atol=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("name", ORTHOGONAL)
def test_blocks_are_independent(name):
    """Cosines between rows of two blocks average to 0 and their squares to 1 / d."""
    d, pairs = 6, 4000
    omega = BASIC[name].draw(2 * d * pairs, d, 4).reshape(pairs, 2, d, d)
    unit = omega / np.linalg.norm(omega, axis=-1, keepdims=True)
    cosines = unit[:, 0] @ np.swapaxes(unit[:, 1], -1, -2)  # (pairs, d, d)
    assert np.abs(z_score(cosines, 0.0)).max() < 4.5
    assert np.abs(z_score(cosines**2, 1 / d)).max() < 4.5


@pytest.mark.statistical
@pytest.mark.parametrize("d", [1, 2, 16])
@pytest.mark.parametrize("name", WITH_CHI)
def test_chi_norms(name, d):
    squares = np.sum(BASIC[name].draw(8000, d, 6) ** 2, axis=-1)
    assert stats.kstest(squares, stats.chi2(d).cdf).pvalue > 1e-5


@pytest.mark.parametrize("name", WITH_CHI)
def test_norms_are_not_those_of_the_gaussian_block(name):
    """Norms that come from the block depend on its directions."""
    omega = BASIC[name].draw(8, 8, 7)
    block = np.random.default_rng(7).standard_normal((8, 8))
    for spent in (np.linalg.norm(block, axis=-1), np.abs(np.diagonal(np.linalg.qr(block.T)[1]))):
        assert np.abs(np.linalg.norm(omega, axis=-1) - spent).min() > 1e-6


@pytest.mark.statistical
@pytest.mark.parametrize("name", WITH_CHI)
def test_every_row_is_standard_normal(name):
    d, blocks = 5, 6000
    omega = BASIC[name].draw(d * blocks, d, 8).reshape(blocks, d, d)
    products = omega[..., :, None] * omega[..., None, :]  # (blocks, row, d, d)
    assert np.abs(z_score(omega, 0.0)).max() < 4.5
    assert np.abs(z_score(products, np.eye(d))).max() < 4.5
    assert np.abs(z_score(omega**4, 3.0)).max() < 4.5
    for row in range(d):
        for values in (*omega[:, row].T, omega[:, row] @ np.full(d, d**-0.5)):
            assert stats.kstest(values, stats.norm.cdf).pvalue > 1e-5


def exponential_ratio(omega, direction):
    """E exp(omega.s) / exp(|s|^2 / 2) at |s| = 1, one value for each block of D rows."""
    s = direction / np.linalg.norm(direction)
    return np.exp(omega @ s - 0.5).reshape(-1, D).mean(axis=-1)


@pytest.mark.statistical
@pytest.mark.parametrize("direction", DIRECTIONS.values(), ids=DIRECTIONS)
@pytest.mark.parametrize("name", WITH_CHI)
def test_exponential_features_are_unbiased_in_every_direction(name, direction):
    assert abs(z_score(exponential_ratio(BASIC[name].draw(4000 * D, D, 9), direction), 1.0)) < 4.5


@pytest.mark.statistical
def test_this_would_have_seen_the_missing_sign():
    """LAPACK's Q alone is not Haar: along the diagonal the mean is 0.854, however many features there are."""
    rng = np.random.default_rng(9)
    q = np.swapaxes(np.linalg.qr(rng.standard_normal((4000, D, D)))[0], -1, -2).reshape(-1, D)
    omega = q * np.sqrt(rng.chisquare(D, len(q)))[:, None]
    ratio = exponential_ratio(omega, DIRECTIONS["diagonal"])
    assert abs(z_score(ratio, 0.854)) < 4.5
    assert abs(z_score(ratio, 1.0)) > 20


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["qr-sqrt_d", "gram_schmidt-sqrt_d"])
def test_whole_frames_are_uniform(name):
    """Of a Haar frame, as of its determinant and its transpose: moments of entries that no marginal sees."""
    d, blocks = 3, 20000
    q = BASIC[name].draw(d * blocks, d, 10).reshape(blocks, d, d) / np.sqrt(d)
    assert abs(z_score(np.linalg.det(q), 0.0)) < 4.5
    assert np.abs(z_score(q, 0.0)).max() < 4.5
    assert np.abs(z_score(q**2, 1 / d)).max() < 4.5
    assert np.abs(z_score(q**4, 3 / (d * (d + 2)))).max() < 4.5
    crossed = q[:, 0, 0] ** 2 * q[:, 1, 1] ** 2
    assert abs(z_score(crossed, (d + 1) / (d * (d - 1) * (d + 2)))) < 4.5
    assert abs(z_score(q[:, 0, 0] * q[:, 1, 1], 0.0)) < 4.5
    assert abs(z_score(np.trace(q, axis1=-2, axis2=-1) ** 2, 1.0)) < 4.5
