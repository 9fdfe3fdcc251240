"""Compiled pullbacks against those of array operations, for every kind, shape and way to broadcast."""

from dataclasses import replace

import numpy as np
import pytest

from kernattn._sums.cotangents import in_units_of
from kernattn._sums.peaked import log_normaliser
from kernattn.ops.attend.reference import attend
from kernattn.ops.attend_vjp import reference as reference_attend
from kernattn.ops.causal.reference import causal
from kernattn.ops.causal_vjp import reference as reference_causal
from kernattn.ops.key_state.reference import key_state
from kernattn.ops.key_state_vjp import reference as reference_key_state
from kernattn.ops.recast import widen
from linear_ops import spec_of
from seam import PULLED, PeakedSum

pytest.importorskip("numba")

from kernattn.ops.attend_vjp.cpu import attend_vjp
from kernattn.ops.causal_vjp.cpu import causal_vjp
from kernattn.ops.key_state_vjp.cpu import key_state_vjp

ATTEND, CAUSAL = reference_attend.attend_vjp, reference_causal.causal_vjp
KEY_STATE = reference_key_state.key_state_vjp

# leading axes of q, of k and v; n, d, e, D
SHAPES = [
    ((2,), (2,), 70, 16, 16, 32),
    ((2, 3, 2), (3, 1), 131, 7, 5, 11),
    ((), (4,), 3, 3, 2, 5),
    ((2,), (), 200, 64, 64, 128),
]


def cotangent(sums, rng):
    """A random cotangent of sums, beside their peak."""
    return PeakedSum(rng.standard_normal(sums.s.shape), rng.standard_normal(sums.z.shape), sums.peak)


def agree(found, wanted, tolerance=1e-8):
    """Compare pullbacks part by part, each to the size of its largest number."""
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        assert (x is None) == (y is None)
        if isinstance(x, tuple):
            agree(x, y, tolerance)
        elif x is not None:
            assert x.shape == y.shape
            assert x.dtype == y.dtype or tolerance > 1e-8
            np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * np.abs(y).max(initial=1e-3))


@pytest.mark.parametrize("kind", PULLED)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_kind_and_shape(kind, shape, monkeypatch):
    q_lead, lead, n, d, e, frequencies = shape
    rng = np.random.default_rng(3)
    q, k = 0.5 * rng.standard_normal((*q_lead, n, d)), 0.5 * rng.standard_normal((*lead, n, d))
    v, past = rng.standard_normal((*lead, n, e)), rng.standard_normal((*lead, 6, d + e))
    mask, ids = rng.random((*lead, n)) < 0.7, np.sort(rng.integers(0, 3, (*lead, n)), axis=-1)
    for op in (ATTEND, CAUSAL, KEY_STATE):
        monkeypatch.delattr(f"{op.__module__}.{op.__name__}")  # the loops leave nothing to them
    for elementwise, given in ((False, (mask, ids)), (True, (None, None))):
        spec = spec_of(kind, d, frequencies, elementwise=elementwise)
        state = key_state(past[..., :d], past[..., d:], spec, None)
        out, normaliser, after = causal(q, k, v, spec.unscaled, spec, state, *given, True)
        log = log_normaliser(np, normaliser).log
        g = rng.standard_normal(out.shape) * (log > np.median(log))[..., None]  # none near 0
        arguments = (q, k, v, spec.unscaled, spec, state, *given, out, normaliser, g, cotangent(after, rng), True)
        agree(causal_vjp(*arguments), CAUSAL(*arguments))
        sums = key_state(k, v, spec, given[0])
        arguments = k, v, spec, given[0], cotangent(sums, rng), True
        agree(key_state_vjp(*arguments), KEY_STATE(*arguments))
        out, normaliser = attend(sums, q, spec.unscaled, q.dtype, True)
        arguments = sums, q, spec.unscaled, out, normaliser, rng.standard_normal(out.shape), True
        (found, dq), (wanted, of_q) = attend_vjp(*arguments), ATTEND(*arguments)
        agree((in_units_of(sums, found), dq), (in_units_of(sums, wanted), of_q))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["exp", "exp_pair"])
def test_keys_of_a_map_that_is_normalised(kind, dtype, monkeypatch):
    """In the loops, too, beside masked keys that are NaN: against the reference in float64."""
    rng, n = np.random.default_rng(4), 90
    spec = replace(spec_of(kind, 7, 12), row_weights=None, normalised=True)
    q, k, v = (rng.standard_normal((2, n, size)).astype(dtype) for size in (7, 7, 5))
    mask, wide = rng.random((2, n)) < 0.7, [x.astype("f8") for x in (q, k, v)]
    k[~mask] = np.nan
    out, normaliser, after = causal(*wide, spec.unscaled, spec, None, mask, None, True)
    g = rng.standard_normal(out.shape)
    given = out, normaliser, g, cotangent(after, rng)
    wanted = CAUSAL(*wide, spec.unscaled, spec, None, mask, None, *given, True)
    sums = key_state(*wide[1:], spec, mask)
    of_sums = cotangent(sums, rng)
    of_keys = KEY_STATE(*wide[1:], spec, mask, of_sums, True)
    for op in (CAUSAL, KEY_STATE):
        monkeypatch.delattr(f"{op.__module__}.{op.__name__}")  # the loops leave nothing to them
    *given, of_sums = widen(np.dtype(dtype), *given, of_sums)
    found = causal_vjp(q, k, v, spec.unscaled, spec, None, mask, None, *given, True)
    tolerance = 1e-8 if dtype == "float64" else 1e-5
    agree(found, wanted, tolerance)
    agree(key_state_vjp(k, v, spec, mask, of_sums, True), of_keys, tolerance)
