"""Norms that overflow a float many times over, and keys of very different sizes in one sequence."""

import numpy as np
import pytest

import kernattn as ka
import laws
import maps
from covering import turns
from xp import Backend

SIZES = {
    "early keys 30 times larger": (30, 1),
    "late keys 30 times larger": (1, 30),
    "early keys 1000 times smaller": (1e-3, 1),
    "late keys 1000 times smaller": (1, 1e-3),
}


def uneven(n, turn, early, late, dtype="float32"):
    q, k, v = laws.arrays(5, (2, n, maps.DIM), (2, n, maps.DIM), (2, n, 3), dtype=dtype)
    factor = np.where(np.arange(n) < turn, early, late)[:, None]
    return q, (k * factor).astype(k.dtype), v


@pytest.mark.parametrize(("name", "sizes"), turns(maps.MAPS, SIZES))
def test_uneven_keys_are_blind_to_the_future(name, backend, sizes):
    signed = name not in maps.NONNEGATIVE
    q, k, v = uneven(70, 35, *SIZES[sizes], dtype="float64" if signed else "float32")
    if name.endswith("softmax") and name.startswith(("trig", "phase")):
        k = k / 10  # at |k|^2/2 of a thousand one key outweighs all the others: a quotient of roundings
    for t in (0, 34, 35, 68):
        laws.blind_to_the_future(maps.make(name), q, k, v, backend, t=t)


@pytest.mark.parametrize(("name", "growth"), turns(maps.NONNEGATIVE, [30, 1e-3]))
def test_the_future_may_be_of_another_size(name, backend, growth):
    q, k, v = uneven(70, 35, 1, 1)
    for t in (0, 31, 40, 68):
        laws.blind_to_the_future(maps.make(name), q, k, v, backend, t=t, growth=growth)


@pytest.mark.parametrize(("name", "filling"), turns(maps.MAPS, [np.nan, np.inf]))
def test_nan_and_infinity_stay_where_they_are_seen(name, backend, filling):
    q, k, v = laws.arrays(10, (140, maps.DIM), (140, maps.DIM), (140, 4), dtype="float64")
    ids = np.repeat([0, 1, 2], [50, 20, 70])
    for bad in (0, 20, 60, 110):
        laws.what_is_not_seen_may_be_anything(maps.make(name), q, k, v, ids, backend, bad=bad, filling=filling)


@pytest.mark.parametrize(("name", "sizes"), turns(maps.NONNEGATIVE, SIZES))
def test_uneven_keys_agree_in_all_forms(name, backend, sizes):
    q, k, v = uneven(66, 20, *SIZES[sizes])
    laws.forms_agree(maps.make(name), q, k, v, backend, cut=31)


