"""Nystrom maps: the textbook formula, laws of the landmarks, targets, precomputed kernels, memory, what is refused."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest

import kernattn as ka
from features.nystrom_cases import CENTRES, GAUSSIAN, NAMES, clustered
from kernattn import errors
from laws import arrays
from saved import reloaded
from xp import dtype_name, to_numpy


def matrix(kernel, x, y=None):
    """The kernel matrix from scratch."""
    y = x if y is None else y
    if isinstance(kernel, ka.kernels.Gaussian):
        return np.exp(-0.5 * np.sum((x[:, None] - y[None]) ** 2, axis=-1) / kernel.lengthscale**2)
    return (x @ y.T) ** kernel.degree


@pytest.mark.parametrize("name", NAMES)
def test_against_the_formula(name):
    x = clustered()
    phi = ka.features.nystrom(x, GAUSSIAN, 25, method=name, rng=1)
    landmarks = phi.landmarks
    assert landmarks.shape == (25, 4)
    if name in CENTRES:
        assert phi.indices is None
    else:
        assert len(set(phi.indices)) == 25
        np.testing.assert_array_equal(landmarks, x[phi.indices])
    cross = matrix(GAUSSIAN, x, landmarks)
    expected = cross @ np.linalg.solve(matrix(GAUSSIAN, landmarks), cross.T)
    features = phi(x)
    np.testing.assert_allclose(features @ features.T, expected, rtol=1e-7, atol=1e-9)
    inner = phi(landmarks)
    np.testing.assert_allclose(inner @ inner.T, matrix(GAUSSIAN, landmarks), atol=1e-9)
    k = matrix(GAUSSIAN, x)
    assert (np.diag(k) - np.sum(features**2, axis=1) > -1e-9).all()
    residual = 1 - np.trace(expected) / np.trace(k)
    np.testing.assert_allclose(phi.trace_residual(x), residual, atol=1e-10)
    if name in ("greedy", "rpcholesky"):
        np.testing.assert_allclose(phi.residual, residual, atol=1e-10)
    else:
        assert phi.residual is None
    best = np.sort(np.linalg.eigvalsh(k))[:-25].sum() / np.trace(k)
    assert residual >= best - 1e-12


@pytest.mark.statistical
def test_rpcholesky_and_leverage_beat_uniform_on_clusters():
    x = clustered()

    def mean_error(name):
        return np.mean([ka.features.nystrom(x, GAUSSIAN, 30, method=name, rng=r).trace_residual(x) for r in range(10)])

    uniform = mean_error("uniform")
    assert mean_error("rpcholesky") < 0.5 * uniform
    assert mean_error("leverage") < 0.85 * uniform


@pytest.mark.statistical
def test_rpcholesky_has_the_law_of_one_pivot_at_a_time():
    draws, n = 700, 8
    (x,) = arrays(1, (n, 2), dtype="float64")
    k = matrix(GAUSSIAN, x) + 0.05 * np.eye(n)
    rng = np.random.default_rng(3)

    def one_at_a_time():
        left, chosen = k.copy(), []
        for _ in range(2):
            chance = np.maximum(np.diag(left), 0)
            chosen.append(rng.choice(n, p=chance / chance.sum()))
            left = left - np.outer(left[:, chosen[-1]], left[chosen[-1]]) / left[chosen[-1], chosen[-1]]
        return tuple(chosen)

    slow = Counter(one_at_a_time() for _ in range(draws))
    maps = (ka.features.nystrom(k, "precomputed", 2, method="rpcholesky", rng=rng) for _ in range(draws))
    fast = Counter(tuple(phi.indices.tolist()) for phi in maps)
    z = [(slow[c] - fast[c]) / np.sqrt(slow[c] + fast[c]) for c in set(slow) | set(fast) if slow[c] + fast[c] > 20]
    assert len(z) > 10
    assert np.max(np.abs(z)) < 4.5
    assert 0.4 < np.mean(np.square(z)) < 2.0


def test_greedy_takes_the_largest_residual():
    x = clustered()
    k = matrix(GAUSSIAN, x) * (1 + np.linspace(0, 0.1, len(x)))[:, None] * (1 + np.linspace(0, 0.1, len(x)))
    phi = ka.features.nystrom(k, "precomputed", 12, method="greedy", rng=0)
    left = k.copy()
    for i in phi.indices:
        np.testing.assert_allclose(left[i, i], np.max(np.diag(left)), rtol=1e-9)
        left = left - np.outer(left[:, i], left[i]) / left[i, i]


def test_leverage_finds_rare_directions():
    """Two rows that nothing else stands in for."""
    rng = np.random.default_rng(0)
    x = np.concatenate([0.1 * rng.standard_normal((500, 3)), [[9.0, 0, 0], [0, 9.0, 0]]])
    found = [set(ka.features.nystrom(x, GAUSSIAN, 20, method="leverage", rng=r).indices) for r in range(20)]
    assert np.mean([{500, 501} <= indices for indices in found]) > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_target(name):
    x = clustered()
    phi = ka.features.nystrom(x, GAUSSIAN, 200, method=name, target=0.1, rng=2)
    assert 1 < phi.num_features < 200
    assert phi.residual <= 0.1
    np.testing.assert_allclose(phi.trace_residual(x), phi.residual, atol=1e-5)
    fewer = ka.features.nystrom(x, GAUSSIAN, landmarks=phi.landmarks[:-1], rng=0)
    assert fewer.trace_residual(x) > 0.1 - 1e-5
    unreached = ka.features.nystrom(x, GAUSSIAN, 5, method=name, target=1e-9, rng=2)
    assert unreached.num_features == 5
    np.testing.assert_allclose(unreached.trace_residual(x), unreached.residual, atol=1e-8)


@pytest.mark.parametrize("name", ["greedy", "rpcholesky"])
def test_pivots_stop_at_the_rank(name):
    (x,) = arrays(2, (60, 3), dtype="float64")
    phi = ka.features.nystrom(x, ka.kernels.Polynomial(1), 20, method=name, rng=0)
    assert phi.num_features == 3
    np.testing.assert_allclose(phi(x) @ phi(x).T, x @ x.T, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_all_rows_are_landmarks(name):
    (x,) = arrays(2, (12, 2), dtype="float64")
    phi = ka.features.nystrom(x, ka.kernels.Gaussian(0.5), 12, method=name, rng=0)
    if name not in CENTRES:
        np.testing.assert_allclose(phi(x) @ phi(x).T, matrix(ka.kernels.Gaussian(0.5), x), atol=1e-8)


@pytest.mark.parametrize("name", [n for n in ka.features.LANDMARKS if n not in CENTRES])
def test_precomputed(name):
    x = clustered(200)
    new = x[::3] + 0.1
    k, rows = matrix(GAUSSIAN, x), matrix(GAUSSIAN, new, x)
    given = ka.features.nystrom(k, "precomputed", 15, method=name, rng=4)
    computed = ka.features.nystrom(x, GAUSSIAN, 15, method=name, rng=4)
    np.testing.assert_array_equal(given.indices, computed.indices)
    np.testing.assert_allclose(given(rows), computed(new), atol=1e-7)
    np.testing.assert_allclose(given(rows[:, given.indices]), given(rows), atol=1e-9)
    np.testing.assert_allclose(given.trace_residual(k), computed.trace_residual(x), atol=1e-9)
    every = ka.features.nystrom(k, "precomputed", len(k), method=name, cutoff=1e-10, rng=0)
    if every.num_features == len(k):
        np.testing.assert_allclose(every(rows) @ every(k).T, rows, atol=1e-4)
    with pytest.raises(errors.ShapeError, match=r"15 landmarks.*rows"):
        given(rows[:, :7])
    with pytest.raises(errors.NoClosedForm):
        given.bias(rows[0], rows[1])


def test_landmarks_of_ones_own():
    x = clustered(200)
    indices = np.array([5, 0, 100, 7])
    by_index = ka.features.nystrom(x, GAUSSIAN, landmarks=indices, rng=0)
    by_point = ka.features.nystrom(x, GAUSSIAN, 4, landmarks=x[indices], rng=0)
    np.testing.assert_array_equal(by_index(x), by_point(x))
    np.testing.assert_array_equal(by_index.indices, indices)
    assert by_point.indices is None
    elsewhere = ka.features.nystrom(x, GAUSSIAN, landmarks=np.zeros((1, 4)), rng=0)
    np.testing.assert_allclose(elsewhere(x)[:, 0], matrix(GAUSSIAN, x, np.zeros((1, 4)))[:, 0], rtol=1e-9)


def test_singular_matrices_make_no_noise():
    """Landmarks twice, and a kernel so wide that its matrix has rank 1 to every digit."""
    x = clustered(200)
    twice = ka.features.nystrom(x, GAUSSIAN, landmarks=np.concatenate([x[:9], x[:9]]), rng=0)
    once = ka.features.nystrom(x, GAUSSIAN, landmarks=x[:9], rng=0)
    np.testing.assert_allclose(twice(x) @ twice(x).T, once(x) @ once(x).T, atol=1e-9)
    smooth = ka.features.nystrom(x, ka.kernels.Gaussian(300.0), 60, rng=0)
    assert np.linalg.cond(matrix(ka.kernels.Gaussian(300.0), smooth.landmarks)) > 1e12
    for dtype, tolerance in (("float64", 1e-9), ("float32", 1e-4)):
        features = smooth(x.astype(dtype)).astype(np.float64)
        np.testing.assert_allclose(features @ features.T, matrix(ka.kernels.Gaussian(300.0), x), atol=tolerance)
    cut = ka.features.nystrom(x, GAUSSIAN, 60, cutoff=0.5, rng=0)
    assert np.linalg.matrix_rank(cut(x)) < 30


def test_kinds_and_dtypes(xp):
    x = clustered(100).astype(np.float32)
    for phi, rows in (
        (ka.features.nystrom(x, GAUSSIAN, 8, rng=0), x[None, :5]),
        (ka.features.nystrom(matrix(GAUSSIAN, x), "precomputed", 8, rng=0), matrix(GAUSSIAN, x)[None, :5]),
    ):
        for dtype in xp.dtypes:
            with xp.wide():
                given = xp.asarray(rows, dtype)
                got = xp.whole(phi)(given)
                assert xp.holds(got)
                assert dtype_name(got) == dtype
                tolerance = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-7}[dtype]
                np.testing.assert_allclose(to_numpy(got), phi(to_numpy(given)), atol=tolerance)
    with xp.wide():
        data = xp.asarray(x, "float64")
        phi = ka.features.nystrom(data, GAUSSIAN, 8, landmarks=data[:8, :], rng=0)
        np.testing.assert_array_equal(phi.landmarks, x[:8])


def test_values_and_files(tmp_path):
    x = clustered(100)
    for kernel, data in ((GAUSSIAN, x), ("precomputed", matrix(GAUSSIAN, x))):
        phi = ka.features.nystrom(data, kernel, 8, rng=1)
        assert phi.fingerprint == ka.features.nystrom(data, kernel, 8, rng=1).fingerprint
        assert phi.fingerprint != ka.features.nystrom(data, kernel, 8, rng=2).fingerprint
        assert phi.redraw(3) is phi
        phi(data)
        reloaded(phi, tmp_path, data)
    out = ka.linear_attention(x, x, x, ka.features.nystrom(x, GAUSSIAN, 8, rng=0), backend="reference")
    assert out.shape == x.shape


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_zeros(name):
    """Most rows have no kernel value at all."""
    x = np.zeros((400, 3))
    x[:3] = np.eye(3)
    for seed in range(3):
        phi = ka.features.nystrom(x, ka.kernels.Polynomial(1), 20, method=name, rng=seed)
        assert np.isfinite(phi(x)).all()
        assert -1e-12 < phi.trace_residual(x) <= 1
        if name not in (*CENTRES, "uniform"):
            assert phi.trace_residual(x) < 1e-12


def test_what_a_residual_is_of():
    x = clustered(100)
    k = matrix(GAUSSIAN, x)
    phi = ka.features.nystrom(k, "precomputed", 8, rng=0)
    with pytest.raises(errors.ShapeError, match=r"\(80, 80\).*\(7, 80\)"):
        phi.trace_residual(k[:7])
    linear = ka.features.nystrom(x, ka.kernels.Polynomial(1), 4, rng=0)
    with pytest.raises(errors.ShapeError, match=r"n, d = 4"):
        linear.trace_residual(x[None])
    with pytest.raises(errors.ParameterError, match="trace"):
        linear.trace_residual(np.zeros((3, 4)))
    with pytest.raises(errors.EmptyInputError, match="empty"):
        phi(k[:0, :8])
    with pytest.raises(errors.ShapeError, match="broadcast"):
        linear.bias(x[:3], x[:4])


def test_closed_forms():
    x, y = clustered(100)[:6], clustered(100)[50:56]
    phi = ka.features.nystrom(clustered(100), GAUSSIAN, 8, rng=0)
    exact = np.exp(-0.5 * np.sum((x - y) ** 2, axis=-1) / 1.5**2)
    np.testing.assert_allclose(phi.bias(x, y), np.sum(phi(x) * phi(y), axis=-1) - exact, atol=1e-12)
    for method in (phi.mean, phi.variance):
        with pytest.raises(errors.NoClosedForm, match="deterministic"):
            method(x, y)


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_linear_in_n(name):
    n, m = 6000, 20
    x = np.random.default_rng(0).standard_normal((n, 3))
    ka.features.nystrom(x[:100], GAUSSIAN, m, method=name, rng=0)
    tracemalloc.start()
    try:
        phi = ka.features.nystrom(x, GAUSSIAN, m, method=name, target=1e-6, rng=0)
        phi(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < n * n * 8 / 12


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"kernel": "gaussian"}, errors.DTypeError, "precomputed"),
        ({"method": "best"}, errors.ParameterError, "rpcholesky"),
        ({"landmarks": np.ones((10, 2)), "method": "greedy"}, errors.ParameterError, "left out"),
        ({"num_landmarks": 0}, errors.ParameterError, "num_landmarks"),
        ({"num_landmarks": None}, errors.ParameterError, "num_landmarks"),
        ({"num_landmarks": 51}, errors.ParameterError, "50 rows"),
        ({"target": 0.0}, errors.ParameterError, "target"),
        ({"target": 1.0}, errors.ParameterError, "target"),
        ({"cutoff": -0.1}, errors.ParameterError, "cutoff"),
        ({"cutoff": 1.0}, errors.ParameterError, "cutoff"),
        ({"data": np.full((50, 2), np.inf)}, errors.ParameterError, "finite"),
        ({"data": np.ones(50)}, errors.ShapeError, r"\(50,\)"),
        ({"data": np.ones((50, 0))}, errors.EmptyInputError, r"\(50, 0\)"),
        ({"data": np.ones((50, 2), int)}, errors.DTypeError, "int64"),
        ({"data": [[1.0]]}, errors.DTypeError, "list"),
        ({"landmarks": np.ones((3, 5))}, errors.ParameterError, "num_landmarks"),
        ({"landmarks": np.ones((10, 5))}, errors.ShapeError, "d = 2"),
        ({"landmarks": np.full(10, 50)}, errors.ParameterError, "50 rows"),
        ({"landmarks": np.full(10, -1)}, errors.ParameterError, "50 rows"),
        ({"kernel": "precomputed"}, errors.ShapeError, r"\(n, n\)"),
        ({"kernel": "precomputed", "method": "kmeans"}, errors.ParameterError, "kmeans"),
        ({"kernel": "precomputed", "method": "minibatch_kmeans"}, errors.ParameterError, "minibatch_kmeans"),
        ({"kernel": "precomputed", "data": np.triu(np.ones((50, 50)))}, errors.ParameterError, "symmetric"),
        (
            {"kernel": "precomputed", "data": np.eye(50), "landmarks": np.ones((10, 50))},
            errors.ParameterError,
            "indices",
        ),
        ({"kernel": "precomputed", "data": -np.eye(50)}, errors.ParameterError, "-1.0"),
        ({"kernel": "precomputed", "data": 2 - np.eye(50)}, errors.ParameterError, "from -1 to 99"),
        ({"kernel": ka.kernels.Polynomial(2), "data": np.zeros((50, 2))}, errors.ParameterError, "trace"),
        ({"kernel": ka.kernels.Polynomial(2), "data": np.full((50, 2), 1e100)}, errors.ParameterError, "finite"),
    ],
)
def test_refused_before_any_draw(change, error, words):
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    arguments = {"kernel": GAUSSIAN, "data": np.ones((50, 2)), "num_landmarks": 10, "rng": rng} | change
    with pytest.raises(error, match=words):
        ka.features.nystrom(**arguments)
    assert rng.bit_generator.state == before


def test_few_rows_that_make_a_matrix_indefinite():
    """They are not among those that are looked at first: landmarks, or features of the other rows, show them."""
    matrix = np.eye(1100)
    matrix[[1, 3], [3, 1]] = 2.0
    for landmarks, words in (([1, 3], "from -1 to 3"), ([1, 9], "above k")):
        with pytest.raises(errors.ParameterError, match=words):
            ka.features.nystrom(matrix, "precomputed", landmarks=np.array(landmarks))
    rounded = matrix.astype("f4")
    rounded[[1, 3], [3, 1]] = 1.0 + 1e-6
    assert ka.features.nystrom(rounded, "precomputed", landmarks=np.array([1, 9])).num_features == 2


def test_old_calls():
    x = clustered(100)
    new = ka.features.nystrom(x, GAUSSIAN, 8, method="greedy")
    for old in (
        lambda: ka.features.nystrom(GAUSSIAN, x, 8, "greedy"),
        lambda: ka.features.nystrom(GAUSSIAN, x, num_features=8, landmarks="greedy"),
        lambda: ka.features.nystrom(GAUSSIAN, data=x, num_features=8, landmarks="greedy"),
        lambda: ka.features.nystrom(GAUSSIAN, x, None, new.indices),
        lambda: ka.features.nystrom("precomputed", matrix(GAUSSIAN, x), 8, "greedy"),
    ):
        with pytest.warns(DeprecationWarning, match="nystrom"):
            np.testing.assert_array_equal(old().indices, new.indices)


@pytest.mark.parametrize("columns", [1, 20])
def test_products_without_features(columns):
    """Products with few columns leave the root out; of maps made of maps, too, and far from all landmarks."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 3))
    phi = ka.features.nystrom(x, ka.kernels.Gaussian(1.5), 24, rng=0)
    line = ka.features.linear(np.ones(3))
    for made in (phi, phi + line, 2.0 * phi + line, ka.features.Transformed(phi + line, np.eye(3))):
        rows = np.concatenate([x, 1e3 * x[:2]])
        matrix = rng.standard_normal((made.num_features_of(3), columns))
        for given, rtol in ((rows, 1e-9), (rows.astype(np.float32), 1e-3)):
            wanted = made(given) @ matrix.astype(given.dtype)
            got = made._project(given, matrix, None)
            assert got.dtype == given.dtype
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)
