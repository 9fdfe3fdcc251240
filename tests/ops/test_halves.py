"""16-bit floats in compiled loops: each is widened and rounded as NumPy and ml_dtypes do, and no array is copied."""

import ml_dtypes
import numpy as np
import pytest

import kernattn as ka
from kernattn.ops._numba.codegen.halves import BFLOAT16, FLOAT16, narrow_all, widen_all
from kernattn.ops.block_softmax.cpu import block_softmax
from kernattn.ops.block_softmax_vjp.cpu import block_softmax_vjp
from kernattn.ops.causal.cpu import causal
from kernattn.ops.causal_conv.cpu import causal_conv
from kernattn.ops.causal_conv_step.cpu import causal_conv_step
from kernattn.ops.causal_vjp.cpu import causal_vjp
from kernattn.ops.features_vjp.cpu import features_vjp
from kernattn.ops.gated_vjp.cpu import gated_vjp
from kernattn.ops.gram.cpu import gram

HALVES = {BFLOAT16: ml_dtypes.bfloat16, FLOAT16: np.float16}


def _arrays(found):
    """Return the arrays of a tree of tuples."""
    if isinstance(found, tuple):
        return [array for part in found for array in _arrays(part)]
    return [] if found is None else [found]


@pytest.mark.parametrize("kind", HALVES)
def test_every_pattern_widens(kind):
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits.setflags(write=False)
    found = np.empty(bits.size, np.float32)
    widen_all(bits, kind, found)
    with np.errstate(invalid="ignore"):
        wanted = bits.view(HALVES[kind]).astype(np.float32)
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(found[~nan].view(np.uint32), wanted[~nan].view(np.uint32))
    assert np.isnan(found[nan]).all()


