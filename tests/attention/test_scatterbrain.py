"""ScatterBrain: exact weights on a pattern, those of features elsewhere, against a dense oracle."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, ParameterError, ShapeError
from laws import arrays
from refusals import refused
from xp import KINDS, to_numpy

TOLERANCE = {"float16": 5e-3, "float32": 5e-5, "float64": 1e-9}
WINDOW = ka.patterns.local(3, 1)
PATTERNS = {
    "window": WINDOW,
    "dilated": ka.patterns.local(6, dilation=3),
    "heads": ka.patterns.per_head([WINDOW, ka.patterns.sinks(2)]),
    "blocks": ka.patterns.documents(np.arange(67) // 9),
    "ahead": ka.patterns.local(2, 11),
}
POSITIVE = ka.random_features(ka.kernels.Softmax(), 4, 16, "positive", rng=1)
MAPS = {
    "positive": POSITIVE,
    "trigonometric": ka.random_features(ka.kernels.Softmax(), 4, 64, "trigonometric", rng=1),
    "another scale": ka.random_features(ka.kernels.Softmax(0.9), 4, 16, "positive", rng=1),
    "elu1": ka.features.elu1(),
}


def oracle(q, k, v, phi, pattern, causal=False, mask=None, ids=None, bias=0.0):
    """The matrix of weights, in float64."""
    q, k, v = map(to_numpy, (q, k, v))
    n, length = q.shape[-2], k.shape[-2]
    plan = pattern.plan(n, length, causal=causal)
    on = np.stack([plan.mask(head) for head in range(len(plan.heads))])
    scale = getattr(getattr(phi, "kernel", None), "scale", None) or 0.5
    exact = np.exp(scale * q @ np.swapaxes(k, -1, -2) + bias)
    weights = np.where(on, exact, phi.query(q) @ np.swapaxes(phi.key(k), -1, -2))
    weights = np.where(np.tri(n, length, length - n, dtype=bool) if causal else True, weights, 0)
    weights = weights if ids is None else np.where(ids[..., length - n :, None] == ids[..., None, :], weights, 0)
    weights = weights if mask is None else np.where(mask[..., None, :], weights, 0)
    total = weights.sum(axis=-1, keepdims=True)
    return np.where(total == 0, 0, weights @ v / np.where(total == 0, 1, total))


def tokens(n, length, dtype="float64", seed=1):
    return arrays(seed, (2, n, 4), (2, length, 4), (2, length, 3), dtype=dtype)


@pytest.mark.parametrize(
    ("n", "length", "causal", "masked", "dtype", "pattern", "phi"),
    [
        (67, 67, False, False, "float64", "window", "positive"),
        (67, 67, True, True, "float64", "heads", "positive"),
        (9, 75, False, True, "float32", "dilated", "positive"),
        (9, 75, True, False, "float32", "window", "another scale"),
        (30, 30, True, False, "float64", "window", "trigonometric"),
        (30, 30, False, True, "float64", "heads", "trigonometric"),
        (30, 31, True, False, "float64", "dilated", "elu1"),
        (33, 33, True, False, "float16", "window", "positive"),
        (67, 67, True, True, "float64", "blocks", "positive"),
        (9, 67, False, True, "float32", "blocks", "elu1"),
        (67, 67, False, True, "float64", "ahead", "trigonometric"),
    ],
)
def test_agrees_with_the_oracle(n, length, causal, masked, dtype, pattern, phi):
    q, k, v = tokens(n, length, dtype)
    mask = np.random.default_rng(2).random((2, length)) < 0.7 if masked else None
    phi, pattern = MAPS[phi], PATTERNS[pattern]
    wanted = oracle(q, k, v, phi, pattern, causal, mask)
    for backend in (None, "reference"):
        out = ka.attention.scatterbrain_attention(q, k, v, phi, pattern, causal=causal, key_mask=mask, backend=backend)
        assert out.dtype == q.dtype
        np.testing.assert_allclose(to_numpy(out), wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("backend", [None, "reference"])
@pytest.mark.parametrize(("n", "causal"), [(67, True), (67, False), (30, False)])
def test_segments(n, causal, backend):
    """Neither on the pattern nor elsewhere is another segment seen; runs differ from one head to the other."""
    q, k, v = tokens(n, 67)
    ids = np.sort(np.random.default_rng(3).integers(0, 4, (2, 67)), axis=-1)
    given = {"causal": causal, "segment_ids": ids, "near_bias": 0.7, "backend": backend}
    for pattern in (WINDOW, ka.patterns.documents(np.arange(67) // 9)):
        out = ka.attention.scatterbrain_attention(q, k, v, POSITIVE, pattern, **given)
        wanted = oracle(q, k, v, POSITIVE, pattern, causal, None, ids, 0.7)
        np.testing.assert_allclose(out, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("pattern", ["window", "dilated", "heads"])
def test_a_bias_a_head(pattern):
    q, k, v = tokens(30, 30)
    bias = np.array([1.5, -0.5])
    out = ka.attention.scatterbrain_attention(q, k, v, POSITIVE, PATTERNS[pattern], near_bias=bias)
    wanted = oracle(q, k, v, POSITIVE, PATTERNS[pattern], bias=bias[:, None, None])
    np.testing.assert_allclose(out, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
def test_ends_of_the_pattern(causal):
    """All keys on it: exact attention; none: linear attention."""
    q, k, v = tokens(40, 40)
    everything = ka.attention.scatterbrain_attention(q, k, v, POSITIVE, ka.patterns.local(40), causal=causal)
    np.testing.assert_allclose(everything, ka.softmax_attention(q, k, v, causal=causal), rtol=1e-9, atol=1e-12)
    nothing = ka.patterns.local(1) & ka.patterns.local(0, dilation=2) & ka.patterns.documents(np.arange(40))
    nothing = ka.patterns.per_head([nothing, nothing]) & ka.patterns.sinks(1)
    linear = ka.causal_linear_attention(q, k, v, POSITIVE)[0] if causal else ka.linear_attention(q, k, v, POSITIVE)
    off = ka.attention.scatterbrain_attention(q[:, 1:], k, v, POSITIVE, nothing, causal=causal)
    np.testing.assert_allclose(off, linear[:, 1:], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("pattern", ["window", "heads"])
def test_rows_wholly_on_the_pattern_are_exact(pattern, masked):
    """What trigonometric features leave of such rows, far larger than the exact weights, is rounding alone."""
    q, k, v = (size * x for size, x in zip((6.0, 6.0, 1.0), tokens(30, 30), strict=True))
    mask = np.arange(30) < 3 if masked else None
    out = ka.attention.scatterbrain_attention(
        q, k, v, MAPS["trigonometric"], PATTERNS[pattern], causal=not masked, key_mask=mask
    )
    exact = ka.softmax_attention(q, k, v, causal=not masked, key_mask=mask)
    on = PATTERNS[pattern].plan(30, 30, causal=not masked)
    seen = mask if masked else np.tri(30, dtype=bool)
    whole = np.stack([(on.mask(head) & seen == seen).all(axis=-1) for head in np.arange(2) % len(on.heads)])
    assert 2 <= np.sum(whole) < 40
    np.testing.assert_allclose(out[whole], exact[whole], rtol=1e-12)


@pytest.mark.parametrize("size", [1.0, 5.0, 60.0])
def test_norms_and_cancellation(size):
    """Where a row's own key outweighs all others by hundreds of octaves, nothing overflows, and digits stay."""
    q, k, v = tokens(50, 50)
    q = k = size * q
    out = ka.attention.scatterbrain_attention(q, k, v, POSITIVE, WINDOW)
    assert np.isfinite(out).all()
    if size < 10:
        np.testing.assert_allclose(out, oracle(q, k, v, POSITIVE, WINDOW), rtol=1e-5, atol=1e-6)


