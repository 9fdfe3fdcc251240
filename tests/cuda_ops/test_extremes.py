"""At the ends of the floats: finite rows give finite outputs, as far as the guide promises it of the GPU."""

import ml_dtypes
import numpy as np
import pytest

import kernattn as ka
import oracles
from cuda_ops.cases import array, to64
from kernattn.ops.block_softmax.gpu import block_softmax
from seam import ALL, CAUSAL

D, N = 8, 70
MAPS = {
    name: ka.random_features(ka.kernels.Softmax(), D, 16, estimator=name, rng=0)
    for name in ("positive", "trigonometric")
}


def rows(scale, columns=D, seed=0):
    x = np.random.default_rng(seed).normal(size=(2, N, columns)) * scale
    return np.clip(x, -3e38, 3e38).astype(np.float32)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("scale", [1e10, 1e16, 1e20, 1e30, 1e36])
def test_linear_attention_of_long_rows(cupy, name, scale):
    """Log scales beyond floats are held, and units that stand more than an octave apart are met exactly."""
    q, k, v = rows(scale), rows(scale, seed=1), rows(1.0, 5, 2)
    given = [cupy.asarray(x) for x in (q, k, v)]
    out, state = ka.causal_linear_attention(*given, MAPS[name])
    full = ka.linear_attention(*given, MAPS[name])
    token, _ = ka.linear_attention_step(state, *(x[:, -1] for x in given), MAPS[name])
    for y in (out, full, token, *state):
        assert np.isfinite(to64(y)).all()
    if name == "positive":
        for y in (to64(out), to64(full)):
            assert (y <= v.max(axis=1, keepdims=True) * 1.00001).all()
            assert (y >= v.min(axis=1, keepdims=True) * 1.00001).all()
            assert (np.abs(y).max(axis=-1) > 0).all()
        np.testing.assert_allclose(to64(out[:, 0]), v[:, 0], rtol=1e-6)  # it sees itself only


@pytest.mark.parametrize("name", MAPS)
def test_a_long_row_leaves_those_before_it_alone(cupy, name):
    q, k, v = rows(1.0), rows(1.0, seed=1), rows(1.0, 5, 2)
    before = ka.causal_linear_attention(*(cupy.asarray(x) for x in (q, k, v)), MAPS[name])[0]
    q[:, 40:] *= 1e30
    k[:, 40:] *= 1e30
    after = ka.causal_linear_attention(*(cupy.asarray(x) for x in (q, k, v)), MAPS[name])[0]
    np.testing.assert_array_equal(to64(after[:, :40]), to64(before[:, :40]))
    assert np.isfinite(to64(after)).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("scale", "values"), [(1e20, 1.0), (1e38, 1.0), (1.0, 1e38), (1e30, 1e38)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_exact_attention(cupy, dtype, causal, scale, values):
    q, k, v = rows(scale), rows(scale, seed=1), rows(values, 5, 2)
    q[:, ::7] = rows(1.0, seed=3)[:, ::7]  # beside rows that need no help
    out, lse = block_softmax(*(array(cupy, x, dtype) for x in (q, k, v)), D**-0.5, CAUSAL if causal else ALL, None)
    if dtype == "bfloat16":
        q, k, v = (x.astype(ml_dtypes.bfloat16) for x in (q, k, v))
    may = np.tri(N, dtype=bool) if causal else np.ones((N, N), bool)
    wanted, _ = oracles.softmax_attention(to64(q), to64(k), to64(v), may=may)
    eps = 1e-5 if dtype == "float32" else 0.03
    np.testing.assert_allclose(to64(out) / values, wanted / values, atol=eps)
    assert np.isfinite(to64(lse)).all()


def test_exact_attention_of_scores_that_are_all_far_below(cupy):
    """The least far key wins; masked rows are zero as ever."""
    q, k, v = (np.abs(rows(s, c, i)) for i, (s, c) in enumerate(((1e20, D), (1e20, D), (1.0, 5))))
    mask = np.ones((2, N), bool)
    mask[1, :30] = False
    out, lse = block_softmax(*(cupy.asarray(x) for x in (-q, k, v)), 1.0, CAUSAL, cupy.asarray(mask))
    may = np.tri(N, dtype=bool) & mask[:, None, :]
    wanted, _ = oracles.softmax_attention(-to64(q), to64(k), to64(v), scale=1.0, may=may)
    np.testing.assert_allclose(to64(out), wanted, atol=1e-5)
    assert (to64(out)[1, :30] == 0).all()
    assert (to64(lse)[1, :30] == -np.inf).all()


def test_infinite_rows_are_not_hidden(cupy):
    q, k, v = rows(1.0), rows(1.0, seed=1), rows(1.0, 5, 2)
    k[:, 50, 0] = np.inf
    out, _ = block_softmax(*(cupy.asarray(x) for x in (q, k, v)), 1.0, ALL, None)
    assert np.isnan(to64(out)).any()
    q[:, 50, 0] = np.nan
    for y in (
        ka.linear_attention(*(cupy.asarray(x) for x in (q, rows(1.0, seed=1), v)), MAPS["positive"]),
        block_softmax(*(cupy.asarray(x) for x in (q, rows(1.0, seed=1), v)), 1.0, ALL, None)[0],
    ):
        assert np.isnan(to64(y)[:, 50]).all()
        assert np.isfinite(np.delete(to64(y), 50, axis=1)).all()
