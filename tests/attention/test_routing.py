"""Attention inside clusters against a few dense lines."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernattn as ka
import laws
import pattern_oracles
from covering import turns
from kernattn.attention import _clusters
from kernattn.errors import BackendUnavailable, DTypeError, ParameterError, ShapeError
from xp import backends, dtype_name

routing = ka.attention.routing_attention
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-12}
BACKENDS = [each for each in backends("block_softmax") if each.name != "gpu"]
MASK = np.arange(40) > 3
ORACLES = {"top": pattern_oracles.routing_by_centroids, "nearest": pattern_oracles.routing_by_tokens}


def inputs(seed, n, length, *, heads=(2,), c=5, d=6, e=4, dtype="float64"):
    q, k, v = laws.arrays(seed, (*heads, n, d), (*heads, length, d), (*heads, length, e), dtype=dtype)
    return q, k, v, np.random.default_rng(seed).standard_normal(((heads or (1,))[-1], c, d)).astype("f4")


def wanted(q, k, v, centroids, window, assign, **more):
    """The oracle, head by head."""
    lead = np.broadcast_shapes(*(x.shape[:-2] for x in (q, k, v)))
    points = np.broadcast_to(centroids, (*(lead or (1,)), *centroids.shape[1:]))
    given_ = [np.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (q, k, v)]
    given_.append(points.reshape(-1, *points.shape[-2:]))
    heads = zip(*(x.astype("f8") for x in given_), strict=True)
    return np.stack([ORACLES[assign](*x, window, **more) for x in heads]).reshape(*lead, q.shape[-2], v.shape[-1])


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
@pytest.mark.parametrize(
    ("assign", "causal", "n", "window", "dtype"),
    turns(
        [(assign, causal) for assign in ORACLES for causal in (False, True)],
        [(n, w, t) for t in ("float32", "float16", "float64") for n, w in ((151, 40), (90, 7))],
    ),
)
def test_clusters(assign, causal, n, window, dtype, backend):
    q, k, v, centroids = inputs(n, n, 151, dtype=dtype)
    more = {"window": window, "assign": assign, "causal": causal, "scale": 0.7 if causal else None}
    out = routing(q, k, v, centroids, backend=backend.name, **more)
    assert dtype_name(out) == dtype
    laws.close(out, wanted(q, k, v, centroids, **more), TOLERANCE[dtype], "out")


@pytest.mark.parametrize("assign", ORACLES)
def test_every_kind_of_array(assign, xp):
    """Centroids may stay with NumPy, and be one set for all heads; leading axes broadcast."""
    q, k, v, centroids = inputs(1, 30, 40, heads=(2, 3), dtype="float32")
    q = q[:, :1]
    for points in (centroids, xp.asarray(centroids[:1])):
        out = routing(*map(xp.asarray, (q, k, v)), points, window=9, assign=assign, causal=True)
        assert xp.holds(out)
        points = centroids if points is centroids else centroids[:1]
        if assign == "top":
            masked = routing(*map(xp.asarray, (q, k, v)), points, window=9, key_mask=xp.asarray(MASK))
            laws.close(masked, routing(q, k[..., MASK, :], v[..., MASK, :], points, window=9), 2e-5, "masked")
        laws.close(out, wanted(q, k, v, points, 9, assign, causal=True), 2e-5, "out")


@given(
    st.sampled_from(sorted(ORACLES)), st.integers(1, 60), st.integers(1, 60), st.integers(1, 6), st.integers(1, 40),
    st.booleans(), st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=30)
def test_any_size(assign, n, length, c, window, causal, seed):
    q, k, v, centroids = inputs(seed, n, length, heads=(), c=c)
    out = routing(q, k, v, centroids, window=window, assign=assign, causal=causal)
    laws.close(out, wanted(q, k, v, centroids, window, assign, causal=causal), 1e-12, "out")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("assign", ORACLES)
def test_padding_is_as_if_cut_off(assign, causal):
    """Whatever stands in padded tokens, wherever they stand, and where a window holds more tokens than there are."""
    q, k, v, centroids = inputs(9, 30, 30, c=3)
    more = {"assign": assign, "causal": causal}
    for shown in (np.arange(30) < 17, np.arange(30) > 20, np.arange(30) % 3 != 1, np.zeros(30, bool)):
        hidden = [np.where(shown[:, None], x, np.nan) for x in (k, v)]
        for window in (4, 20):
            out = routing(q, *hidden, centroids, window=window, key_mask=shown, **more)
            if not shown.any():
                assert (out == 0).all()
                continue
            cut = routing(*(x[:, shown] for x in (q, k, v)), centroids, window=window, **more)
            np.testing.assert_allclose(out[:, shown], cut, rtol=1e-11, atol=1e-13)
            assert assign == "nearest" or (out[:, ~shown] == 0).all()
    few, cut = (
        routing(q[:, :9], x, y, centroids, window=4, key_mask=mask)
        for x, y, mask in ((k, v, np.arange(30) < 17), (k[:, :17], v[:, :17], None))
    )
    np.testing.assert_allclose(few, cut, rtol=1e-11, atol=1e-13)
    with pytest.raises(ShapeError, match="key_mask must broadcast"):
        routing(q, k, v, centroids, window=4, key_mask=np.ones(3, bool))


def test_one_cluster_of_all_is_full_attention():
    q, k, v, centroids = inputs(2, 50, 50, c=1)
    for assign in ORACLES:
        for causal in (False, True):
            out = routing(q, k, v, centroids, window=50, assign=assign, causal=causal)
            np.testing.assert_allclose(out, ka.softmax_attention(q, k, v, causal=causal), rtol=1e-11, atol=1e-13)


def test_nearest_is_blind_to_the_future_and_top_is_not():
    q, k, v, centroids = inputs(3, 80, 80, heads=())
    moved = {}
    for assign in ORACLES:
        before = routing(q, k, v, centroids, window=12, assign=assign, causal=True)
        more = [np.concatenate([x[:60], -3 * x[60:]]) for x in (q, k, v)]
        after = routing(*more, centroids, window=12, assign=assign, causal=True)
        moved[assign] = np.max(np.abs(after[:60] - before[:60]))
        spoilt = [np.concatenate([x[:60], np.full_like(x[60:], np.nan)]) for x in (k, v)]
        if assign == "nearest":
            after = routing(q, *spoilt, centroids, window=12, assign=assign, causal=True)
            np.testing.assert_allclose(after[:60], before[:60], rtol=1e-12)
    assert moved["nearest"] < 1e-13 < 0.1 < moved["top"]


def test_tokens_and_centroids_of_any_size(monkeypatch):
    """Who is near, cosines say; scores are of queries and keys as they are."""
    q, k, v, centroids = inputs(4, 60, 60, dtype="float32")
    sizes = np.float32(2.0) ** np.random.default_rng(0).integers(-60, 60, (2, 60, 1)).astype("f4")
    for assign in ORACLES:
        one = routing(q, k * 0, v, centroids, window=9, assign=assign)
        small = routing(q, k * 0, v, centroids * np.float32(2.0**-40), window=9, assign=assign)
        np.testing.assert_array_equal(one, small)
        plain = routing(q, k, v, centroids, window=9, assign=assign, scale=0.0)
        raised = routing(q, k * sizes, v, centroids, window=9, assign=assign, scale=0.0)
        np.testing.assert_allclose(raised, plain, rtol=1e-5, atol=1e-6)
        monkeypatch.setattr(_clusters, "SCORES", 50)
        np.testing.assert_allclose(routing(q, k, v, centroids, window=9, assign=assign, scale=0.0), plain, rtol=1e-6)
        monkeypatch.undo()


def test_equal_tokens_and_nan_are_served():
    """Of equals any are taken, as many as the window; NaN is taken last."""
    q, k, v, centroids = inputs(8, 40, 40, heads=())
    k[:] = k[0]
    out = routing(k, k, v, centroids[:, :1], window=7)
    rows = np.any(out != 0, axis=-1)
    assert rows.sum() == 7
    np.testing.assert_allclose(out[rows], np.broadcast_to(out[rows][0], (7, 4)))
    q[5] = np.nan
    k = q.copy()
    np.testing.assert_array_equal(np.isfinite(routing(q, k, v, centroids, window=39)).all(axis=1), True)


def test_torch_differentiates():
    torch = pytest.importorskip("torch")
    q, k, v, centroids = inputs(5, 24, 24, heads=(), c=3)
    tensors = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    for assign in ORACLES:
        found = torch.autograd.grad(
            routing(*tensors, centroids, window=7, assign=assign, causal=True).square().sum(), tensors
        )
        for which, gradient in enumerate(found):
            along = np.random.default_rng(which).standard_normal(gradient.shape)
            ends = []
            for step in (1e-5, -1e-5):
                moved = [x + step * along if at == which else x for at, x in enumerate((q, k, v))]
                ends.append(np.sum(wanted(*moved, centroids, 7, assign, causal=True) ** 2))
            slope = (ends[0] - ends[1]) / 2e-5
            np.testing.assert_allclose(np.sum(gradient.numpy() * along), slope, rtol=1e-5)


def test_centroids_move_to_the_means_of_their_tokens(xp):
    q, k, _, centroids = inputs(6, 40, 30, heads=(2, 3), c=4, dtype="float32")
    centroids[:, 3] = -50 * q.mean(axis=(0, 2)) - 50 * k.mean(axis=(0, 2))
    found = ka.attention.update_centroids(*map(xp.asarray, (centroids, q, k)), decay=0.75)
    assert xp.holds(found)
    new = 0.75 * centroids.astype("f8")
    for x in (q.astype("f8"), k.astype("f8")):
        rows = x / np.linalg.norm(x, axis=-1, keepdims=True)
        for head in range(3):
            mine, at = rows[:, head].reshape(-1, 6), centroids[head].astype("f8")
            closest = (mine @ (at / np.linalg.norm(at, axis=-1, keepdims=True)).T).argmax(axis=1)
            for c in range(4):
                new[head, c] += 0.125 * (mine[closest == c].mean(axis=0) if (closest == c).any() else at[c])
    laws.close(found, new, 1e-5 * np.abs(new).max(), "centroids")
    once = ka.attention.update_centroids(*map(xp.asarray, (centroids[:1], q, k[0, 0])), decay=1.0)
    laws.close(once, centroids[:1], 1e-6 * np.abs(centroids).max(), "all stays")


def test_bad_input_is_refused():
    q, k, v, centroids = inputs(7, 20, 20, dtype="float32")
    for bad, error, match in (
        ({"centroids": centroids[..., :5]}, ShapeError, r"centroids must be \(heads, c, d\) with d = 6 and heads = 1"),
        ({"centroids": np.concatenate([centroids, centroids])}, ShapeError, "heads = 1 or 2"),
        ({"centroids": centroids * np.inf}, ParameterError, "centroids must hold finite numbers"),
        ({"centroids": centroids.astype(int)}, DTypeError, "centroids must have one of the dtypes"),
        ({"window": 0}, ParameterError, "window must be a positive integer"),
        ({"assign": "all"}, ParameterError, "assign must be one of top, nearest"),
        ({"causal": "yes"}, ParameterError, "causal must be True or False"),
        ({"scale": np.nan}, ParameterError, "scale must be a finite number"),
        ({"backend": "gpu"}, BackendUnavailable, "gpu"),
    ):
        with pytest.raises(error, match=match):
            routing(q, k, v, **({"centroids": centroids, "window": 4} | bad))
    with pytest.raises(ShapeError, match="the number of tokens"):
        routing(q, k, v[:, :19], centroids, window=4)
    with pytest.raises(ParameterError, match="decay must be from 0 to 1; got 2"):
        ka.attention.update_centroids(centroids, q, k, decay=2)
    with pytest.raises(ShapeError, match="the last axis"):
        ka.attention.update_centroids(centroids, q, k[..., :5])
