"""Structured projections: geometry, marginals, unbiasedness or its measured lack, and one law for dependent pairs."""

import re
from dataclasses import FrozenInstanceError, replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, special, stats

import kernattn as ka
from kernattn import errors
from kernattn.ops.walsh import padded, walsh_hadamard
from kernattn.projections import NORM_LAWS, Pair
from kernattn.projections.coupling import partners

P = ka.projections
SPECS = {
    "antithetic": P.Antithetic(),
    "antithetic iid": P.Antithetic(P.Iid()),
    "antithetic simplex": P.Antithetic(P.Simplex(norms="coupled")),
    "fastfood": P.Fastfood(),
    "fastfood sqrt_d": P.Fastfood(norms="sqrt_d"),
    "hadamard": P.Hadamard(),
    "hadamard 1": P.Hadamard(chains=1, norms="sqrt_d"),
    "halton": P.Halton(),
    "halton sqrt_d": P.Halton(norms="sqrt_d"),
    "kac": P.Kac(),
    "kac 5": P.Kac(steps=5, norms="sqrt_d"),
    "orthogonal coupled": P.Orthogonal(norms="coupled"),
    "simplex": P.Simplex(),
    "simplex coupled": P.Simplex(norms="coupled"),
    "simplex sqrt_d": P.Simplex(norms="sqrt_d"),
    "sobol": P.Sobol(),
    "sobol sqrt_d": P.Sobol(norms="sqrt_d"),
}
UNIFORM = [name for name in SPECS if not name.startswith(("hadamard", "kac"))]
NORMAL = [name for name in UNIFORM if not name.endswith("sqrt_d")]
SHAPES = [(2, 2), (4, 6), (6, 6), (20, 6), (8, 7)]  # m, d
QUASI = ("halton", "sobol")


@pytest.fixture(params=SPECS)
def spec(request):
    return SPECS[request.param]


def z_score(samples, expected):
    """Of the mean over the first axis."""
    return (samples.mean(axis=0) - expected) / (samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))


@cache
def redraws(name, m, d, count, seed=1):
    """Independent draws of the m rows of whole blocks, (count, m, d)."""
    spec = SPECS[name]
    if name.startswith(QUASI):
        rng = np.random.default_rng(seed)
        return np.stack([spec.draw(m, d, rng) for _ in range(count)])
    return spec.draw(m * count, d, seed).reshape(count, m, d)


# ---- draws ----


@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_a_draw_is_a_read_only_host_array(spec, m, d):
    omega = spec.draw(m, d, 0)
    assert omega.shape == (m, d)
    assert omega.dtype == np.float64
    assert np.isfinite(omega).all()
    assert omega.flags.c_contiguous
    assert not omega.flags.writeable
    assert sum(spec.blocks(m, d)) == m


def test_seeds(spec):
    omega = spec.draw(8, 4, 5)
    np.testing.assert_array_equal(omega, spec.draw(8, 4, np.random.default_rng(5)))
    source = np.random.default_rng(5)
    assert not np.array_equal(spec.draw(8, 4, source), spec.draw(8, 4, source))
    assert not np.array_equal(omega, spec.draw(8, 4, 6))


def test_specs_are_values(spec):
    assert spec == eval(repr(spec), vars(P))
    assert hash(spec) == hash(eval(repr(spec), vars(P)))
    with pytest.raises(FrozenInstanceError):
        spec.norms = "chi"
    assert P.resolve(spec) is spec


def test_functions_are_the_specs():
    for got, spec in [
        (P.antithetic(8, 3, 1, P.Iid()), P.Antithetic(P.Iid())),
        (P.fastfood(8, 3, 1, "sqrt_d"), P.Fastfood("sqrt_d")),
        (P.hadamard(8, 3, 1, 2, "sqrt_d"), P.Hadamard(2, "sqrt_d")),
        (P.halton(8, 3, 1, "sqrt_d"), P.Halton("sqrt_d")),
        (P.kac(8, 3, 1, 4, "sqrt_d"), P.Kac(4, "sqrt_d")),
        (P.simplex(8, 3, 1, "coupled"), P.Simplex("coupled")),
        (P.sobol(8, 3, 1, "sqrt_d"), P.Sobol("sqrt_d")),
    ]:
        np.testing.assert_array_equal(got, spec.draw(8, 3, 1))


