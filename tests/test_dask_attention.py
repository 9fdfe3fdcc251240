"""Attention of Dask arrays: in chunks of tokens, from states, and what does not fit."""

import numpy as np
import pytest

pytest.importorskip("dask.array")

import dask
import dask.array as da

import kernattn as ka
import kernattn.dask
from chunks import chunked, unknown
from kernattn.errors import DTypeError, ShapeError, StateMismatchError

FAVOR = ka.dask.Recipe(ka.kernels.Softmax(), 4, 32, rng=0)
RNG = np.random.default_rng(0)
Q = RNG.standard_normal((2, 3, 50, 4))
K, V = RNG.standard_normal((2, 1, 50, 4)), RNG.standard_normal((2, 1, 50, 5))


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def attended(chunks, lead=(1, -1)):
    q, k, v = (chunked(a, *lead, chunks, 2) for a in (Q, K, V))
    return q, k, v


@pytest.mark.parametrize("phi", [ka.features.elu1(), FAVOR], ids=["elu1", "favor"])
@pytest.mark.parametrize("chunks", [50, 13, 1, (1, 30, 19)], ids=str)
def test_attention_in_chunks_is_attention(phi, chunks):
    here = phi.map() if phi is FAVOR else phi
    q, k, v = attended(chunks)
    found = ka.dask.linear_attention(q.rechunk({2: 17}), k, v, phi)
    assert (found.chunks[2], found.chunks[3]) == ((17, 17, 16), (5,))
    np.testing.assert_allclose(found.compute(), ka.linear_attention(Q, K, V, here), rtol=1e-12, atol=1e-12)
    found = dask.compute(*ka.dask.causal_linear_attention(q, k, v, phi))
    assert_causal(found, ka.causal_linear_attention(Q, K, V, here))


def assert_causal(found, expected, tolerance=1e-12):
    for a, b in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_empty_chunks_of_tokens():
    """A mask that is a Dask array leaves them."""
    q, k, v = attended((0, 10, 0, 40))
    found = ka.dask.linear_attention(q, k, v, FAVOR)
    np.testing.assert_allclose(found.compute(), ka.linear_attention(Q, K, V, FAVOR.map()), rtol=1e-12, atol=1e-12)
    found = dask.compute(*ka.dask.causal_linear_attention(q, k, v, FAVOR))
    assert_causal(found, ka.causal_linear_attention(Q, K, V, FAVOR.map()))


def test_attention_of_one_sequence_in_float32():
    q, k, v = (a[0, 0].astype("f4") for a in (Q, K, V))
    lazy = [chunked(a, 9, -1) for a in (q, k, v)]
    out, state = dask.compute(*ka.dask.causal_linear_attention(*lazy, FAVOR))
    assert out.dtype == state.s.dtype == "f4"
    assert_causal((out, state), ka.causal_linear_attention(q, k, v, FAVOR.map()), 1e-5)


@pytest.mark.parametrize("lazily", [False, True])
def test_attention_goes_on_from_a_state(lazily):
    expected, last = ka.causal_linear_attention(Q, K, V, FAVOR.map())
    parts = [[a[..., i, :] for a in (Q, K, V)] for i in (slice(20), slice(20, 50))]
    first, second = ([chunked(a, 1, -1, 8, -1) for a in part] for part in parts)
    out, state = ka.dask.causal_linear_attention(*first, FAVOR)
    if not lazily:
        (state,) = dask.compute(state)
    more, state = ka.dask.causal_linear_attention(*second, FAVOR, state=state)
    assert_causal(dask.compute(da.concatenate([out, more], axis=-2), state), (expected, last))


def test_chunks_do_not_see_later_ones():
    q, k, v = attended(10)
    out, _ = ka.dask.causal_linear_attention(q, k, v, FAVOR)
    wrecked = [da.concatenate([a[..., :30, :], a[..., 30:, :] * np.nan], axis=-2) for a in (q, k, v)]
    part, _ = ka.dask.causal_linear_attention(*wrecked, FAVOR)
    np.testing.assert_array_equal(part[..., :30, :].compute(), out[..., :30, :].compute())


def test_chunks_that_do_not_fit_are_refused():
    q, k, v = attended(10)
    other = ka.key_state(K, V, ka.features.elu1())
    with pytest.raises(ShapeError, match=r"k and v must have the same chunks along axis -2: give v.rechunk\(\{2: k"):
        ka.dask.linear_attention(q, k, v.rechunk({2: 25}), FAVOR)
    with pytest.raises(ShapeError, match="k and q must have the same chunks along axis -2"):
        ka.dask.causal_linear_attention(q.rechunk({2: 25}), k, v, FAVOR)
    with pytest.raises(ShapeError, match="q and k must have the same chunks along axis -4"):
        ka.dask.linear_attention(q.rechunk({0: 2}), k, v, FAVOR)
    with pytest.raises(ShapeError, match="as many queries as keys"):
        ka.dask.causal_linear_attention(q[..., :40, :], k, v, FAVOR)
    with pytest.raises(ShapeError, match="the number of tokens must be the same"):
        ka.dask.linear_attention(q, k, v[..., :40, :], FAVOR)
    with pytest.raises(ShapeError, match="compute_chunk_sizes"):
        ka.dask.linear_attention(*(unknown(a[0, 0], 10) for a in (Q, K, V)), FAVOR)
    with pytest.raises(DTypeError, match="q must be a Dask array"):
        ka.dask.linear_attention(Q, k, v, FAVOR)
    with pytest.raises(StateMismatchError, match="made by the map"):
        ka.dask.causal_linear_attention(q, k, v, FAVOR, state=other)
    with pytest.raises(DTypeError, match="state must be a LinearState"):
        ka.dask.causal_linear_attention(q, k, v, FAVOR, state=3)
