"""Each barrier of each kernel is needed, and the emulation notices when it is gone."""

from dataclasses import replace

import numpy as np
import pytest

import oracles
from cuda_on_cpu import KernelError, RawModule
from cuda_on_cpu.mutate import without_one_barrier
from cuda_ops.cases import array, features_of, specs, to64
from cuda_ops.test_hadamard import dense
from cuda_ops.test_tensor_sketch import problem
from cuda_ops.test_tensor_sketch import wanted as sketch_features
from kernattn.ops import _cuda, _cuda_linear
from kernattn.ops.attend.gpu import attend
from kernattn.ops.block_softmax.gpu import block_softmax
from kernattn.ops.causal.gpu import causal
from kernattn.ops.chains import Chains
from kernattn.ops.countsketch.gpu import countsketch
from kernattn.ops.features.gpu import features
from kernattn.ops.gram.gpu import gram
from kernattn.ops.hadamard.gpu import hadamard
from kernattn.ops.key_state.gpu import key_state
from kernattn.ops.orthogonalize.gpu import orthogonalize
from kernattn.ops.spec import MapSpec
from kernattn.ops.step.gpu import step
from kernattn.ops.tensor_sketch.gpu import tensor_sketch

REPAIR = "!(output.den[r] >= Limits<Acc>::faint())"  # rows of NaN are done again, one by one: that would hide a race
LITTLE, MUCH = _cuda.Limits(90, 99_000, 1), _cuda.Limits(90, 232_448, 1)
SEEDS = (1, 2, 3, 5)


def arrays(cupy, kind, n, d, e, frequencies, lead=(2,)):
    rng = np.random.default_rng(0)
    if kind == "without projection":
        spec = MapSpec("exp", row_weights=rng.normal(size=d) * 0.3)
    elif kind == "cos":  # of small angles: no sums that cancel
        spec = MapSpec("cos", 0.1 * rng.normal(size=(frequencies, d)) / d**0.5, rng.normal(size=d) * 0.3)
    else:
        spec = specs(rng, kind, d, frequencies)
    q, k, v = (array(cupy, rng.normal(size=(*lead, n, c)) * 0.5, "float32") for c in (d, d, e))
    ids = np.sort(rng.integers(0, 3, size=(*lead, n)), axis=-1)
    mask = rng.random((*lead, n)) < 0.6
    return spec, q, k, v, ids, mask


def off(out, q, k, v, spec, may=None):
    wanted, condition = oracles.linear_attention(features_of(to64(q), spec), features_of(to64(k), spec), to64(v), may)
    return np.max(np.abs(to64(out) - wanted) / np.maximum(condition, 1.0)[..., None])


def features_error(cupy):
    errors = []
    for kind in ("exp", "sincos", "without projection"):
        spec, q, *_ = arrays(cupy, kind, 70, 70, 5, 80)
        wanted = features_of(to64(q), spec).values
        errors.append(np.max(np.abs(to64(features(q, spec)) - wanted) / np.abs(wanted).max()))
    return float(np.max(errors))


def key_state_error(cupy):
    errors = []
    for kind in ("exp_pair", "cos", "without projection"):
        spec, q, k, v, _, mask = arrays(cupy, kind, 150, 70, 40, 40)
        out = attend(key_state(k, v, spec, cupy.asarray(mask)), q, spec, v.dtype)
        errors.append(off(out, q, k, v, spec, oracles.allowed(150, 150, key_mask=mask)))
    return float(np.max(errors))


def causal_error(cupy):
    errors = []
    for kind in ("exp_pair", "cos", "without projection"):
        spec, q, k, v, ids, mask = arrays(cupy, kind, 150, 70, 40, 40)
        segment_ids = ids if kind == "without projection" else None
        out, _ = causal(q, k, v, spec, None, cupy.asarray(mask), None if segment_ids is None else cupy.asarray(ids))
        errors.append(
            off(out, q, k, v, spec, oracles.allowed(150, 150, causal=True, key_mask=mask, segment_ids=segment_ids))
        )
    spec, q, k, v, _, mask = arrays(cupy, "exp_pair", 70, 70, 40, 40)
    k = k * cupy.asarray(np.where(np.arange(70) < 20, 1.0, 60.0)[:, None].astype(np.float32))
    out, _ = causal(q, k, v, spec, None, cupy.asarray(mask), None)
    errors.append(off(out, q, k, v, spec, oracles.allowed(70, 70, causal=True, key_mask=mask)))
    return float(np.max(errors))


def step_error(cupy):
    errors = []
    for kind in ("exp", "sincos"):
        spec, q, k, v, *_ = arrays(cupy, kind, 10, 5, 40, 300, lead=(2, 1))
        q = cupy.concatenate([q, q[..., ::-1, :]], axis=1)
        state = key_state(k[..., :9, :], v[..., :9, :], spec, None)
        out, _ = step(state, q[..., 9, :], k[..., 9, :], v[..., 9, :], spec, None, True)
        errors.append(off(out[..., None, :], q[..., 9:, :], k, v, spec))
    return float(np.max(errors))


