"""Laws of every projection: shapes, seeds, orthogonality, norms, marginals and uniform directions."""

import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy import stats

import kernattn as ka
import oracles
from kernattn import errors

SPECS = {
    f"{name}-{norms}": spec(norms)
    for norms in ("chi", "sqrt_d")
    for name, spec in {
        "iid": lambda norms: ka.projections.Iid(norms=norms),
        "qr": lambda norms: ka.projections.Orthogonal(method="qr", norms=norms),
        "gram_schmidt": lambda norms: ka.projections.Orthogonal(method="gram_schmidt", norms=norms),
    }.items()
}
ORTHOGONAL = [name for name in SPECS if not name.startswith("iid")]
SHAPES = [(1, 1), (5, 1), (1, 6), (3, 6), (6, 6), (7, 6), (20, 6), (130, 64)]  # m, d
D = 16
DIRECTIONS = {
    "diagonal": np.full(D, D**-0.5),
    "axis": np.eye(D)[0],
    "last axis": np.eye(D)[-1],
    "random": np.random.default_rng(0).standard_normal(D),
}


@pytest.fixture(params=SPECS)
def spec(request):
    return SPECS[request.param]


# ---- draws ----


@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_a_draw_is_a_read_only_host_array(spec, m, d):
    omega = spec.draw(m, d, 0)
    assert omega.shape == (m, d)
    assert omega.dtype == np.float64
    assert np.isfinite(omega).all()
    assert omega.flags.c_contiguous
    assert not omega.flags.writeable


def test_seeds(spec):
    omega = spec.draw(9, 4, 5)
    np.testing.assert_array_equal(omega, spec.draw(9, 4, 5))
    np.testing.assert_array_equal(omega, spec.draw(9, 4, np.random.default_rng(5)))
    np.testing.assert_array_equal(omega, spec.draw(9, 4, np.random.SeedSequence(5)))
    source = np.random.default_rng(5)
    assert not np.array_equal(spec.draw(9, 4, source), spec.draw(9, 4, source))
    assert not np.array_equal(omega, spec.draw(9, 4, 6))
    assert not np.array_equal(spec.draw(9, 4), spec.draw(9, 4))


def test_functions_are_the_specs():
    np.testing.assert_array_equal(ka.projections.iid(7, 3, 1, "sqrt_d"), SPECS["iid-sqrt_d"].draw(7, 3, 1))
    for method in ("qr", "gram_schmidt"):
        got = ka.projections.orthogonal(7, 3, rng=1, method=method)
        np.testing.assert_array_equal(got, SPECS[f"{method}-chi"].draw(7, 3, 1))
    np.testing.assert_array_equal(ka.projections.iid(7, 3, 1), ka.projections.Iid().draw(7, 3, 1))
    np.testing.assert_array_equal(ka.projections.orthogonal(7, 3, 1), ka.projections.Orthogonal().draw(7, 3, 1))


@pytest.mark.parametrize("norms", ["chi", "sqrt_d"])
@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_gram_schmidt_is_the_signed_qr(m, d, norms):
    """One Gaussian block has one frame with a positive diagonal of R."""
    qr, by_rows = (ka.projections.orthogonal(m, d, 3, method, norms) for method in ("qr", "gram_schmidt"))
    np.testing.assert_allclose(qr, by_rows, rtol=0, atol=1e-10 * np.sqrt(d))


# ---- blocks ----


@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_blocks_add_up(spec, m, d):
    blocks = spec.blocks(m, d)
    assert sum(blocks) == m
    assert all(type(size) is int and 1 <= size <= d for size in blocks)


def test_blocks():
    assert ka.projections.Iid().blocks(3, 8) == (1, 1, 1)
    assert ka.projections.Orthogonal().blocks(3, 8) == (3,)
    assert ka.projections.Orthogonal().blocks(16, 8) == (8, 8)
    assert ka.projections.Orthogonal().blocks(19, 8) == (8, 8, 3)
    assert ka.projections.Orthogonal().blocks(2, 1) == (1, 1)


@pytest.mark.parametrize("name", ORTHOGONAL)
@pytest.mark.parametrize(("m", "d"), [*SHAPES, (300, 256)])
def test_rows_of_a_block_are_orthogonal(name, m, d):
    spec = SPECS[name]
    omega = spec.draw(m, d, 1)
    for block in np.split(omega, np.cumsum(spec.blocks(m, d))[:-1]):
        unit = block / np.linalg.norm(block, axis=-1, keepdims=True)
        np.testing.assert_allclose(unit @ unit.T, np.eye(len(block)), rtol=0, atol=1e-14)


