"""Maps, inputs and the dense oracle for the ops of linear attention."""

import numpy as np

import oracles
from seam import KINDS, MapSpec

EPS = {"float16": 2.0**-23, "float32": 2.0**-23, "float64": 2.0**-52}


def spec_of(kind, d, frequencies, seed=0, elementwise=False):
    rng = np.random.default_rng(seed)
    omega = None if elementwise or kind == "elu1" else rng.standard_normal((frequencies, d)) * d**-0.25
    m = (d if omega is None else frequencies) * KINDS[kind].parts
    weights = {"row": 0.5, "feature": -0.5}.get(KINDS[kind].scale)
    return MapSpec(
        kind,
        omega,
        row_weights=None if weights is None else weights * d**-0.5 * rng.uniform(0.5, 1.5, d),
        offset=rng.uniform(-2, 2, m) if KINDS[kind].offset != "none" else None,
        amplitude=0.3,
    )


def inputs(lead, n, d, e, dtype, seed=1, kv_lead=None):
    rng = np.random.default_rng(seed)
    kv = lead if kv_lead is None else kv_lead
    return [rng.standard_normal(shape).astype(dtype) for shape in ((*lead, n, d), (*kv, n, d), (*kv, n, e))]


def oracle(spec, x):
    return oracles.from_spec(x.astype("f8"), spec.kind, spec.omega, spec.row_weights, spec.offset, spec.amplitude)


def dense(spec, q, k, v, **allowed):
    n, length = q.shape[-2], k.shape[-2]
    return oracles.linear_attention(
        oracle(spec, q), oracle(spec, k), v.astype("f8"), oracles.allowed(n, length, **allowed)
    )


def agree(out, wanted, condition, v, spec, *xs):
    dtype = out.dtype.name
    reach = sum(oracles.reach(x.astype("f8"), spec.omega, spec.row_weights, spec.offset) for x in xs)
    tolerance = EPS[dtype] * (40 + 4 * reach) * condition[..., None] * np.abs(v).max().astype("f8")
    if dtype == "float16":
        tolerance = tolerance + 2.0**-10 * np.abs(wanted)
    assert np.isfinite(out).all()
    assert (np.abs(out - wanted) <= tolerance).all(), np.max(np.abs(out - wanted) - tolerance)


def same_state(a, b, tolerance):
    """One sum in two units: a's is the whole power of two at or below b's."""
    assert a.s.shape == b.s.shape
    assert a.z.shape == b.z.shape
    assert a.peak.shape == b.peak.shape
    slack = tolerance * (1 + np.abs(np.where(np.isinf(b.peak), 0, b.peak)))
    assert ((a.peak <= b.peak + slack) & (b.peak <= a.peak + np.log(2) + slack)).all()
    factor = np.exp(np.where(np.isinf(a.peak), 0, a.peak.astype("f8") - np.where(np.isinf(b.peak), 0, b.peak)))
    np.testing.assert_allclose(a.z * factor, b.z, rtol=0, atol=tolerance * np.abs(b.z).max(initial=1e-30))
    np.testing.assert_allclose(a.s * factor[..., None], b.s, rtol=0, atol=tolerance * np.abs(b.s).max(initial=1e-30))