def block_softmax_error(cupy):
    _, q, k, v, *_ = arrays(cupy, "exp", 150, 70, 70, 1)
    out, _ = block_softmax(q, k, v, 0.3, True, None)
    wanted, _ = oracles.softmax_attention(*(to64(x) for x in (q, k, v)), scale=0.3, may=np.tri(150, dtype=bool))
    return np.max(np.abs(to64(out) - wanted))


def gram_error(cupy):
    errors = []
    for kind in ("exp_pair", "without projection"):
        spec, x, _, y, *_ = arrays(cupy, kind, 150, 70, 40, 40)
        phi = features_of(to64(x), spec).values
        outer, moment = gram(x, y, spec)
        for got, wanted in ((outer, phi), (moment, to64(y))):
            exact = np.swapaxes(phi, -1, -2) @ wanted
            errors.append(np.max(np.abs(to64(got) - exact)) / np.abs(exact).max())
    return float(np.max(errors))


def hadamard_error(cupy):
    rng = np.random.default_rng(0)
    diagonals, norms = rng.choice([-1.0, 1.0], size=(2, 3, 128)), np.ones(200)
    x = array(cupy, rng.normal(size=(40, 100)), "float32")
    spec = MapSpec("exp", row_weights=rng.normal(size=100) * 0.1)
    wanted = features_of(to64(x), replace(spec, omega=dense(diagonals, norms, 100))).values
    return np.max(np.abs(to64(hadamard(x, Chains(diagonals, norms, 100), spec)) / wanted - 1))


def countsketch_error(cupy):
    rng = np.random.default_rng(0)
    x = array(cupy, rng.normal(size=(70, 300)), "float32")
    index, weight = rng.integers(0, 40, size=(2, 300)), rng.normal(size=(2, 300))
    dense = np.zeros((300, 2, 40))
    for i in range(2):
        np.add.at(dense, (np.arange(300), i, index[i]), weight[i])
    return np.max(np.abs(to64(countsketch(x, index, weight, 40)) - np.einsum("nd,dpb->npb", to64(x), dense)))


def tensor_sketch_error(cupy):
    x, index, weight = problem(cupy, 20, 300, 3, 64, "float32")
    exact = sketch_features(to64(x), index, weight, 64)
    return np.max(np.abs(to64(tensor_sketch(x, index, weight, 64)) - exact)) / np.abs(exact).max()


def orthogonalize_error(cupy):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 40, 70))
    close = rng.normal(size=70) + 1e-3 * rows  # what the second projection repairs for other rows, it cannot for these
    x, y = (array(cupy, a, "float32") for a in (rows, close))
    q, frames = (to64(orthogonalize(a, "gram_schmidt")) for a in (x, y))
    off_diagonal = frames @ frames.swapaxes(-1, -2) - np.eye(40)
    return np.max([np.abs(q - oracles.frames(to64(x))).max(), np.abs(off_diagonal).max()])


ERRORS = {
    "features": features_error,
    "key_state": key_state_error,
    "attend": key_state_error,
    "causal": causal_error,
    "step": step_error,
    "block_softmax": block_softmax_error,
    "gram": gram_error,
    "hadamard": hadamard_error,
    "countsketch": countsketch_error,
    "tensor_sketch": tensor_sketch_error,
    "orthogonalize": orthogonalize_error,
}
# whose barriers an op's kernels run into
USES = {op: {f"{op}/kernels.cu"} for op in ERRORS}
for _op in ("features", "gram", "key_state", "attend", "causal"):
    USES[_op].add("maps.cuh")
USES["causal"].add("tile.cuh")
for _op in ("features", "gram"):
    USES[_op].add("features.cuh")


@pytest.mark.slow
@pytest.mark.parametrize("op", ERRORS)
def test_each_barrier_is_needed(cupy, monkeypatch, op):
    original = _cuda.source

    def whole(name):
        assert (REPAIR in original(name)) == (name == "causal")
        return original(name).replace(REPAIR, "output.den[r] < Limits<Acc>::faint()")

    monkeypatch.setattr(_cuda, "source", whole)
    monkeypatch.setattr(_cuda_linear, "SLAB_TILES", 1)
    survivors, tried = [], 0

    def caught(limits):
        _cuda._module.cache_clear()
        monkeypatch.setattr(_cuda, "limits", lambda: limits)
        for seed in SEEDS:
            monkeypatch.setattr(RawModule, "seed", seed)
            try:
                with np.errstate(all="ignore"):
                    wrong = not ERRORS[op](cupy) < 1e-4
            except KernelError:
                wrong = True
            if wrong:
                return True
        return False

    devices = (MUCH, LITTLE) if op == "causal" else (MUCH,)
    assert not any(caught(limits) for limits in devices), "the unchanged kernels are right"
    for line, text in without_one_barrier(whole(op)):
        if where(whole(op), line)[0] not in USES[op]:
            continue
        tried += 1
        monkeypatch.setattr(_cuda, "source", lambda name, text=text: text if name == op else whole(name))
        if not any(caught(limits) for limits in devices):
            survivors.append((line, where(whole(op), line)))
    _cuda._module.cache_clear()
    assert tried > 0
    print(op, "survivors", survivors)
    assert not survivors


def where(source, line):
    """The file and line that a line of the joined source comes from."""
    lines = source.splitlines()[:line]
    start = max(i for i, text in enumerate(lines) if text.startswith("#line"))
    return lines[start].split('"')[1], line - start - 1
