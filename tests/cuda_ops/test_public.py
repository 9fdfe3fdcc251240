"""The public API with backend="gpu" on the emulation: the same laws as every other backend."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
import laws
import oracles
from covering import turns
from cuda_ops.cases import OPERAND_EPS, to64
from kernattn.ops import OPS
from kernattn.ops.features.crossover import FASTER_ABOVE
from xp import Backend, Kind, numpy_dtype

GPU = Backend("gpu", Kind("cupy"))
SOFTMAX = ka.kernels.Softmax()
MAPS = {
    "positive": ka.random_features(SOFTMAX, 6, 40, estimator="positive", rng=0),
    "hyperbolic": ka.random_features(SOFTMAX, 6, 40, estimator="hyperbolic", rng=0),
    "trigonometric": ka.random_features(SOFTMAX, 6, 40, estimator="trigonometric", rng=0),
    "phase": ka.random_features(SOFTMAX, 6, 40, estimator="phase", rng=0),
    "elu1": ka.features.elu1(),
    "relu": ka.random_features(ka.kernels.ArcCosine(1), 6, 40, rng=0),  # compiled for other tests, too
    "polynomial": ka.features.polynomial(2),
}
POSITIVE = ("positive", "hyperbolic", "elu1")


@pytest.fixture(autouse=True)
def short_slabs(cupy, slab_tiles):
    slab_tiles(1)


def problem(seed=0, n=70, dtype="float32", lead=(2,), scale=1.0):
    q, k, v = laws.arrays(seed, *((*lead, n, c) for c in (6, 6, 5)), dtype=dtype, scale=scale)
    keep = np.random.default_rng(seed).random((*lead, n)) < 0.7
    return q, k, v, keep


@pytest.mark.parametrize("name", MAPS)
def test_forms_agree(name):
    q, k, v, keep = problem()
    laws.forms_agree(MAPS[name], q[:, :10], k[:, :10], v[:, :10], GPU, cut=4, key_mask=keep[:, :10])
    laws.oracle_agrees(MAPS[name], q, k, v, GPU, key_mask=keep)


@pytest.mark.parametrize("name", ["positive", "trigonometric", "elu1"])
def test_laws(name):
    phi = MAPS[name]
    q, k, v, keep = problem(1, 30)
    ids = np.repeat([3, 1, 3], [11, 12, 7])
    laws.segments_are_separate(phi, q, k, v, ids, GPU, history=(k[:, :7], v[:, :7]))
    laws.masked_is_removed(phi, q[:, :12], k[:, :12], v[:, :12], keep[0, :12], GPU)
    laws.order_of_keys_is_free(phi, q, k, v, GPU, key_mask=keep)
    laws.merging_is_a_monoid(phi, q, k, v, GPU, cuts=(5, 17))


@pytest.mark.parametrize("growth", [1.0, 30.0])
def test_blind_to_the_future(growth):
    q, k, v, keep = problem(2, 80)
    laws.blind_to_the_future(MAPS["positive"], q, k, v, GPU, t=33, growth=growth, key_mask=keep)


@pytest.mark.parametrize(
    ("name", "filling"), turns(["positive", "trigonometric", "phase", "elu1", "relu"], [np.nan, np.inf])
)
def test_nan_and_infinity_stay_where_they_are_seen(name, filling):
    q, k, v, _ = problem(9, 100, lead=(1,))
    ids = np.repeat([0, 1, 2], [30, 30, 40])
    for bad in (3, 40, 75):
        laws.what_is_not_seen_may_be_anything(MAPS[name], q, k, v, ids, GPU, bad=bad, filling=filling)


@pytest.mark.parametrize("name", ["positive", "trigonometric", "elu1"])
def test_masked_keys_may_be_nan(name):
    q, k, v, keep = problem(10, 70, lead=(1,))
    laws.masked_is_removed(MAPS[name], q[:, :12], k[:, :12], v[:, :12], keep[0, :12], GPU, filling=np.nan)


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_any_norm(name, scale):
    q, k, v, _ = problem(3, 20, scale=scale)
    laws.in_the_hull_of_the_values(MAPS[name], q, k, v, GPU)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dtypes(cupy, dtype):
    q, k, v, _ = problem(4, 70, dtype)
    if dtype == "float64":
        laws.oracle_agrees(MAPS["positive"], q, k, v, GPU)
        return
    out, state = ka.causal_linear_attention(*(cupy.asarray(x) for x in (q, k, v)), MAPS["positive"], backend="gpu")
    assert out.dtype == numpy_dtype(dtype)
    assert state.s.dtype == np.float32
    wanted, _ = laws.expected(MAPS["positive"], q, k, v, causal=True)
    np.testing.assert_allclose(to64(out), wanted, atol=8 * OPERAND_EPS[dtype] * np.abs(to64(v)).max())


def test_exact_attention(cupy):
    q, k, v, keep = problem(5)
    out = ka.softmax_attention(
        *(cupy.asarray(x) for x in (q, k, v)), causal=True, key_mask=cupy.asarray(keep), backend="gpu"
    )
    may = oracles.allowed(70, 70, causal=True, key_mask=keep)
    np.testing.assert_allclose(
        to64(out), oracles.softmax_attention(*(to64(x) for x in (q, k, v)), may=may)[0], atol=1e-5
    )


def test_features(cupy):
    q, *_ = problem(6)
    phi = MAPS["positive"]
    out = phi(cupy.asarray(q))
    assert isinstance(out, cupy.ndarray)
    np.testing.assert_allclose(to64(out), phi(q), rtol=1e-5)


@pytest.mark.parametrize(
    ("estimator", "dtype"),
    [(estimator, "float32") for estimator in ("positive", "trigonometric", "phase")]
    + [("positive", dtype) for dtype in ("float64", "bfloat16")],
)
def test_maps_of_chains(cupy, monkeypatch, estimator, dtype):
    monkeypatch.setitem(FASTER_ABOVE, "gpu", 0)
    phi = ka.random_features(SOFTMAX, 6, 40, estimator, "hadamard", rng=0)
    dense = replace(phi, omega=np.asarray(phi.omega))
    (x,) = laws.arrays(7, (2, 9, 6), dtype="float64")
    x = cupy.asarray(x.astype(numpy_dtype(dtype)))
    out = phi(x)
    assert isinstance(out, cupy.ndarray)
    assert out.dtype == x.dtype
    assert "dense" not in vars(phi.spec.omega)
    wanted = dense(to64(x), backend="reference")
    eps = max(2 * OPERAND_EPS[dtype], 2.0**-46 if dtype == "float64" else 2.0**-19)
    np.testing.assert_allclose(to64(out), wanted, rtol=0, atol=eps * np.abs(wanted).max())


def test_attention_with_chains(cupy):
    phi = ka.random_features(SOFTMAX, 6, 40, "positive", "hadamard", rng=0)
    q, k, v, keep = problem(8, 20)
    laws.oracle_agrees(phi, q, k, v, GPU, key_mask=keep)


def test_the_gpu_is_chosen_for_its_arrays(cupy):
    x = cupy.asarray(np.zeros((2, 3), np.float32))
    siblings = {name: op for name, op in OPS.items() if "gpu" in op.backends}
    assert {"features", "causal", "step", "key_state", "attend", "block_softmax"} <= set(siblings)
    assert {op.choose(x) for op in siblings.values()} == {"gpu"}


def test_numpy_arrays_are_refused():
    q, k, v, _ = problem(7)
    with pytest.raises(ka.errors.BackendUnavailable, match="CuPy arrays"):
        ka.linear_attention(q, k, v, MAPS["elu1"], backend="gpu")
