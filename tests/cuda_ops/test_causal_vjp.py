"""The kernels of `causal_vjp` on the emulation against array operations in float64."""

import numpy as np
import pytest

from cuda_ops.cases import array, specs
from cuda_ops.pullbacks import CASES, agree, wide
from kernattn.ops._cuda import linear
from kernattn.ops.causal_vjp import reference
from kernattn.ops.peaked import PeakedSum


def problem(cupy, spec, dtype, lead, key_lead, n, d, e, *, masked, segments, resumed, scale=0.5):
    """The arguments of `causal_vjp` but for `learn`."""
    from kernattn.ops.causal.gpu import causal
    from kernattn.ops.key_state.gpu import key_state

    rng = np.random.default_rng(n)
    q, k = (array(cupy, scale * rng.normal(size=(*axes, n, d)), dtype) for axes in (lead, key_lead))
    v = array(cupy, rng.normal(size=(*key_lead, n, e)), dtype)
    mask = cupy.asarray(rng.random((*key_lead, n)) < 0.7) if masked else None
    ids = cupy.asarray(np.sort(rng.integers(0, segments, size=(*key_lead, n)), axis=-1)) if segments else None
    past = None
    if resumed:
        past = key_state(*(array(cupy, 0.5 * rng.normal(size=(*key_lead, 9, c)), dtype) for c in (d, e)), spec, None)
    out, normaliser, after = causal(q, k, v, spec.unscaled, spec, past, mask, ids, True)
    g = rng.normal(size=out.shape)
    g[..., n // 2, :] = 0
    last = None
    if resumed:
        last = PeakedSum(*(array(cupy, rng.normal(size=x.shape), x.dtype.name) for x in after[:2]), after.peak)
    return q, k, v, spec.unscaled, spec, past, mask, ids, out, normaliser, array(cupy, g, dtype), last


def check(given, learn, dtype, factor=1.0):
    from kernattn.ops.causal_vjp.gpu import causal_vjp

    found = causal_vjp(*given, learn)
    assert [found[0].x.dtype, found[1].x.dtype, found[2].dtype] == [x.dtype for x in given[:3]]
    agree(found, reference.causal_vjp(*map(wide, given), learn), dtype, factor)


@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_causal_vjp(cupy, monkeypatch, kind, dtype):
    spec = specs(np.random.default_rng(0), kind, 5, 37)
    shape = (2, 2), (2, 1), 150, 5, 7
    for tiles, learn, masked, segments, resumed in (
        (1, True, True, 0, True),
        (1, False, True, 3, True),
        (9, False, False, 0, False),
    ):
        monkeypatch.setattr(linear, "SLAB_TILES", tiles)
        given = problem(cupy, spec, dtype, *shape, masked=masked, segments=segments, resumed=resumed)
        check(given, learn, dtype)
