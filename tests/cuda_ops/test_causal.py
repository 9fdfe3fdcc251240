"""The kernels of `causal` on the emulation against the float64 oracle: maps, masks, segments, states, groups."""

import numpy as np
import pytest

import oracles
from covering import turns
from cuda_ops.cases import CASES, array, assert_close, specs, to64
from kernattn.ops._cuda.linear import linear_code
from kernattn.ops._cuda.maps import map_code


def problem(cupy, seed, kind, dtype, n, d, e, frequencies, lead=(2,), scale=1.0):
    rng = np.random.default_rng(seed)
    spec = specs(rng, kind, d, frequencies)
    q, k = (array(cupy, rng.normal(size=(*lead, n, d)) * scale, dtype) for _ in range(2))
    v = array(cupy, rng.normal(size=(*lead, n, e)), dtype)
    return rng, spec, q, k, v


SLABS = [1, 100]  # tiles of one: several slabs, and one
USUAL = turns([each.values for each in CASES if not each.marks], SLABS)


@pytest.mark.parametrize(
    ("kind", "dtype", "tiles"),
    [*USUAL, *(pytest.param(*each.values, n, marks=each.marks) for each in CASES if each.marks for n in SLABS)],
)
def test_causal(cupy, slab_tiles, kind, dtype, tiles):
    from kernattn.ops.causal.gpu import causal

    slab_tiles(tiles)
    for n, d, e, frequencies in ((150, 5, 7, 37), (3, 15, 29, 16)):
        rng, spec, q, k, v = problem(cupy, 1, kind, dtype, n, d, e, frequencies)
        mask = rng.random((2, n)) < 0.7
        ids = np.sort(rng.integers(0, 4, size=(2, n)), axis=-1)
        for key_mask, segment_ids in ((None, None), (mask, None), (mask, ids)):
            given = [None if x is None else cupy.asarray(x) for x in (key_mask, segment_ids)]
            out, *_ = causal(q, k, v, spec, spec, None, *given, False)
            may = oracles.allowed(n, n, causal=True, key_mask=key_mask, segment_ids=segment_ids)
            assert_close(out, q, k, v, spec, dtype, may)


@pytest.mark.parametrize("kind", ["exp", "cos", "elementwise"])
def test_split_and_resume(cupy, slab_tiles, kind):
    from kernattn.ops.causal.gpu import causal
    from kernattn.ops.key_state.gpu import key_state

    slab_tiles(1)
    n, cut = 150, 83
    rng, spec, q, k, v = problem(cupy, 2, kind, "float32", n, 5, 7, 37)
    mask = rng.random((2, n)) < 0.7
    first, _, state = causal(
        q[:, :cut], k[:, :cut], v[:, :cut], spec, spec, None, cupy.asarray(mask[:, :cut]), None, False
    )
    second, _, end = causal(
        q[:, cut:], k[:, cut:], v[:, cut:], spec, spec, state, cupy.asarray(mask[:, cut:]), None, False
    )
    out = cupy.concatenate([first, second], axis=-2)
    assert_close(out, q, k, v, spec, "float32", oracles.allowed(n, n, causal=True, key_mask=mask))
    whole = key_state(k, v, spec, cupy.asarray(mask))
    for a, b in zip(end, whole, strict=True):
        np.testing.assert_allclose(to64(a), to64(b), rtol=2e-4, atol=2e-4)


