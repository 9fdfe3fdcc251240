"""The kernels of `gated` on the emulation against the recurrence of tokens in float64."""

from itertools import product

import numpy as np
import pytest

import kernattn as ka
from cuda_ops.cases import array, to64
from kernattn.ops.gated.gpu import gated

pytestmark = pytest.mark.usefixtures("one_multiprocessor")

NAMES = "q", "k", "v", "g", "gk", "beta", "read", "write", "state", "key_mask", "segment_ids"
TOLERANCE = {"float32": 1e-6, "float64": 1e-13, "float16": 5e-3, "bfloat16": 4e-2}


def recur(given, scale, normalise):
    """The recurrence as it is written; q and what keys have may have leading axes of their own."""
    q, k, v, g, gk, beta, read, write, state, mask, ids = (given[name] for name in NAMES)
    n, d, e = *q.shape[-2:], v.shape[-1]
    if normalise:
        q, k = (x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6) for x in (q, k))
    leads = [x.shape[:-2] for x in (k, v, gk, read, write) if x is not None]
    leads += [x.shape[:-1] for x in (g, beta) if x is not None]
    lead = np.broadcast_shapes(*leads)
    s = np.zeros((*lead, d, e)) if state is None else state
    everywhere = np.ones(n, bool)
    mask = np.broadcast_to(everywhere if mask is None else mask, (*lead, n))
    ids = np.broadcast_to(0 * everywhere if ids is None else ids, (*lead, n))
    out = []
    for t in range(n):
        logs = np.zeros((*lead, 1))
        logs = logs if g is None else logs + g[..., t, None]
        logs = logs if gk is None else logs + gk[..., t, :]
        seen = mask[..., t, None, None]
        begins = (ids[..., t] != ids[..., max(t - 1, 0)])[..., None, None]
        s = np.where(begins, 0.0, s)
        after = np.where(np.exp(logs)[..., None] == 0, 0.0, np.exp(logs)[..., None] * s)
        value = v[..., t, None, :]
        if beta is not None:
            value = beta[..., t, None, None] * (value - k[..., t, None, :] @ after)
        if read is not None:
            gone = (np.exp(logs) == 0) & (read[..., t, :] == 0)  # nobody reads it any more
            after = after + write[..., t, :, None] * (read[..., t, None, :] @ np.where(gone[..., None], 0.0, s))
        s = np.where(seen, after + k[..., t, :, None] * value, s)
        out.append(scale * q[..., t, None, :] @ s)
    return np.concatenate(out, axis=-2), s


