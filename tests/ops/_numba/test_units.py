"""Units of sums, keys and queries in the compiled loops: exact powers of two, and what none can hold counts as 0."""

import numpy as np
import pytest

pytest.importorskip("numba")

from kernattn._sums.limits import ENDS
from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.elementary import log_of
from kernattn.ops._numba.far.lifted_keys import count_alike_rows, lift
from kernattn.ops._numba.far.negligible import clear_negligible, clear_negligible_factors, raise_queries, raise_token
from kernattn.ops._numba.far.row_units import take_off_largest, to_unit
from kernattn.ops._numba.tiles.sums import Sums, lift_sums, load_sums, rescale, store_sums

LN2 = np.log(2)


@compiled
def apply_rescale(s, z, units, reached, e, row, new, least, lifted):
    sums = Sums(s, z, units, reached, z.size, e, row, units.size)
    rescale(sums, new, least)
    lift_sums(sums, lifted)


@compiled
def apply_round_trip(s, z, units, reached, e, row, given, start, result, at, least):
    sums = Sums(s, z, units, reached, z.size, e, row, units.size)
    load_sums(sums, given, start)
    reached += 3
    store_sums(sums, result, at, least)


@compiled
def apply_to_unit(tile, rows, row, features, units, unit, lifted):
    scales = np.empty_like(units)
    for j in range(rows):
        scales[j] = log_of(units[j])
    to_unit(tile, rows, row, features, scales, unit, lifted)


@compiled
def apply_raise(tile, row, rows, features, z, keys, row_k, scales, all_seen, den, inside, octaves):
    return raise_queries(tile, row, rows, features, z, keys, row_k, scales, all_seen, den, inside, octaves)


@compiled
def apply_to_token(values, z, den, decay):
    clear_negligible_factors(decay, z)
    return raise_token(values, z, den), clear_negligible(values)


@compiled
def apply_alike(x, rows, width, mask, size):
    return *count_alike_rows(x, 0, rows, width, mask, 0, size), lift(x[:width])


@compiled
def apply_take_off(values, stride, count):
    return take_off_largest(values, stride, count)


