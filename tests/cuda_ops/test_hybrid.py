"""The ops `hybrid` and `hybrid_vjp` on the emulation: exact weights on a window, those of features before it."""

import numpy as np
import pytest

import kernattn as ka
from attention.window_cases import oracle
from cuda_ops.cases import array, to64

A = ka.attention
N = 70
MAPS = {
    "positive": ka.random_features(ka.kernels.Softmax(), 4, 16, "positive", rng=1),
    "hyperbolic": ka.random_features(ka.kernels.Softmax(), 4, 16, "hyperbolic", rng=1),
    "trigonometric": ka.random_features(ka.kernels.Softmax(), 4, 64, "trigonometric", rng=1),
    "elu1": ka.features.elu1(),
}
CLOSE = {"float32": 2e-5, "bfloat16": 3e-2}


def tokens(cupy, dtype, seed=1):
    """Two sequences of two groups of two heads; and what they are in float64."""
    rng = np.random.default_rng(seed)
    shapes = (2, 2, 2, N, 4), (2, 2, 1, N, 4), (2, 2, 1, N, 3)
    given = [array(cupy, 0.7 * rng.normal(size=shape), dtype) for shape in shapes]
    return given, [to64(x) for x in given]


@pytest.mark.parametrize(
    ("name", "window", "dtype"),
    [("positive", 7, "float32"), ("trigonometric", 33, "float32"), ("elu1", 20, "bfloat16")],
)
def test_a_window_whole_and_in_pieces(cupy, slab_tiles, name, window, dtype):
    slab_tiles(100)
    phi, (given, plain) = MAPS[name], tokens(cupy, dtype)
    ids = np.repeat([1, 2], [41, N - 41])
    for options, seen in (({}, None), ({"segment_ids": cupy.asarray(ids)}, ids)):
        bias = np.array([[0.5], [-1.0]])
        options["near_bias"] = cupy.asarray(bias.astype(np.float32))
        wanted = oracle(*plain, phi, window, ids=seen, bias=np.broadcast_to(bias, (2, 2, 2)))
        out, state = A.window_attention(*given, phi, window, backend="gpu", **options)
        assert out.dtype == given[2].dtype
        np.testing.assert_allclose(to64(out), wanted, rtol=0, atol=CLOSE[dtype] * np.max(np.abs(wanted)))
    del options["segment_ids"]
    first, state = A.window_attention(*(x[..., :30, :] for x in given), phi, window, backend="gpu", **options)
    second, _ = A.window_attention(*(x[..., 30:, :] for x in given), phi, window, state=state, backend="gpu", **options)
    wanted = oracle(*plain, phi, window, bias=np.broadcast_to(bias, (2, 2, 2)))
    for x, y in ((first, wanted[..., :30, :]), (second, wanted[..., 30:, :])):
        np.testing.assert_allclose(to64(x), y, rtol=0, atol=CLOSE[dtype] * np.max(np.abs(wanted)))


@pytest.mark.parametrize(("name", "window"), [("hyperbolic", 7), pytest.param("elu1", 20, marks=pytest.mark.slow)])
def test_the_way_back(cupy, name, window):
    """Against array operations in float64, of masked keys, segments and a bias."""
    phi, (given, plain) = MAPS[name], tokens(cupy, "float32")
    mask, ids = np.arange(N) >= 3, np.repeat([1, 2], [41, N - 41])
    bias = np.array([[0.5], [-1.0]])
    side = np.random.default_rng(2).normal(size=(2, 2, 2, N, 3)).astype(np.float32)
    run = ka.vjp(
        A.window_attention, *given, phi, window, key_mask=cupy.asarray(mask), segment_ids=cupy.asarray(ids),
        near_bias=cupy.asarray(bias.astype(np.float32)), backend="gpu",
    )  # fmt: skip
    exact = ka.vjp(
        A.window_attention, *plain, phi, window, key_mask=mask, segment_ids=ids, near_bias=bias, backend="reference"
    )
    (out, _), pull = run
    (wanted, _), wide = exact
    np.testing.assert_allclose(to64(out), wanted, rtol=0, atol=2e-5 * np.max(np.abs(wanted)))
    found, right = pull((cupy.asarray(side), None)), wide((side.astype(np.float64), None))
    assert found._fields == right._fields
    for field, x, y in zip(found._fields, found, right, strict=True):
        assert (x is None) == (y is None), field
        if y is not None and hasattr(y, "shape"):
            np.testing.assert_allclose(to64(x), y, rtol=0, atol=2e-5 * np.max(np.abs(y)), err_msg=field)