# ---- geometry ----


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


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


# ---- laws of rows ----


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


D = 16
DIRECTIONS = {
    "diagonal": np.full(D, D**-0.5),
    "axis": np.eye(D)[0],
    "last axis": np.eye(D)[-1],
    "random": unit(np.random.default_rng(0).standard_normal(D)),
}


def terms(name, count, direction):
    """exp(w.s) and cos(w.s) over their means for w ~ N(0, I), averaged over the rows of a block, (count,) each."""
    u = redraws(name, 2 * D if "antithetic" in name else D, D, count, 4) @ direction
    return np.mean(np.exp(u - 0.5), axis=-1), np.mean(np.cos(u) * np.exp(0.5), axis=-1)


@pytest.mark.statistical
@pytest.mark.parametrize("direction", DIRECTIONS.values(), ids=DIRECTIONS)
@pytest.mark.parametrize("name", NORMAL)
def test_unbiased_in_every_direction(name, direction):
    for samples in terms(name, 400 if name in QUASI else 3000, direction):
        assert abs(z_score(samples, 1.0)) < 4.5


BIASED = [  # relative bias of the Gaussian kernel at |x - y| = 1, d = 16, as the docstrings have it
    (P.Hadamard(chains=1), "axis", -0.102),
    (P.Hadamard(chains=2), "axis", 0.0095),
    (P.Hadamard(), "axis", -0.0015),
    (P.Hadamard(), "diagonal", 0.0),
    (P.Hadamard(), "random", 0.0),
    (P.Kac(steps=45), "axis", 0.111),
    (P.Kac(steps=89), "axis", 0.0215),
    (P.Kac(), "axis", 0.0),
    (P.Kac(), "diagonal", 0.0),
    (P.Kac(), "random", 0.0),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("spec", "direction", "bias"), BIASED)
def test_measured_bias(spec, direction, bias):
    u = spec.draw(4000 * D, D, 6).reshape(4000, D, D) @ DIRECTIONS[direction]
    samples = np.mean(np.cos(u) * np.exp(0.5), axis=-1) - 1
    assert abs(samples.mean() - bias) < 0.001 + 4.5 * samples.std() / np.sqrt(4000)


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["hadamard", "hadamard 1", "kac", "kac 5"])
def test_linear_kernels_are_unbiased_all_the_same(name):
    """E w w^T = I, padded or not."""
    for d, m in ((8, 8), (6, 24)):
        omega = redraws(name, m, d, 1500)
        products = np.mean(omega[..., :, None] * omega[..., None, :], axis=1)
        spread = products.std(axis=0) / np.sqrt(1500)
        assert (np.abs(products.mean(axis=0) - np.eye(d)) <= 4.5 * spread + 1e-12).all()


@pytest.mark.statistical
def test_one_chain_is_rows_of_signs():
    """With constant norms every entry is a fair sign: E cos w.s is a product of cosines."""
    s = np.array([0.5, -0.7, 0.2, 0.9, 0.1, 0.6])
    omega = redraws("hadamard 1", 8, 6, 4000)
    np.testing.assert_allclose(np.abs(omega), 1.0, rtol=1e-12)
    assert abs(z_score(np.mean(np.cos(omega @ s), axis=-1), np.prod(np.cos(s)))) < 4.5


# ---- the law of pairs ----


@pytest.mark.parametrize("cosine", [-1.0, -0.25, 0.0, 0.25, 1.0])
@pytest.mark.parametrize("d", [2, 3, 7])
def test_independent_norms_at_an_angle(d, cosine):
    """Against a double integral over norms."""

    def wanted(t2, tilt):
        def inner(r, q):
            rho2 = r * r + q * q + 2 * cosine * r * q
            weight = np.exp(tilt * (r * r + q * q)) * special.hyp0f1(d / 2, t2 * rho2 / 4)
            return stats.chi(d).pdf(r) * stats.chi(d).pdf(q) * weight

        x, w = np.polynomial.legendre.leggauss(80)
        r, w = 8 * (x + 1), 8 * w
        return w @ inner(r[:, None], r) @ w

    chi = NORM_LAWS["chi"]
    for t2 in (-9.0, -1.0, 0.0):
        np.testing.assert_allclose(Pair(cosine).moment(chi, d, t2), wanted(t2, 0.0), atol=1e-10)
    for t2, tilt in ((0.0, 0.0), (1.0, 0.0), (4.0, 0.0), (2.0, -0.2), (1.0, 0.05)):
        np.testing.assert_allclose(Pair(cosine).log_moment(chi, d, t2, tilt), np.log(wanted(t2, tilt)), atol=1e-9)


