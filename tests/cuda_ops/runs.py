"""Runs of every op that reach all of its kernels: what came out, what the oracle says, and the unit of its error."""

from dataclasses import replace

import numpy as np

import kernattn as ka
import oracles
from cuda_ops.cases import array, features_of, specs, to64
from cuda_ops.pullbacks import differences, wide
from cuda_ops.test_attend_vjp import problem as attended
from cuda_ops.test_attend_vjp import pullbacks
from cuda_ops.test_block_softmax_vjp import problem as softmaxed
from cuda_ops.test_causal_conv import convolved
from cuda_ops.test_causal_vjp import problem as caused
from cuda_ops.test_gated import problem as gates
from cuda_ops.test_gated import recur, rounded
from cuda_ops.test_gated import run as gated
from cuda_ops.test_gated_vjp import pullbacks as pull_gates
from cuda_ops.test_hadamard import dense
from cuda_ops.test_selective_step import stepped
from cuda_ops.test_tensor_sketch import problem
from cuda_ops.test_tensor_sketch import wanted as sketch_features
from kernattn.ops.attend.gpu import attend
from kernattn.ops.block_softmax.gpu import block_softmax
from kernattn.ops.block_softmax_vjp import reference as block_softmax_vjp_reference
from kernattn.ops.block_softmax_vjp.gpu import block_softmax_vjp
from kernattn.ops.causal.gpu import causal
from kernattn.ops.causal_conv_step.gpu import causal_conv_step
from kernattn.ops.causal_vjp import reference as causal_vjp_reference
from kernattn.ops.causal_vjp.gpu import causal_vjp
from kernattn.ops.countsketch.gpu import countsketch
from kernattn.ops.features.gpu import features
from kernattn.ops.features_vjp import reference as features_vjp_reference
from kernattn.ops.features_vjp.gpu import features_vjp
from kernattn.ops.gram.gpu import gram
from kernattn.ops.hadamard.gpu import chain_features
from kernattn.ops.key_state.gpu import key_state
from kernattn.ops.orthogonalize.gpu import orthogonalize
from kernattn.ops.step.gpu import step
from kernattn.ops.tensor_sketch.gpu import tensor_sketch
from seam import CAUSAL, Chains, MapSpec, PeakedSum, ScaledFeatures

UNION = ka.patterns.local(9) | ka.patterns.local(60, dilation=4) | ka.patterns.fixed(32, 1)  # parts of several orders
EACH = ka.patterns.per_head([ka.patterns.local(70, 0), ka.patterns.strided(9, 9)])


def arrays(cupy, kind, n, d, e, frequencies, lead=(2,), dtype="float32"):
    rng = np.random.default_rng(0)
    if kind == "without projection":
        spec = MapSpec("exp", row_weights=rng.normal(size=d) * 0.3)
    elif kind == "cos":  # of small angles: no sums that cancel
        spec = MapSpec("cos", 0.1 * rng.normal(size=(frequencies, d)) / d**0.5, rng.normal(size=d) * 0.3)
    else:
        spec = specs(rng, kind, d, frequencies)
    q, k, v = (array(cupy, rng.normal(size=(*lead, n, c)) * 0.5, dtype) for c in (d, d, e))
    ids = np.sort(rng.integers(0, 3, size=(*lead, n)), axis=-1)
    mask = rng.random((*lead, n)) < 0.6
    return spec, q, k, v, ids, mask


def against_attention(out, q, k, v, spec, may=None):
    wanted, condition = oracles.linear_attention(features_of(to64(q), spec), features_of(to64(k), spec), to64(v), may)
    return to64(out), wanted, np.maximum(condition, 1.0)[..., None]


def plain(out, wanted):
    return to64(out), wanted, np.abs(wanted).max()


def run_features(cupy, d=70, e=40, frequencies=80, bare="without projection"):
    for kind in ("exp", "sincos", bare):
        spec, q, *_ = arrays(cupy, kind, 70, d, 5, frequencies)
        yield plain(features(q, spec), features_of(to64(q), spec).values)


def normalisers(found, q, k, spec, may):
    """z e^peak of normalisers, in units of the sums of sizes that they are: (..., n)."""
    fq, fk = (features_of(to64(x), spec) for x in (q, k))
    wanted, size = (
        np.sum((a @ np.swapaxes(b, -1, -2)) * may, axis=-1)
        for a, b in ((fq.values, fk.values), (np.exp(fq.size), np.exp(fk.size)))
    )
    return to64(found.z) * np.exp(to64(found.peak)), wanted, np.maximum(size, 1e-30)


