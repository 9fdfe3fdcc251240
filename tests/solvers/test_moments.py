"""Moments against sums as written, and the laws of adding them."""

import itertools
import pickle
from itertools import permutations

import numpy as np
import pytest

import kernattn as ka
from kernattn._arrays import shapes
from kernattn.errors import (
    BackendUnavailable,
    DTypeError,
    EmptyInputError,
    FileFormatError,
    ParameterError,
    ShapeError,
    StateMismatchError,
)
from kernattn.solvers._check import check_finite

SUMS = ("weight", "s", "gram", "cross", "y_sum", "y_gram")
RNG = np.random.default_rng(0)
X, Y, W = RNG.standard_normal((90, 3)), RNG.standard_normal((90, 2)), RNG.integers(0, 3, 90).astype(float)
PHI = ka.random_features(ka.kernels.Gaussian(), dim=3, num_features=12, rng=0)
MAPS = {
    "spec": PHI,
    "computed": ka.features.nystrom(X, ka.kernels.Gaussian(), 8, rng=0),
    "any dimension": ka.features.elu1(),
}


def assert_sums(m, phi, y, w, tolerance=1e-12):
    w = np.ones(len(y)) if w is None else w
    wanted = {
        "weight": w.sum(),
        "s": phi.T @ w,
        "gram": phi.T @ (w[:, None] * phi),
        "cross": phi.T @ (w[:, None] * y),
        "y_sum": y.T @ w,
        "y_gram": y.T @ (w[:, None] * y),
    }
    for name, value in wanted.items():
        got = getattr(m, name)
        assert np.shape(got) == np.shape(value), name
        np.testing.assert_allclose(got, value, rtol=0, atol=tolerance * len(y) * np.abs(phi).max() ** 2, err_msg=name)
    assert m.n == np.count_nonzero(w)


def assert_same(a, b, exact=False):
    assert (a.n, a.vector, a.products, a.fingerprint) == (b.n, b.vector, b.products, b.fingerprint)
    for name in SUMS:
        compare = np.testing.assert_array_equal if exact else np.testing.assert_allclose
        compare(getattr(a, name), getattr(b, name), **({} if exact else {"rtol": 0, "atol": 1e-12 * a.n}))


@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
@pytest.mark.parametrize("phi", MAPS.values(), ids=MAPS)
def test_sums_as_written(monkeypatch, phi, weights):
    monkeypatch.setattr(shapes, "STRIP", 40)
    given = X.copy(), Y.copy()
    m = ka.solvers.moments(X, phi, y=Y, weights=weights)
    assert_sums(m, phi(X), Y, weights)
    assert m.products == "float64"
    assert m.fingerprint == phi.fingerprint
    assert not any(getattr(m, name).flags.writeable for name in SUMS[1:])
    np.testing.assert_array_equal(X, given[0])
    np.testing.assert_array_equal(Y, given[1])
    np.testing.assert_array_equal(m.gram, m.gram.T)


