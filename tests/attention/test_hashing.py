"""Attention among hashed tokens against a few dense lines; the pattern itself is among those of test_patterns.py."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernattn as ka
import laws
import oracles
import pattern_oracles
from covering import turns
from kernattn.attention.patterns import _hashing
from kernattn.errors import BackendUnavailable, DTypeError, MixedLibraryError, ParameterError, ShapeError
from xp import backends, dtype_name, to_numpy

P, lsh_attention = ka.patterns, ka.attention.lsh_attention
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-12}
BACKENDS = [each for each in backends("block_softmax") if each.name != "gpu"]


def inputs(seed, n, *, heads=(2,), d=6, e=5, rounds=3, half=4, dtype="float64"):
    x, v = laws.arrays(seed, (*heads, n, d), (*heads, n, e), dtype=dtype)
    return x, v, np.random.default_rng(seed).standard_normal((rounds, d, half)).astype("f4")


def wanted(x, v, rotations, chunk, *, key_mask=None, **more):
    """The oracle, head by head."""
    lead = np.broadcast_shapes(x.shape[:-2], v.shape[:-2])
    x, v = (np.broadcast_to(y, (*lead, *y.shape[-2:])).reshape(-1, *y.shape[-2:]).astype("f8") for y in (x, v))
    masks = [None] * len(x)
    if key_mask is not None:
        masks = np.broadcast_to(key_mask, (*lead, x.shape[1])).reshape(len(x), -1)
    turns = rotations.astype("f8")
    heads = zip(x, v, masks, strict=True)
    out = [pattern_oracles.lsh_attention(y, z, turns, chunk, key_mask=mask, **more) for y, z, mask in heads]
    return np.stack(out).reshape(*lead, *v.shape[1:])


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
@pytest.mark.parametrize(
    ("chunk", "causal", "masked", "dtype"),
    turns([7, 64, 100], [(c, m, t) for t in ("float32", "float16", "float64") for c in (0, 1) for m in (0, 1)]),
)
def test_union_of_rounds(chunk, causal, masked, dtype, backend):
    x, v, rotations = inputs(chunk, 181, dtype=dtype)
    mask = np.random.default_rng(1).random((2, 181)) < 0.8 if masked else None
    more = {"causal": bool(causal), "key_mask": mask, "scale": 2.0 if masked else None}
    out = lsh_attention(x, v, rotations=rotations, chunk=chunk, backend=backend.name, **more)
    assert dtype_name(out) == dtype
    laws.close(out, wanted(x, v, rotations, chunk, **more), TOLERANCE[dtype], "out")


def test_every_kind_of_array(xp):
    """Rotations may stay with NumPy; leading axes broadcast."""
    x, v, rotations = inputs(2, 50, heads=(2, 1), dtype="float32")
    v = np.concatenate([v, v + 1], axis=1)
    mask = np.arange(50) % 5 > 0
    for turn in (rotations, xp.asarray(rotations)):
        out = lsh_attention(xp.asarray(x), xp.asarray(v), rotations=turn, chunk=8, key_mask=xp.asarray(mask))
        assert xp.holds(out)
        laws.close(out, wanted(x, v, rotations, 8, key_mask=mask), 2e-5, "out")


@given(
    st.integers(1, 90), st.integers(1, 40), st.integers(1, 3), st.integers(1, 5), st.booleans(), st.integers(0, 2**20)
)
@settings(max_examples=20)
def test_any_size(n, chunk, rounds, half, causal, seed):
    x, v, rotations = inputs(seed, n, heads=(), rounds=rounds, half=half)
    mask = np.random.default_rng(seed).random(n) < 0.7
    out = lsh_attention(x, v, rotations=rotations, chunk=chunk, causal=causal, key_mask=mask)
    laws.close(out, wanted(x, v, rotations, chunk, causal=causal, key_mask=mask), 1e-12, "out")
    assert (out[~mask] == 0).all()


def test_a_token_alone_is_its_own_value():
    x, v, rotations = inputs(3, 9)
    np.testing.assert_array_equal(lsh_attention(x[:, :1], v[:, :1], rotations=rotations, chunk=4), v[:, :1])
    out = lsh_attention(x, v, rotations=rotations, chunk=4, causal=True)
    np.testing.assert_array_equal(out[:, 0], v[:, 0])  # it sees nothing before it
    assert (lsh_attention(x, v, rotations=rotations, chunk=4, key_mask=np.zeros(9, bool)) == 0).all()


def test_what_is_hidden_leaves_no_trace():
    """Padding, NaN in it too, changes no token; nor does a value that is not seen."""
    x, v, rotations = inputs(4, 70, heads=())
    out = lsh_attention(x[:50], v[:50], rotations=rotations, chunk=8)
    x[50:60], x[60:], v[50:] = np.nan, np.inf, np.inf
    mask = np.arange(70) < 50
    np.testing.assert_allclose(lsh_attention(x, v, rotations=rotations, chunk=8, key_mask=mask)[:50], out, rtol=1e-12)
    v[7] = np.nan
    sees = P.lsh(x, rotations=rotations, chunk=8, key_mask=mask).plan(70).mask()[:50, 7]
    sees[7] = False
    spoilt = lsh_attention(x, v, rotations=rotations, chunk=8, key_mask=mask)[:50]
    np.testing.assert_array_equal(np.isnan(spoilt).any(axis=1), sees)
    np.testing.assert_allclose(spoilt[~sees], out[~sees], rtol=1e-12)


@pytest.mark.parametrize("size", [1e-30, 1e15, 1e30])
def test_keys_have_norm_one_at_any_size(size):
    x, v, rotations = inputs(5, 60, dtype="float32")
    x[:, 3] = 0
    scale = float(1 / size)
    out = lsh_attention((x * size).astype("f4"), v, rotations=rotations, chunk=8, scale=scale)
    laws.close(out, wanted(x, v, rotations, 8, scale=1.0), 2e-5, "out")


def test_equal_buckets_are_the_first():
    """Whole numbers, with equal projections: the largest one's first place counts, as argmax says."""
    rng = np.random.default_rng(6)
    x, rotations = rng.integers(-1, 2, (300, 3)).astype("f8"), rng.integers(-1, 2, (2, 3, 300)).astype("f8")
    u = np.einsum("nd,rdb->rnb", x, rotations)
    wanted = np.argmax(np.concatenate([u, -u], axis=-1), axis=-1)
    np.testing.assert_array_equal(_hashing._hash_tokens(x, rotations), wanted)


