"""Blind to the future to the last bit: no row moves when anything after it changes, or when the sequence ends there."""

import warnings

import numpy as np
import pytest

import kernattn as ka
import laws
import maps
from covering import turns
from gated import draw
from xp import Backend

FUTURES = {  # what becomes of q, k and v after token t
    "other": (-1, 0.7, 3),
    "larger": (30, 30, 1e3),
    "smaller": (1e-3, 1e-3, 1e-6),
    "huge": (1e8, 1e8, 1e20),
    "NaN": (np.nan, np.nan, np.nan),
    "infinite values": (1, 1, np.inf),
}
LENGTH = 130  # two chunks of every backend and a bit, in groups of no vector's length


def inputs(rng, dtype, scale):
    """-> q, k, v, key_mask | None, segment_ids | None, one thing or another of each."""
    n = int(rng.integers(2, LENGTH))
    q, k, v = (rng.standard_normal((2, n, width)).astype(dtype) for width in (maps.DIM, maps.DIM, 3))
    late = np.where(np.arange(n) < rng.integers(n), 1, rng.choice([1, 1e-3, 10])).astype(dtype)  # a change of loudness
    mask = rng.random(n) < 0.8 if rng.random() < 0.4 else None
    ids = np.cumsum(rng.random(n) < 0.05) if rng.random() < 0.4 else None
    return (scale * q).astype(dtype), (scale * k * late[:, None]).astype(dtype), v, mask, ids


def answers(phi, q, k, v, backend, mask, ids):
    """-> outputs, and beside them the logarithms of their normalisers where these promise the same."""
    if backend.name != "cpu":
        return laws.causal(phi, q, k, v, backend, key_mask=mask, segment_ids=ids)[0]
    out, (log, _), _ = ka.attention.causal_with_lse(q, k, v, phi, key_mask=mask, segment_ids=ids, backend="cpu")
    return np.concatenate([out, log[..., None]], axis=-1)


def upto(x, t):
    return None if x is None else x[..., : t + 1]


def same(actual, wanted, what):
    moved = ~((actual == wanted) | (np.isnan(actual) & np.isnan(wanted)))
    assert not moved.any(), (
        f"{what}: {moved.any(axis=(0, -1)).nonzero()[0]} moved by {np.abs(actual - wanted).max():.3g}"
    )


@pytest.mark.parametrize(("name", "dtype"), turns([*maps.MAPS, "taylor2", "nystrom", "sum"], ["float32", "float64"]))
def test_the_past_keeps_every_bit(name, backend, dtype, monkeypatch):
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "1")
    phi, rng = maps.make(name), np.random.default_rng(len(name))
    for scale in (0.3, 50):
        q, k, v, mask, ids = inputs(rng, dtype, scale)
        n = v.shape[-2]
        whole = answers(phi, q, k, v, backend, mask, ids)
        for future, factors in FUTURES.items():
            t = int(rng.integers(n - 1)) if n > 2 else 0
            changed = [x.copy() for x in (q, k, v)]
            with np.errstate(all="ignore"):
                for x, factor in zip(changed, factors, strict=True):
                    x[:, t + 1 :] = (factor * x[:, t + 1 :][:, ::-1]).astype(dtype)
                out = answers(phi, *changed, backend, mask, ids)
            same(out[:, : t + 1], whole[:, : t + 1], f"scale {scale}, n {n}, rows up to {t}, {future} after")
        if backend.name == "cpu":
            cut = [x[:, : t + 1] for x in (q, k, v)]
            out = answers(phi, *cut, backend, upto(mask, t), upto(ids, t))
            same(out, whole[:, : t + 1], f"scale {scale}, n {n}, cut after {t}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["elu1", "relu", "exp", "positive-softmax", "hyperbolic-ard", "trigonometric-softmax"])
def test_the_past_keeps_every_bit_at_the_ends_of_the_floats(name, dtype, monkeypatch):
    """Entries of all sizes in one sequence, and in one row: logs without digits, features with none in common."""
    pytest.importorskip("numba")
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "1")
    phi, cpu = maps.make(name), Backend("cpu")
    ends = 37 if dtype == "float32" else 307
    for seed, spread in enumerate((0.1, 0.25, 0.5, 1)):
        rng = np.random.default_rng(seed)

        def rows(width, octaves, rng=rng):
            return (
                rng.standard_normal((2, LENGTH, width)) * 10.0 ** rng.uniform(-octaves, octaves, (LENGTH, width))
            ).astype(dtype)

        for t in (5, 47, 80):
            q, k, v = rows(maps.DIM, spread * ends), rows(maps.DIM, spread * ends), rows(3, 5)
            other = [x.copy() for x in (q, k, v)]
            other[1][:, t + 1 :], other[2][:, t + 1 :] = rows(maps.DIM, ends)[:, t + 1 :], rows(3, ends)[:, t + 1 :]
            whole = answers(phi, q, k, v, cpu, None, None)
            same(answers(phi, *other, cpu, None, None)[:, : t + 1], whole[:, : t + 1], f"spread {spread}, {t}")
            cut = answers(phi, *(x[:, : t + 1] for x in (q, k, v)), cpu, None, None)
            same(cut, whole[:, : t + 1], f"spread {spread}, cut after {t}")
            assert np.isfinite(whole[..., :-1]).all()