def in_other_units(cupy, state):
    """The same state, its peaks no logarithms of powers of two."""
    rest = np.linspace(-1, 1, state.peak.size, dtype=np.float32).reshape(state.peak.shape)
    scale = cupy.asarray(np.exp(-rest))
    return PeakedSum(state.s * scale[..., None], state.z * scale, state.peak + cupy.asarray(rest))


def run_key_state(cupy, d=70, e=40, frequencies=40, bare="without projection"):
    for kind in ("exp_pair", "cos", bare):
        spec, q, k, v, _, mask = arrays(cupy, kind, 150, d, e, frequencies)
        may = oracles.allowed(150, 150, key_mask=mask)
        state = key_state(k, v, spec, cupy.asarray(mask))
        for given in (state, in_other_units(cupy, state)):
            out, found = attend(given, q, spec, v.dtype, True)
            yield against_attention(out, q, k, v, spec, may)
            yield normalisers(found, q, k, spec, may)


def run_causal(cupy, d=70, e=40, frequencies=40, bare="without projection"):
    aligned = -(-d // 8) * 8  # rows that are copied asynchronously
    for kind in ("exp_pair", bare):  # z rides along in products
        spec, q, k, v, ids, mask = arrays(cupy, kind, 150, aligned, e, frequencies, dtype="bfloat16")
        spec = replace(spec, row_weights=None)
        k = k * cupy.asarray(np.linspace(1, 30, 150)[:, None].astype(k.dtype))  # chunks that end early
        v[:, 140:] = np.nan
        may = oracles.allowed(140, 140, causal=True, key_mask=mask[:, :140])
        out, *_ = causal(q, k, v, spec, spec, None, cupy.asarray(mask), None, False)
        got, wanted, size = against_attention(*(x[:, :140] for x in (out, q, k, v)), spec, may)
        yield got, wanted, 1e3 * size
    for kind in ("exp_pair", "cos", "relu", bare):
        spec, q, k, v, ids, mask = arrays(cupy, kind, 150, d, e, frequencies)
        ids = ids if kind == bare else None
        given = (cupy.asarray(mask), None if ids is None else cupy.asarray(ids))
        out, found, _ = causal(q, k, v, spec, spec, None, *given, True)
        may = oracles.allowed(150, 150, causal=True, key_mask=mask, segment_ids=ids)
        yield against_attention(out, q, k, v, spec, may)
        yield normalisers(found, q, k, spec, may)
    phi, log = (
        np.random.default_rng(i).random((2, 2, 80, width)).astype(np.float32) for i, width in ((0, 600), (1, 1))
    )
    q, k = (ScaledFeatures(cupy.asarray(phi[i]), cupy.asarray(9 * log[i])) for i in range(2))
    v = array(cupy, np.random.default_rng(2).normal(size=(2, 80, 7)), "float32")
    out, found, _ = causal(q, k, v, None, None, None, None, None, True)
    fq, fk = (oracles.explicit(phi[i] * np.exp(9.0 * log[i])) for i in range(2))
    may = oracles.allowed(80, 80, causal=True)
    yield plain(out, oracles.linear_attention(fq, fk, to64(v), may)[0])
    z = np.sum((fq.values @ np.swapaxes(fk.values, -1, -2)) * may, axis=-1)
    yield to64(found.z) * np.exp(to64(found.peak)), z, z
    # chunks that end before keys that lie far above those before, and before values that are no numbers
    spec, q, k, v, *_ = arrays(cupy, "exp_pair", 70, d, e, frequencies)
    spec = replace(spec, row_weights=None)
    k = k * cupy.asarray(np.linspace(1, 30, 70)[:, None].astype(np.float32))
    may = oracles.allowed(70, 70, causal=True)
    out, *_ = causal(q, k, v, spec, spec, None, None, None, False)
    yield against_attention(out, q, k, v, spec, may)
    rough = v.copy()
    rough[:, 50:] = np.nan
    out, *_ = causal(q, k, rough, spec, spec, None, None, None, False)
    may = oracles.allowed(50, 50, causal=True)
    yield against_attention(out[:, :50], q[:, :50], k[:, :50], v[:, :50], spec, may)


def run_step(cupy, d=5, e=40, frequencies=300):
    for kind in ("exp", "sincos"):
        spec, q, k, v, *_ = arrays(cupy, kind, 10, d, e, frequencies, lead=(2, 1))
        q = cupy.concatenate([q, q[..., ::-1, :]], axis=1)
        state = key_state(k[..., :9, :], v[..., :9, :], spec, None)
        out, _ = step(state, q[..., 9, :], k[..., 9, :], v[..., 9, :], spec, spec, None, True)
        yield against_attention(out[..., None, :], q[..., 9:, :], k, v, spec)


def run_block_softmax(cupy, d=70, e=70, frequencies=0):
    _, q, k, v, *_ = arrays(cupy, "exp", 150, d, e, 1)
    big, top = (cupy.asarray(np.float32(x)) for x in (1e20, 1e38))
    for given in ((q, k, v), (q * big, k * big, v), (q, k, v / v.max() * top)):  # the last two: rows computed once more
        out, _ = block_softmax(*given, 0.3, CAUSAL, None)
        wanted, _ = oracles.softmax_attention(*(to64(x) for x in given), scale=0.3, may=np.tri(150, dtype=bool))
        yield plain(out, wanted)
        for plan in (UNION.plan(150), EACH.plan(150)):
            out, _ = block_softmax(*given, 0.3, plan, None)
            may = np.stack([plan.mask(head) for head in range(len(plan.heads))])
            wanted, _ = oracles.softmax_attention(*(to64(x) for x in given), scale=0.3, may=may)
            yield plain(out, wanted)


def run_block_softmax_vjp(cupy, d=70, e=70, frequencies=0):
    for length, plan in ((150, CAUSAL), (70, CAUSAL), (150, UNION.plan(150))):
        given = softmaxed(cupy, "float32", (2,), (2,), 150, length, d, e, plan, True)
        if length < 150:
            given[0][:, 7] = np.nan  # of a row that sees nothing, in a tile that sees nothing
        found, wanted = block_softmax_vjp(*given), block_softmax_vjp_reference.block_softmax_vjp(*map(wide, given))
        yield from differences(found[:3], wanted[:3])
        yield to64(found[3]), to64(wanted[3]), 1.0 + np.nansum(np.abs(to64(given[0]) * to64(found[0])))


def run_gram(cupy, d=70, e=40, frequencies=40, bare="without projection"):
    for kind in ("exp_pair", bare):
        spec, x, _, y, *_ = arrays(cupy, kind, 150, d, e, frequencies)
        phi = features_of(to64(x), spec).values
        for got, right in zip(gram(x, y, spec, False), (phi, to64(y)), strict=True):
            yield plain(got, np.swapaxes(phi, -1, -2) @ right)


def run_hadamard(cupy, d=100, e=0, frequencies=200):
    rng = np.random.default_rng(0)
    diagonals, norms = rng.choice([-1.0, 1.0], size=(2, 3, 128)), np.ones(frequencies)
    x = array(cupy, rng.normal(size=(40, d)), "float32")
    spec = MapSpec("exp", row_weights=rng.normal(size=d) * 0.1)
    wanted = features_of(to64(x), replace(spec, omega=dense(diagonals, norms, d))).values
    yield to64(chain_features(x, Chains(diagonals, norms, d), spec)), wanted, wanted


def run_countsketch(cupy, d=300, e=0, frequencies=40):
    rng = np.random.default_rng(0)
    x = array(cupy, rng.normal(size=(70, d)), "float32")
    index, weight = rng.integers(0, frequencies, size=(2, d)), rng.normal(size=(2, d))
    matrix = np.zeros((d, 2, frequencies))
    for i in range(2):
        np.add.at(matrix, (np.arange(d), i, index[i]), weight[i])
    yield plain(countsketch(x, index, weight, frequencies), np.einsum("nd,dpb->npb", to64(x), matrix))


def run_tensor_sketch(cupy, d=300, e=0, frequencies=64):
    x, index, weight = problem(cupy, 20, d, 3, frequencies, "float32")
    yield plain(tensor_sketch(x, index, weight, frequencies), sketch_features(to64(x), index, weight, frequencies))


def run_orthogonalize(cupy, d=70, e=0, frequencies=40):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, frequencies, d))
    close = rng.normal(size=d) + 1e-3 * rows  # what the second projection repairs for other rows, it cannot for these
    x, y = (array(cupy, a, "float32") for a in (rows, close))
    q, frames = (to64(orthogonalize(a, "gram_schmidt")) for a in (x, y))
    yield q, oracles.frames(to64(x)), 1.0
    yield frames @ frames.swapaxes(-1, -2), np.eye(frequencies), 1.0


