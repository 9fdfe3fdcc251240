"""Few tokens by products of queries and keys: the same numbers as by sums over the keys."""

import numpy as np
import pytest

import kernattn as ka

pytest.importorskip("numba")

from kernattn.ops.attend.short import short

DIM = 8
MAPS = {
    "positive": lambda: ka.random_features(ka.kernels.Softmax(), DIM, 64, "positive", rng=0),
    "trigonometric": lambda: ka.random_features(ka.kernels.Gaussian(), DIM, 64, "trigonometric", rng=0),
    "elu1": ka.features.elu1,
    "relu": ka.features.relu,
}


def _inputs(n, lead=(2,)):
    return np.random.default_rng(n).standard_normal((3, *lead, n, DIM)).astype(np.float32)


def _by_sums(q, k, v, phi, mask=None):
    return ka.attend(ka.key_state(k, v, phi, key_mask=mask, backend="cpu"), q, phi, backend="cpu")


def _direct(q, k, v, phi, mask=None):
    """What `short` makes of the queries and keys, None where it leaves them to the sums."""
    found = short(k, v, phi.key_spec, mask, q, phi.query_spec, q.dtype, False)
    return None if found is None else found[0]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("name", MAPS)
def test_the_same_numbers_as_by_sums(name, n, masked):
    q, k, v = _inputs(n)
    phi, mask = MAPS[name](), np.arange(n) % 2 == 0 if masked else None
    out = _direct(q, k, v, phi, mask)
    np.testing.assert_allclose(out, _by_sums(q, k, v, phi, mask), rtol=2e-4, atol=2e-5)
    np.testing.assert_array_equal(out, ka.linear_attention(q, k, v, phi, key_mask=mask, backend="cpu"))


@pytest.mark.parametrize("name", ["positive", "elu1"])
def test_grouped_queries_and_one_head_of_values(name):
    q, k, v = _inputs(4, (2, 3))
    k, v, phi = k[:, :1], v[:1, :1], MAPS[name]()
    np.testing.assert_allclose(_direct(q, k, v, phi), _by_sums(q, k, v, phi), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("what", ["keys", "values", "nan"])
def test_keys_that_share_no_unit_are_left_to_the_sums(what):
    """A later key lies octaves above the first, or beside it stand values that its sums must be lifted for."""
    q, k, v = _inputs(4)
    if what == "keys":
        k[:, 0] *= 200  # of which positive features are small
    else:
        v[:, 2] = np.nan if what == "nan" else 1e37
    phi = MAPS["positive"]()
    assert _direct(q, k, v, phi) is None
    out = ka.linear_attention(q, k, v, phi, backend="cpu")
    np.testing.assert_array_equal(out, _by_sums(q, k, v, phi))


@pytest.mark.parametrize("name", ["positive", "elu1", "relu"])
def test_huge_values_from_the_first_key_on(name):
    """They lift sums, for which there is no room here: writing to them would break the heap within a few calls."""
    q, k, v = _inputs(4)
    v, phi = np.repeat(v, 8, axis=-1) * np.float32(1e30), MAPS[name]()
    for _ in range(20):
        np.testing.assert_array_equal(np.isfinite(_direct(q, k, v, phi)), True)
    np.testing.assert_allclose(_direct(q, k, v, phi), _by_sums(q, k, v, phi), rtol=2e-4, atol=1e26)


def test_queries_that_meet_nothing_but_a_faint_later_key():
    """Products with it would lose their digits: the query is raised, though it meets no key up to its own."""
    q, k, v = _inputs(3, ())
    q[:], k[:] = 0, 0
    k[0, 0] = q[2, 0] = 1
    k[2, 1], q[0, 1] = 1e-30, 1e-14
    q[0, 2] = 1.0  # a large feature that meets zeros
    out = _direct(q, k, v, ka.features.relu())
    np.testing.assert_allclose(out[0], v[2], rtol=1e-5)
    np.testing.assert_allclose(out[2], v[0], rtol=1e-6)
    np.testing.assert_array_equal(out[1], 0)


def test_other_queries_do_not_change_a_row():
    q, k, v = _inputs(5)
    phi = MAPS["positive"]()
    out = _direct(q, k, v, phi)
    for other in (np.nan, 1e4):
        q[:, 3] = other
        np.testing.assert_array_equal(np.delete(_direct(q, k, v, phi), 3, axis=1), np.delete(out, 3, axis=1))


@pytest.mark.parametrize(("n", "queries"), [(129, 129), (65, 65), (5, 4)])
def test_many_tokens_and_other_numbers_of_queries_are_left_to_the_sums(n, queries, monkeypatch):
    """Before queries are looked at, which the sums look at anyway."""
    monkeypatch.setattr("kernattn.ops.attend.short.queries", None)
    q, k, v = _inputs(n)
    assert _direct(q[:, :queries], k, v, MAPS["elu1"]()) is None
