"""Pullbacks where nothing is seen or asked for, and at the ends of floats."""

import numpy as np
import pytest

import kernattn as ka
import maps
from laws import arrays
from tangents import inputs, weights
from xp import backends

BACKENDS = backends("causal_vjp")
D = maps.DIM


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
@pytest.mark.parametrize("name", ["elu1", "relu", "phase-ard", "positive-softmax"])
def test_what_is_not_seen_leaves_no_trace(name, backend):
    """Masked keys, and queries that nobody asks for, may hold NaN; rows that see nothing have no gradient."""
    phi = maps.make(name)
    q, k, v, _, _, _ = inputs()
    mask = np.arange(9) >= 3  # the first rows see nothing
    mask[5] = False
    options = {"key_mask": mask, "backend": backend.name}
    (out, _), back = ka.vjp(ka.causal_linear_attention, q, k, v, phi, **options)
    g = weights(out.shape)
    g[..., 6, :] = 0
    clean = back((g, None))
    assert (clean.q[..., :3, :] == 0).all()
    assert (clean.q[..., 6, :] == 0).all()
    spoilt = [x.copy() for x in (q, k, v)]
    spoilt[0][..., 6, :] = np.nan
    for x in spoilt[1:]:
        x[..., ~mask, :] = np.nan
    with np.errstate(invalid="ignore"):
        _, back = ka.vjp(ka.causal_linear_attention, *spoilt, phi, **options)
        for x, y in zip(back((g, None))[:3], clean[:3], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
        _, back = ka.vjp(ka.linear_attention, *spoilt, phi, **options)
        assert all(np.isfinite(x).all() for x in back(g)[:3])
        _, back = ka.vjp(ka.softmax_attention, *spoilt, causal=True, **options)
        found = back(g)
    assert all(np.isfinite(x).all() for x in found[:4])
    assert (found.q[..., :3, :] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
@pytest.mark.parametrize("name", ["elu1", "positive-softmax", "hyperbolic-ard"])
def test_padding_that_no_cotangent_reaches_leaves_no_trace(name, backend):
    """Rows from the 100th on hold NaN, or infinity, and have no cotangent; no mask says so."""
    phi = maps.make(name)
    clean = arrays(1, (150, D), (150, D), (150, 3), dtype="float64", scale=0.7)
    g, end = weights((150, 3)), slice(100, None)
    g[end] = 0

    def pulled(g, *given, segment_ids=None):
        with np.errstate(invalid="ignore", over="ignore"):
            _, back = ka.vjp(ka.causal_linear_attention, *given, phi, segment_ids=segment_ids, backend=backend.name)
            yield from back((g, None))[:3]
            _, back = ka.vjp(ka.softmax_attention, *given, causal=True, backend=backend.name)
            yield from back(g)[:3] if segment_ids is None else ()
            features, back = ka.vjp(phi.key, given[1], backend=backend.name)
            h = weights(features.shape)
            h[~g.any(axis=-1)] = 0
            yield back(h).x

    def agree(given, wanted, **options):
        for at, (x, y) in enumerate(zip(pulled(g, *given, **options), wanted, strict=True)):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12, err_msg=str(at))

    short = pulled(g[:100], *(x[:100] for x in clean))
    wanted = [np.concatenate([x, np.zeros((50, x.shape[-1]))]) for x in short]
    for bad in (np.nan, np.inf):
        spoilt = [x.copy() for x in clean]
        for x in spoilt:
            x[end] = bad
        agree(spoilt, wanted)
    ids = np.arange(150) // 50
    wanted = list(pulled(g, *clean, segment_ids=ids))
    agree(spoilt, wanted, segment_ids=ids)
    spoilt[1][:50], g[:50] = np.nan, 0  # the first of three segments
    wanted = list(pulled(g, *clean, segment_ids=ids))
    agree(spoilt, wanted, segment_ids=ids)


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
@pytest.mark.parametrize("name", ["elu1", "positive-softmax"])
def test_keys_of_other_sizes_in_float32(name, backend):
    """Early keys far larger than later ones, or the reverse, leave gradients as exact as float32 is."""
    phi = maps.make(name)
    q, k, v = arrays(4, (70, D), (70, D), (70, 3), dtype="float64")
    for factor in (20.0, 1 / 20):
        q2, k2 = (x * np.where(np.arange(70) < 30, factor, 1.0)[:, None] for x in (q, k))
        (out, _), back = ka.vjp(ka.causal_linear_attention, q2, k2, v, phi)
        g = weights(out.shape)
        wanted = back((g, None))[:3]
        single = [x.astype(np.float32) for x in (q2, k2, v)]
        _, back = ka.vjp(ka.causal_linear_attention, *single, phi, backend=backend.name)
        for x, y in zip(back((g.astype(np.float32), None))[:3], wanted, strict=True):
            assert np.abs(x - y).max() <= 2e-3 * np.abs(y).max()


@pytest.mark.parametrize("name", ["elu1", "relu", "trigonometric-softmax", "phase-ard", "hyperbolic-ard"])
def test_loops_take_what_is_ordinary_and_leave_the_rest(name, monkeypatch):
    pytest.importorskip("numba")
    phi = maps.make(name)
    q, k, v, history, mask, _ = inputs()

    def found(q, k, v):
        past = ka.key_state(*history, phi)
        (out, after), back = ka.vjp(ka.causal_linear_attention, q, k, v, phi, state=past, key_mask=mask, backend="cpu")
        linear, back_linear = ka.vjp(ka.linear_attention, q, k, v, phi, backend="cpu")
        gradients = back((weights(out.shape), after))
        return [*gradients[:3], *gradients.state[:2], *back_linear(weights(linear.shape))[:3]]

    wanted = found(q, k, v)
    for far in (1e7, 1e-30):
        assert all(np.isfinite(x).all() for x in found(far * q, far * k, v))
    for op in ("causal_vjp", "attend_vjp", "key_state_vjp"):
        monkeypatch.delattr(f"kernattn.ops.{op}.reference.{op}")
    for x, y in zip(found(q, k, v), wanted, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
def test_large_logs_lose_no_digits(backend):
    """Logs of features that are the entries themselves: 8000 of float32, as exact as small ones."""
    phi = ka.features.exp()
    q, k, v = (x.astype("f4") for x in arrays(6, (70, D), (70, D), (70, 3), dtype="float64"))
    q, k = q + np.float32(8000), k - np.float32(3000)
    g = weights(v.shape).astype("f4")
    for f in (ka.causal_linear_attention, ka.linear_attention):
        gradients = []
        for dtype in ("f4", "f8"):
            out, back = ka.vjp(f, *(x.astype(dtype) for x in (q, k, v)), phi, backend=backend.name)
            cotangent = g.astype(dtype)
            gradients.append(back((cotangent, None) if isinstance(out, tuple) else cotangent))
        for x, y in zip(gradients[0][:3], gradients[1][:3], strict=True):
            limit = 2e-6 if backend.name == "cpu" else 2e-3  # array operations add whole logs
            assert np.abs(x - y).max() <= limit * np.abs(y).max()


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
@pytest.mark.parametrize("name", ["elu1", "positive-softmax"])
def test_gradients_are_finite_at_the_ends_of_float32(name, backend):
    """Entries of a million, and values of 1e22: without a warning, and exact where the loops leave them to float64."""
    phi = maps.make(name)
    q, k, v = arrays(7, (70, D), (70, D), (70, 3), dtype="float32")
    g = weights(v.shape).astype("f4")
    for size, most in ((1e6, 1.0), (1.0, 1e22)):
        given = [np.float32(size) * q, np.float32(size) * k, np.float32(most) * v]
        for f in (ka.causal_linear_attention, ka.linear_attention):
            out, back = ka.vjp(f, *given, phi, backend=backend.name)
            found = back((g, None) if isinstance(out, tuple) else g)[:3]
            assert all(np.isfinite(x).all() for x in found)
            if most > 1 or backend.name == "cpu":
                out, back = ka.vjp(f, *(x.astype("f8") for x in given), phi)
                wanted = back((g.astype("f8"), None) if isinstance(out, tuple) else g.astype("f8"))
                for x, y in zip(found, wanted[:3], strict=True):
                    assert np.abs(x - y).max() <= 1e-4 * np.abs(y).max()


def test_no_cotangent_is_zero():
    q, k, v, *_ = inputs()
    phi = maps.make("elu1")
    for function, given in [(ka.linear_attention, (q, k, v, phi)), (ka.softmax_attention, (q, k, v))]:
        assert all((x == 0).all() for x in ka.vjp(function, *given)[1](None)[:3])
    for x in ka.vjp(ka.causal_linear_attention, q, k, v, phi)[1]((None, None))[:3]:
        assert (x == 0).all()
    assert (ka.vjp(ka.key_state, k, v, phi)[1](None).v == 0).all()
