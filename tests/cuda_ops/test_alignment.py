"""Contiguous arrays that begin off a multiple of 16 bytes, as slices and DLPack hand them over, are read right."""

import numpy as np
import pytest

from cuda_ops.cases import array, specs, to64
from seam import CAUSAL


def off_by_one(cupy, x):
    """The same array, one element past an aligned address."""
    room = cupy.asarray(np.zeros(x.size + 32, dtype=x.dtype))
    first = -(room.data.ptr // x.dtype.itemsize) % (16 // x.dtype.itemsize) + 1
    moved = room[first : first + x.size].reshape(x.shape)
    moved[...] = x
    assert moved.data.ptr % 16 == x.dtype.itemsize
    return moved


@pytest.mark.parametrize(
    "dtype", ["bfloat16", *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in ("float32", "float64"))]
)
def test_unaligned_arrays(cupy, slab_tiles, dtype):
    from kernattn.ops.attend.gpu import attend
    from kernattn.ops.block_softmax.gpu import block_softmax
    from kernattn.ops.causal.gpu import causal
    from kernattn.ops.features.gpu import features
    from kernattn.ops.gram.gpu import gram
    from kernattn.ops.step.gpu import step
    from seam import PeakedSum

    slab_tiles(1)
    rng = np.random.default_rng(0)
    spec = specs(rng, "exp", 8, 16)
    q, k, v = (array(cupy, rng.normal(size=(2, 70, 8)), dtype) for _ in range(3))

    def outputs(move):
        a, b, c = (move(x) for x in (q, k, v))
        out, _, state = causal(a, b, c, spec, spec, None, None, None, False)
        state = PeakedSum(*map(move, state))
        results = [
            out,
            attend(state, a, spec, c.dtype, False)[0],
            block_softmax(a, b, c, 0.3, CAUSAL, None)[0],
            features(a, spec),
        ]
        results += gram(a, b, spec, False)
        token, after = step(state, *(move(x[:, 0]) for x in (q, k, v)), spec, spec, None, True)
        return [to64(x) for x in (*results, token, *after)]

    for moved, wanted in zip(outputs(lambda x: off_by_one(cupy, x)), outputs(lambda x: x.copy()), strict=True):
        np.testing.assert_allclose(moved, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted[np.isfinite(wanted)]).max())
