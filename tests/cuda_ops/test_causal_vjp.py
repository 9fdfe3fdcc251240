"""The kernels of `causal_vjp` on the emulation against array operations in float64."""

from dataclasses import replace

import numpy as np
import pytest

from cuda_ops.cases import array, specs
from cuda_ops.pullbacks import CASES, agree, parts, wide
from kernattn.ops._cuda.maps import map_code
from kernattn.ops.causal.gpu import causal
from kernattn.ops.causal.reference import causal as means
from kernattn.ops.causal_vjp import reference
from kernattn.ops.causal_vjp.gpu import causal_vjp, launch
from kernattn.ops.key_state.gpu import key_state
from kernattn.ops.key_state_vjp.back import back_code, walk_code
from seam import PeakedSum

pytestmark = pytest.mark.slow  # every pullback has a usual test in test_gradients.py


def problem(cupy, spec, dtype, lead, key_lead, n, d, e, *, masked, segments, resumed, scale=0.5):
    """The arguments of `causal_vjp` but for `learn`."""
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
    found = causal_vjp(*given, learn)
    assert [found[0].x.dtype, found[1].x.dtype, found[2].dtype] == [x.dtype for x in given[:3]]
    exact = [wide(x) for x in given]
    if given[8].dtype != given[9].z.dtype:  # which was rounded, and is found once more
        exact[8], _, _ = means(*exact[:8], False)
    agree(found, reference.causal_vjp(*exact, learn), dtype, factor)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_causal_vjp(cupy, slab_tiles, kind, dtype):
    spec = specs(np.random.default_rng(0), kind, 5, 37)
    shape = (2, 2), (2, 1), 150, 5, 7
    for tiles, learn, masked, segments, resumed in (
        (1, True, True, 0, True),
        (1, False, True, 3, True),
        (9, False, False, 0, False),
    ):
        slab_tiles(tiles)
        given = problem(cupy, spec, dtype, *shape, masked=masked, segments=segments, resumed=resumed)
        check(given, learn, dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dtype"), [("exp", "float32"), ("sincos", "float16"), ("elementwise", "float64")])
def test_wide_heads(cupy, slab_tiles, kind, dtype):
    """More columns of x and of v than a block holds: they are gone through in passes."""
    slab_tiles(1)
    spec = specs(np.random.default_rng(0), kind, 140, 20)
    options = {"masked": True, "segments": 2, "resumed": True, "scale": 0.1}
    check(problem(cupy, spec, dtype, (2,), (2,), 140, 140, 70, **options), True, dtype, 4.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["exp_pair", "relu"])
def test_sums_outside_shared_memory(cupy, device_with, kind):
    limits = device_with(99_000)
    spec = specs(np.random.default_rng(0), kind, 40, 300)
    given = problem(cupy, spec, "float32", (3,), (3,), 100, 40, 40, masked=True, segments=0, resumed=True, scale=0.2)
    code = back_code(map_code("float32", spec, spec.per_feature, 40, limits), 40, "float32", 40, "float", True, limits)
    how = launch(3, 100, 40, 300, walk_code(code, 1, limits), True, limits)
    assert how.room > 0
    assert how.shared_bytes <= 99_000
    assert how.grid == (1,), "one block does the work of three"
    check(given, True, "float32")


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_keys_that_jump(cupy, dtype):
    """Every key of a hundred times its predecessors' size, and back: chunks end before what lies far above."""
    spec = replace(specs(np.random.default_rng(0), "exp_pair", 5, 37), row_weights=None)
    given = list(problem(cupy, spec, dtype, (2,), (2,), 150, 5, 7, masked=False, segments=0, resumed=False))
    size = np.where(np.arange(150) % 23 < 3, 30.0, 0.1)[:, None]
    given[1] = given[1] * cupy.asarray(size.astype(given[1].dtype))
    given[8:10] = causal(*given[:5], None, None, None, True)[:2]
    check(given, False, dtype, 8.0)


@pytest.mark.slow
@pytest.mark.parametrize(("d_q", "d_k"), [(5, 15), (15, 5)])
def test_two_maps(cupy, d_q, d_k):
    rng = np.random.default_rng(0)
    q_spec, k_spec = specs(rng, "exp", d_q, 37).unscaled, specs(rng, "exp", d_k, 37)
    q, k, v = (array(cupy, 0.5 * rng.normal(size=(2, 90, c)), "float32") for c in (d_q, d_k, 7))
    out, normaliser, _ = causal(q, k, v, q_spec, k_spec, None, None, None, True)
    g = array(cupy, rng.normal(size=out.shape), "float32")
    check((q, k, v, q_spec, k_spec, None, None, None, out, normaliser, g, None), True, "float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queries", "keys"), [((2, 3, 2), (2, 3, 1)), ((1, 3), (2, 1)), ((3,), ()), ((2, 1, 2), (1, 2, 1)), ((), (2,))]
)
def test_groups(cupy, queries, keys):
    spec = specs(np.random.default_rng(0), "exp_pair", 5, 37)
    check(
        problem(cupy, spec, "float32", queries, keys, 70, 5, 7, masked=True, segments=2, resumed=True), True, "float32"
    )


def test_what_is_not_seen_may_be_anything(cupy):
    spec = specs(np.random.default_rng(0), "exp_pair", 5, 37)
    given = list(problem(cupy, spec, "float32", (2,), (2,), 150, 5, 7, masked=True, segments=3, resumed=True))
    clean = [x.get() for x in parts(causal_vjp(*given, True)) if x is not None]
    hidden = cupy.asarray(~wide(given[6]))
    for i, where in ((0, (..., 75, slice(None))), (1, hidden), (2, hidden)):
        given[i] = given[i].copy()
        given[i][where] = np.nan
    for x, y in zip((x for x in parts(causal_vjp(*given, True)) if x is not None), clean, strict=True):
        np.testing.assert_array_equal(x.get(), y)