@pytest.mark.parametrize("cosine", [-0.5, 0.0, 1.0])
@pytest.mark.parametrize("d", [1, 2, 5, 64])
def test_coupled_norms_at_an_angle(d, cosine):
    """Against an integral over the norm of one of them."""
    law = stats.chi(d)

    def wanted(t2, tilt):
        def integrand(r):
            q = law.isf(law.cdf(r)) if r < law.median() else law.ppf(law.sf(r))
            rho2 = r * r + q * q + 2 * cosine * r * q
            return law.pdf(r) * np.exp(tilt * (r * r + q * q)) * special.hyp0f1(d / 2, t2 * rho2 / 4)

        ends = law.isf([1 - 1e-13, 0.5, 1e-13])
        return sum(integrate.quad(integrand, a, b, epsabs=1e-12, limit=100)[0] for a, b in pairwise(ends))

    pair, chi = Pair(cosine, "coupled"), NORM_LAWS["chi"]
    for t2 in (-4.0, 0.0):
        np.testing.assert_allclose(pair.moment(chi, d, t2), wanted(t2, 0.0), atol=1e-9)
    for t2, tilt in ((0.0, 0.0), (1.0, 0.0), (2.0, -0.2)):
        np.testing.assert_allclose(pair.log_moment(chi, d, t2, tilt), np.log(wanted(t2, tilt)), atol=1e-9)


@pytest.mark.parametrize("law", NORM_LAWS)
def test_pairs_without_an_average(law):
    law, t2 = NORM_LAWS[law], np.array([0.0, 0.5, 3.0])
    np.testing.assert_allclose(Pair(0.0).moment(law, 6, -t2), law.moment(6, -t2, rows=2))
    np.testing.assert_allclose(Pair(-1.0, "equal").moment(law, 6, -t2), 1.0)
    np.testing.assert_allclose(Pair(1.0, "equal").moment(law, 6, -t2), law.moment(6, -4 * t2))
    np.testing.assert_allclose(
        Pair(1.0, "equal").log_moment(law, 6, t2, -0.1), law.log_moment(6, 4 * t2, tilt=-0.2), atol=1e-14
    )
    np.testing.assert_allclose(Pair(0.3).moment(NORM_LAWS["sqrt_d"], 6, -t2), special.hyp0f1(3, -6 * 2.6 * t2 / 4))


@pytest.mark.parametrize("pair", [Pair(0.0), Pair(-0.2), Pair(0.0, "coupled"), Pair(-1.0, "equal")], ids=repr)
def test_shapes_of_moments(pair):
    law, t2 = NORM_LAWS["chi"], np.random.default_rng(0).uniform(0, 9, (2, 3, 4))
    for moment, values in ((pair.moment, -t2), (pair.log_moment, t2)):
        got = moment(law, 5, values)
        np.testing.assert_allclose(got.ravel(), [moment(law, 5, v) for v in values.flat], rtol=1e-12, atol=1e-12)
        assert got.shape == t2.shape
        assert moment(law, 5, np.ones((0, 2))).shape == (0, 2)
        assert moment(law, 5, 0.0).shape == ()
        assert np.isnan(moment(law, 5, np.nan))


# ---- variances ----

CLOSED = ["antithetic", "antithetic iid", "antithetic simplex", "orthogonal coupled", "simplex", "simplex coupled"]
CLOSED += ["simplex sqrt_d"]
ESTIMATORS = ["trigonometric", "phase", "positive", "hyperbolic", "optimal_positive"]
SMALL, TILT = 5, -0.15


