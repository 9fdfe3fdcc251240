"""Attention with fewer keys than tokens: compressed, Linformer's and Nystrom's, against dense oracles."""

import numpy as np
import pytest

import kernattn as ka
import oracles
from kernattn.errors import DTypeError, MixedLibraryError, ParameterError, ShapeError
from laws import arrays
from refusals import refused
from xp import KINDS, to_numpy

att = ka.attention
TOLERANCE = {"float16": 3e-3, "float32": 2e-5, "float64": 1e-10}
OTHERS = [kind for kind in KINDS if kind.name in ("strict", "torch", "jax")]


def softmax(scores):
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True, initial=-1e300))
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


def scores(q, k):
    return q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])


def close(got, wanted, dtype):
    assert str(got.dtype).endswith(dtype)
    np.testing.assert_allclose(to_numpy(got), wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


# ---- compressed ----


def compressed(q, k, v, factor, wk, wv, causal, mask=None):
    length = k.shape[-2]
    mask = np.ones(length, bool) if mask is None else mask
    blocks = [slice(low, min(low + factor, length)) for low in range(0, length, factor)]
    keys, values = (
        np.stack([sum(mask[j] * x[..., j, :] @ w[t] for t, j in enumerate(range(length)[b])) for b in blocks], axis=-2)
        for x, w in ((k, wk), (v, wv))
    )
    row = np.arange(length - q.shape[-2], length)[:, None]
    seen = np.array([b.stop - 1 for b in blocks]) <= row if causal else np.ones((len(row), len(blocks)), bool)
    return oracles.softmax_attention(q, keys, values, may=seen & np.array([mask[b].any() for b in blocks]))[0]


@pytest.mark.parametrize(
    ("n", "length", "factor", "dtype"),
    [
        (13, 13, 4, "float64"),
        (130, 131, 2, "float32"),
        (12, 12, 3, "float32"),
        (3, 7, 9, "float64"),
        (9, 9, 4, "float16"),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
def test_compressed(n, length, factor, dtype, causal):
    q, k, v, wk, wv = arrays(1, (2, n, 3), (1, length, 3), (2, length, 2), (factor, 3, 3), (factor, 2, 2), dtype=dtype)
    wanted = compressed(*map(to_numpy, (q, k, v)), factor, to_numpy(wk), to_numpy(wv), causal)
    for backend in (None, "reference"):
        out = att.compressed_attention(
            q, k, v, factor=factor, weights_k=wk, weights_v=wv, causal=causal, backend=backend
        )
        close(out, wanted, dtype)


@pytest.mark.parametrize("causal", [False, True])
def test_compressed_leaves_padding_out(causal):
    """Masked tokens are as zeros, and a block of them alone is not there."""
    q, k, v, wk, wv = arrays(1, (2, 11, 3), (1, 11, 3), (2, 11, 2), (4, 3, 3), (4, 2, 2), dtype="float64")
    given = {"factor": 4, "weights_k": wk, "weights_v": wv, "causal": causal}
    for shown in (np.arange(11) < 7, np.arange(11) > 4, np.arange(11) % 3 != 1, np.zeros(11, bool)):
        wanted = compressed(q, k, v, 4, wk, wv, causal, shown)
        hidden = [np.where(shown[:, None], x, np.nan) for x in (k, v)]
        for mask in (shown, shown[None]):
            close(att.compressed_attention(q, *hidden, key_mask=mask, **given), wanted, "float64")
    with refused(ShapeError, "key_mask must broadcast"):
        att.compressed_attention(q, k, v, key_mask=np.ones(3, bool), **given)


def test_compressed_is_blind_to_blocks_that_end_later():
    q, k, v, wk, wv = arrays(2, (11, 3), (11, 3), (11, 2), (4, 3, 3), (4, 2, 2), dtype="float64")
    given = {"factor": 4, "weights_k": wk, "weights_v": wv, "causal": True}
    before = att.compressed_attention(q, k, v, **given)
    k[6:], v[6:] = np.nan, np.nan  # a token of the second block, which is seen from row 7 on
    after = att.compressed_attention(q, k, v, **given)
    np.testing.assert_array_equal(after[:7], before[:7])
    assert np.isnan(after[7:]).all()
    assert (before[:3] == 0).all()


# ---- Linformer ----


@pytest.mark.parametrize("kind", ["gaussian", "pooling", "convolution"])
@pytest.mark.parametrize(
    ("heads", "masked", "dtype"), [(0, False, "float32"), (2, True, "float64"), (0, True, "float16")]
)
def test_linformer(kind, heads, masked, dtype):
    q, k, v = arrays(3, (2, 9, 3), (2, 11, 3), (2, 11, 2), dtype=dtype)
    made = [att.linformer_projections(4, 11, kind=kind, rng=seed) for seed in range(heads or 1)]
    e, f = (np.stack(x) if heads else x[0] for x in zip(*made, strict=True))
    e, f = e.astype(dtype), f.astype(dtype)
    mask = np.arange(11) % 3 != 1 if masked else None
    shown = np.ones(11, bool) if mask is None else mask
    hidden = k.copy(), v.copy()
    for x in hidden:
        x[:, ~shown] = np.nan  # what is masked may be anything
    keys, values = (to_numpy(p) @ np.where(shown[:, None], to_numpy(x), 0) for p, x in ((e, k), (f, v)))
    wanted = softmax(scores(to_numpy(q), keys)) @ values
    for backend in (None, "reference"):
        close(att.linformer_attention(q, *hidden, e, f, key_mask=mask, backend=backend), wanted, dtype)


@pytest.mark.parametrize(("r", "length"), [(1, 1), (3, 7), (7, 7), (4, 12)])
def test_pooling_and_convolution_have_a_segment_a_row(r, length):
    for kind in ("pooling", "convolution"):
        for matrix in att.linformer_projections(r, length, kind=kind, rng=1):
            assert ((matrix != 0).sum(axis=0) == 1).all()  # every token is in one mixture
            assert np.ptp((matrix != 0).sum(axis=1)) <= 1
            if kind == "pooling":
                np.testing.assert_allclose(matrix.sum(axis=1), 1)
    e, f = att.linformer_projections(2, 6, kind="convolution", rng=1)
    np.testing.assert_array_equal(e[0, :3], e[1, 3:])
    assert (e[0, :3] != f[0, :3]).all()


def test_gaussian_projections_have_the_variance_of_the_theorem():
    e, f = att.linformer_projections(16, 4000, rng=1)
    np.testing.assert_allclose([e.var() * 16, f.var() * 16, np.mean(e * f) * 16], [1, 1, 0], atol=0.03)


# ---- Nystrom ----


def nystrom(q, k, v, landmarks, mask, both):
    """The pseudoinverse by singular values, tokens that are masked left out before anything."""
    keep = np.flatnonzero(mask)
    k, v = k[keep], v[keep]
    some_q, some_k = (
        np.stack([x[np.arange(len(x)) * c // len(x) == a].mean(axis=0) for a in range(c)])
        for x in (q[keep] if both else q, k)
        for c in [min(landmarks, len(x))]
    )
    middle = np.linalg.pinv(softmax(scores(some_q, some_k)))
    return softmax(scores(q, some_k)) @ middle @ softmax(scores(some_q, k)) @ v


@pytest.mark.parametrize(
    ("n", "length", "landmarks", "masked", "dtype"),
    [
        (13, 13, 4, False, "float64"),
        (9, 14, 3, True, "float64"),
        (12, 12, 4, True, "float32"),
        (7, 7, 20, True, "float64"),
        (16, 16, 2, False, "float16"),
    ],
)
def test_nystrom(n, length, landmarks, masked, dtype):
    q, k, v = (3 * x for x in arrays(4, (2, n, 3), (2, length, 3), (2, length, 2), dtype=dtype))
    mask = np.stack([np.arange(length) % 3 != 1, np.arange(length) >= 2]) if masked else np.ones((2, length), bool)
    wanted = np.stack(
        [nystrom(*(to_numpy(x[h]) for x in (q, k, v)), landmarks, mask[h], n == length) for h in range(2)]
    )
    k, v = (np.where(mask[..., None], x, np.nan).astype(dtype) for x in (k, v))
    for backend in (None, "reference"):
        out = att.nystrom_attention(
            q, k, v, num_landmarks=landmarks, iterations=40, key_mask=mask if masked else None, backend=backend
        )
        close(out, wanted, dtype)


def test_nystrom_scales_the_first_iterate_by_each_matrix():
    """A head does not change what another one gives, however few its iterations are."""
    q, k, v = (x * np.array([1.0, 30.0])[:, None, None] for x in arrays(5, *[(2, 32, 4)] * 3, dtype="float64"))
    both = att.nystrom_attention(q, k, v, num_landmarks=8, iterations=2)
    alone = att.nystrom_attention(q[0], k[0], v[0], num_landmarks=8, iterations=2)
    np.testing.assert_allclose(both[0], alone, rtol=1e-13)


def test_nystrom_of_masked_tokens_is_nothing():
    q, k, v = arrays(6, *[(5, 3)] * 3, dtype="float64")
    assert (att.nystrom_attention(q, k, v, num_landmarks=2, key_mask=np.zeros(5, bool)) == 0).all()
    hidden = q.copy()
    hidden[1] = np.nan  # a masked token's query is its own affair
    mask = np.arange(5) != 1
    out = att.nystrom_attention(hidden, k, v, num_landmarks=2, key_mask=mask)
    np.testing.assert_array_equal(out[mask], att.nystrom_attention(q, k, v, num_landmarks=2, key_mask=mask)[mask])


# ---- all of them ----


def calls(e, f, wk, wv, mask):
    return {
        "compressed": lambda q, k, v: att.compressed_attention(
            q, k, v, factor=3, weights_k=wk, weights_v=wv, causal=True
        ),
        "linformer": lambda q, k, v: att.linformer_attention(q, k, v, e, f, key_mask=mask),
        "nystrom": lambda q, k, v: att.nystrom_attention(q, k, v, num_landmarks=3, key_mask=mask),
    }


def given():
    rows = arrays(7, (2, 8, 3), (2, 8, 3), (2, 8, 2), (3, 3, 3), (3, 2, 2), dtype="float64")
    return *rows, *att.linformer_projections(3, 8, rng=1), np.arange(8) % 4 != 2


@pytest.mark.parametrize("name", ["compressed", "linformer", "nystrom"])
@pytest.mark.parametrize("kind", OTHERS, ids=repr)
def test_every_library(name, kind):
    q, k, v, wk, wv, e, f, mask = given()
    wanted = calls(e, f, wk, wv, mask)[name](q, k, v)
    with kind.wide():
        a = kind.asarray
        run = kind.whole(lambda q, k, v, *more: calls(*more)[name](q, k, v))
        out = run(*map(a, (q, k, v, e, f, wk, wv, mask)))
        assert kind.holds(out)
        np.testing.assert_allclose(to_numpy(out), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["compressed", "linformer", "nystrom"])
def test_gradients_of_tensors(name):
    torch = pytest.importorskip("torch")
    q, k, v, wk, wv, e, f, mask = (torch.tensor(x) for x in given())
    tokens = [x[0].clone().requires_grad_() for x in (q, k, v)]
    assert torch.autograd.gradcheck(calls(e, f, wk, wv, mask)[name], tokens)


def test_bad_input_is_refused():
    q, k, v, wk, wv, e, f, _ = given()
    good = {"factor": 3, "weights_k": wk, "weights_v": wv}
    with refused(ParameterError, "factor", "0"):
        att.compressed_attention(q, k, v, **(good | {"factor": 0}))
    with refused(ShapeError, "weights_v", "(3, 2, 2)", "(3, 3, 3)"):
        att.compressed_attention(q, k, v, **(good | {"weights_v": wk}))
    with refused(DTypeError, "weights_k", "float64", "float32"):
        att.compressed_attention(q, k, v, **(good | {"weights_k": wk.astype("f4")}))
    with refused(ShapeError, "n = 8", "l = 6"):
        att.compressed_attention(q, k[:, :6], v[:, :6], **good, causal=True)
    with refused(ShapeError, "e must be", "l = 6", "(3, 8)"):
        att.linformer_attention(q, k[:, :6], v[:, :6], e, f)
    with refused(ShapeError, "as many rows", "(3, 8)", "(2, 8)"):
        att.linformer_attention(q, k, v, e, f[:2])
    with refused(ShapeError, "last leading axis", "(2,)", "[3]"):
        att.linformer_attention(q, k, v, np.stack([e] * 3), f)
    with refused(DTypeError, "e must", "float64", "float32"):
        att.linformer_attention(q, k, v, e.astype("f4"), f)
    with refused(ParameterError, "causal", "whole sequence"):
        att.linformer_attention(q, k, v, e, f, causal=True)
    with refused(ParameterError, "causal", "whole sequence"):
        att.nystrom_attention(q, k, v, num_landmarks=2, causal=True)
    for name, bad in (("num_landmarks", {"num_landmarks": 0}), ("iterations", {"num_landmarks": 1, "iterations": 1.5})):
        with refused(ParameterError, name):
            att.nystrom_attention(q, k, v, **bad)
    with refused(ParameterError, "r must", "9", "8"):
        att.linformer_projections(9, 8)
    with refused(ParameterError, "kind", "mean"):
        att.linformer_projections(2, 8, kind="mean")
    torch = pytest.importorskip("torch")
    with refused(MixedLibraryError, "q", "weights_k"):
        att.compressed_attention(q, k, v, **(good | {"weights_k": torch.tensor(wk)}))


def test_the_old_keyword_of_nystrom():
    q, k, v = arrays(1, (5, 3), (5, 3), (5, 2))
    with pytest.warns(DeprecationWarning, match=r"nystrom_attention\(landmarks=\) is now num_landmarks="):
        old = att.nystrom_attention(q, k, v, landmarks=2)
    np.testing.assert_array_equal(old, att.nystrom_attention(q, k, v, num_landmarks=2))