def test_long_tables_are_taken_in_parts(monkeypatch):
    x, _, rotations = inputs(7, 300, heads=())
    for name in ("TABLE", "SLAB", "PROJECTED"):
        monkeypatch.setattr(_hashing, name, 30)
    for n in (300, 77):
        plan = P.lsh(x, rotations=rotations, chunk=20).plan(n, 300, causal=True)
        i, j = np.arange(300 - n, 300)[:, None], np.arange(300)
        np.testing.assert_array_equal(plan.mask(), pattern_oracles.lsh(i, j, x, rotations, 20) & (j <= i))


def test_plans_are_kept_with_their_tokens():
    x, _, rotations = inputs(8, 40)
    pattern = P.lsh(x, rotations=rotations, chunk=8)
    assert pattern.plan(40) is pattern.plan(40, 40) is not pattern.plan(40, causal=True)
    assert len(pattern.plan(40).heads) == 2
    assert not any(array.flags.writeable for part in pattern.plan(40).heads[1] for array in part)


def test_torch_differentiates():
    torch = pytest.importorskip("torch")
    x, v, rotations = inputs(9, 40)
    x, v = (torch.tensor(y, requires_grad=True) for y in (x, v))
    out = lsh_attention(x, v, rotations=rotations, chunk=8, causal=True)
    found = torch.autograd.grad(out.square().sum(), (x, v))
    sees = torch.tensor(
        np.stack([P.lsh(y.detach(), rotations=rotations, chunk=8).plan(40, causal=True).mask() for y in x])
    )
    sees = sees & ~torch.eye(40, dtype=torch.bool)
    sees = sees | (~sees.any(-1, keepdim=True) & torch.eye(40, dtype=torch.bool))
    scores = 6**-0.5 * x @ (x / x.norm(dim=-1, keepdim=True)).mT
    dense = torch.softmax(torch.where(sees, scores, -torch.inf), -1) @ v
    for one, other in zip(found, torch.autograd.grad(dense.square().sum(), (x, v)), strict=True):
        torch.testing.assert_close(one, other)


