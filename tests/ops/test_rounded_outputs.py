"""Gradients of 16-bit arrays: they lose what rounding the exact gradient loses, for no step of a pullback rounds.

g.v and g.o nearly cancel in all pullbacks of means, so none reads outputs o that were rounded. And where array
operations read a row twice, its cotangents are added before they are rounded.
"""

import ml_dtypes
import numpy as np
import pytest

import kernattn as ka

D, E, N = 8, 5, 34
SOFTMAX, CALLED = ka.kernels.Softmax(), ka.attention
HALVES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype("f2")}
NORMS = 1, 4, 8, 16
MOST = 1.05
"""Times the error of rounding."""

ELU1 = ka.features.elu1()
FAVOR = ka.random_features(SOFTMAX, D, 32, "positive", projection="orthogonal", rng=3)
SIGNED = ka.random_features(SOFTMAX, D, 32, "trigonometric", projection="orthogonal", rng=3)


def drawn(shape, seed=5):
    """Numbers that both formats hold, so that all dtypes are given the same."""
    return np.random.default_rng(seed).standard_normal(shape).astype(ml_dtypes.bfloat16).astype("f8")


LOGS, MASK, SEGMENTS = -abs(drawn((2, N))) / 8, np.arange(N) % 5 > 0, np.arange(N) // 15
MIXTURES, WEIGHTS = drawn((12, N)) / 32, drawn((4, D, D)) / D
BEHIND, AROUND, APART = ka.patterns.local(4, 0), ka.patterns.local(4, 4), ka.patterns.local(4, 4, dilation=2)

LINEAR, CAUSAL, EXACT = ka.linear_attention, ka.causal_linear_attention, ka.softmax_attention
NEAR, WINDOW = CALLED.scatterbrain_attention, CALLED.window_attention


def states(q, k, v, phi, **options):
    return ka.attend(ka.key_state(k, v, phi, **options), q, phi, **options)


def compressed(q, k, v, causal):
    both = {f"weights_{x}": beside(w, v) for x, w in (("k", WEIGHTS), ("v", WEIGHTS[:, :E, :E]))}
    return CALLED.compressed_attention(q, k, v, factor=4, causal=causal, **both)


def linformer(q, k, v):
    return CALLED.linformer_attention(q, k, v, *[beside(MIXTURES, v)] * 2)


def routing(q, k, v):
    return CALLED.routing_attention(q, k, v, drawn((1, 4, D)), window=12)


def lsh(q, k, v):
    return CALLED.lsh_attention(q, v, rotations=drawn((2, D, 2)), chunk=8)


BY_RULE = {
    "full": (LINEAR, [FAVOR], {}),
    "full, masked": (LINEAR, [ELU1], {"key_mask": MASK}),
    "packed": (LINEAR, [FAVOR], {"segment_ids": SEGMENTS}),
    "causal": (CAUSAL, [ELU1], {}),
    "causal, packed": (CAUSAL, [FAVOR], {"key_mask": MASK, "segment_ids": SEGMENTS}),
    "fading": (CAUSAL, [FAVOR], {"g": LOGS}),
    "fading, signed": (CAUSAL, [ELU1], {"gk": -abs(drawn((2, N, D))) / 8}),
    "gated": (ka.gated_linear_attention, [], {"gk": -abs(drawn((2, N, D))) / 4}),
    "delta rule": (ka.gated_linear_attention, [], {"g": LOGS, "beta": -4 * LOGS, "l2_normalise": True}),
    "exact": (EXACT, [], {}),
    "exact, causal": (EXACT, [], {"causal": True, "key_mask": MASK}),
    "exact, on a pattern": (EXACT, [], {"pattern": AROUND}),
    "exact, biased": (EXACT, [], {"key_bias": drawn((2, N))}),
    "exact, pairs biased": (EXACT, [], {"score_bias": drawn((2, N, N))}),
    "window": (WINDOW, [FAVOR, 8], {}),
    "window, biased": (WINDOW, [ELU1, 8], {"near_bias": 0.5, "key_mask": np.arange(N) > 2}),
    "near and far, causal": (NEAR, [FAVOR, BEHIND], {"causal": True}),
    "near and far": (NEAR, [ELU1, AROUND], {}),
}
BY_ARRAY_OPERATIONS = {
    "states": (states, [FAVOR], {}),
    "near and far, taken off": (NEAR, [FAVOR, APART], {}),
    "gaussian weights": (lambda q, k, v: ka.kernel_attention(q, k, v, ka.kernels.Gaussian(2.0)), [], {}),
    "weights": (lambda q, k, v: ka.kernel_attention(q, k, v, ka.kernels.Cauchy(2.0), causal=True), [], {}),
    "linformer": (linformer, [], {}),
    "nystrom": (lambda q, k, v: CALLED.nystrom_attention(q, k, v, num_landmarks=6), [], {}),
    "compressed": (compressed, [], {"causal": False}),
    "compressed, causal": (compressed, [], {"causal": True}),
    "routing": (routing, [], {}),
    "hashed": (lsh, [], {}),
}
CALLS = BY_RULE | BY_ARRAY_OPERATIONS


def beside(x, like):
    """An array of the table for a call on others: of their library, floats of their dtype."""
    if not isinstance(x, np.ndarray):
        return x
    if isinstance(like, np.ndarray):
        return x.astype(like.dtype) if x.dtype.kind == "f" else x
    torch = pytest.importorskip("torch")
    return torch.tensor(x).to(like.dtype) if x.dtype.kind == "f" else torch.tensor(x)