@pytest.mark.parametrize("method", ["qr", "gram_schmidt"])
def test_a_frame_is_that_of_the_seeds_normals(method):
    omega = ka.projections.orthogonal(20, 6, 3, method)
    normals = np.random.default_rng(3).standard_normal((20, 6))
    for rows in (slice(0, 6), slice(6, 12), slice(12, 18), slice(18, 20)):
        unit = omega[rows] / np.linalg.norm(omega[rows], axis=-1, keepdims=True)
        np.testing.assert_allclose(unit, oracles.frames(normals[rows]), rtol=0, atol=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("name", ORTHOGONAL)
def test_blocks_are_independent(name):
    """Cosines between rows of two blocks average to 0 and their squares to 1 / d."""
    d, pairs = 6, 4000
    omega = SPECS[name].draw(2 * d * pairs, d, 4).reshape(pairs, 2, d, d)
    unit = omega / np.linalg.norm(omega, axis=-1, keepdims=True)
    cosines = unit[:, 0] @ np.swapaxes(unit[:, 1], -1, -2)  # (pairs, d, d)
    assert np.abs(z_score(cosines, 0.0)).max() < 4.5
    assert np.abs(z_score(cosines**2, 1 / d)).max() < 4.5


# ---- norms ----


def test_sqrt_d_norms(spec):
    omega = spec.draw(20, 7, 0)
    norms = np.linalg.norm(omega, axis=-1)
    if spec.norms == "sqrt_d":
        np.testing.assert_allclose(norms, np.sqrt(7), rtol=1e-14)
    else:
        assert len(np.unique(norms)) == 20


@pytest.mark.statistical
@pytest.mark.parametrize("d", [1, 2, 16])
@pytest.mark.parametrize("name", ["iid-chi", "qr-chi", "gram_schmidt-chi"])
def test_chi_norms(name, d):
    squares = np.sum(SPECS[name].draw(8000, d, 6) ** 2, axis=-1)
    assert stats.kstest(squares, stats.chi2(d).cdf).pvalue > 1e-5


@pytest.mark.parametrize("name", ["iid-chi", "qr-chi", "gram_schmidt-chi"])
def test_norms_are_not_those_of_the_gaussian_block(name):
    """Norms that come from the block depend on its directions."""
    omega = SPECS[name].draw(8, 8, 7)
    block = np.random.default_rng(7).standard_normal((8, 8))
    for spent in (np.linalg.norm(block, axis=-1), np.abs(np.diagonal(np.linalg.qr(block.T)[1]))):
        assert np.abs(np.linalg.norm(omega, axis=-1) - spent).min() > 1e-6


# ---- laws of rows and directions ----


def z_score(samples, expected):
    """Of the mean over the first axis."""
    return (samples.mean(axis=0) - expected) / (samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["iid-chi", "qr-chi", "gram_schmidt-chi"])
def test_every_row_is_standard_normal(name):
    d, blocks = 5, 6000
    omega = SPECS[name].draw(d * blocks, d, 8).reshape(blocks, d, d)
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
@pytest.mark.parametrize("name", ["iid-chi", "qr-chi", "gram_schmidt-chi"])
def test_exponential_features_are_unbiased_in_every_direction(name, direction):
    assert abs(z_score(exponential_ratio(SPECS[name].draw(4000 * D, D, 9), direction), 1.0)) < 4.5


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
    q = SPECS[name].draw(d * blocks, d, 10).reshape(blocks, d, d) / np.sqrt(d)
    assert abs(z_score(np.linalg.det(q), 0.0)) < 4.5
    assert np.abs(z_score(q, 0.0)).max() < 4.5
    assert np.abs(z_score(q**2, 1 / d)).max() < 4.5
    assert np.abs(z_score(q**4, 3 / (d * (d + 2)))).max() < 4.5
    crossed = q[:, 0, 0] ** 2 * q[:, 1, 1] ** 2
    assert abs(z_score(crossed, (d + 1) / (d * (d - 1) * (d + 2)))) < 4.5
    assert abs(z_score(q[:, 0, 0] * q[:, 1, 1], 0.0)) < 4.5
    assert abs(z_score(np.trace(q, axis1=-2, axis2=-1) ** 2, 1.0)) < 4.5


# ---- names, specs and refusals ----


def test_resolve():
    assert ka.projections.resolve("iid") == ka.projections.Iid()
    assert ka.projections.resolve("orthogonal") == ka.projections.Orthogonal(method="qr", norms="chi")
    spec = ka.projections.Orthogonal("gram_schmidt", "sqrt_d")
    assert ka.projections.resolve(spec) is spec
    assert {type(ka.projections.resolve(name)) for name in ka.projections.PROJECTIONS} == set(
        ka.projections.PROJECTIONS.values()
    )


def test_specs_are_values(spec):
    assert spec == eval(repr(spec), vars(ka.projections))
    assert hash(spec) == hash(eval(repr(spec), vars(ka.projections)))
    with pytest.raises(FrozenInstanceError):
        spec.norms = "chi"


def refused(*words):
    return pytest.raises(errors.ParameterError, match=".*".join(re.escape(word) for word in words))


@pytest.mark.parametrize("number", [0, -2, 2.0, True, "3", None, np.float64(3)], ids=repr)
def test_sizes(spec, number):
    for call in (spec.draw, spec.blocks):
        with refused("m must be a positive integer", repr(number)):
            call(number, 4)
        with refused("d must be a positive integer", repr(number)):
            call(4, number)
    for function in (ka.projections.iid, ka.projections.orthogonal):
        with refused("m must be a positive integer", repr(number)):
            function(number, 4)
        with refused("d must be a positive integer", repr(number)):
            function(4, number)


def test_numpy_integers_are_sizes(spec):
    np.testing.assert_array_equal(spec.draw(np.int32(3), np.int64(2), np.uint8(1)), spec.draw(3, 2, 1))


@pytest.mark.parametrize(
    "rng",
    [-1, 1.0, True, "0", np.random.RandomState(0)],
    ids=lambda rng: type(rng).__name__ if not isinstance(rng, (int, float, str)) else repr(rng),
)
def test_rng(spec, rng):
    with refused("rng must be"):
        spec.draw(3, 4, rng)


@pytest.mark.parametrize("name", ["sobol_", "", None, 3, ["qr"]], ids=repr)
def test_names(name):
    for make in (ka.projections.Iid, ka.projections.Orthogonal):
        with refused("norms must be one of", "chi", "sqrt_d", f"got {name!r}"):
            make(norms=name)
    with refused("method must be one of", "gram_schmidt", "qr", f"got {name!r}"):
        ka.projections.orthogonal(3, 4, method=name)
    with refused("norms must be one of", f"got {name!r}"):
        ka.projections.iid(3, 4, norms=name)
    with refused("projection must be one of", "iid", "orthogonal", f"got {name!r}"):
        ka.projections.resolve(name)