def samples_of(estimator, omega, x, y):
    """Estimates, (draws,), from draws of the frequencies, (draws, m, d); of the Gaussian kernel by cosines."""
    wx, wy, n = omega @ x, omega @ y, x @ x + y @ y
    if estimator == "trigonometric":
        return np.mean(np.cos(wx - wy), axis=-1)
    if estimator == "phase":
        b = np.random.default_rng(7).uniform(0, 2 * np.pi, wx.shape)
        return np.mean(2 * np.cos(wx + b) * np.cos(wy + b), axis=-1)
    if estimator == "positive":
        return np.mean(np.exp(wx + wy - n / 2), axis=-1)
    if estimator == "hyperbolic":
        return np.mean(np.cosh(wx + wy) * np.exp(-n / 2), axis=-1)
    logs = 2 * TILT * np.sum(omega**2, axis=-1) + np.sqrt(1 - 4 * TILT) * (wx + wy) - n / 2
    return np.mean((1 - 4 * TILT) ** (SMALL / 2) * np.exp(logs), axis=-1)


def check_moments(estimator, name, omega):
    """Mean and variance against draws, along an axis, the diagonal, and any direction."""
    paired, cosines = estimator in ("trigonometric", "hyperbolic"), estimator in ("trigonometric", "phase")
    kernel = ka.kernels.Gaussian() if cosines else ka.kernels.Softmax(scale=1.0)
    phi = ka.random_features(kernel, SMALL, omega.shape[1] * (1 + paired), estimator, SPECS[name])
    if estimator == "optimal_positive":
        phi = replace(phi, tilt=TILT)
    for u in unit(np.stack([np.eye(SMALL)[0], np.ones(SMALL), np.arange(1.0, SMALL + 1)])):
        x, y = (0.8 * u, -0.4 * u) if cosines else (0.3 * u, 0.2 * u)
        mean, variance, samples = phi.mean(x, y), phi.variance(x, y), samples_of(estimator, omega, x, y)
        if "sqrt_d" not in name:
            np.testing.assert_allclose(mean, kernel.pairs(x, y), rtol=1e-10)
        assert abs(z_score(samples, mean)) < 4.5
        assert abs(z_score((samples - samples.mean()) ** 2, variance)) < 4.5


@pytest.mark.statistical
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", CLOSED)
def test_mean_and_variance(name, estimator):
    check_moments(estimator, name, redraws(name, 2 * SMALL, SMALL, 10_000))


@pytest.mark.statistical
@pytest.mark.parametrize("estimator", ["trigonometric", "positive"])
@pytest.mark.parametrize("name", CLOSED)
def test_mean_and_variance_of_part_of_a_block(name, estimator):
    """Six rows: of two blocks of five, or of three and their opposites."""
    rng = np.random.default_rng(5)
    check_moments(estimator, name, np.stack([SPECS[name].draw(6, SMALL, rng) for _ in range(3000)]))


def test_published_ratios_of_simplices():
    """Reid et al. (2023): variance over that of iid rows at m = d = 64 and |x + y| = 0.5, 1, 2."""
    y = np.zeros((3, 64))
    y[:, 0] = [0.5, 1.0, 2.0]
    simplex, iid = (
        ka.random_features(ka.kernels.Softmax(), 64, 64, "positive", name).variance(0 * y, y * 64**0.25)
        for name in ("simplex", "iid")
    )
    np.testing.assert_allclose(simplex / iid, [0.028, 0.171, 0.818], rtol=0.02)


def test_order_of_geometries():
    """For positive features, at these distances: antithetic, simplex, coupled, orthogonal, iid."""
    y = np.zeros((4, 16))
    y[:, 1] = [0.3, 0.7, 1.0, 1.5]

    def variance(projection):
        return ka.random_features(ka.kernels.Softmax(scale=1.0), 16, 32, "positive", projection).variance(0 * y, y)

    order = [variance(p) for p in ("antithetic", "simplex", P.Orthogonal(norms="coupled"), "orthogonal", "iid")]
    assert (np.diff(order, axis=0) > 0).all()


