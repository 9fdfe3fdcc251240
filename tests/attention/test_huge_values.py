"""Values near the largest float: sums of them keep room, and keys beside them their digits as far as the guide says."""

import numpy as np
import pytest

import kernattn as ka
import laws
from kernattn._sums.limits import ENDS
from xp import Backend

pytest.importorskip("numba")

CPU = Backend("cpu")


def of_elu1(*rows):
    return np.array(rows, "f4")


def in_every_form(phi, q, k, v):
    """Return the last row of all forms that see every key."""
    rows, state = laws.steps(phi, q, k, v, CPU)
    full, causal = laws.linear(phi, q, k, v, CPU), laws.causal(phi, q, k, v, CPU)[0]
    return [each[-1] for each in (full, causal, rows, laws.attend(phi, state, q, CPU))]


@pytest.mark.parametrize("huge", [1, 1e10, 1e16, 1e21, 1e22, 3e38])
def test_a_segment_does_not_know_the_values_of_the_one_before(huge):
    q, k = of_elu1([0, 0], [5, -60], [5, -60]), of_elu1([0, 0], [-45, 5], [-44, 5])
    v = of_elu1([huge, huge], [1, 0], [0, 1])
    out = ka.causal_linear_attention(q, k, v, ka.features.elu1(), segment_ids=np.array([0, 1, 1]))[0]
    np.testing.assert_allclose(out[2], [1 / (1 + np.e), np.e / (1 + np.e)], rtol=1e-5)


@pytest.mark.parametrize("huge", [1, 1e16, 2e21])
def test_keys_beside_large_values_keep_their_digits(huge):
    """The query meets features 2^66 below the largest that was seen."""
    q, k = of_elu1([5, -1e4], [5, -1e4], [5, -1e4]), of_elu1([-1e4, 5], [-45, 5], [-44, 5])
    for out in in_every_form(ka.features.elu1(), q, k, of_elu1([huge, huge], [1, 0], [0, 1])):
        np.testing.assert_allclose(out, np.array([1, np.e]) / (1 + np.e), rtol=1e-5)


@pytest.mark.parametrize("size", [2.0**35, 2.0**37, 2.0**51, 2.0**71, 2.0**73, 2.0**127])
def test_sums_of_rows_that_rise_are_floats(size):
    """A chunk stands in the unit of its first key; keys and queries without a unit of their own may be 2^16."""
    q, k = np.full((3, 1), 2.0**15, "f4"), np.array([[2.0**-49], [2.0**15], [2.0**15]], "f4")
    v = np.array([[0], [size], [size]], "f4")
    for out in in_every_form(ka.features.relu(), q, k, v):
        np.testing.assert_allclose(out, size, rtol=1e-6)


@pytest.mark.parametrize("below", [30, 45, 50])
def test_a_query_that_meets_a_small_key_alone_is_raised_no_further_than_values_allow(below):
    q, k = np.array([[0, 1]] * 2, "f4"), np.array([[1, 0], [0, 2.0**-below]], "f4")
    v = np.array([[1e38], [3e38]], "f4")
    for out in in_every_form(ka.features.relu(), q, k, v):
        np.testing.assert_allclose(out, v[1], rtol=1e-6)


@pytest.mark.parametrize("dtype", list(ENDS))
def test_the_table_of_ends(dtype):
    """Octaves: 24 for the tokens of a state, 7 for those of a chunk, 32 for a key and a query without units."""
    ends, limits = ENDS[dtype], np.finfo(dtype)
    large, huge = np.log2((ends.large, ends.huge))
    assert ends.held == limits.max / 64
    assert limits.maxexp - ends.lift <= huge <= limits.maxexp - 32 - 24
    assert max(large + ends.rise, huge + ends.low_rise) <= limits.maxexp - 32 - 7


def test_outputs_of_signed_maps_are_held_to_16_bits():
    phi = ka.random_features(ka.kernels.Softmax(), 8, 4, "trigonometric", rng=0)
    held = 0
    for seed in range(10):
        q, k, v = np.random.default_rng(seed).standard_normal((3, 64, 8))
        each = [(factor * x).astype("f2") for factor, x in zip((3, 3, 1e4), (q, k, v), strict=True)]
        outs = [ka.linear_attention(*each, phi, backend=name) for name in ("cpu", "reference")]
        causal, _ = ka.causal_linear_attention(*each, phi, backend="cpu")
        rows, _ = laws.steps(phi, *each, CPU)
        for out in (*outs, causal, rows):
            assert np.isfinite(out).all()
        held += sum((np.abs(out) == 65504).any() for out in (outs[0], causal, rows))
    assert held > 0


def test_a_value_that_is_no_number_lifts_nothing():
    q, k = of_elu1([5, -1e4], [5, -1e4], [5, -1e4]), of_elu1([-1e4, 5], [-45, 5], [-44, 5])
    for out in in_every_form(ka.features.elu1(), q, k, of_elu1([np.nan, 1], [1, 0], [0, 1])):
        np.testing.assert_allclose(out[1], np.e / (1 + np.e), rtol=1e-5)


@pytest.mark.parametrize(("below", "size"), [(45, 1), (45, 1e38), (105, 1)])
def test_normalisers_of_queries_that_are_raised(below, size):
    q, k = np.array([[0, 1]] * 2, "f4"), np.array([[1, 0], [0, 2.0**-below]], "f4")
    _, (log, _), state = ka.attention.causal_with_lse(q, k, np.full((2, 1), size, "f4"), ka.features.relu())
    _, (again, _) = ka.attention.attend_with_lse(state, q, ka.features.relu())
    np.testing.assert_allclose([log[1], again[1]], -below * np.log(2), rtol=1e-6)


@pytest.mark.parametrize("low", [[[0.0, -1e28], [-1e27, 1e14]], [[-1e21, -1e26], [0.0, -1e-3], [1e10, 1e25]]])
def test_rows_of_elu1_far_apart_give_the_one_value_there_is(low):
    q, k = np.array([[-500.0, -1e28]] * len(low), "f4"), np.array(low, "f4")
    for out in in_every_form(ka.features.elu1(), q, k, np.full((len(low), 1), 2e38, "f4")):
        np.testing.assert_allclose(out, 2e38, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "size", "value"), [("f4", 2.5e4, 2e38), ("f4", 1e6, 1e30), ("f8", 1e12, 1e308)])
def test_steps_of_immense_logs_keep_their_sums(dtype, size, value):
    """Where the digits of a peak cannot say that sums are lifted, a token that adds nothing takes nothing off them."""
    phi = ka.features.Positive(ka.kernels.Softmax(), ka.projections.Iid(), np.array([[1.0, 0.5], [0.5, -1.0]]))
    x = size * np.array([[1, 0.5]] + [[1, 0.5], [30, 1]] * 5, dtype)
    rows, _ = laws.steps(phi, x, x, np.full((11, 1), value, dtype), CPU)
    np.testing.assert_allclose(rows, value, rtol=1e-6)
