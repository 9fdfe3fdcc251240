"""Independence given others: regressions as dense ridge, products as written, sizes, power, and refusals."""

import numpy as np
import pytest
import torch

import kernattn as ka
from kernattn.errors import DTypeError, EmptyInputError, MixedLibraryError, ParameterError, ShapeError
from kernattn.solvers._hypotheses.conditional import _choose, _curvature, _limited, _root, _scores, _sum_products
from kernattn.solvers._hypotheses.smoothers import PENALTIES, AdditiveSmoother, JointSmoother, smooth

Z = np.random.default_rng(0).standard_normal((2, 40, 3))
Y = np.random.default_rng(1).standard_normal((2, 40, 2))
Y = Y - Y.mean(axis=1, keepdims=True)
ROOT = _root(np.stack([np.diag([1.0, 2.0, 0.5]), np.ones((3, 3)) + np.eye(3)]))


def squares(a):
    return np.sum((a[:, :, None] - a[:, None]) ** 2, axis=-1)


def smoothers():
    """Smoothers whose landmarks are all rows, and their dense kernels."""
    linear = Z @ Z.swapaxes(1, 2)
    yield JointSmoother(Z, Z, 1.5), np.exp(-squares(Z) / (2 * 1.5**2)) + linear
    yield JointSmoother(Z, Z, 1.5, ROOT), np.exp(-squares(Z @ ROOT) / (2 * 1.5**2)) + linear


@pytest.mark.parametrize("which", [0, 1])
def test_fits_are_those_of_dense_kernel_ridge(which):
    smoother, kernel = list(smoothers())[which]
    centre = np.eye(40) - 1 / 40
    kernel = centre @ kernel @ centre
    fit = smooth([smoother], [smoother.coordinates(Y)], Y)
    for b in range(2):
        for c in range(2):
            y = Y[b, :, c]
            covariances = [kernel[b] / penalty + np.eye(40) for penalty in PENALTIES]
            costs = [40 * np.log(y @ np.linalg.solve(s, y)) + np.linalg.slogdet(s)[1] for s in covariances]
            best = covariances[int(np.argmin(costs))]
            np.testing.assert_allclose(fit.residuals[b, :, c], np.linalg.solve(best, y), rtol=1e-5, atol=1e-6)
            assert fit.parameters[b, c] == pytest.approx(41 - np.trace(np.linalg.inv(best)), rel=1e-5)


@pytest.mark.parametrize(("count", "jumps", "atol"), [(12, False, 2e-3), (200, True, 2e-2)])
def test_additive_smoothers_see_columns_one_by_one(count, jumps, atol):
    """With as many landmarks, the kernel of their features is close to the mean of the columns' kernels."""
    smoother = AdditiveSmoother(0.5 * Z, count, 0.7, jumps)
    part = 0.5 * np.abs(Z[:, :, None] - Z[:, None]) / 0.7
    whole = np.mean(np.exp(-part if jumps else part**2 / -2), axis=-1)
    centre = np.eye(40) - 1 / 40
    kernel = centre @ (whole + 0.25 * Z @ Z.swapaxes(1, 2)) @ centre
    columns = np.concatenate([rows for _, rows in smoother.blocks()], axis=1) - smoother.mean[:, None]
    columns = columns @ smoother.basis
    found = columns * smoother.values[:, None] @ columns.swapaxes(1, 2)
    np.testing.assert_allclose(found, kernel, atol=atol)


@pytest.mark.parametrize("which", [0, 1])
def test_slopes_are_those_of_the_functions(which):
    smoother, _ = list(smoothers())[which]
    coefficients = smooth([smoother], [smoother.coordinates(Y)], Y).coefficients[0]
    gradients, h = [], 1e-5
    for j in range(3):
        ends = []
        for sign in (1, -1):
            smoother.z = Z + sign * h * np.eye(3)[j]
            ends.append(smoother.evaluate(coefficients))
        gradients.append((ends[0] - ends[1]) / (2 * h))
    smoother.z = Z
    wanted = np.einsum("jbnc,kbnc->bjk", gradients, gradients)
    np.testing.assert_allclose(smoother.slopes(coefficients), wanted, rtol=1e-5, atol=1e-7)