@pytest.mark.parametrize("base", [P.Iid(), P.Orthogonal(), P.Simplex(norms="coupled")], ids=repr)
def test_antithetic_positive_features_are_hyperbolic(base):
    kernel, rng = ka.kernels.Softmax(), np.random.default_rng(2)
    x, y = rng.standard_normal((2, 7, 6)) / 2
    positive = ka.random_features(kernel, 6, 16, "positive", P.Antithetic(base), rng=1)
    hyperbolic = ka.random_features(kernel, 6, 16, "hyperbolic", base, rng=1)
    np.testing.assert_allclose(np.sort(positive(x)), np.sort(hyperbolic(x)), rtol=1e-12)
    np.testing.assert_allclose(positive.variance(x, y), hyperbolic.variance(x, y), rtol=1e-9)


@pytest.mark.parametrize("kernel", [ka.kernels.Gaussian(0.8), ka.kernels.Matern(1.5)], ids=repr)
def test_antithetic_cosines_are_copies(kernel):
    x, y = np.random.default_rng(2).standard_normal((2, 7, 6))
    twice = ka.random_features(kernel, 6, 16, "trigonometric", "antithetic").variance(x, y)
    once = ka.random_features(kernel, 6, 8, "trigonometric", "orthogonal").variance(x, y)
    np.testing.assert_allclose(twice, once, rtol=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["orthogonal", "simplex"])
def test_frequencies_that_add(name):
    """Of a product of kernels: moments of w + w' multiply, those of cos w.s cos w'.s do not."""
    kernel = ka.kernels.Gaussian() * ka.kernels.Gaussian(0.8)
    phi = ka.random_features(kernel, 3, 6, "trigonometric", name)
    x, y = np.zeros((2, 3)), np.array([[0.8, 0.0, 0.1], [0.5, 0.5, -0.4]])
    rng = np.random.default_rng(3)
    maps = (phi.redraw(rng) for _ in range(2000))
    samples = np.stack([np.sum(each(x) * each(y), axis=-1) for each in maps])
    assert np.abs(z_score(samples, kernel.pairs(x, y))).max() < 4.5
    assert np.abs(z_score((samples - samples.mean(axis=0)) ** 2, phi.variance(x, y))).max() < 4.5


# ---- every kernel ----

KERNELS = [ka.kernels.Gaussian(0.9), ka.kernels.Matern(1.5), ka.kernels.RationalQuadratic(0.8)]


