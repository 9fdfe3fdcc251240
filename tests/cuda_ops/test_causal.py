"""The kernels of `causal` on the emulation against the float64 oracle: maps, dtypes, masks, segments, states, slabs, groups."""

import numpy as np
import oracles
import pytest
from cuda_ops.cases import DTYPES, KINDS, array, assert_close, specs, to64

from kernattn.ops import _cuda_linear
from kernattn.ops.peaked import PeakedSum

CASES = [(kind, "float32") for kind in KINDS] + [(kind, dtype) for kind in ("exp", "sincos") for dtype in DTYPES[1:]]


def problem(cupy, seed, kind, dtype, n, d, e, frequencies, lead=(2,), scale=1.0):
    rng = np.random.default_rng(seed)
    spec = specs(rng, kind, d, frequencies)
    q, k = (array(cupy, rng.normal(size=(*lead, n, d)) * scale, dtype) for _ in range(2))
    v = array(cupy, rng.normal(size=(*lead, n, e)), dtype)
    return rng, spec, q, k, v


@pytest.mark.parametrize(("kind", "dtype"), CASES)
@pytest.mark.parametrize("tiles", [1, 100])
def test_causal(cupy, monkeypatch, kind, dtype, tiles):
    from kernattn.ops.causal.gpu import causal

    monkeypatch.setattr(_cuda_linear, "SLAB_TILES", tiles)
    for n, d, e, frequencies in ((150, 5, 7, 37), (3, 15, 29, 16)):
        rng, spec, q, k, v = problem(cupy, 1, kind, dtype, n, d, e, frequencies)
        mask = rng.random((2, n)) < 0.7
        ids = np.sort(rng.integers(0, 4, size=(2, n)), axis=-1)
        for key_mask, segment_ids in ((None, None), (mask, None), (mask, ids)):
            given = [None if x is None else cupy.asarray(x) for x in (key_mask, segment_ids)]
            out, _ = causal(q, k, v, spec, None, *given)
            may = oracles.allowed(n, n, causal=True, key_mask=key_mask, segment_ids=segment_ids)
            assert_close(out, q, k, v, spec, dtype, may)
