"""The kernel `block_softmax` on the emulation against the float64 oracle."""

import numpy as np
import pytest

import oracles
from cuda_ops.cases import DTYPES, OPERAND_EPS, array, to64
from seam import ALL, CAUSAL


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_block_softmax(cupy, dtype, causal):
    from kernattn.ops.block_softmax.gpu import block_softmax

    for n, length, d, e, masked in (
        (70, 90, 5, 7, True),
        (5, 3, 16, 32, False),
        (90, 90, 9, 20, False),
        (100, 7, 16, 8, True),
    ):
        rng = np.random.default_rng(n)
        q, k, v = (
            array(cupy, rng.normal(size=(2, rows, c)) * 3, dtype) for rows, c in ((n, d), (length, d), (length, e))
        )
        mask = rng.random((2, length)) < 0.7 if masked else None
        out, lse = block_softmax(
            q, k, v, d**-0.5, CAUSAL if causal else ALL, None if mask is None else cupy.asarray(mask)
        )
        may = np.tri(n, length, length - n, dtype=bool) if causal else np.ones((n, length), bool)
        may = may & (True if mask is None else mask[..., None, :])
        wanted, wanted_lse = oracles.softmax_attention(to64(q), to64(k), to64(v), may=may)
        eps = 4 * OPERAND_EPS[dtype] + (2.0**-20 if dtype != "float64" else 0)
        np.testing.assert_allclose(to64(out), wanted, rtol=eps, atol=eps * np.abs(to64(v)).max())
        np.testing.assert_allclose(to64(lse), wanted_lse, rtol=eps, atol=eps)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_wide_heads_and_groups(cupy, dtype):
    from kernattn.ops.block_softmax.gpu import block_softmax

    rng = np.random.default_rng(0)
    q, k, v = (
        array(cupy, rng.normal(size=shape), dtype) for shape in ((2, 3, 40, 140), (2, 1, 40, 140), (2, 1, 40, 130))
    )
    out, lse = block_softmax(q, k, v, 0.1, CAUSAL, None)
    wanted, wanted_lse = oracles.softmax_attention(*(to64(x) for x in (q, k, v)), scale=0.1, may=np.tri(40, dtype=bool))
    eps = 4 * OPERAND_EPS[dtype] + 2.0**-20
    np.testing.assert_allclose(to64(out), wanted, atol=eps * 4)
    np.testing.assert_allclose(to64(lse), wanted_lse, atol=eps * 4)


@pytest.mark.parametrize(("n", "length"), [(150, 300), (300, 150)])
def test_tiles_of_128_rows(cupy, n, length):
    """Where these fill the device: with a bias and a mask, values that some rows see or none, rows that see nothing."""
    from kernattn.ops.block_softmax.gpu import block_softmax

    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(4, rows, 9)) for rows in (n, length, length))
    bias, mask = rng.normal(size=length), rng.random(length) > 0.2
    bias[7], mask[9] = -np.inf, False
    hidden = ~mask | (bias == -np.inf)
    for plan, may in ((ALL, np.ones((n, length), bool)), (CAUSAL, np.tri(n, length, length - n, dtype=bool))):
        wide_q, wide_k, wide_v = (to64(array(cupy, x, "bfloat16")) for x in (q, k, v))
        wide_q = np.append(wide_q, np.full((4, n, 1), 1 / 0.4), axis=-1)
        added = np.where(hidden, 0.0, to64(array(cupy, bias, "bfloat16")))
        wide_k = np.append(wide_k, np.broadcast_to(added[:, None], (4, length, 1)), axis=-1)
        wanted, _ = oracles.softmax_attention(wide_q, wide_k, wide_v, scale=0.4, may=may & ~hidden)
        spoilt = v.copy()
        spoilt[:, hidden] = np.nan
        given = [array(cupy, x, "bfloat16") for x in (q, k, spoilt)]
        out, _ = block_softmax(*given, 0.4, plan, cupy.asarray(mask), array(cupy, bias, "bfloat16"))
        np.testing.assert_allclose(to64(out), wanted, atol=0.03)
        last = length - 1
        given[2] = array(cupy, np.where(np.arange(length)[:, None] == last, np.nan, v), "bfloat16")
        out = to64(block_softmax(*given, 0.4, plan, None)[0])
        assert np.array_equal(np.isnan(out).all(-1), np.broadcast_to(may[:, last], out.shape[:-1]))
        assert not np.isnan(out[:, ~may[:, last]]).any()


@pytest.mark.parametrize("filling", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nan_and_infinity_stay_where_they_are_seen(cupy, dtype, filling):
    from kernattn.ops.block_softmax.gpu import block_softmax

    rng = np.random.default_rng(0)
    for n, length in ((70, 70), (30, 100), (100, 70)):
        arrays = [rng.normal(size=(rows, 5)) for rows in (n, length, length)]
        mask = np.arange(length) % 5 != 3
        clean, clean_lse = (
            to64(x) for x in block_softmax(*_given(cupy, arrays, dtype), 0.4, CAUSAL, cupy.asarray(mask))
        )
        for at in (0, 38, length - 1, length - 2):
            blind = np.arange(n) + length - n < at if mask[at] else np.ones(n, bool)
            for i in (1, 2):
                spoilt = [x.copy() for x in arrays]
                spoilt[i][at, 1] = filling
                out, lse = (
                    to64(x) for x in block_softmax(*_given(cupy, spoilt, dtype), 0.4, CAUSAL, cupy.asarray(mask))
                )
                np.testing.assert_allclose(out[blind], clean[blind], rtol=1e-5, atol=1e-5)
                np.testing.assert_array_equal(lse[blind], clean_lse[blind])
                if i == 2:
                    np.testing.assert_allclose(out[:, [0, 2, 3, 4]], clean[:, [0, 2, 3, 4]], rtol=1e-2, atol=1e-2)
                    np.testing.assert_array_equal(out[~blind, 1], filling)


def _given(cupy, arrays, dtype):
    return [array(cupy, x[None], dtype)[0] for x in arrays]