def problem(rule, gate, n, d, e, *, heads=(2, 1), key_heads=(2, 1), masked=True, segments=3, resumed=True):
    """Strong gates among mild ones, some of them -inf; heads of their own for k, v and gates."""
    rng = np.random.default_rng(n)
    shared = (1,) * len(key_heads)
    given = dict.fromkeys(NAMES)
    given |= {"q": rng.normal(size=(*heads, n, d)), "k": rng.normal(size=(*shared, n, d)) / d**0.5}
    given["v"] = rng.normal(size=(*key_heads, n, e))
    if gate == "scalar":
        given["g"] = -np.exp(2 * rng.normal(size=(*shared, n)))
        given["g"][..., n // 2] = -np.inf
    elif gate == "channels":
        given["gk"] = -np.exp(2 * rng.normal(size=(*key_heads, n, d)))
        given["gk"][..., n // 2, ::2] = -np.inf
    if rule == "delta":
        given["beta"] = rng.uniform(0, 2, size=(*key_heads, n))
        given["beta"][..., 1] = 0
    elif rule == "pair":
        given["read"], given["write"] = 0.3 * rng.normal(size=(2, *key_heads, n, d))
    if resumed:
        given["state"] = rng.normal(size=(*key_heads, d, e))
    if masked:
        given["key_mask"] = rng.random((*key_heads, n)) < 0.8
    if segments:
        given["segment_ids"] = np.sort(rng.integers(0, segments, size=n))
    return given


def rounded(cupy, given, dtype):
    """The arrays of the stand-in; and what their values are, in float64."""
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    kinds = dict.fromkeys(("q", "k", "v"), dtype)

    def put(name, x):
        if x is None or x.dtype.kind in "bi":
            return None if x is None else cupy.asarray(np.array(x))
        return array(cupy, x, kinds.get(name, wide))

    arrays = {name: put(name, x) for name, x in given.items()}
    plain = {n: x if x is None or x.dtype.kind in "bi" else to64(x) for n, x in arrays.items()}
    return arrays, {n: x.get() if hasattr(x, "get") else x for n, x in plain.items()}


def run(arrays, normalise=False, scale=0.7):
    *rows, state, mask, ids = (arrays[name] for name in NAMES)
    return gated(*rows, scale, normalise, state, mask, ids)


def check(cupy, given, dtype, normalise=False):
    arrays, plain = rounded(cupy, given, dtype)
    out, after = run(arrays, normalise)
    wanted, s = recur(plain, 0.7, normalise)
    assert out.dtype == arrays["v"].dtype
    assert after.dtype == ("float64" if dtype == "float64" else "float32")
    for x, y in ((out, wanted), (after, s)):
        np.testing.assert_array_equal(np.isnan(to64(x)), np.isnan(y))
        np.testing.assert_allclose(to64(x), y, rtol=0, atol=TOLERANCE[dtype] * np.nanmax(np.abs(y)))


COLUMNS = {"none": 40, "scalar": 19, "channels": 7}  # of v: blocks of 64, 32 and 16


def cases(*usual):
    """-> these cases, and all others as slow ones."""
    every = product(("none", "delta", "pair"), COLUMNS, TOLERANCE)
    return [*usual, *(pytest.param(*case, marks=pytest.mark.slow) for case in every if case not in usual)]


USUAL = ("delta", "scalar", "float32"), ("delta", "channels", "float32"), ("pair", "channels", "float32")


@pytest.mark.parametrize(("rule", "gate", "dtype"), cases(("none", "none", "bfloat16"), *USUAL))
def test_recurrence(cupy, rule, gate, dtype):
    """Chunks whole and cut short, and tokens one by one; heads that share; masks, segments, states and norms."""
    e = COLUMNS[gate]
    for n, d, normalise in ((50, 21, rule != "pair"), (3, 5, False)):
        check(cupy, problem(rule, gate, n, d, e), dtype, normalise)
    check(cupy, problem(rule, gate, 20, 8, e + 1, masked=False, segments=0, resumed=False), dtype)


@pytest.mark.parametrize(("gate", "name", "axis"), [("scalar", "g", -1), ("channels", "gk", -2)])
def test_blind_to_the_future_and_to_what_was_forgotten(cupy, gate, name, axis):
    given = problem("delta", gate, 50, 8, COLUMNS[gate], masked=False, segments=0)
    arrays, _ = rounded(cupy, given, "float32")
    before, _ = run(arrays)
    for late in (1e6, np.nan):
        other = given | {"v": given["v"].copy(), "k": given["k"].copy()}
        other["v"][..., 30:, :], other["k"][..., 30:, :] = late, -other["k"][..., :20, :]
        after, _ = run(rounded(cupy, other, "float32")[0])
        np.testing.assert_array_equal(to64(after)[..., :30, :], to64(before)[..., :30, :])
    for late in (1e20, 3e38):  # what these keys write is no float
        far = given | {"k": given["k"].copy()}
        far["k"][..., 37:, :] = late
        after, _ = run(rounded(cupy, far, "float32")[0])
        np.testing.assert_array_equal(to64(after)[..., :37, :], to64(before)[..., :37, :])
    wild = given | {"v": given["v"].copy(), name: given[name].copy()}
    wild["v"][..., 7, 1] = np.nan
    np.moveaxis(wild[name], axis, 0)[23] = -np.inf
    check(cupy, wild, "float32")


@pytest.mark.parametrize("n", [40, 4])
def test_a_pair_forgets_what_it_does_not_read(cupy, n):
    """Where a segment begins, and where decays are 0 and nothing is read before them."""
    given = problem("pair", "channels", n, 8, COLUMNS["channels"], masked=False, segments=0)
    given["v"][..., 1, 1] = np.nan
    check(cupy, given | {"segment_ids": np.arange(n) // 2}, "float32")
    given["gk"][..., n // 2, :], given["read"][..., n // 2, :] = -np.inf, 0
    check(cupy, given, "float32")


@pytest.mark.parametrize("heads", [(2, 1), (2, 3)])
def test_one_call_is_many(cupy, heads):
    """Split and resumed, and token by token, in place where no other query reads the state."""
    given = problem("delta", "scalar", 40, 8, COLUMNS["scalar"], heads=heads, masked=False, segments=0, resumed=False)
    arrays, plain = rounded(cupy, {name: x for name, x in given.items() if x is not None}, "float32")
    wanted, s = recur(dict.fromkeys(NAMES) | plain, 8**-0.5, False)

    def part(at):
        return [arrays[x][..., at, :] for x in "qkv"], {x: arrays[x][..., at] for x in ("g", "beta")}

    (q, k, v), gates = part(slice(0, 19))
    first, state = ka.gated_linear_attention(q, k, v, **gates, backend="gpu")
    outs = [first]
    for t in range(19, 40):
        (q, k, v), gates = part(t)
        reuse, to = t % 2 == 0, cupy.empty((*heads, v.shape[-1]), dtype="float32")
        out, after = ka.gated_linear_attention_step(state, q, k, v, **gates, reuse_state=reuse, out=to, backend="gpu")
        assert out is to
        assert (after.s is state.s) == (reuse and heads[1] == 1)
        outs.append(out[..., None, :])
        state = after
    for x, y in ((cupy.concatenate(outs, axis=-2), wanted), (state.s, s)):
        np.testing.assert_allclose(to64(x), y, atol=1e-6 * np.max(np.abs(y)))


def test_states_without_room_are_left_to_array_operations(cupy, device_with):
    device_with(1_000)
    given = problem("delta", "scalar", 20, 8, 8, segments=0)
    check(cupy, given, "float32")
    arrays, plain = rounded(cupy, given, "float32")
    rows, gates = ([arrays[x][..., 0, :] for x in "qkv"], {x: arrays[x][..., 0] for x in ("g", "beta", "key_mask")})
    state = ka.attention.GatedState(arrays["state"])
    out, _ = ka.gated_linear_attention_step(state, *rows, **gates, scale=0.7, backend="gpu")
    np.testing.assert_allclose(to64(out), recur(plain, 0.7, False)[0][..., 0, :], atol=1e-5)