def rows_of(norm, dtype):
    """Queries and keys of this norm, values, and cotangents of the outputs."""
    rng, size = np.random.default_rng(0), norm / np.sqrt(D)
    parts = ((D, size), (D, size), (E, 1), (E, 1))
    return [(factor * rng.standard_normal((2, N, width))).astype(dtype) for width, factor in parts]


def by_numpy(call, q, k, v, g, **more):
    run, rest, options = call
    out, pull = ka.vjp(run, q, k, v, *rest, **{name: beside(x, v) for name, x in options.items()}, **more)
    cotangents = pull((g, None) if isinstance(out, tuple) else g)
    return cotangents.q, cotangents.k, cotangents.v


def by_torch(call, dtype, *arrays, **more):
    torch = pytest.importorskip("torch")
    run, rest, options = call
    *rows, g = (torch.tensor(x.astype("f8")).to(getattr(torch, dtype)) for x in arrays)
    given = {name: beside(x, rows[2]) for name, x in options.items()}
    wanted = rows + [x for x in given.values() if torch.is_tensor(x) and x.is_floating_point()]
    for x in wanted:
        x.requires_grad_()
    out = run(*rows, *rest, **given, **more)
    grads = torch.autograd.grad(out[0] if isinstance(out, tuple) else out, wanted, g, allow_unused=True)
    return [None if x is None else x.double().numpy() for x in grads]


def errors(found, wanted, dtype):
    """Return the rms errors over those of rounding, of all that were found."""
    pairs = [(np.asarray(x, "f8"), y) for x, y in zip(found, wanted, strict=False) if y is not None]
    return [np.sqrt(np.mean((x - y) ** 2) / np.mean((y.astype(dtype).astype("f8") - y) ** 2)) for x, y in pairs]


@pytest.mark.parametrize("name", CALLS)
def test_the_error_is_that_of_rounding(name):
    """Each norm meets one of the formats here, and the other in a call that is next to it in the table."""
    call, formats = CALLS[name], list(HALVES)
    for at, norm in enumerate(NORMS, [*CALLS].index(name)):
        dtype = formats[at % 2]
        rows = rows_of(norm, HALVES[dtype])
        wanted = by_torch(call, "float64", *rows, **({"backend": "reference"} if name in BY_RULE else {}))
        assert max(errors(by_torch(call, dtype, *rows), wanted, HALVES[dtype])) < MOST
        if name in BY_RULE:
            assert max(errors(by_numpy(call, *rows), wanted, HALVES[dtype])) < MOST
            if norm == 8:
                assert max(errors(by_numpy(call, *rows, backend="reference"), wanted, HALVES[dtype])) < MOST


def test_heads_that_share_keys():
    (q, k, v, g), dtype = rows_of(4, HALVES["bfloat16"]), "bfloat16"
    q, g = (np.stack([x, x[::-1]]) for x in (q, g))
    for name in ("full", "causal", "fading", "exact", "window"):
        wanted = by_torch(CALLS[name], "float64", q, k, v, g, backend="reference")
        assert max(errors(by_torch(CALLS[name], dtype, q, k, v, g), wanted, HALVES[dtype])) < MOST


def test_signed_features_are_as_exact_as_floats_are():
    """Their normalisers can be near 0, and lose digits of float32: the law holds where these are left."""
    for call in (CAUSAL, LINEAR):
        rows = rows_of(1, HALVES["float16"])
        wanted = by_torch((call, [SIGNED], {}), "float64", *rows, backend="reference")
        assert max(errors(by_torch((call, [SIGNED], {}), "float16", *rows), wanted, HALVES["float16"])) < MOST


@pytest.mark.parametrize("name", ["exact", "near and far"])
def test_in_jax(name):
    jax = pytest.importorskip("jax")
    (run, rest, options), dtype = CALLS[name], HALVES["bfloat16"]
    rows = rows_of(8, dtype)
    wanted = by_torch(CALLS[name], "float64", *rows, backend="reference")
    *rows, g = (jax.numpy.asarray(x) for x in rows)
    _, pull = jax.vjp(lambda *rows: run(*rows, *rest, **options), *rows)
    assert max(errors([x.astype("f4") for x in pull(g)], wanted, dtype)) < MOST


def test_in_graphs():
    """What a graph calls keeps as much for its pullback."""
    pytest.importorskip("torch")
    ops, rows = pytest.importorskip("kernattn.torch._library").torch.ops.kernattn, rows_of(8, HALVES["bfloat16"])

    def run(q, k, v):
        return ops.block_softmax(q, k, v, None, None, None, D**-0.5, "all", None)

    wanted = by_torch(CALLS["exact"], "float64", *rows, backend="reference")
    assert max(errors(by_torch((run, [], {}), "bfloat16", *rows), wanted, HALVES["bfloat16"])) < MOST


@pytest.mark.parametrize("dtype", HALVES)
def test_on_the_matrix_unit(dtype, matrix_unit):
    """Tiles write the same outputs whether these are kept or not, also beside rows that the loops of floats answer."""
    q, k, v, g = rows_of(8, HALVES[dtype])
    q[0, 3] *= HALVES[dtype].type(2.0 ** (50 if dtype == "bfloat16" else 10))
    out, pull = ka.vjp(EXACT, q, k, v)
    np.testing.assert_array_equal(out.view("u2"), EXACT(q, k, v).view("u2"))
    wanted = by_torch(CALLS["exact"], "float64", q, k, v, g, backend="reference")
    assert max(errors(pull(g)[:3], wanted, HALVES[dtype])) < MOST