def run_features_vjp(cupy, d=70, e=0, frequencies=80, bare="without projection"):
    for kind in ("exp_pair", bare):
        spec, x, *_ = arrays(cupy, kind, 150, d, 5, frequencies)
        g = array(cupy, np.random.default_rng(1).normal(size=(2, 150, spec.num_features_of(d))), "float32")
        for learn in (True, False):
            wanted = features_vjp_reference.features_vjp(wide(x), spec, wide(g), learn)
            yield from differences(features_vjp(x, spec, g, learn), wanted)


def run_attend_vjp(cupy, d=70, e=40, frequencies=40, bare="without projection"):
    for kind in ("exp_pair", bare):
        spec, *_ = arrays(cupy, kind, 1, d, e, frequencies)
        yield from differences(*pullbacks(cupy, *attended(cupy, spec, "float32", (2,), (2,), 150, d, e), True))


def run_causal_vjp(cupy, d=70, e=70, frequencies=40, bare="without projection"):
    for kind in ("exp_pair", bare):
        spec, *_ = arrays(cupy, kind, 1, d, e, frequencies)
        for segments in (0, 3):
            options = {"masked": True, "segments": segments, "resumed": True}
            given = caused(cupy, spec, "float32", (2,), (2,), 150, d, e, **options)
            wanted = causal_vjp_reference.causal_vjp(*map(wide, given), True)
            yield from differences(causal_vjp(*given, True), wanted)