@pytest.mark.parametrize("future", [*FUTURES, "largest"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exact_attention_keeps_every_bit(backend, dtype, future, monkeypatch):
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "1")
    largest = np.finfo(dtype).max

    def run(q, k, v, mask):
        out, lse = ka.attention.softmax_with_lse(q, k, v, causal=True, key_mask=mask, backend=backend.name)
        return np.concatenate([out, lse[..., None]], axis=-1)

    rng = np.random.default_rng(len(future))
    for scale in (0.3, 1, 50, 1e-20, 1e18, 1e25 if dtype == "float32" else 1e200):
        q, k, v, mask, _ = inputs(rng, dtype, scale)
        n = v.shape[-2]
        t = int(rng.integers(n - 1)) if n > 2 else 0
        changed = [x.copy() for x in (q, k, v)]
        with np.errstate(all="ignore"):
            whole = run(q, k, v, mask)
            for x, factor in zip(changed, FUTURES.get(future, (1, 1, 1)), strict=True):
                x[:, t + 1 :] = (factor * x[:, t + 1 :][:, ::-1]).astype(dtype)
                if future == "largest":
                    x[:, t + 1 :] = np.copysign(largest, x[:, t + 1 :])
            out = run(*changed, mask)
        same(out[:, : t + 1], whole[:, : t + 1], f"scale {scale}, n {n}, rows up to {t}")
        cut = run(*(x[:, : t + 1] for x in (q, k, v)), upto(mask, t))
        if backend.name == "cpu":
            same(cut, whole[:, : t + 1], f"scale {scale}, n {n}, cut after {t}")
        elif scale < 50:  # beyond, the largest score is one of roundings
            np.testing.assert_allclose(cut, whole[:, : t + 1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dim", [7, 16, 33, 64])
def test_rows_beside_far_ones_keep_every_bit(dim, dtype, monkeypatch):
    """Chunks of moderate numbers take a path of their own."""
    pytest.importorskip("numba")
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "1")
    phi, cpu, rng = ka.features.elu1(), Backend("cpu"), np.random.default_rng(dim)
    q, k, v = (rng.standard_normal((1, 70, dim)).astype(dtype) for _ in range(3))
    far_q, far_k = q.copy(), k.copy()
    far_q[:, -1, dim // 2], far_k[:, -1, 0] = 30, -40
    whole = answers(phi, q, k, v, cpu, None, None)
    for queries, keys in ((far_q, k), (q, far_k), (far_q, far_k)):
        out = answers(phi, queries, keys, v, cpu, None, None)
        same(out[:, :-1], whole[:, :-1], f"dim {dim}")


@pytest.mark.parametrize("gate", ["g", "gk"])
def test_a_delta_rule_that_overflows_leaves_the_past(gate):
    """What a token of a huge key writes is no float: rows before it, in its chunk, are what they were."""
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 2, 40, 9)).astype(np.float32) / 4
    options = {gate: -np.abs(k if gate == "gk" else k[..., 0]), "beta": np.full((2, 40), 0.5, np.float32)}
    before, _ = ka.gated_linear_attention(q, k, v, **options)
    for t in (5, 21, 38):
        late = k.copy()
        late[:, t:] *= 1e30
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            after, _ = ka.gated_linear_attention(q, late, v, **options)
        assert np.isfinite(before).all()
        np.testing.assert_array_equal(after[:, :t], before[:, :t])


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("rule", ["decay", "delta"])
@pytest.mark.parametrize("late", [np.nan, np.inf, 1e30])
def test_resets_of_channels_and_rows_that_are_not_finite_leave_the_past(rule, late, backend):
    """Channels reset, rows of both heads are spoiled: outputs before keep every bit, as those of a shorter call do."""
    (q, k, v), options = draw(rule, "channel", n=40, dtype="float32", heads=(2, 1))
    options["gk"][0, :, 3::7, :2] = -np.inf
    before, _ = ka.gated_linear_attention(q, k, v, **options, backend=backend)
    for t in (5, 17, 38):
        far_k, far_v, stop = k.copy(), v.copy(), min(t + 2, 40)
        far_k[..., t:, 1] = far_v[..., t + 1 :, 2] = late
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            after, _ = ka.gated_linear_attention(q, far_k, far_v, **options, backend=backend)
        np.testing.assert_array_equal(after[..., :t, :], before[..., :t, :])
        if backend == "cpu":
            cut = {name: x[..., :stop] if name == "beta" else x[..., :stop, :] for name, x in options.items()}
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                first, _ = ka.gated_linear_attention(*(x[..., :stop, :] for x in (q, far_k, far_v)), **cut)
            np.testing.assert_array_equal(first, after[..., :stop, :])