def test_bad_input_is_refused():
    x, v, rotations = inputs(10, 20, dtype="float32")
    for bad, error, match in (
        ({"rotations": rotations[0]}, ShapeError, r"rotations must be \(rounds, d, buckets // 2\) with d = 6"),
        ({"rotations": rotations[:, :5]}, ShapeError, "with d = 6"),
        ({"rotations": rotations[:, :, :0]}, ShapeError, "rotations"),
        ({"rotations": rotations.astype(int)}, DTypeError, "rotations must have one of the dtypes"),
        ({"rotations": rotations * np.nan}, ParameterError, "rotations must hold finite numbers"),
        ({"rotations": [1.0]}, DTypeError, "rotations must be an array"),
        ({"chunk": 0}, ParameterError, "chunk must be a positive integer"),
        ({"key_mask": np.ones(19, bool)}, ShapeError, "key_mask must broadcast to"),
        ({"key_mask": np.ones(20)}, DTypeError, "key_mask must have dtype bool; got float64.*give key_mask != 0"),
        ({"causal": 1}, ParameterError, "causal must be True or False"),
        ({"backend": "gpu"}, BackendUnavailable, "gpu"),
    ):
        with pytest.raises(error, match=match):
            lsh_attention(x, v, **({"rotations": rotations, "chunk": 4} | bad))
    for tokens, values, error, match in (
        (x, v[:, :19], ShapeError, "the number of tokens must be the same for x and v"),
        (x, v.astype("f8"), DTypeError, "all of x, v must have one dtype"),
        (x[0, 0], v, ShapeError, r"x must be \(\.\.\., n, d\)"),
        (x[:, :0], v[:, :0], ShapeError, "x must not be empty"),
    ):
        with pytest.raises(error, match=match):
            lsh_attention(tokens, values, rotations=rotations, chunk=4)
    with pytest.raises(ParameterError, match="lsh is for l = 20 tokens, as many as x has; got l = 21"):
        P.lsh(x, rotations=rotations, chunk=4).plan(21)


def test_traced_tokens_are_refused():
    jax = pytest.importorskip("jax")
    x, v, rotations = inputs(11, 20, dtype="float32")
    with pytest.raises(ParameterError, match="x must hold numbers that are known"):
        jax.jit(lambda x: lsh_attention(x, jax.numpy.asarray(v), rotations=rotations, chunk=4))(x)
    x = x[0, :6]
    plan = P.lsh(x, rotations=rotations[:1], chunk=4).plan(6)  # made outside, it is a constant of the graph
    token = jax.numpy.asarray(x)
    found = jax.jit(jax.grad(lambda v: ka.softmax_attention(token, token, v, pattern=plan).sum()))(v[0, :6])
    weights = np.where(plan.mask(), np.exp(x @ x.T / np.sqrt(6)), 0)
    wanted = np.sum(weights / weights.sum(axis=1, keepdims=True), axis=0)
    np.testing.assert_allclose(np.asarray(found), np.broadcast_to(wanted[:, None], (6, 5)), rtol=1e-5)


def test_libraries_are_not_mixed():
    torch = pytest.importorskip("torch")
    x, _, rotations = inputs(12, 20)
    with pytest.raises(MixedLibraryError):
        P.lsh(x, rotations=torch.tensor(rotations), chunk=4)


@pytest.mark.slow
def test_long_sequences():
    """Memory is O(n), and a row is the oracle's."""
    pytest.importorskip("numba")
    n, chunk = 2**17, 64
    x, v, rotations = inputs(13, n, heads=(), d=8, e=4, rounds=2, half=64, dtype="float32")
    plan = P.lsh(x, rotations=rotations, chunk=chunk).plan(n)
    assert sum(array.nbytes for part in plan.heads[0] for array in part) < 100 * n
    out = lsh_attention(x, v, rotations=rotations, chunk=chunk)
    for row in (0, 70_000, n - 1):
        sees = np.flatnonzero(pattern_oracles.lsh(row, np.arange(n), x, rotations, chunk))
        sees = sees[sees != row]
        unit = x[sees] / np.linalg.norm(x[sees], axis=-1, keepdims=True)
        one, _ = oracles.softmax_attention(x[None, row].astype("f8"), unit, v[sees])
        np.testing.assert_allclose(to_numpy(out)[row], one[0], rtol=1e-4, atol=1e-5)