@pytest.mark.statistical
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("name", ["antithetic", "fastfood", "halton", "simplex", "sobol"])
def test_isotropic_kernels_are_unbiased(name, kernel):
    phi = ka.random_features(kernel, 4, 32, "phase", name)
    x, y = np.zeros((2, 4)), np.array([[0.9, 0.0, 0.1, 0.0], [0.5, 0.5, -0.4, 0.5]])
    rng = np.random.default_rng(3)
    maps = (phi.redraw(rng) for _ in range(250))
    samples = np.stack([np.sum(each(x) * each(y), axis=-1) for each in maps])
    assert np.abs(z_score(samples, kernel.pairs(x, y))).max() < 4.5
    np.testing.assert_allclose(phi.bias(x, y), 0.0, atol=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("estimator", ["trigonometric", "positive"])
def test_padding_with_constant_norms(estimator):
    """Rows are cut from a sphere in p = 8 dimensions: the mean is that of p, not of d = 5."""
    kernel = ka.kernels.Gaussian()
    phi = ka.random_features(kernel, 5, 16, estimator, P.Fastfood(norms="sqrt_d"))
    x, y = np.full((1, 5), 0.3), np.full((1, 5), -0.4 if estimator == "trigonometric" else 0.2)
    rng = np.random.default_rng(3)
    maps = (phi.redraw(rng) for _ in range(1000))
    samples = np.stack([np.sum(each(x) * each(y), axis=-1) for each in maps])
    assert np.abs(z_score(samples, phi.mean(x, y))).max() < 4.5
    with pytest.raises(errors.NoClosedForm, match="tilted features of constant norms"):
        ka.random_features(kernel, 5, 16, "optimal_positive", P.Fastfood(norms="sqrt_d")).mean(x, y)


@pytest.mark.parametrize("name", P.PROJECTIONS)
def test_maps_with_every_projection(name, tmp_path):
    kernel, x = ka.kernels.Softmax(), np.random.default_rng(0).standard_normal((30, 6))
    phi = ka.random_features(kernel, 6, 16, projection=name, data=x, rng=2)
    phi.save(tmp_path / "map.npz")
    again = ka.load(tmp_path / "map.npz")
    assert again.projection == phi.projection == P.PROJECTIONS[name]()
    np.testing.assert_array_equal(again(x), phi(x))
    np.testing.assert_array_equal(again.redraw(1)(x), phi.redraw(1)(x))
    ka.random_features(ka.kernels.ArcCosine(1), 6, 16, projection=name)
    ka.features.generalized("relu", 6, 16, projection=name)


@pytest.mark.parametrize("name", SPECS)
def test_what_has_a_closed_form(name):
    x = np.ones((2, 6)) / 4
    phi = ka.random_features(ka.kernels.Softmax(), 6, 16, "positive", SPECS[name])
    if name in UNIFORM:
        phi.mean(x, x)
    else:
        with pytest.raises(errors.NoClosedForm, match="uniform only as"):
            phi.mean(x, x)
    if name in CLOSED:
        phi.variance(x, x)
    else:
        with pytest.raises(errors.NoClosedForm, match="no closed form is known for the variance with"):
            phi.variance(x, x)


def test_one_quasi_random_row():
    x = np.ones((2, 6)) / 4
    one, other = (ka.random_features(ka.kernels.Gaussian(), 6, 2, "trigonometric", p) for p in ("sobol", "iid"))
    np.testing.assert_allclose(one.variance(x, 2 * x), other.variance(x, 2 * x))


def test_heavy_tails():
    kernel, x = ka.kernels.Matern(1.5), np.ones((2, 6)) / 4
    phi = ka.random_features(kernel, 6, 16, projection="simplex")
    with pytest.raises(errors.NoClosedForm, match=r"another than a right angle.*MaternNorms"):
        phi.variance(x, -x)
    with pytest.raises(errors.ParameterError, match=r"'coupled'.*quantiles of chi.*MaternNorms"):
        ka.random_features(kernel, 6, 16, projection=P.Orthogonal(norms="coupled"))


# ---- refusals ----


def refused(*words):
    return pytest.raises(errors.ParameterError, match=".*".join(re.escape(word) for word in words))


@pytest.mark.parametrize("number", [0, -2, 2.0, True, "3", None], ids=repr)
def test_sizes(spec, number):
    for call in (spec.draw, spec.blocks):
        with refused("m must be a positive integer", repr(number)):
            call(number, 4)
        with refused("d must be a positive integer", repr(number)):
            call(4, number)


def test_parameters():
    with refused("m must be even for antithetic pairs", "7"):
        P.antithetic(7, 4)
    with refused("m must be even"):
        ka.random_features(ka.kernels.Softmax(), 4, 7, "positive", "antithetic")
    with refused("d must be at least 2 for a simplex", "1"):
        P.simplex(3, 1)
    with refused("d must be below 21201 for Sobol points"):
        P.sobol(3, 21201)
    with refused("base must be a projection that is not antithetic", "Antithetic"):
        P.Antithetic(P.Antithetic())
    with refused("base must be a projection", "'iid'"):
        P.antithetic(4, 4, base="iid")
    for chains in (0, 1.0, None):
        with refused("chains must be a positive integer", repr(chains)):
            P.hadamard(4, 4, chains=chains)
    for steps in (0, 1.0, "9"):
        with refused("steps must be a positive integer", repr(steps)):
            P.kac(4, 4, steps=steps)
    for make in (P.Fastfood, P.Hadamard, P.Halton, P.Iid, P.Kac, P.Sobol):
        with refused("norms must be one of chi, sqrt_d", "got 'coupled'"):
            make(norms="coupled")
    for make in (P.Orthogonal, P.Simplex):
        with refused("norms must be one of chi, sqrt_d, coupled", "got 'equal'"):
            make(norms="equal")


def test_nothing_is_drawn_before_a_refusal():
    source = np.random.default_rng(0)
    before = source.bit_generator.state
    for spec, m, d in ((P.Antithetic(), 7, 4), (P.Simplex(), 3, 1), (P.Sobol(), 2, 30000)):
        with pytest.raises(errors.ParameterError):
            spec.draw(m, d, source)
    assert source.bit_generator.state == before