def test_weights_count_rows_that_many_times():
    times = np.repeat(np.arange(90), W.astype(int))
    a, b = ka.solvers.moments(X, PHI, y=Y, weights=W), ka.solvers.moments(X[times], PHI, y=Y[times])
    for name in SUMS:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("products", ["float64", "float32"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_smaller_dtypes(products, dtype):
    x = X.astype(dtype)
    m = ka.solvers.moments(x, PHI, y=Y, products=products)
    assert_sums(m, PHI(x.astype("f8")), Y, None, 1e-6)
    assert m.products == products
    assert ka.solvers.moments(X, PHI, products="float32").products == "float64"


def test_targets_of_one_axis_and_none():
    one, none = ka.solvers.moments(X, PHI, y=Y[:, 0]), ka.solvers.moments(X, PHI)
    assert one.vector
    assert_sums(one, PHI(X), Y[:, :1], None)
    assert_sums(none, PHI(X), Y[:, :0], None)


@pytest.mark.parametrize("backend", ["reference", None])
def test_every_kind_of_array(xp, backend):
    with xp.wide():
        m = ka.solvers.moments(xp.asarray(X), PHI, y=xp.asarray(Y), weights=xp.asarray(W), backend=backend)
    assert all(isinstance(getattr(m, name), np.ndarray) for name in SUMS[1:])
    assert_sums(m, PHI(X), Y, W)


def test_merging():
    """Associative and commutative up to rounding, with the moments of no rows as its zero."""
    parts = [ka.solvers.moments(X[i::3], PHI, y=Y[i::3], weights=W[i::3]) for i in range(3)]
    whole = ka.solvers.moments(X, PHI, y=Y, weights=W)
    for a, b, c in permutations(parts):
        assert_same((a + b) + c, whole)
        assert_same(a + (b + c), whole)
        assert_same(a + b, b + a, exact=True)
    zero = ka.solvers.initial_moments(PHI, targets=2)
    assert_same(zero + whole, whole, exact=True)
    assert_same(whole + zero, whole, exact=True)
    single = ka.solvers.moments(X.astype("f4"), PHI, y=Y, products="float32")
    assert (whole + single).products == "float32"


def test_what_does_not_add_up():
    m = ka.solvers.moments(X, PHI, y=Y)
    for other in (
        ka.solvers.moments(X, PHI.redraw(1), y=Y),
        ka.solvers.moments(X, PHI),
        ka.solvers.moments(X, PHI, y=Y[:, 0]),
        ka.solvers.initial_moments(PHI, targets=0),
    ):
        with pytest.raises(StateMismatchError, match="moments must be of"):
            m + other
    with pytest.raises(StateMismatchError, match="one draw"):
        ka.solvers.moments(X, MAPS["any dimension"]) + ka.solvers.moments(Y, MAPS["any dimension"])
    with pytest.raises(DTypeError, match=r"the other side of \+ must be a Moments"):
        m + 3


def test_targets_far_from_zero(tmp_path):
    """Sums of parts whose means differ, in every order, with and without a file between, against sums of integers."""
    far = np.rint(100 * Y) + np.array([1e9, -3e12])
    w = np.where(np.arange(90) // 30 == 1, W, 1.0)
    parts = [ka.solvers.moments(X[i : i + 30], PHI, y=far[i : i + 30], weights=w[i : i + 30]) for i in (0, 30, 60)]
    rows, times = (np.vectorize(int, otypes=[object])(values) for values in (far, w))
    y_gram, y_sum = rows.T @ (times[:, None] * rows), times @ rows
    scatter = (times.sum() * np.diagonal(y_gram) - y_sum**2) / times.sum()
    for a, b, c in permutations(parts):
        ka.solvers.save_moments(a + b, tmp_path / "m.npz")
        m = ka.solvers.load_moments(tmp_path / "m.npz", PHI) + c
        np.testing.assert_allclose(m.y_sum, y_sum.astype(float), rtol=1e-14)
        np.testing.assert_allclose(m.y_gram, y_gram.astype(float), rtol=1e-14)
        np.testing.assert_allclose(m.cross, PHI(X).T @ (w[:, None] * far), rtol=1e-10, atol=1.0)
        means = ka.solvers.ridge(m, 1e9).path([1e9])
        np.testing.assert_allclose(means.mse[0] * m.n, scatter.astype(float), rtol=1e-6)


def test_copies():
    m = ka.solvers.moments(X, PHI, y=Y)
    assert_same(pickle.loads(pickle.dumps(m)), m, exact=True)
    assert repr(m).startswith("Moments(n=90, num_features=12, targets=2, phi=Trigonometric(")


@pytest.mark.parametrize("y", [None, Y, Y[:, 0]], ids=["none", "matrix", "vector"])
@pytest.mark.parametrize("phi", [PHI, MAPS["any dimension"]], ids=["drawn", "any"])
def test_files(tmp_path, phi, y):
    m = ka.solvers.moments(X, phi, y=y, weights=W)
    ka.solvers.save_moments(m, tmp_path / "m.npz")
    assert_same(ka.solvers.load_moments(tmp_path / "m.npz", phi), m, exact=True)
    with pytest.raises(StateMismatchError, match="another draw"):
        ka.solvers.load_moments(tmp_path / "m.npz", PHI.redraw(1))


def test_files_that_are_none(tmp_path):
    path = tmp_path / "m.npz"
    PHI.save(path)
    with pytest.raises(FileFormatError, match="format"):
        ka.solvers.load_moments(path, PHI)
    ka.solvers.save_moments(ka.solvers.moments(X, PHI, y=Y), path)
    with np.load(path) as file:
        members = dict(file)
    forged = {
        "gram": members["gram"][:5],
        "s": members["s"] * np.nan,
        "header": np.array(str(members["header"]).replace('"n": 90', '"n": -1')),
    }
    for name, value in forged.items():
        np.savez(path, **{**members, name: value})
        with pytest.raises(FileFormatError):
            ka.solvers.load_moments(path, PHI)
    np.savez(path, **members, other=np.ones(3))
    with pytest.raises(FileFormatError, match="other"):
        ka.solvers.load_moments(path, PHI)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(FileFormatError, match="damaged"):
        ka.solvers.load_moments(path, PHI)


def large(sums):
    return 1e30 * sums


def large_beside_the_diagonal(sums):
    return sums + 1e30 * (1 - np.eye(len(sums)))


FORGED = [("weight", np.negative), *((name, large) for name in ("weight", "s", "cross", "y_sum"))]
FORGED += [(name, forge) for name in ("gram", "y_gram") for forge in (np.negative, large_beside_the_diagonal)]


@pytest.mark.parametrize(("name", "forge"), FORGED)
def test_files_with_sums_of_no_rows(tmp_path, name, forge):
    path = tmp_path / "m.npz"
    ka.solvers.save_moments(ka.solvers.moments(X, PHI, y=Y), path)
    with np.load(path) as file:
        members = dict(file)
    np.savez(path, **{**members, name: forge(members[name])})
    with pytest.raises(FileFormatError, match="sums are of no 90 rows"):
        ka.solvers.load_moments(path, PHI)


@pytest.mark.parametrize("products", ["float64", "float32"])
@pytest.mark.parametrize("unit", [1e-160, 1e-30, 1e15, 1e120])
def test_files_of_sums_of_every_size(tmp_path, unit, products):
    """Squares may underflow where sums do not; equal rows meet the bound."""
    x = np.tile(X[:1] * unit, (50, 1)).astype("f4" if products == "float32" and 1e-38 < unit < 1e38 else "f8")
    sizes = (None, 1e30 * W[:50], 1e-30 * W[:50], 1e-180 * W[:50])
    for phi, weights, size in itertools.product((ka.features.elu1(), PHI), sizes, (1.0, 1e-140)):
        m = ka.solvers.moments(x, phi, y=size * x.astype("f8"), weights=weights, products=products)
        ka.solvers.save_moments(m, tmp_path / "m.npz")
        assert_same(ka.solvers.load_moments(tmp_path / "m.npz", phi), m, exact=True)


def bad(array, *rows, value=np.nan):
    array = array.copy()
    array[list(rows), ...] = value
    return array


@pytest.mark.parametrize(
    ("error", "words", "x", "more"),
    [
        (ParameterError, "x must be finite; NaN or infinity in rows 3, 50$", bad(X, 3, 50), {}),
        (ParameterError, "rows 0, 1, 2, 3, 4 and 2 more", bad(X, *range(7), value=np.inf), {}),
        (ParameterError, "y must be finite; NaN or infinity in row 8$", X, {"y": bad(Y, 8)}),
        (ParameterError, "weights must be finite.*row 1$", X, {"weights": bad(W, 1)}),
        (ParameterError, "weights must be 0 or more; below 0 in row 7$", X, {"weights": bad(W, 7, value=-1e-9)}),
        (ShapeError, r"x must be \(n, d\); got shape \(1, 90, 3\)", X[None], {}),
        (ShapeError, "d = 3 columns", X[:, :2], {}),
        (ShapeError, "y must be .*as x has 90 rows", X, {"y": Y[:50]}),
        (ShapeError, "weights must be", X, {"weights": Y}),
        (EmptyInputError, "x must not be empty", X[:0], {}),
        (EmptyInputError, "y must not be empty", X, {"y": Y[:, :0]}),
        (DTypeError, "y must have one of", X, {"y": np.arange(90)}),
        (DTypeError, "x must be an array", X.tolist(), {}),
        (ParameterError, "products must be one of float64, float32", X, {"products": "float16"}),
        (ParameterError, "backend must be", X, {"backend": "cuda"}),
    ],
)
def test_refusals(error, words, x, more):
    with pytest.raises(error, match=words):
        ka.solvers.moments(x, PHI, **more)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("unit", [2.0**-340, 2.0**300])
def test_weights_of_every_size(dtype, unit):
    one, other = (ka.solvers.moments(X.astype(dtype), PHI, y=Y, weights=W * by) for by in (1.0, unit))
    for name in ("weight", "s", "gram", "cross", "y_sum", "y_gram"):
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name) * unit)


@pytest.mark.parametrize("unit", [2.0**-400, 2.0**400])
def test_targets_of_every_size(unit):
    """Float32 does not hold them; their products with features are of float32."""
    one, other = (ka.solvers.moments(X.astype("f4"), PHI, y=Y * by, products="float32") for by in (1.0, unit))
    np.testing.assert_array_equal(other.cross, one.cross * unit)


def test_more_refusals():
    with pytest.raises(ParameterError, match="this machine has"):
        ka.solvers.initial_moments(PHI, targets=2**31 - 1)
    with pytest.raises(ParameterError, match="y must be smaller"):
        ka.solvers.moments(X, PHI, y=np.full(len(X), 1e200))
    with pytest.raises(DTypeError, match="phi must be a FeatureMap"):
        ka.solvers.moments(X, None)
    with pytest.raises(BackendUnavailable):
        ka.solvers.moments(X, PHI, backend="gpu")
    with pytest.raises(ParameterError, match="dim must be given"):
        ka.solvers.initial_moments(ka.features.elu1())
    for targets in (-1, 0.0, True, np.ones(3)):
        with pytest.raises(ParameterError, match="targets must be a non-negative integer"):
            ka.solvers.initial_moments(PHI, targets=targets)
    positive = ka.random_features(ka.kernels.Softmax(scale=1.0), dim=3, num_features=8, rng=0)
    far = -100 * positive.omega[:1] / np.linalg.norm(positive.omega[0])
    for dtype, products, advice in (("f4", "float32", "as float64, or"), ("f8", "float32", ""), ("f8", "float64", "")):
        with pytest.raises(ParameterError, match=f"features of x must be finite; .*: give x ?{advice} smaller in"):
            ka.solvers.moments((np.abs(far) * 20).astype(dtype), ka.features.exp(), products=products)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rows_are_finite_though_their_sum_is_not(dtype):
    """And rows whose infinities cancel are named."""
    x = np.full((40, 3), np.finfo(dtype).max, dtype)
    with np.errstate(all="raise"):
        check_finite("x", x)
        x[7, 1], x[9, 1] = np.inf, -np.inf
        with pytest.raises(ParameterError, match="x must be finite; NaN or infinity in rows 7, 9"):
            check_finite("x", x)
