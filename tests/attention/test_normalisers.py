"""Normalisers of rows: what outputs were divided by, of signed maps too, and what outputs over parts merge by."""

import numpy as np
import pytest

import kernattn as ka
import laws
import maps

NAMES = ["elu1", "relu", "positive-ard", "hyperbolic-softmax", "trigonometric-ard", "phase-softmax", "polynomial"]
OTHERS = ["favor_sharp_asymmetric", "squared neurons", "sum"]


def inputs(dtype="float64", n=41):
    return laws.arrays(3, (2, 3, n, maps.DIM), (2, 1, n, maps.DIM), (2, 1, n, 3), dtype=dtype)


@pytest.mark.parametrize("name", NAMES + OTHERS)
def test_they_are_the_dense_ones(name, backend):
    phi, (q, k, v) = maps.make(name), inputs()
    mask, ids = np.random.default_rng(1).random(41) < 0.6, np.arange(41) // 15 % 2
    laws.normalisers_are_true(phi, q, k, v, backend, cut=17)
    laws.normalisers_are_true(phi, q, k, v, backend, cut=17, key_mask=mask)
    laws.normalisers_are_true(phi, q, k, v, backend, cut=17, key_mask=mask, segment_ids=ids)


@pytest.mark.parametrize("name", ["relu", "positive-ard", "trigonometric-ard"])
def test_they_go_on_from_a_state(name, backend):
    phi, (q, k, v) = maps.make(name), map(backend.kind.asarray, inputs())

    def told(rows, state):
        return ka.attention.causal_with_lse(
            *(x[..., rows, :] for x in (q, k, v)), phi, state=state, backend=backend.name
        )

    out, (log, sign), last = told(slice(None), None)
    state = told(slice(17), None)[2]
    rest, (rest_log, rest_sign), after = told(slice(17, None), state)
    for got, wanted in ((rest, out[..., 17:, :]), (rest_log, log[..., 17:]), (rest_sign, sign[..., 17:])):
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-9, atol=1e-11)
    sums = (np.asarray(each.s) * np.exp(np.asarray(each.peak))[..., None] for each in (after, last))
    np.testing.assert_allclose(*sums, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["elu1", "positive-softmax", "trigonometric-softmax"])
def test_in_float32_and_where_nothing_is_seen(name, backend):
    phi, (q, k, v) = maps.make(name), inputs("float32")
    late = np.arange(41) >= 20
    laws.normalisers_are_true(phi, q, k, v, backend, cut=17, key_mask=late)  # the first part is empty
    _, (log, sign), _ = ka.attention.causal_with_lse(
        *map(backend.kind.asarray, (q, k, v)), phi, key_mask=backend.kind.asarray(late), backend=backend.name
    )
    assert str(log.dtype).endswith("float32")
    assert (np.asarray(log)[..., :20] == -np.inf).all()
    assert (np.asarray(sign)[..., :20] == 0).all()


def test_of_a_single_feature(backend):
    """One feature with a log scale of its own is not one log scale for a row."""
    phi, (q, k, v) = ka.features.exp(), (x[..., :1] for x in inputs())
    laws.normalisers_are_true(phi, q, k, v, backend, cut=17)


def test_they_do_not_overflow(backend):
    """Rows of norm 400 have normalisers far beyond the range of float32, and their logarithm is told."""
    phi, (q, k, v) = maps.make("positive-softmax"), inputs("float32")
    big = [backend.kind.asarray(x) for x in (100 * q, 100 * k, v)]
    _, (log, sign), _ = ka.attention.causal_with_lse(*big, phi, backend=backend.name)
    wide = [x.astype("f8") for x in (100 * q, 100 * k, v)]
    _, (wanted, _), _ = ka.attention.causal_with_lse(*wide, phi, backend="reference")
    assert np.abs(wanted).max() > 1000
    np.testing.assert_allclose(np.asarray(log), wanted, rtol=1e-4, atol=1)
    assert (np.asarray(sign) == 1).all()


def log_features(name, x):
    x = x.astype("f8")
    if name == "exp":
        return x
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(x, 0)) if name == "relu" else np.where(x > 0, np.log1p(np.maximum(x, 0)), x)


def rows(dtype, size=1.0, shift=0.0):
    q, k, v = np.random.default_rng(3).standard_normal((3, 60, 4))
    return [(size * q - shift).astype(dtype), (size * k - shift).astype(dtype), v.astype(dtype)]


def equal_entries(size):
    """Queries whose log features stand this far from those of the keys: float32 has no digits for the latter."""
    q, k, v = rows("float32")
    return [np.float32(size) * np.sign(q[:, :1]) + np.zeros_like(q), k, v]


def large_features_that_meet_nothing(dtype, large, small):
    return [np.array(each, dtype) for each in ([[large, small]] * 3, [[0, 1], [0, 1], [0, 2]], [[1], [2], [3]])]


SIZES = {
    **{f"exp {size:g}": lambda size=size: equal_entries(size) for size in (1e6, 1e8, 1e12)},
    **{f"relu {size:g}": lambda size=size: rows("float32", size) for size in (1e-30, 1e-10, 1e10, 1e19)},
    **{f"elu1 {shift:g}": lambda shift=shift: rows("float32", shift=shift) for shift in (30, 110, 1e4)},
    "relu raised": lambda: large_features_that_meet_nothing("float32", 1e30, 1e-8),
    "relu raised far": lambda: large_features_that_meet_nothing("float64", 1e290, 1e-30),
}


@pytest.mark.parametrize("case", SIZES)
def test_logs_are_true_at_every_size(case, backend):
    name, (q, k, v) = case.split()[0], SIZES[case]()
    logs = log_features(name, q)[:, None] + log_features(name, k)  # (n, l, M)
    given = [backend.kind.asarray(x) for x in (q, k, v)]
    phi = getattr(ka.features, name)()
    _, causal, state = ka.attention.causal_with_lse(*given, phi, backend=backend.name)
    _, full = ka.attention.attend_with_lse(state, given[0], phi, backend=backend.name)
    for (log, sign), seen in ((causal, np.tri(len(q), dtype=bool)), (full, np.ones((len(q), len(k)), bool))):
        wanted = np.logaddexp.reduce(np.where(seen[..., None], logs, -np.inf).reshape(len(q), -1), axis=-1)
        np.testing.assert_allclose(np.asarray(log), wanted, rtol=1e-6, atol=1e-4)
        assert (np.asarray(sign) == (wanted > -np.inf)).all()