def test_float32_has_the_digits_of_its_inputs():
    """Features in float32 would lose them: their weight on the pattern is far more than what is left."""
    q, k, v = (x.astype("f4") for x in tokens(64, 64))
    q, k = 2.5 * q, 2.5 * q
    out = ka.attention.scatterbrain_attention(q, k, v, POSITIVE, WINDOW)
    np.testing.assert_allclose(out, oracle(q, k, v, POSITIVE, WINDOW), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", [None, "reference"])
def test_blind_to_the_unseen(backend):
    q, k, v = tokens(70, 70)
    given = {"causal": True, "backend": backend}
    before = ka.attention.scatterbrain_attention(q, k, v, POSITIVE, WINDOW, **given)
    for what in (np.nan, 1e6):
        other = [x.copy() for x in (q, k, v)]
        for x in other:
            x[:, 50:] = what
        after = ka.attention.scatterbrain_attention(*other, POSITIVE, WINDOW, **given)
        np.testing.assert_allclose(after[:, :50], before[:, :50], rtol=1e-10, atol=1e-12)
    mask = np.arange(70) < 50
    k[:, 50:], v[:, 50:] = np.nan, np.nan
    out = ka.attention.scatterbrain_attention(q, k, v, POSITIVE, WINDOW, key_mask=mask, backend=backend)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in ("strict", "torch", "jax")], ids=repr)
def test_every_library(kind):
    q, k, v = tokens(20, 20)
    wanted = oracle(q, k, v, POSITIVE, WINDOW, True)
    with kind.wide():
        out = ka.attention.scatterbrain_attention(*map(kind.asarray, (q, k, v)), POSITIVE, WINDOW, causal=True)
        assert kind.holds(out)
        np.testing.assert_allclose(to_numpy(out), wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_tensors(causal):
    torch = pytest.importorskip("torch")
    q, k, v = (torch.tensor(x[0]).requires_grad_() for x in tokens(6, 6))

    def call(q, k, v):
        return ka.attention.scatterbrain_attention(q, k, v, POSITIVE, WINDOW, causal=causal)

    assert torch.autograd.gradcheck(call, (q, k, v))


def test_bad_input_is_refused():
    q, k, v = tokens(6, 8)
    with refused(DTypeError, "pattern", "'window'"):
        ka.attention.scatterbrain_attention(q, k, v, POSITIVE, "window")
    with refused(DTypeError, "phi", "FeatureMap"):
        ka.attention.scatterbrain_attention(q, k, v, None, WINDOW)
    with refused(ShapeError, "q", "4 columns"):
        ka.attention.scatterbrain_attention(q[..., :3], k, v, POSITIVE, WINDOW)
    with refused(ParameterError, "n = 8", "l = 6"):
        ka.attention.scatterbrain_attention(k, q, v[:, :6], POSITIVE, WINDOW)
    with refused(ShapeError, "plan", "n = 8", "n = 6"):
        ka.attention.scatterbrain_attention(q, k, v, POSITIVE, WINDOW.plan(8))
    with refused(ParameterError, "causal"):
        ka.attention.scatterbrain_attention(q, k, v, POSITIVE, WINDOW, causal=1)