def test_products_as_written():
    r, s, w = (np.random.default_rng(i).standard_normal((2, 40, c)) for i, c in enumerate((2, 3, 2)))
    taken, also = np.array([[3.0, 5.0], [1.0, 2.0]]), np.ones((2, 3))
    square, spectrum = _sum_products([(r, taken), (s, also)], w)
    for b in range(2):
        ones = np.concatenate([np.ones((40, 1)), w[b]], axis=1)
        u = np.stack([np.kron(np.kron(r[b, i], s[b, i]), ones[i]) for i in range(40)])
        left = np.kron(np.kron(1 - taken[b] / 40, 1 - also[b] / 40), np.ones(3)) ** -0.25
        assert square[b] == pytest.approx(np.sum(u.sum(axis=0) ** 2) / 40)
        np.testing.assert_allclose(spectrum[b], np.linalg.eigvalsh((left * u).T @ (left * u) / 40), atol=1e-10)


def draw(rng, shape, dim, link, shared=0.0):
    z, e, f = rng.standard_normal((*shape, dim)), rng.standard_normal(shape), rng.standard_normal(shape)
    along = z.sum(axis=-1) / np.sqrt(dim)
    return (link(along) + e)[..., None], (link(along) + f + shared * e)[..., None], z


@pytest.mark.statistical
@pytest.mark.parametrize(("dim", "link"), [(1, np.tanh), (4, lambda t: 1.5 * np.sin(1.5 * t))])
def test_rejections_where_there_is_nothing(dim, link):
    """Hsic by itself finds what Z does to both, and so does a regression that is blind to directions."""
    x, y, z = draw(np.random.default_rng(2), (120, 120), dim, link)
    values = ka.solvers.conditional_hsic(x, y, z, num_features=50, rng=0).p_value
    for level in (0.5, 0.05):
        assert np.sum(values < level) < 120 * level + 3.3 * np.sqrt(120 * level * (1 - level)), level
    assert np.sum(values < 0.5) > 40


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("link", "noise"), [(lambda t: np.sin(2 * t), 0.05), (lambda t: 2 * np.sign(t), 1.0)], ids=["little noise", "jump"]
)
def test_rejections_where_little_of_z_would_be_seen(link, noise):
    """By normal scores of z, and without a kernel for jumps, half of these and more are rejected at .05."""
    rng = np.random.default_rng(8)
    z, e, f = rng.standard_normal((3, 20, 200, 1))
    values = ka.solvers.conditional_hsic(link(z) + noise * e, link(z) + noise * f, z, num_features=50, rng=0).p_value
    assert np.sum(values < 0.05) < 5


def test_rare_values_that_do_not_meet_are_no_dependence():
    """Two that occur in 10 rows of 200 each meet in none of them as often as in six of ten samples."""
    z, x, y = np.random.default_rng(10).standard_normal((200, 1)), np.zeros(200), np.zeros(200)
    x[:10], y[10:20] = 1, 1
    assert ka.solvers.conditional_hsic(x, y, z, num_features=20, rng=0).p_value > 0.05
    assert ka.solvers.conditional_hsic(x, x + y, z, num_features=20, rng=0).p_value < 0.01


def test_columns_are_limited_and_scores_taken_where_they_tell_more():
    rng = np.random.default_rng(9)
    u, e = rng.standard_normal((2, 1, 200, 1))
    far, near = np.where(np.abs(u) > 1.9, 1e6 * u, u), np.abs(u) < 1.9
    limited = _limited(far)
    line = np.polyfit(far[near], limited[near], 1)
    np.testing.assert_allclose(np.polyval(line, far[near]), limited[near], atol=1e-12)
    assert 2.5 * line[0] < np.max(limited) < 30 * line[0]
    np.testing.assert_allclose(_limited(1e300 * far - 1e299), limited, atol=1e-8)
    rare = (u > 1.5) * e
    np.testing.assert_allclose(_limited(rare), _scores(rare))
    for z, y, wanted in ((u, np.sin(2 * u) + 0.05 * e, _limited), (u**9, np.sin(u) + 0.2 * e, _scores)):
        smoothers = _choose(y, y, _limited(z), _scores(z), np.arange(0, 200, 4))
        np.testing.assert_array_equal(smoothers[0].z, wanted(z))


def test_curvature_is_of_gradients_and_hessians():
    """Where z has a normal's moments to the third order, that is exact of lines and of products of columns."""
    z = np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(1, 3, 8).swapaxes(1, 2)
    rows = np.stack([z[..., 0] * z[..., 1], 3 * z[..., 2]], axis=2)
    np.testing.assert_allclose(_curvature(z, rows), [np.diag([1.0, 1.0, 9.0])], atol=1e-12)