def test_a_state_belongs_to_the_first_segment(cupy):
    from kernattn.ops.causal.gpu import causal

    n, cut = 90, 30
    _, spec, q, k, v = problem(cupy, 3, "exp", "float32", n, 5, 7, 37)
    ids = np.repeat(np.array([4, 4, 2, 4]), [cut, 20, 25, 15])
    _, _, state = causal(q[:, :cut], k[:, :cut], v[:, :cut], spec, spec, None, None, None, False)
    out, _, end = causal(q[:, cut:], k[:, cut:], v[:, cut:], spec, spec, state, None, cupy.asarray(ids[cut:]), False)
    may = oracles.allowed(n, n, causal=True, segment_ids=ids)
    assert_close(out, q[:, cut:], k, v, spec, "float32", may[cut:])
    _, _, last = causal(q[:, 75:], k[:, 75:], v[:, 75:], spec, spec, None, None, None, False)
    for a, b in zip(end, last, strict=True):
        np.testing.assert_allclose(to64(a), to64(b), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", ["exp", "elementwise"])
def test_a_segment_that_begins_with_a_slab(cupy, slab_tiles, kind):
    from kernattn.ops.causal.gpu import causal

    slab_tiles(1)
    n = 150
    _, spec, q, k, v = problem(cupy, 1, kind, "float32", n, 5, 7, 37)
    ids = np.broadcast_to(np.repeat([0, 1, 2], [64, 64, 22]), (2, n))
    out, *_ = causal(q, k, v, spec, spec, None, None, cupy.asarray(ids), False)
    assert_close(out, q, k, v, spec, "float32", oracles.allowed(n, n, causal=True, segment_ids=ids))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("late", [False, True])
def test_norms_that_differ_inside_a_chunk(cupy, dtype, late):
    from kernattn.ops.causal.gpu import causal

    n = 100
    _, spec, q, k, v = problem(cupy, 4, "exp", dtype, n, 5, 7, 37)
    row = np.arange(n)
    size = cupy.asarray(np.where((row >= 40) == late, 30.0, 1.0)[:, None].astype(k.dtype))
    k = k * size
    out, _, state = causal(q, k, v, spec, spec, None, None, None, False)
    assert_close(out, q, k, v, spec, dtype, oracles.allowed(n, n, causal=True))
    assert all(np.isfinite(to64(part)).all() for part in state)


@pytest.mark.parametrize("per_feature", [False, True])
def test_features_given(cupy, per_feature):
    from kernattn.ops.attend.gpu import attend
    from kernattn.ops.causal.gpu import causal
    from kernattn.ops.key_state.gpu import key_state
    from seam import ScaledFeatures

    rng = np.random.default_rng(5)
    n, m, e = 80, 21, 7
    shape = (2, n, m) if per_feature else (2, n, 1)
    logs = [rng.normal(size=shape) * 3 for _ in range(2)]
    values = [np.ones((2, n, 1)) if per_feature else rng.random((2, n, m)) for _ in range(2)]
    q, k = (ScaledFeatures(*(array(cupy, x, "float32") for x in pair)) for pair in zip(values, logs, strict=True))
    v = array(cupy, rng.normal(size=(2, n, e)), "float32")
    fq, fk = (oracles.explicit(a * np.exp(b)) for a, b in zip(values, logs, strict=True))
    out, _, state = causal(q, k, v, None, None, None, None, None, False)
    np.testing.assert_allclose(
        to64(out), oracles.linear_attention(fq, fk, to64(v), oracles.allowed(n, n, causal=True))[0], atol=2e-5
    )
    out = attend(key_state(k, v, None, None), q, None, v.dtype, False)[0]
    np.testing.assert_allclose(to64(out), oracles.linear_attention(fq, fk, to64(v))[0], atol=2e-5)
    assert state.peak.shape == ((2, m) if per_feature else (2, 1))


@pytest.mark.parametrize(("dtype", "room", "outside"), [
    pytest.param("float32", 200_000, (False, False), marks=pytest.mark.slow),
    ("float32", 99_000, (True, True)),
    pytest.param("float32", 130_000, (False, True), marks=pytest.mark.slow),
    ("bfloat16", 100_000, (True, False)),
    ("float32", 65_536, (True, False)),  # chunks of half as many rows
])  # fmt: skip
def test_little_shared_memory(cupy, device_with, dtype, room, outside):
    from kernattn.ops.causal.gpu import causal, launch, walk_code

    limits = device_with(room)
    n, d, e, frequencies = 100, 70, 70, 37
    _, spec, q, k, v = problem(cupy, 6, "exp_pair", dtype, n, d, e, frequencies, lead=(3,))
    code = linear_code(map_code(dtype, spec, True, d, limits), dtype, e, limits)
    how = launch(3, n, e, frequencies, walk_code(code, d, frequencies, limits), limits)
    assert how.code.linear.map.rows == (32 if room < 70_000 else 64)
    assert how.shared_bytes <= room
    assert (how.state_room > 0, how.phi_room > 0) == outside
    out, *_ = causal(q, k, v, spec, spec, None, None, None, False)
    assert_close(out, q, k, v, spec, dtype, oracles.allowed(n, n, causal=True))


@pytest.mark.parametrize(
    ("queries", "keys"), [((2, 3, 2), (2, 3, 1)), ((1, 3), (2, 1)), ((3,), ()), ((2, 1, 2), (1, 2, 1)), ((), (2,))]
)
def test_groups(cupy, queries, keys):
    from kernattn.ops.causal.gpu import causal

    rng = np.random.default_rng(7)
    spec = specs(rng, "exp", 5, 20)
    q, k, v = (
        array(cupy, rng.normal(size=(*lead, 70, c)), "float32") for lead, c in ((queries, 5), (keys, 5), (keys, 7))
    )
    out, _, state = causal(q, k, v, spec, spec, None, None, None, False)
    assert_close(out, q, k, v, spec, "float32", oracles.allowed(70, 70, causal=True))
    assert state.s.shape == (*keys, 20, 7)
    assert all(np.isfinite(to64(part)).all() for part in state)