def numbers(dtype, *shape):
    return np.random.default_rng(0).uniform(1, 2, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tops", [1, 5])
def test_sums_that_fall_below_the_least_count_as_0(tops, dtype):
    """Those at it stay; a feature's sums of values go with it, and columns beyond the values are not touched."""
    s, z, ends = numbers(dtype, 5, 4), np.array([1, 2, 0.5, 1.5, 4], dtype), ENDS[dtype]
    old = np.array([3.0, 3, 3, 7, -2][:tops], dtype)
    new = np.array([13.0, 3, 14, 7, 9][:tops], dtype)
    least = np.dtype(dtype).type(2.0**-10)
    factor = np.broadcast_to(2.0 ** (old - new), 5)
    wanted = np.where(z * factor < least, 0, factor)
    if tops > 1:
        wanted[old == new] = 1
    given_s, given_z, units, lifted = s.copy(), z.copy(), old.copy(), np.dtype(dtype).type(ends.lift)
    apply_rescale(s.reshape(-1), z, units, old.copy(), 3, 4, new, least, lifted)
    np.testing.assert_array_equal(units, new)
    np.testing.assert_array_equal(z, given_z * wanted)
    np.testing.assert_array_equal(s[:, :3], given_s[:, :3] * wanted[:, None])
    np.testing.assert_array_equal(s[:, 3], given_s[:, 3])
    assert (wanted == 0).any()
    assert wanted.any()


@pytest.mark.parametrize("tops", [1, 5])
def test_a_lift_that_units_cannot_say_is_made_up_for(tops):
    """Units of 2^30 octaves have no digit for 56 more: the sums are multiplied instead; others are left."""
    units = np.full(tops, 2.0**30, "f4")
    units[1:3] = 0
    s, z, lifted = numbers("f4", 5, 4), numbers("f4", 5), np.float32(56)
    given_s, given_z = s.copy(), z.copy()
    apply_rescale(s.reshape(-1), z, units, units.copy(), 4, 4, units.copy(), np.float32(0), lifted)
    factor = np.where(np.broadcast_to(units, 5) > 0, 2.0**-56, 1).astype("f4")
    np.testing.assert_array_equal(z, given_z * factor)
    np.testing.assert_array_equal(s, given_s * factor[:, None])


@pytest.mark.parametrize("tops", [1, 5])
@pytest.mark.parametrize("head", [0, 1])
def test_states_are_read_and_written_in_whole_units(head, tops):
    """The state stands for the sums that went in; its peaks are logs of the highest units reached."""
    s, z = numbers("f8", 2, 5, 3), numbers("f8", 2, 5)
    peak = np.random.default_rng(1).uniform(-40, 40, (2, tops))
    peak[1, -1] = -np.inf if tops > 1 else peak[1, -1]
    after = [np.full_like(x, 7.0) for x in (s, z, peak)]
    work = [np.full(n, 3.0) for n in (20, 5, tops, tops)]
    flat = [x.reshape(-1) for x in (s, z, peak)]
    apply_round_trip(*work, 3, 4, tuple(flat), head, tuple(x.reshape(-1) for x in after), 1, -np.inf)
    assert all((x[0] == 7).all() for x in after)
    np.testing.assert_allclose(after[2][1] / LN2, np.rint(peak[head] / LN2) + 3, atol=1e-12)
    factor = np.exp(np.subtract(peak[head], after[2][1], out=np.zeros(tops), where=np.isfinite(peak[head])))
    np.testing.assert_allclose(after[1][1], z[head] * factor, rtol=1e-14)
    np.testing.assert_allclose(after[0][1], s[head] * np.broadcast_to(factor, 5)[:, None], rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shared", [0.0, 5.0, 2.0**60])
def test_keys_come_to_the_unit_of_the_sums(shared, dtype):
    """By a power of two, whether the unit has digits for its lift or not; none has faint features after that."""
    ends = ENDS[dtype]
    lifted, unit = np.dtype(dtype).type(ends.lift), np.dtype(dtype).type(shared)
    unit += lifted if shared else 0
    own = np.array([shared, -np.inf, shared - 3 if shared < 100 else shared], dtype)
    tile = numbers(dtype, 3, 4)
    tile[:, 0] = 1.5 * ends.faint
    given = tile.copy()
    apply_to_unit(tile.reshape(-1), 3, 4, 3, own, unit, lifted if shared else np.dtype(dtype).type(0))
    factor = np.array([0.0 if own[1] == -np.inf and j == 1 else 2.0 ** (-ends.lift * bool(shared)) for j in range(3)])
    factor[2] *= 1 if shared > 100 else 0.125
    wanted = given[:, :3] * factor[:, None]
    wanted = np.where((wanted < ends.faint) & (factor != 1)[:, None], 0, wanted)
    np.testing.assert_array_equal(tile[:, :3], wanted.astype(dtype))
    np.testing.assert_array_equal(tile[:, 3], given[:, 3])
    assert (factor[0] == 1) == (shared == 0)


@pytest.mark.parametrize("lifted", [0, 56])
def test_a_key_without_a_unit_comes_to_that_of_the_sums(lifted):
    """It is left alone only where the sums have none either."""
    for shared in (-3, 0, 5):
        tile = numbers("f4", 2, 4)
        given, own = tile.copy(), np.array([0, shared], "f4")
        apply_to_unit(tile.reshape(-1), 2, 4, 4, own, np.float32(shared), np.float32(lifted))
        np.testing.assert_array_equal(tile, given * np.array([[2.0**-shared], [1]], "f4"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_queries_that_meet_only_what_is_small_are_raised(dtype):
    """Such as meet a sum, or a key up to their own, by a power of two; not those that meet nothing, nor masked keys."""
    ends = ENDS[dtype]
    low, least = ends.low, 2.0 ** -(ends.raised_most + 2)
    z = np.array([0.5 * low, 0, 0], dtype)
    keys = np.array([[0, 0, 0], [0, 0.25 * low, 0], [0, 0, 1]], dtype)  # the last one is masked
    scales = np.array([0, 0, -np.inf, 0], dtype)
    queries = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0], [4, 0, 0], [least / low, 0, 0]], dtype)
    inside = np.array([0, 0.25 * low, 0, 0.25 * low, 0, 0], dtype)
    for given, seen in (
        (queries, [True, True, False, True, False, True]),
        (queries[::-1], [True, False, True, False, True, True]),
    ):
        rows = len(given)
        tile, den = np.ascontiguousarray(given.T), (given * z).sum(axis=1)
        own = inside if given is queries else inside[::-1].copy()
        octaves = np.full(rows, 7, dtype)
        old = den.copy()
        count = apply_raise(
            tile.reshape(-1), rows, rows, 3, z, keys.reshape(-1), 3, scales[:3], False, den, own, octaves
        )
        up = np.where(seen, np.where(old + own < least, ends.raised_most, ends.raised), 0)
        assert count == sum(seen)
        np.testing.assert_array_equal(octaves, 7 - up)
        np.testing.assert_array_equal(tile.T, given * (2.0**up)[:, None].astype(dtype))
        np.testing.assert_array_equal(den, old * (2.0**up).astype(dtype))
    for all_seen in (False, True):  # does the first query see the second key, which alone it meets?
        tile, den, own = np.zeros(6, dtype), np.zeros(2, dtype), np.array([0.25 * low, 0], dtype)
        tile[2] = 1
        octaves = np.zeros(2, dtype)
        given = tile, 2, 2, 3, 0 * z, keys.reshape(-1), 3, scales[:2], all_seen, den, own, octaves
        assert apply_raise(*given) == all_seen
        assert (tile[2] > 1) == all_seen


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_token_drops_what_is_faint_and_is_raised(dtype):
    faint, raised = ENDS[dtype].faint, ENDS[dtype].raised
    z = np.array([1, 4, 0.5], dtype)
    decay = np.full(3, faint, dtype)
    values = np.array([1.5, 0.5 * faint * 2.0**-raised, faint * 2.0**-raised], dtype)
    den, total = apply_to_token(values, z, np.dtype(dtype).type(ENDS[dtype].low / 2), decay)
    np.testing.assert_array_equal(decay, [faint, faint, 0])
    np.testing.assert_array_equal(values[:2], np.array([1.5 * 2.0**raised, 0], dtype))
    assert den == total == np.dtype(dtype).type(1.5 * 2.0**raised)
    ones = np.ones(3, dtype)
    apply_to_token(values, np.full(3, faint / 2, dtype), den, ones)
    np.testing.assert_array_equal(ones, 1)


def alike(x, mask, size, ends):
    """How many rows are taken together, and the largest size up to them: row by row, as the docstring says."""
    for j, row in enumerate(x):
        total = np.abs(row).sum()
        own = 0 if total < ends.large else 1 if total < ends.huge else 2
        if mask[j] and not np.isfinite(row).all():
            return max(j, 1), size
        if mask[j] and own > size:
            if j > 0:
                return j, size
            size = own
    return len(x), size


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_like_values_are_taken_together(dtype):
    ends, rng = ENDS[dtype], np.random.default_rng(0)
    kinds = np.array([1.0, ends.large, ends.huge, np.inf, np.nan])
    for trial in range(200):
        x = np.ones((5, 2), dtype)
        x[:, 1] = rng.choice(kinds, 5, p=[0.5, 0.15, 0.15, 0.1, 0.1])
        mask, size = rng.random(5) < 0.8, int(rng.integers(3))
        masked = mask if trial % 2 else np.zeros(0, bool)
        *found, lifted = apply_alike(x.reshape(-1), 5, 2, masked, size)
        with np.errstate(invalid="ignore"):
            assert tuple(found) == alike(x, mask if trial % 2 else np.ones(5, bool), size, ends)
            assert lifted == (ends.lift if ends.huge <= np.abs(x[0]).sum() < np.inf else 0)


def test_the_largest_log_is_taken_off_a_row():
    logs = np.array([-5.0, 1, 3, 1, 2, 1])
    assert apply_take_off(logs, 2, 3) == 3
    np.testing.assert_array_equal(logs, [-8, 1, 0, 1, -1, 1])
    for wild in (np.nan, np.inf, -np.inf):
        logs = np.full(2, wild)
        assert apply_take_off(logs, 1, 2) == 0
        np.testing.assert_array_equal(logs, wild)