@pytest.mark.parametrize(("name", "norm"), turns(maps.NONNEGATIVE, [1, 30, 256, 1000]))
def test_normalisers_stay_above_zero(name, backend, norm):
    q, k, v = laws.arrays(6, (2, 66, maps.DIM), (2, 66, maps.DIM), (2, 66, 3))
    q, k = (norm * x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    laws.in_the_hull_of_the_values(maps.make(name), q.astype("float32"), k.astype("float32"), v, backend)


@pytest.mark.parametrize("name", maps.EXPONENTIAL)
def test_huge_norms_agree_with_the_oracle(name, backend):
    q, k, v = laws.arrays(7, (66, maps.DIM), (66, maps.DIM), (66, 3), dtype="float64", scale=300.0)
    laws.oracle_agrees(maps.make(name), q, k, v, backend)


@pytest.mark.parametrize("norm", [1e2, 1e4, 1e6])
def test_the_norm_of_a_query_costs_no_digits(backend, norm):
    """Its square stands in the log of every feature of a query, and cancels."""
    phi = ka.random_features(ka.kernels.Softmax(), 4, 8, "positive", rng=1)
    k, v, q = np.random.default_rng(0).standard_normal((3, 80, 4)).astype("f4")
    q *= np.float32(norm) / np.linalg.norm(q, axis=1, keepdims=True)
    wide = [x.astype("f8") for x in (q, k, v)]
    wanted = laws.causal(phi, *wide)[0]
    np.testing.assert_allclose(laws.causal(phi, q, k, v, backend)[0], wanted, atol=5e-6)
    a = backend.kind.asarray
    _, (log, _), _ = ka.attention.causal_with_lse(a(q), a(k), a(v), phi, backend=backend.name)
    _, (wide_log, _), _ = ka.attention.causal_with_lse(*wide, phi, backend="reference")
    np.testing.assert_allclose(np.asarray(log), wide_log, rtol=1e-6)


@pytest.mark.parametrize("name", maps.MAPS)
def test_no_row_is_nan_up_to_the_edge(name, backend):
    """Finite whatever the norms, while |x|^2 is finite in the accumulation dtype."""
    q, k, v = laws.arrays(8, (34, maps.DIM), (34, maps.DIM), (34, 3))
    for size in (1e-30, 1e8, 1e17):
        if name.startswith(("polynomial", "generalized-own")) and size > 1:
            continue  # powers of x
        for each in (
            laws.linear(maps.make(name), size * q, size * k, v, backend),
            laws.causal(maps.make(name), size * q, size * k, v, backend)[0],
        ):
            assert np.isfinite(each).all(), size


def test_small_elu1_features(backend):
    """At x = -30, elu(x) + 1 would be 0 in float32."""
    q, k, v = laws.arrays(9, (40, maps.DIM), (40, maps.DIM), (40, 3))
    laws.oracle_agrees(maps.make("elu1"), q - 30, k - 30, v, backend)
    laws.in_the_hull_of_the_values(maps.make("elu1"), q - 30, k - 30, v, backend)


def test_relu_rows_that_nothing_reaches_are_zero(backend):
    q, k, v = laws.arrays(9, (40, maps.DIM), (40, maps.DIM), (40, 3))
    q[::3] = -np.abs(q[::3])
    k[:10] = -np.abs(k[:10])
    phi = maps.make("relu")
    for out in (laws.causal(phi, q, k, v, backend)[0], laws.steps(phi, q, k, v, backend)[0]):
        assert (out[::3] == 0).all()
        assert (out[:10] == 0).all()
        assert (out[11] != 0).any()
    assert (laws.linear(phi, q, k, v, backend)[::3] == 0).all()


SPECS = [
    name for name in maps.MAPS if name.startswith(("elu1", "relu", "exp", "positive", "hyperbolic", "trig", "phase"))
]
RANGE = {
    "float32": (1e-45, 1e-25, 1e-10, 50, 1e10, 1e19, 1e20, 1e30, 1e38),
    "float64": (1e-320, 1e-200, 50, 1e20, 1e154, 1e160, 1e300, 1e307),
}


COMPUTED = {
    **{name: lambda name=name: maps.make(name) for name in ("polynomial", "generalized-sigmoid", *maps.OTHERS)},
    "square": lambda: ka.features.generalized("square", maps.DIM, maps.FEATURES, rng=0),
    "nystrom softmax": lambda: nystrom(ka.kernels.Softmax()),
    "nystrom polynomial": lambda: nystrom(ka.kernels.Polynomial(3, coef0=1.0)),
    "nystrom composite": lambda: nystrom(2 * ka.kernels.Softmax() * ka.kernels.ArcCosine(2) + ka.kernels.Gaussian()),
    "quadrature": lambda: ka.features.quadrature(ka.kernels.Softmax(), maps.DIM, 2, "smolyak"),
    "products": lambda: maps.make("polynomial") * maps.make("relu") * ka.features.taylor2(),
}


def nystrom(kernel):
    return ka.features.nystrom(*laws.arrays(5, (20, maps.DIM), dtype="float64"), kernel, 6, rng=0)


def every_form(phi, q, k, v, backend):
    rows, state = laws.steps(phi, q, k, v, backend)
    read = laws.attend(phi, state, q, backend)
    return laws.linear(phi, q, k, v, backend), laws.causal(phi, q, k, v, backend)[0], rows, read


@pytest.mark.parametrize(("name", "dtype"), turns(SPECS, RANGE))
def test_compiled_loops_are_finite_for_every_finite_input(name, dtype):
    pytest.importorskip("numba")
    phi, largest = maps.make(name), np.finfo(dtype).max
    rng = np.random.default_rng(3)
    for size in RANGE[dtype]:
        q, k, v = (rng.uniform(-1, 1, (20, width)) for width in (maps.DIM, maps.DIM, 3))
        for values in (1, largest):
            each = (q * size).astype(dtype), (k * size).astype(dtype), (v * values).astype(dtype)
            for out in every_form(phi, *each, Backend("cpu")):
                assert np.isfinite(out).all(), (size, values)
                if name in maps.NONNEGATIVE:
                    assert (np.abs(out) <= np.abs(each[2]).max() * (1 + 1e-6)).all(), (size, values)
                if name in maps.EXPONENTIAL and values == 1:
                    assert (out[..., 0] != 0).all(), (size, values)


@pytest.mark.parametrize(("name", "dtype"), turns(dict.fromkeys([*SPECS, *COMPUTED]), RANGE))
def test_the_reference_is_finite_for_every_finite_input(name, dtype):
    """Maps without a spec are given to every backend as the features that are computed here."""
    phi, largest = COMPUTED.get(name, lambda: maps.make(name))(), np.finfo(dtype).max
    rng = np.random.default_rng(3)
    for size in RANGE[dtype]:
        q, k, v = (rng.uniform(-1, 1, (5, width)) for width in (maps.DIM, maps.DIM, 3))
        if "chi2" in name:
            q, k = np.abs(q), np.abs(k)
        for values in (1, largest):
            each = (q * size).astype(dtype), (k * size).astype(dtype), (v * values).astype(dtype)
            for out in every_form(phi, *each, Backend("reference")):
                assert np.isfinite(out).all(), (size, values)
                if name in maps.NONNEGATIVE:
                    assert (np.abs(out) <= np.abs(each[2]).max() * (1 + 1e-6)).all(), (size, values)
        if phi.query_spec is None:
            assert not np.isnan(phi.query(each[0])).any(), size


@pytest.mark.parametrize("name", ["nystrom softmax", "square", "products"])
def test_computed_features_have_units_in_compiled_loops_too(name):
    pytest.importorskip("numba")
    phi = COMPUTED[name]()
    for size in RANGE["float32"]:
        q, k, v = (np.float32(size) * x for x in laws.arrays(5, (9, maps.DIM), (9, maps.DIM), (9, 3)))
        for out in every_form(phi, q, k, v / np.float32(size), Backend("cpu")):
            assert np.isfinite(out).all(), size


def test_a_function_of_ones_own_that_overflows_is_refused():
    x = np.full((3, maps.DIM), 1e30, dtype=np.float32)
    with pytest.raises(ka.errors.ParameterError, match="f must give finite numbers where projections are finite"):
        laws.linear(maps.make("generalized-own"), x, x, x)


@pytest.mark.parametrize("size", [1e-30, 1e-25, 1e10, 1e25])
def test_relu_is_the_same_at_every_size(size):
    pytest.importorskip("numba")
    q, k, v = laws.arrays(9, (40, maps.DIM), (40, maps.DIM), (40, 3))
    scaled = (np.float32(size) * x for x in (q, k))
    wanted = every_form(maps.make("relu"), q, k, v, Backend("cpu"))
    for one, other in zip(every_form(maps.make("relu"), *scaled, v, Backend("cpu")), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def averaged(weights, v):
    return weights @ v / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("size", [1e6, 1e8, 1e12])
def test_logs_of_a_query_that_have_no_digits(size):
    """Float32 has no place for the units of keys beside such logs: 1e8 + 3 is 1e8."""
    pytest.importorskip("numba")
    rng, n = np.random.default_rng(2), 60
    k, v = (rng.standard_normal((n, width)).astype("f4") for width in (4, 3))
    q = np.float32(size) * rng.choice([-1, 1], (n, 1)).astype("f4")
    q = q + np.spacing(np.float32(size)) * rng.integers(-3, 3, (n, 4)).astype("f4")
    logs = q.astype("f8")[:, None] + k.astype("f8")
    weights = np.exp(logs - logs.max(axis=(1, 2), keepdims=True)).sum(axis=-1)
    full, causal, rows, read = every_form(ka.features.exp(), q, k, v, Backend("cpu"))
    for one, seen in ((causal, np.tri(n)), (rows, np.tri(n)), (full, 1), (read, 1)):
        np.testing.assert_allclose(one, averaged(weights * seen, v), atol=2e-5)


@pytest.mark.parametrize("dtype", RANGE)
@pytest.mark.parametrize("name", ["elu1", "relu"])
def test_rows_that_span_the_floats_stay_among_the_values(name, dtype):
    """What a key cannot hold beside the largest features seen counts as 0; the rest keeps its digits."""
    pytest.importorskip("numba")
    phi, rng, n = maps.make(name), np.random.default_rng(8), 70
    low, high = np.minimum, np.maximum
    for spread in (5, 10, 20, 37) if dtype == "float32" else (20, 150, 307):
        for _ in range(5):
            sizes = 10.0 ** rng.uniform(-spread, spread, (2, n, 3))
            q, k = (sizes * (rng.random((2, n, 3)) < 0.4) * rng.choice([-1, 1, 1], (2, n, 3))).astype(dtype)
            v = rng.uniform(1, 2, (n, 2)).astype(dtype)
            full, causal, rows, read = every_form(phi, q, k, v, Backend("cpu"))
            for one in (causal, rows):
                inside = (one >= low.accumulate(v) - 1e-5) & (one <= high.accumulate(v) + 1e-5)
                assert (inside | (one == 0)).all(), spread
            for one in (full, read):
                assert (((one >= v.min(0) - 1e-5) & (one <= v.max(0) + 1e-5)) | (one == 0)).all(), spread


@pytest.mark.parametrize("dtype", RANGE)
def test_a_query_whose_large_features_meet_nothing(dtype):
    pytest.importorskip("numba")
    large, small = (1e30, 1e-8) if dtype == "float32" else (1e290, 1e-30)
    q, v = np.array([[large, small]] * 3, dtype), np.array([[1], [2], [3]], dtype)
    k = np.array([[0, 1], [0, 1], [0, 2]], dtype)
    full, causal, rows, read = every_form(ka.features.relu(), q, k, v, Backend("cpu"))
    for one in (causal, rows):
        np.testing.assert_allclose(one, [[1], [1.5], [2.25]], rtol=1e-6)
    for one in (full, read):
        np.testing.assert_allclose(one, 2.25, rtol=1e-6)


def test_normalisers_tell_their_logarithm_at_every_size():
    pytest.importorskip("numba")
    for name in SPECS:
        for size in RANGE["float32"]:
            q, k, v = (np.float32(size) * x for x in laws.arrays(5, (9, maps.DIM), (9, maps.DIM), (9, 3)))
            phi = maps.make(name)
            out, (log, sign), state = ka.attention.causal_with_lse(q, k, v / np.float32(size), phi, backend="cpu")
            assert np.isfinite(out).all()
            assert (np.isfinite(log) == (sign != 0)).all(), (name, size)
            _, (again, sign) = ka.attention.attend_with_lse(state, q, phi, backend="cpu")
            assert (np.isfinite(again) == (sign != 0)).all(), (name, size)


@pytest.mark.parametrize("shift", [30, 110, 1e4])
def test_elu1_far_below_zero_is_exponential(shift):
    """e^(x - shift) has no unit that it must be told in: elu1 of such inputs is the map exp."""
    pytest.importorskip("numba")
    q, k, v = laws.arrays(9, (40, maps.DIM), (40, maps.DIM), (40, 3), dtype="float64")
    wanted = every_form(maps.make("exp"), q - 30, k - 30, v, Backend("cpu"))
    for one, other in zip(every_form(maps.make("elu1"), q - shift, k - shift, v, Backend("cpu")), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("name", maps.NONNEGATIVE)
def test_huge_values_are_averaged(name):
    pytest.importorskip("numba")
    q, k, v = laws.arrays(9, (70, maps.DIM), (70, maps.DIM), (70, 3))
    wanted = every_form(maps.make(name), q, k, v, Backend("cpu"))
    for one, other in zip(
        every_form(maps.make(name), q, k, v * np.float32(2.0**125), Backend("cpu")), wanted, strict=True
    ):
        np.testing.assert_allclose(one * 2.0**-125, other, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(np.finfo(np.longdouble).maxexp < 10_000, reason="no wider float")
@pytest.mark.parametrize("size", [30, 1e4, 1e17, 1e19, 1e30, 1e37])
def test_two_maps_answer_with_the_heaviest_key(size, backend):
    """Log features of such rows lie so far apart that one key outweighs all others, where float32 can tell them."""
    phi = maps.make("favor_sharp_asymmetric")
    q, k, v = (
        factor * x
        for factor, x in zip((size, size, 1), np.random.default_rng(3).uniform(-1, 1, (3, 20, 5)), strict=True)
    )
    given = [x.astype("f4") for x in (q, k, v)]
    logs = [wide_logs(spec, x) for spec, x in ((phi.query_spec, given[0]), (phi.key_spec, given[1]))]
    terms = (logs[0][:, None] + logs[1]).max(axis=-1)  # (n, l), of the heaviest feature
    for causal in (False, True):
        seen = np.where(np.tri(20, dtype=bool), terms, -np.inf) if causal else terms
        first, second = np.sort(seen, axis=-1)[:, :-3:-1].T
        largest = max(np.abs(each).max() for each in logs)
        told = (first - second > 30 + 1e-4 * largest) & (largest < 1e36)  # beyond, logs are held: keys count alike
        outs = [laws.causal(phi, *given, backend)[0], laws.steps(phi, *given, backend)[0]] if causal else []
        for out in outs or [laws.linear(phi, *given, backend)]:
            assert np.isfinite(out).all()
            assert (np.abs(out).max(axis=-1) > 0).all()
            np.testing.assert_allclose(out[told], given[2][seen.argmax(axis=-1)][told], rtol=1e-5)
    assert not 100 < size < 1e18 or told.any()


def wide_logs(spec, x):
    x, omega, form = x.astype(np.longdouble), spec.omega.astype(np.longdouble), spec.row_form
    squares = np.sum(((x - form.centre) @ form.factor.T.astype(np.longdouble)) ** 2, axis=-1)
    return x @ omega.T + spec.offset + (x @ form.linear - squares / 2)[:, None]


@pytest.mark.parametrize(("dtype", "size"), [("f4", 1e20), ("f4", 1e30), ("f8", 1e155), ("f8", 2e300)])
@pytest.mark.parametrize("estimator", ["trigonometric", "phase", "positive"])
def test_squares_may_overflow_before_they_are_scaled(estimator, dtype, size, backend):
    phi = ka.random_features(ka.kernels.Softmax(1e-25), 4, 12, estimator, "iid", rng=0)
    q, k, v = np.zeros((3, 4), dtype), np.full((3, 4), size, dtype), np.ones((3, 2), dtype)
    for out in (laws.linear(phi, q, k, v, backend=backend), laws.causal(phi, q, k, v, backend=backend)[0]):
        np.testing.assert_allclose(out, v, rtol=1e-5)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["elu1", "quadrature", "nystrom softmax"])
def test_no_flag_of_the_arithmetic_comes_through(name, backend):
    """BLAS may raise flags for lanes that hold no data: here, data that give NaN stand for such lanes."""
    phi = COMPUTED.get(name, lambda: maps.make(name))()
    q, k, v = np.random.default_rng(5).standard_normal((3, 6, maps.DIM))
    q[1], v[2], v[3] = np.inf, np.inf, -np.inf
    with np.errstate(invalid="raise"):
        phi(q, backend=backend)
        for out in every_form(phi, q, k, v, Backend(backend)):
            assert np.isnan(out).any()
