"""The kernels of `key_state` and `attend` on the emulation: bidirectional attention against the float64 oracle."""

import numpy as np
import pytest

import oracles
from cuda_ops.cases import CASES, array, assert_close, specs


def problem(cupy, seed, kind, dtype, n, length, d, e, frequencies, lead=(2,)):
    rng = np.random.default_rng(seed)
    spec = specs(rng, kind, d, frequencies)
    q, k = array(cupy, rng.normal(size=(*lead, n, d)), dtype), array(cupy, rng.normal(size=(*lead, length, d)), dtype)
    v = array(cupy, rng.normal(size=(*lead, length, e)), dtype)
    return spec, q, k, v, rng.random((*lead, length)) < 0.7


@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_bidirectional(cupy, slab_tiles, kind, dtype):
    from kernattn.ops.attend.gpu import attend
    from kernattn.ops.key_state.gpu import key_state

    for tiles, shape in ((4, (70, 90, 5, 7, 37)), (1, (5, 140, 15, 29, 16))):
        slab_tiles(tiles)
        spec, q, k, v, mask = problem(cupy, 1, kind, dtype, *shape)
        for given in (None, cupy.asarray(mask)):
            state = key_state(k, v, spec, given)
            out = attend(state, q, spec, v.dtype, False)[0]
            may = None if given is None else oracles.allowed(shape[0], shape[1], key_mask=mask)
            assert_close(out, q, k, v, spec, dtype, may)