@pytest.mark.statistical
def test_rejections_along_one_direction_of_many():
    """Without the directions of mean Hessians, evidence takes no fit for X and Y in a quarter of these."""
    rng = np.random.default_rng(3)
    z, (e, f) = rng.standard_normal((40, 200, 6)), 0.7 * rng.standard_normal((2, 40, 200, 1))
    along = np.cos(z.sum(axis=-1, keepdims=True) / np.sqrt(6))
    values = ka.solvers.conditional_hsic(along + e, along + f, z, num_features=50, rng=0).p_value
    assert np.sum(values < 0.05) < 8


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["line", "square", "sign"])
def test_dependence_is_found(kind):
    """Also one that has no correlation, and one whose sign z turns, so that it has none on average."""
    rng = np.random.default_rng(3)
    x, y, z = draw(rng, (10, 300), 2, np.tanh)
    noise = x - np.tanh(z.sum(axis=-1, keepdims=True) / np.sqrt(2))
    y = y + 0.8 * {"line": noise, "square": noise**2, "sign": noise * np.sign(z[..., :1])}[kind]
    found = ka.solvers.conditional_hsic(x, y, z, num_features=50, rng=0)
    assert np.mean(found.p_value < 1e-3) > 0.8
    assert np.all(found.statistic > 0)


def test_tests_are_alike_in_a_batch_in_another_library_and_on_another_scale():
    x, y, z = draw(np.random.default_rng(4), (2, 60), 2, np.tanh, 0.5)
    whole = ka.solvers.conditional_hsic(x, y, z, rng=0)
    tensors = ka.solvers.conditional_hsic(*map(torch.tensor, (x, y, z)), rng=0)
    scaled = ka.solvers.conditional_hsic(np.exp(x), 1e9 * y, 3 - 1e6 * z, rng=0)
    single = [ka.solvers.conditional_hsic(x[i, :, 0], y[i], z[i], rng=0) for i in range(2)]
    for other in (tensors, scaled, ka.solvers.SampleTest(*np.transpose(single))):
        np.testing.assert_allclose(other.p_value, whole.p_value, rtol=1e-6)
        np.testing.assert_allclose(other.statistic, whole.statistic, rtol=1e-6)
    assert isinstance(single[0].p_value, float)


def test_what_z_tells_is_no_dependence():
    z = np.random.default_rng(5).standard_normal((100, 1))
    y = z + np.random.default_rng(6).random((100, 1))
    assert ka.solvers.conditional_hsic(z, y, z, rng=0) == (0, 1)
    many = np.random.default_rng(5).standard_normal((100, 3))
    for x in (many[:, 0], np.exp(many[:, 1]), many @ [1, 2, 3]):  # of both, what is left is the same rounding
        assert ka.solvers.conditional_hsic(x, x, many, rng=0) == (0, 1)


def test_columns_reach_from_the_least_number_to_the_largest():
    x, y, z = np.random.default_rng(11).standard_normal((3, 40))
    z[:2] = np.finfo(float).min, np.finfo(float).max
    with np.errstate(all="raise"):
        assert 0 < ka.solvers.conditional_hsic(z, y, x, rng=0).p_value <= 1
        assert 0 < ka.solvers.conditional_hsic(x, y, z, rng=0).p_value <= 1


def test_bfloat16():
    """NumPy's `isdtype` knows no dtype of another package; float8 holds no rows."""
    types = pytest.importorskip("ml_dtypes")
    x = np.random.default_rng(7).standard_normal((3, 30)).astype(types.bfloat16)
    found, want = (ka.solvers.conditional_hsic(*rows, rng=0) for rows in (x, x.astype(np.float64)))
    assert found == want
    with pytest.raises(DTypeError, match="x must hold real numbers; got float8_e4m3fn"):
        ka.solvers.conditional_hsic(*x.astype(types.float8_e4m3fn))


def test_refusals():
    x = np.random.default_rng(7).standard_normal((30, 1))
    bad = x.copy()
    bad[3] = np.nan
    for arguments, error, match in (
        ((x[:-1], x, x), ShapeError, "same rows"),
        ((x, x, np.stack([x, x])), ShapeError, "same rows"),
        ((x[:5], x[:5], x[:5]), EmptyInputError, "20 rows at least"),
        ((x, x[:, :0], x), EmptyInputError, "y must hold"),
        ((x, bad, x), ParameterError, "y must be finite"),
        ((x, x, np.ones((30, 1))), ParameterError, "z must not be the same"),
        ((x, torch.tensor(x), x), MixedLibraryError, "x"),
        ((x.astype(complex), x, x), DTypeError, "x"),
        (([1.0], x, x), DTypeError, "x"),
    ):
        with pytest.raises(error, match=match):
            ka.solvers.conditional_hsic(*arguments)
    with pytest.raises(ParameterError, match="num_features"):
        ka.solvers.conditional_hsic(x, x, x, num_features=0)