@pytest.mark.parametrize("kind", HALVES)
def test_every_number_tie_and_neighbour_rounds(kind):
    rng = np.random.default_rng(0)
    dtype = HALVES[kind]
    with np.errstate(invalid="ignore"):
        numbers = np.unique(np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32))
    numbers = numbers[np.isfinite(numbers)]
    ties = ((numbers[1:].astype(np.float64) + numbers[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(ties, np.float32(end)) for end in (np.inf, -np.inf)]
    anything = rng.integers(0, 1 << 32, 100_003, np.uint32).view(np.float32)
    x = np.concatenate([numbers, ties, *near, anything, np.float32([np.inf, -np.inf, -0.0, 65519, 65520, 3.4e38])])
    nan, largest = np.isnan(x), float(ml_dtypes.finfo(dtype).max)
    for held in (True, False):
        found = np.empty(x.size, dtype)
        narrow_all(x, found.view(np.uint16), kind, held)
        with np.errstate(invalid="ignore", over="ignore"):
            wanted = (np.where(np.isinf(x), x, np.clip(x, -largest, largest)) if held else x).astype(dtype)
        np.testing.assert_array_equal(found[~nan].view(np.uint16), wanted[~nan].view(np.uint16))
        assert np.isnan(found[nan].astype(np.float32)).all()


def _causal(phi):
    def run(q, k, v, mask):
        out, state = ka.causal_linear_attention(q[..., :-1, :], k[..., :-1, :], v[..., :-1, :], phi)
        last = ka.linear_attention_step(state, q[..., -1, :], k[..., -1, :], v[..., -1, :], phi)[0]
        return out, last, ka.linear_attention(q, k, v, phi, key_mask=mask), state.s

    return run


def _gated(q, k, v, mask):
    g, beta = -np.abs(k[..., 0].astype(np.float32)), np.abs(np.tanh(v[..., 0].astype(np.float32)))
    whole, state = ka.gated_linear_attention(q, k, v, g=g, beta=beta, key_mask=mask, l2_normalise=True)
    last, _ = ka.gated_linear_attention_step(
        state, q[..., 0, :], k[..., 0, :], v[..., 0, :], g=g[..., 0], beta=beta[..., 0]
    )
    channels, _ = ka.gated_linear_attention(q, k, v, gk=-np.abs(k), key_mask=mask)
    return whole, last, state.s, channels


def _convolved(q, k, v, mask):
    weight, ids = np.asarray(v[0, 0, :4], np.float32).T, np.arange(133) // 60
    last, _ = causal_conv_step(np.float32(k[0, 0, :21, :3]), v[0, 0, 3], weight, None, True)
    return causal_conv(v, weight, weight[:, 0], True, ids), causal_conv(q, weight[:7], None, False, None), last


def _exact(q, k, v, mask):
    parts = ka.patterns.sinks(2) | ka.patterns.local(5, 0)
    turns = np.random.default_rng(1).standard_normal((2, 7, 4))
    hashed = ka.patterns.lsh(k[0, 0].astype(np.float32), rotations=turns, chunk=16)
    bias = np.where(mask, np.arange(133) % 9 / 4, -np.inf).astype(q.dtype)
    calls = {"causal": True, "key_mask": mask}, {"key_bias": bias}, {"pattern": parts}, {"pattern": hashed}
    return [ka.softmax_attention(q, k, v, **call) for call in (*calls, {"scale": 3e38})]


@pytest.mark.parametrize("dtype", HALVES.values(), ids=["bfloat16", "float16"])
@pytest.mark.parametrize("lay", [lambda x: x, lambda x: x.swapaxes(1, 2)], ids=["heads first", "tokens first"])
@pytest.mark.parametrize("attend", ["elu1", "favor", "gated", "exact", "convolved"])
def test_bits_are_those_of_rounded_outputs_of_widened_inputs(attend, lay, dtype):
    rng = np.random.default_rng(0)
    q, k, v = (lay(np.ascontiguousarray(lay(rng.standard_normal((2, 3, 133, e))).astype(dtype))) for e in (7, 7, 21))
    mask = rng.random((2, 3, 133)) < 0.8
    maps = {"elu1": ka.features.elu1(), "favor": ka.random_features(ka.kernels.Softmax(), 7, 24, rng=0)}
    run = (
        _causal(maps[attend]) if attend in maps else {"gated": _gated, "exact": _exact, "convolved": _convolved}[attend]
    )
    for found, wide in zip(run(q, k, v, mask), run(*(x.astype(np.float32) for x in (q, k, v)), mask), strict=True):
        assert found.dtype in (dtype, np.float32)
        np.testing.assert_array_equal(found, wide.astype(found.dtype))


@pytest.mark.parametrize("dtype", HALVES.values(), ids=["bfloat16", "float16"])
@pytest.mark.parametrize("op", ["elu1", "favor", "exact", "features", "gram", "decay", "pair"])
def test_cotangents_have_the_bits_of_rounded_ones(op, dtype):
    rng = np.random.default_rng(0)
    q, k, v, g = (rng.standard_normal((2, 3, 45, e)).astype(dtype) for e in (7, 7, 21, 21))
    mask, phi = rng.random((2, 3, 45)) < 0.8, ka.random_features(ka.kernels.Softmax(), 7, 24, rng=0)
    spec = (ka.features.elu1() if op == "elu1" else phi).spec
    if op == "exact":
        parts = (ka.patterns.sinks(2) | ka.patterns.local(5, 0)).plan(45)
        out, lse = block_softmax(q, k, v, 0.5, parts, mask)
        run, given = block_softmax_vjp, (q, k, v, 0.5, parts, mask, None, None, out, lse, g, None)
    elif op == "features":
        run, given = features_vjp, (q, spec, rng.standard_normal((2, 3, 45, 24)).astype(dtype), True)
    elif op in ("decay", "pair"):
        run, ids = gated_vjp, np.arange(45) // 20
        pair = (k / 4, -np.abs(q) / 4) if op == "pair" else (None, None)
        beta, state = (None if op == "pair" else np.abs(np.tanh(v[..., 0]))), np.float32(g[..., :7, :])
        given = (q, k, v, None, -np.abs(q), beta, *pair, 0.5, True, state, mask, ids, g, None)
    elif op == "gram":
        run, given = gram, (q, v, spec, False)
    else:
        maps = spec.unscaled, spec
        out, normaliser, _ = causal(q, k, v, *maps, None, mask, None, True)
        run, given = causal_vjp, (q, k, v, *maps, None, mask, None, out, normaliser, g, None, True)
    wide = [x.astype(np.float32) if getattr(x, "dtype", None) == dtype else x for x in given]
    if run is causal_vjp:  # which finds g.o of outputs that were rounded once more, in another order of sums
        wide[8] = causal(*wide[:8], False)[0]
        for x, y in zip(*(_arrays(run(*x)) for x in (given, wide)), strict=True):
            np.testing.assert_allclose(x, y, rtol=1.1 * ml_dtypes.finfo(x.dtype).eps / 2, atol=1e-5 * np.abs(y).max())
        return
    found, wanted = (_arrays(run(*x)) for x in (given, wide))
    assert len(found) == len(wanted) >= 2
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(x, y.astype(x.dtype))


@pytest.mark.parametrize("dtype", HALVES.values(), ids=["bfloat16", "float16"])
def test_cotangents_of_far_rows_have_the_bits_of_rounded_ones(dtype):
    rng = np.random.default_rng(0)
    q, k, v, g = (rng.standard_normal((2, 9, e)).astype(dtype) for e in (4, 4, 6, 6))
    q[0, 3] *= 1000  # what loops leave to array operations
    spec = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0).spec
    out, normaliser, _ = causal(q, k, v, spec, spec, None, None, None, True)
    rows = np.full((2, 9, 4), 200, dtype)
    rows[0, 0] = 4e4
    slopes = np.where(rng.random((2, 9, 8)) < 0.5, 6e4, -3e4).astype(dtype)
    trigonometric = ka.random_features(ka.kernels.Gaussian(), 4, 8, "trigonometric", rng=0).spec
    calls = [(causal_vjp, (q, k, v, spec, spec, None, None, None, out, normaliser, g, None, True))]
    calls += [(features_vjp, (rows, each, slopes, learn)) for each in (spec, trigonometric) for learn in (False, True)]
    for run, given in calls:
        wide = [x.astype(np.float32) if getattr(x, "dtype", None) == dtype else x for x in given]
        for x, y in zip(*(_arrays(run(*x)) for x in (given, wide)), strict=True):
            held = np.clip(y, *(ml_dtypes.finfo(x.dtype).min, ml_dtypes.finfo(x.dtype).max))
            np.testing.assert_array_equal(x, held.astype(x.dtype))


@pytest.mark.parametrize("dtype", HALVES.values(), ids=["bfloat16", "float16"])
def test_kernel_matrices_and_sketches_are_rounded_ones(dtype):
    x = np.random.default_rng(0).standard_normal((2, 45, 7)).astype(dtype)
    x[0, 3] = 60  # float16 has no 60^6
    power = ka.kernels.Polynomial(3, coef0=1.0)
    maps = [ka.random_features(power, 7, m, "tensor_sketch", rng=0) for m in (16, 15)]
    for call in (ka.kernels.Gaussian(), ka.kernels.Laplacian(), power, *maps):
        found, wide = call(x), call(x.astype(np.float32))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(found, wide.astype(dtype))
        assert found.dtype == dtype


@pytest.mark.parametrize("dtype", HALVES.values(), ids=["bfloat16", "float16"])
def test_whole_vectors_have_the_bits_of_rounded_outputs(dtype):
    """Also of rows without a key, with values that are not finite, and with sums beyond float16."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 64, 32)).astype(dtype) for _ in range(3))
    v[1, 3, 5], v[1, 9, 6], k[1, 17, 0], v[0, :, 7] = np.inf, np.nan, np.inf, ml_dtypes.finfo(dtype).max
    mask = np.arange(64) >= [[5], [0]]
    wide = [x.astype(np.float32) for x in (q, k, v)]
    largest = float(ml_dtypes.finfo(dtype).max)
    with np.errstate(invalid="ignore"):
        for call in ({"causal": True, "key_mask": mask}, {"key_mask": mask[:1]}, {"scale": 3e38}):
            found, wanted = (ka.softmax_attention(*x, **call) for x in ((q, k, v), wide))
            wanted = np.where(np.isinf(wanted), wanted, np.clip(wanted, -largest, largest)).astype(dtype)
            np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("dtype", HALVES.values(), ids=["bfloat16", "float16"])
@pytest.mark.parametrize("causal", [True, False])
def test_what_is_near_and_far_is_rounded_once(causal, dtype):
    q, k, v = (np.random.default_rng(i).standard_normal((2, 70, 16)).astype(dtype) for i in range(3))
    wide, phi = [x.astype(np.float32) for x in (q, k, v)], ka.features.elu1()
    for pattern in (ka.patterns.local(9, 0), ka.patterns.local(9, 4)):
        found, wanted = (
            ka.attention.scatterbrain_attention(*x, phi, pattern, causal=causal) for x in ((q, k, v), wide)
        )
        np.testing.assert_array_equal(found, wanted.astype(dtype))


@pytest.mark.parametrize("dtype", HALVES.values(), ids=["bfloat16", "float16"])
def test_what_is_taken_off_is_rounded_once(dtype):
    """Where keys on the plan are taken off sums over all, exact attention's part is not rounded before the sum."""
    q, k, v = (np.random.default_rng(i).standard_normal((2, 70, 16)).astype(dtype) for i in range(3))
    wide, phi, pattern = [x.astype("f8") for x in (q, k, v)], ka.features.elu1(), ka.patterns.local(9, 4, dilation=2)
    found, wanted = (ka.attention.scatterbrain_attention(*x, phi, pattern) for x in ((q, k, v), wide))
    assert np.mean(found != wanted.astype(dtype)) < 0.01  # the bounds of some cells are nearer than float32's digits
