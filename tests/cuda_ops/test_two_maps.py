"""Queries and keys with a map each, and states that another backend made."""

from dataclasses import replace

import numpy as np
import pytest

import laws
import maps
import oracles
from covering import turns
from cuda_ops.cases import array, features_of, specs, to64
from kernattn.ops.attend.gpu import attend
from kernattn.ops.causal.gpu import causal
from kernattn.ops.key_state.gpu import key_state
from kernattn.ops.step.gpu import step
from seam import PeakedSum
from xp import Backend, Kind

GPU = Backend("gpu", Kind("cupy"))


def sides(cupy, kind, dtype, d_q, d_k, n=150):
    rng = np.random.default_rng(3)
    q_spec, k_spec = specs(rng, kind, d_q, 37), specs(rng, kind, d_k, 37)
    q, k, v = (array(cupy, rng.normal(size=(2, n, c)) * 0.5, dtype) for c in (d_q, d_k, 7))
    return q_spec, k_spec, q, k, v


def wanted(q, k, v, q_spec, k_spec, may=None):
    fq, fk = features_of(to64(q), q_spec), features_of(to64(k), k_spec)
    out, condition = oracles.linear_attention(fq, fk, to64(v), may)
    return out, np.maximum(condition, 1.0)[..., None]


@pytest.mark.parametrize(
    ("kind", "dtype", "d_q", "d_k"),
    turns([(k, "float32") for k in ("exp", "sincos", "relu")] + [("exp", "bfloat16")], [(5, 15), (15, 5)]),
)
def test_two_maps(cupy, slab_tiles, kind, dtype, d_q, d_k):
    slab_tiles(1)
    q_spec, k_spec, q, k, v = sides(cupy, kind, dtype, d_q, d_k)
    eps = 1e-5 if dtype == "float32" else 0.05

    def close(out, right):
        assert (np.abs(to64(out) - right[0]) <= eps * right[1]).all()

    causal_one = oracles.allowed(150, 150, causal=True)
    out, _, state = causal(q, k, v, q_spec, k_spec, None, None, None, False)
    close(out, wanted(q, k, v, q_spec, k_spec, causal_one))
    close(attend(state, q, q_spec, v.dtype, False)[0], wanted(q, k, v, q_spec, k_spec))
    state = key_state(k[:, :-1], v[:, :-1], k_spec, None)
    out, _ = step(state, q[:, -1], k[:, -1], v[:, -1], q_spec, k_spec, None, False)
    close(out, [x[:, -1] for x in wanted(q, k, v, q_spec, k_spec)])


def test_maps_of_two_kinds_are_given_as_features(cupy):
    q_spec, _, q, k, v = sides(cupy, "sincos", "float32", 5, 5)
    k_spec = specs(np.random.default_rng(4), "relu", 5, 74)
    out, _, _ = causal(q, k, v, q_spec, k_spec, None, None, None, False)
    right, unit = wanted(q, k, v, q_spec, k_spec, oracles.allowed(150, 150, causal=True))
    assert (np.abs(to64(out) - right) <= 1e-4 * unit).all()


def test_a_public_one(cupy):
    phi = maps.make("favor_sharp_asymmetric")
    q, k, v = laws.arrays(5, *((2, 70, c) for c in (maps.DIM, maps.DIM, 5)))
    laws.oracle_agrees(phi, q, k, v, GPU)
    laws.forms_agree(phi, q[:, :10], k[:, :10], v[:, :10], GPU, cut=4)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(kind, "float32") for kind in ("exp", "sincos", "relu", "gaussian")]
    + [(kind, "bfloat16") for kind in ("exp", "sincos", "gaussian")]
    + [pytest.param("relu", "bfloat16", marks=pytest.mark.slow)],
)
def test_peaks_that_are_no_powers_of_two(cupy, slab_tiles, kind, dtype):
    """A state in other units reads, resumes and steps as in its own."""
    slab_tiles(1)
    _, spec, q, k, v = sides(cupy, "sincos" if kind == "gaussian" else kind, dtype, 5, 5)
    if kind == "gaussian":  # rows have no log scale
        spec = replace(spec, row_weights=None)
    state = key_state(k, v, spec, None)
    rest = np.random.default_rng(0).normal(size=state.peak.shape).astype(np.float32) * 9
    factor = np.exp(-rest)
    other = PeakedSum(
        *(x * cupy.asarray(f) for x, f in ((state.s, factor[..., None]), (state.z, factor))),
        state.peak + cupy.asarray(rest),
    )
    eps = 1e-5 if dtype == "float32" else 0.02

    def outs(state):
        yield attend(state, q, spec, v.dtype, False)[0]
        yield causal(q, k, v, spec, spec, state, None, None, False)[0]
        yield step(state, q[:, 0], k[:, 0], v[:, 0], spec, spec, None, False)[0]

    for a, b in zip(outs(state), outs(other), strict=True):
        np.testing.assert_allclose(to64(a), to64(b), atol=eps * np.abs(to64(a)).max())


@pytest.mark.parametrize(
    "name", ["elu1", "positive-ard", "hyperbolic-softmax", "trigonometric-ard", "favor_sharp_asymmetric"]
)
def test_normalisers(cupy, slab_tiles, name):
    slab_tiles(1)
    q, k, v = laws.arrays(3, (2, 3, 100, maps.DIM), (2, 1, 100, maps.DIM), (2, 1, 100, 3), dtype="float32")
    ids = np.arange(100) // 35 % 2
    mask = np.random.default_rng(1).random(100) < 0.6
    laws.normalisers_are_true(maps.make(name), q, k, v, GPU, cut=37, key_mask=mask, segment_ids=ids)


def test_normalisers_of_given_features(cupy):
    """A log scale of the queries' rows counts, though it cancels in what they return."""
    phi = maps.make("polynomial")
    q, k, v = laws.arrays(3, (2, 40, maps.DIM), (2, 40, maps.DIM), (2, 40, 3), dtype="float32")
    laws.normalisers_are_true(phi, q, k, v, GPU, cut=17)
