"""The way back through exact weights on a window and those of features before it."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from attention.window_cases import FITTED, MAPS, POSITIVE, A, tokens


@pytest.mark.parametrize(("phi", "size"), [("positive", 20.0), ("positive", 1e3), ("trigonometric", 1e3)])
def test_no_norm_overflows(size, phi):
    """Forwards and back; where float32 can tell the scores, as float64 has it."""
    q, k, v = (x * y for x, y in zip(tokens(dtype="float32"), np.float32([size, size, 1]), strict=True))
    (out, _), pullback = ka.vjp(A.window_attention, q, k, v, MAPS[phi], 16)
    cotangents = pullback((np.ones_like(out), None))
    assert all(np.isfinite(x).all() for x in (out, *cotangents[:3]))
    if size < 100:
        wide = [x.astype("f8") for x in (q, k, v)]
        (exact, _), pullback = ka.vjp(A.window_attention, *wide, MAPS[phi], 16)
        np.testing.assert_allclose(out, exact, rtol=1e-2, atol=1e-2)
        for x, y in zip(cotangents[:3], pullback((np.ones_like(exact), None))[:3], strict=True):
            assert np.linalg.norm(x - y) < 1e-2 * np.linalg.norm(y)


@pytest.mark.parametrize("name", ["positive", "fitted"])
def test_the_way_back_is_that_of_array_operations_and_of_differences(name):
    """In the loops, with group heads, a state, and a bias: against differences, and against the reference."""
    q, k, v = tokens(90, seed=6)
    drawn = FITTED if name == "fitted" else POSITIVE
    bias, rng = np.array([0.3, -0.7]), np.random.default_rng(7)
    past = A.window_attention(*tokens(20, seed=8), drawn, 13)[1]
    g, more = rng.standard_normal((2, 2, 2, 90, 3)), rng.standard_normal((2, 2, 1, 13, 4))
    phi = ka.with_numbers(drawn, omega=drawn.spec.omega)
    found = []
    for backend in (None, "reference"):
        (_, after), pullback = ka.vjp(A.window_attention, q, k, v, phi, 13, state=past, near_bias=bias, backend=backend)
        none = after._replace(s=0 * after.s, z=0 * after.z, k=more, v=0 * after.v)
        found.append(pullback((g, none)))
    for name in ("q", "k", "v", "near_bias"):
        np.testing.assert_allclose(*(getattr(x, name) for x in found), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(*(x.phi.omega for x in found), rtol=1e-8, atol=1e-8)
    for name in "szkv":
        np.testing.assert_allclose(*(getattr(x.state, name) for x in found), rtol=1e-8, atol=1e-9)

    def loss(**given):
        numbers = {"q": q, "k": k, "v": v, "near_bias": bias} | given
        past_k, past_v, omega = (numbers.pop(x, y) for x, y in (("pk", past.k), ("pv", past.v), ("o", phi.spec.omega)))
        given_phi = ka.with_numbers(drawn, omega=omega)
        out, after = A.window_attention(phi=given_phi, window=13, state=past._replace(k=past_k, v=past_v), **numbers)
        return np.sum(out * g) + np.sum(after.k * more)

    r = found[0]
    of = {"q": (q, r.q), "k": (k, r.k), "v": (v, r.v), "near_bias": (bias, r.near_bias)}
    of |= {"pk": (past.k, r.state.k), "pv": (past.v, r.state.v), "o": (drawn.spec.omega, r.phi.omega)}
    for name, (x, dx) in of.items():
        step = 1e-5 * rng.standard_normal(x.shape)
        change = (loss(**{name: x + step}) - loss(**{name: x - step})) / 2
        np.testing.assert_allclose(change, np.sum(step * dx), rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", ["positive", "fitted", "elu1"])
def test_the_way_back_without_copies_is_that_of_array_operations(name):
    """Heads that meet one by one, from the first token on: walks with a lag write what exact attention adds to."""
    q, k, v = (x[:, 0, 0] for x in tokens(130, seed=6))
    drawn = {**MAPS, "fitted": FITTED}[name]
    phi = ka.with_numbers(drawn, omega=drawn.spec.omega) if drawn.dim else drawn
    rng, ids, found = np.random.default_rng(7), np.repeat([0, 1, 2], [50, 61, 19]), []
    g, more = rng.standard_normal((2, 130, 3)), rng.standard_normal((2, 2))
    g[:, 7] = 0
    for backend in (None, "reference"):
        options = {"near_bias": np.array([0.3, -0.7]), "segment_ids": ids, "backend": backend}
        (_, after), pullback = ka.vjp(A.window_attention, q, k, v, phi, 13, **options)
        whole = np.broadcast_to(np.exp(after.peak), after.z.shape)  # of the sums themselves, whatever their units
        of_sums = {"s": more[:, :1, None] * whole[..., None] + 0 * after.s, "z": more[:, 1:] * whole}
        found.append(pullback((g, after._replace(k=0 * after.k + 1, v=0 * after.v, **of_sums))))
    for part in ("q", "k", "v", "near_bias"):
        np.testing.assert_allclose(*(getattr(x, part) for x in found), rtol=1e-8, atol=1e-9)
    if drawn.dim:
        np.testing.assert_allclose(*(x.phi.omega for x in found), rtol=1e-8, atol=1e-8)


def test_the_way_back_leaves_masked_tokens_out():
    """Amid others, too, after a state: cotangents are those of the sequence without them, and 0 of masked tokens."""
    q, k, v = (x[:, :1] for x in tokens(40, seed=6))
    past = A.window_attention(*(x[:, :1] for x in tokens(20, seed=8)), POSITIVE, 7)[1]
    rng = np.random.default_rng(9)
    seen = rng.random(40) < 0.7
    phi = ka.with_numbers(POSITIVE, omega=POSITIVE.spec.omega)
    given = {"state": past, "backend": "reference"}
    (out, after), pullback = ka.vjp(A.window_attention, q, k, v, phi, 7, key_mask=seen, **given)
    g, of_k = rng.standard_normal(out.shape), rng.standard_normal(after.k.shape)
    of_after = after._replace(s=0 * after.s, z=0 * after.z, k=of_k, v=0 * after.v)
    found = pullback((g, of_after))
    left = [x[..., seen, :] for x in (q, k, v)]
    _, wanted = ka.vjp(A.window_attention, *left, phi, 7, **given)
    wanted = wanted((g[..., seen, :], of_after))
    for name in "qkv":
        np.testing.assert_allclose(getattr(found, name)[..., seen, :], getattr(wanted, name), rtol=1e-9, atol=1e-12)
        assert not getattr(found, name)[..., ~seen, :].any()
    np.testing.assert_allclose(found.phi.omega, wanted.phi.omega, rtol=1e-9, atol=1e-11)
    for name in "szkv":
        np.testing.assert_allclose(*(getattr(x.state, name) for x in (found, wanted)), rtol=1e-9, atol=1e-12)


def test_the_way_back_of_a_sequence_is_its_own_beside_one_padded_on_the_left():
    """Rows that see nothing have no gradient, and what is beside them keeps every bit."""
    rows = [x[:, 0, 0] for x in tokens(90, seed=6, dtype="float32")]
    mask, g = np.ones((2, 90), bool), np.random.default_rng(7).standard_normal((2, 90, 3)).astype("f4")
    mask[1, :21] = False

    def pulled(rows, mask, g, backend="cpu"):
        run, options = A.scatterbrain_attention, {"causal": True, "key_mask": mask, "backend": backend}
        out, pullback = ka.vjp(run, *rows, POSITIVE, ka.patterns.local(12, 0), **options)
        return out, *(getattr(pullback(g), name) for name in "qkv")

    found = pulled(rows, mask, g)
    for head in (0, 1):
        for x, y in zip(found, pulled([x[head] for x in rows], mask[head], g[head]), strict=True):
            np.testing.assert_array_equal(x[head], y)
    for x, y in zip(found, pulled([x.astype("f8") for x in rows], mask, g.astype("f8"), "reference"), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
        assert not x[1, :21].any()


@pytest.mark.parametrize("way", ["window", "pattern", "taken off"])
@pytest.mark.parametrize("name", ["scale", "lengthscale", "lengthscales"])
def test_a_learnt_number_of_the_kernel(name, way):
    """Exact scores have the scale that is learnt; no lengthscale is theirs, and its cotangent is of features alone."""
    q, k, v = (x[:, 0, :, :20] for x in tokens(20, seed=6))
    past, g = [x[:, 0] for x in tokens(9, seed=8)], np.random.default_rng(7).standard_normal((2, 2, 20, 3))
    kernel = ka.kernels.Softmax() if name == "scale" else ka.kernels.Gaussian(2.0)
    drawn = ka.random_features(kernel, 4, 16, "positive", rng=1)
    number = {"scale": 0.4, "lengthscale": 1.6, "lengthscales": (1.0, 2.0, 3.0, 1.5)}[name]
    number, name, options = np.asarray(number), name.rstrip("s"), {"causal": True}
    run, options["pattern"] = A.scatterbrain_attention, ka.patterns.local(3, 0, dilation=2 if way == "taken off" else 1)
    if way == "window":
        run, options = A.window_attention, {"window": 5, "state": A.window_attention(*past, drawn, 5)[1]}

    def loss(number, learn=ka.with_numbers):
        made = run(q, k, v, learn(drawn, **{name: number}), **options)
        return np.sum((made[0] if way == "window" else made) * g)

    step = 1e-5 * np.random.default_rng(9).random(number.shape)
    if way != "taken off":
        _, pullback = ka.vjp(run, q, k, v, ka.with_numbers(drawn, **{name: number}), **options)
        cotangent = getattr(pullback((g, None) if way == "window" else g).phi, name)
        np.testing.assert_allclose(np.sum(cotangent * step), (loss(number + step) - loss(number - step)) / 2, rtol=1e-5)
    if name == "scale":
        options.pop("state", None)
        same = loss(number, lambda phi, scale: replace(phi, kernel=ka.kernels.Softmax(float(scale))))
        np.testing.assert_allclose(loss(number), same, rtol=1e-9)