def run_gated(cupy, d=21, e=0, frequencies=0):
    for rule, gate, columns in (("delta", "scalar", 19), ("delta", "channels", 7), ("pair", "channels", 7)):
        for n in (50, 3):
            arrays, plain = rounded(cupy, gates(rule, gate, n, d, e or columns), "float32")
            normalise = rule == "delta"
            for x, y in zip(gated(arrays, normalise), recur(plain, 0.7, normalise), strict=True):
                yield to64(x), y, np.abs(y).max()


def run_gated_vjp(cupy, d=21, e=0, frequencies=0):
    for rule, gate, columns, n in (
        ("delta", "scalar", 19, 150),
        ("delta", "channels", 7, 21),
        ("pair", "channels", 7, 150),
    ):
        found, wanted, _ = pull_gates(cupy, gates(rule, gate, n, d, e or columns), "float32", True)
        yield from differences(found, wanted)


def run_causal_conv(cupy, d=37, e=0, frequencies=0):
    for along in (False, True):
        out, wanted, _ = convolved(cupy, 3, True, False, False, along, "float32", "float32", (70, d))
        yield plain(out, wanted)


def run_causal_conv_step(cupy, d=37, e=0, frequencies=0):
    rng = np.random.default_rng(0)
    state, x, weight = (array(cupy, rng.normal(size=size), "float32") for size in ((5, d, 3), (5, d), (d, 3)))
    last = np.concatenate([to64(state), to64(x)[..., None]], axis=-1)[..., 1:]
    out, after = causal_conv_step(state, x, weight, None, False)
    yield plain(out, np.sum(last * to64(weight), axis=-1))
    yield plain(after, last)


def run_selective_step(cupy, d=70, e=0, frequencies=0):
    for out, wanted in stepped(cupy, 4, False, "float32", d):
        yield plain(out, wanted)


RUNS = {
    "features": run_features,
    "features_vjp": run_features_vjp,
    "key_state_vjp": run_attend_vjp,
    "attend_vjp": run_attend_vjp,
    "causal_vjp": run_causal_vjp,
    "key_state": run_key_state,
    "attend": run_key_state,
    "causal": run_causal,
    "step": run_step,
    "gated": run_gated,
    "gated_vjp": run_gated_vjp,
    "causal_conv": run_causal_conv,
    "causal_conv_step": run_causal_conv_step,
    "selective_step": run_selective_step,
    "block_softmax": run_block_softmax,
    "block_softmax_vjp": run_block_softmax_vjp,
    "gram": run_gram,
    "hadamard": run_hadamard,
    "countsketch": run_countsketch,
    "tensor_sketch": run_tensor_sketch,
    "orthogonalize": run_orthogonalize,
}


def error(run):
    """The largest error of a run, NaN where anything is."""
    return float(np.max([np.max(np.abs(out - wanted) / unit) for out, wanted, unit in run]))
