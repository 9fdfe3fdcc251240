"""Gradients of gated linear attention: against differences of the recurrence, and by PyTorch and JAX."""

from itertools import product

import numpy as np
import pytest

import kernattn as ka
from gated import GATES, RULES, D, E, N, close, draw, recur
from kernattn.attention import GatedState
from xp import JAX


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("rule", "gate"), [*product(RULES, GATES)])
def test_gradients(rule, gate, backend):
    """Against differences in a random direction of each argument; beta = 0 and g = -inf are among them."""
    (q, k, v), options = draw(rule, gate, l2=rule == "delta")
    rng = np.random.default_rng(8)
    state = rng.standard_normal((2, 1, D, E))
    (out, after), pullback = ka.vjp(
        ka.gated_linear_attention, q, k, v, **options, state=GatedState(state), backend=backend
    )
    g, gs = rng.standard_normal(out.shape), rng.standard_normal(after.s.shape)
    found = pullback((g, GatedState(gs)))
    given = {"q": q, "k": k, "v": v, "state": state, **options}
    given.pop("l2_normalise", None)

    def value(**changed):
        own = {**given, **options, **changed}
        q, k, v = (own.pop(name) for name in "qkv")
        o, s = recur(q, k, v, **{**own, "state": GatedState(own["state"])})
        return np.sum(o * g) + np.sum(s * gs)

    for name, x in given.items():
        parts, slopes = (x, getattr(found, name)) if name == "erase" else ((x,), (getattr(found, name),))
        slopes = (slopes[0].s,) if name == "state" else slopes
        for at, (part, slope) in enumerate(zip(parts, slopes, strict=True)):
            assert slope.shape == part.shape
            assert np.isfinite(slope).all()
            step = np.where(np.isfinite(part), 1e-6 * rng.standard_normal(part.shape), 0.0)
            ends = []
            for sign in (1, -1):
                moved = part + sign * step
                ends.append(
                    value(
                        **{name: tuple(moved if i == at else y for i, y in enumerate(parts))}
                        if name == "erase"
                        else {name: moved}
                    )
                )
            np.testing.assert_allclose((ends[0] - ends[1]) / 2, np.sum(slope * step), rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize(("rule", "gate"), [*product(RULES, GATES)])
def test_float32_gradients(rule, gate):
    """Loops against array operations in float64: with a mask and segments, a state, and both cotangents or one."""
    wide, narrow = (draw(rule, gate, l2=rule == "delta", dtype=dtype) for dtype in ("float64", "float32"))
    rng = np.random.default_rng(8)
    state, g, gs = (rng.standard_normal(shape) for shape in ((2, 1, D, E), (2, 3, N, E), (2, 1, D, E)))
    mask, ids = rng.random(N) < 0.8, np.arange(N) // 15
    for options in {}, {"state": state}, {"key_mask": mask, "state": state}, {"key_mask": mask, "segment_ids": ids}:
        for cotangents in (g, gs), (g, None), (None, gs):
            found = []
            for (arrays, own), dtype, backend in (wide, "f8", "reference"), (narrow, "f4", "cpu"):
                given = {**options, "state": GatedState(state.astype(dtype))} if "state" in options else options
                _, pullback = ka.vjp(ka.gated_linear_attention, *arrays, **own, **given, backend=backend)
                out, after = (None if x is None else x.astype(dtype) for x in cotangents)
                found.append(pullback((out, None if after is None else GatedState(after))))
            wanted, got = found
            for name in (*"qkv", *narrow[1]):
                if name != "l2_normalise":
                    parts = [getattr(x, name) for x in (got, wanted)]
                    for x, y in zip(*(p if name == "erase" else (p,) for p in parts), strict=True):
                        assert x.dtype == np.float32
                        close(x, y, 1e-5)
            if "state" in options:
                x, y = got.state.s, wanted.state.s
                np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * np.max(np.abs(y)) + 1e-38)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("rule", ["delta", "general"])
def test_queries_of_rows_without_a_cotangent_may_be_anything(rule, backend):
    """Of all rows, where the state alone has one; and of one head, where heads share queries."""
    (q, k, v), options = draw(rule, "scalar", heads=(2, 1), l2=rule == "delta")
    v, g = np.repeat(v, 3, axis=1), np.ones((2, 3, N, E))

    def pulled(rows, number, out, after):
        spoilt = q.copy()
        spoilt[..., rows, :] = number
        return ka.vjp(ka.gated_linear_attention, spoilt, k, v, **options, backend=backend)[1]((out, after))

    g[..., 4:7, :] = 0
    for rows, *cotangents in ((slice(4, 7), g, None), (slice(N), None, GatedState(np.ones((2, 3, D, E))))):
        found, wanted = (pulled(rows, number, *cotangents) for number in (np.nan, 0.0))
        for name in "qkvg":
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
            assert np.isfinite(getattr(found, name)).all()
    g[:, 1, 9] = 0
    assert np.isfinite(pulled(9, np.nan, g, None).v[:, 1]).all()


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("rule", RULES)
def test_tokens_after_the_last_cotangent_may_be_anything(rule, backend):
    """Huge keys, whose products overflow, and NaN: earlier gradients are those of the sequence that ends there."""
    (q, k, v), options = draw(rule, "channel", dtype="float32", heads=(2, 1))
    g, t = np.zeros((2, 1, N, E), "f4"), 21
    g[0, :, :t] = g[1, :, : t - 4] = 1

    def pulled(keys, values):
        run, own = ka.gated_linear_attention, {**options, "backend": backend}
        return ka.vjp(run, q, keys, values, **own)[1]((g, None))

    wanted = pulled(k, v)
    for number in (1e20, 3e38, np.nan):
        far_k, far_v = k.copy(), v.copy()
        far_k[0, :, t:], far_v[1, :, t - 4 :] = number, number
        with np.errstate(all="ignore"):
            found = pulled(far_k, far_v)
        for name in ("q", "k", "v", "gk"):
            close(getattr(found, name), getattr(wanted, name), 1e-6)
        assert not found.k[0, :, t:].any()


def test_float32_gradients_at_strong_gates():
    """The cotangent of a gate is a sum of what it decays: at g = -20 it is 1e-9 of others', and right."""
    (q, k, v), options = draw("delta", "scalar", n=200, heads=(1, 1))
    options["g"][..., ::5] = -20.0
    options["g"][..., 66] = -20.0
    _, pullback = ka.vjp(ka.gated_linear_attention, q, k, v, **options)
    wanted = pullback((np.ones((1, 1, 200, E)), None))
    narrow = {name: x.astype("f4") for name, x in options.items()}
    _, pullback = ka.vjp(ka.gated_linear_attention, *(x.astype("f4") for x in (q, k, v)), **narrow)
    got = pullback((np.ones((1, 1, 200, E), "f4"), None))
    for name in "q", "k", "v", "g", "beta":
        close(getattr(got, name), getattr(wanted, name), 2e-6)


def test_pytorch():
    """Autograd, double differences, vmap, whole graphs at several lengths, and autocast."""
    torch = pytest.importorskip("torch")
    (q, k, v), options = draw("delta", "scalar", n=20, heads=(2, 1))
    tensors = [torch.tensor(x, requires_grad=True) for x in (q, k, v, options["g"].clip(-9), options["beta"])]

    def call(q, k, v, g, beta):
        return ka.gated_linear_attention(q, k, v, g=g, beta=beta)

    out, after = call(*tensors)
    assert torch.autograd.gradcheck(lambda *x: (call(*x)[0], call(*x)[1].s), tensors)
    batch, _ = torch.vmap(call)(*(x.detach() for x in tensors))
    torch.testing.assert_close(batch, out.detach())
    whole = torch.compile(call, fullgraph=True, backend="aot_eager")
    for n in (20, 7, 13):
        part = [x.detach()[:, :, :n].requires_grad_() for x in tensors]
        got, state = whole(*part)
        assert isinstance(state, GatedState)
        torch.testing.assert_close(got, out[:, :, :n])
        torch.testing.assert_close(
            torch.autograd.grad(got.sum(), part), torch.autograd.grad(call(*part)[0].sum(), part)
        )
    with pytest.raises(Exception, match="axis d must be of one size"):
        whole(tensors[0].detach()[..., :3], *tensors[1:])
    x = tensors[0].detach()
    general = torch.compile(
        lambda x: ka.gated_linear_attention(x, x, x, erase=(x, -0.1 * x))[0], fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(general(x), ka.gated_linear_attention(x, x, x, erase=(x, -0.1 * x))[0])
    wrong = [
        ({"erase": (x, x.float())}, "erase.* must have the dtype"),
        ({"erase": (x, x), "beta": x[..., 0]}, "erase must be"),
        ({"erase": (x, None)}, "erase must be"),
        ({"g": x[..., 0].float()}, "g must have the dtype"),
        ({"state": (x,)}, "state must be a GatedState"),
        ({"scale": True}, "scale must be"),
        ({"l2_normalise": 1}, "l2_normalise must be"),
        ({"g": x[..., :3, 0]}, "g must be"),
    ]
    for options, says in wrong:
        graph = torch.compile(lambda x, options=options: ka.gated_linear_attention(x, x, x, **options), fullgraph=True)
        with pytest.raises(Exception, match=says):
            graph(x)
    after, token = GatedState(after.s.detach()), [x.detach()[:, :, 3] for x in tensors]
    given = dict(zip(("g", "beta"), token[3:], strict=True))
    plain, last = ka.gated_linear_attention_step(after, *token[:3], **given)
    room = torch.empty_like(plain)
    step = torch.compile(
        lambda s, *x: ka.gated_linear_attention_step(s, *x, **given, reuse_state=True, out=room),
        fullgraph=True,
        backend="aot_eager",
    )
    watched = [x.clone().requires_grad_() for x in token[:3]]
    with pytest.raises(Exception, match="out must be None"):
        step(after, *watched)
    torch.testing.assert_close(ka.gated_linear_attention_step(after, *watched, **given, backend="cpu")[0], plain)
    kept = GatedState(after.s.clone())
    for run in (step, lambda s, *x: ka.gated_linear_attention_step(s, *x, **given, reuse_state=True, out=room)):
        held = GatedState(kept.s.clone())
        found, renewed = run(held, *token[:3])
        torch.testing.assert_close(found, plain)
        assert found.data_ptr() == room.data_ptr()
        assert renewed.s.data_ptr() == held.s.data_ptr()
        torch.testing.assert_close(held.s, last.s)
    q, k, v, g, beta = (x.detach() for x in tensors)
    for rule in (
        {"g": g},
        {"gk": -k.abs(), "key_mask": beta > 0.3},
        {"g": g[..., :1], "beta": beta},
        {"erase": (k, -k)},
    ):

        def halves(x, rule=rule):  # stretches merge in a graph as outside of one
            first, then = (ka.attention.gated_state(x, v, **rule) for _ in range(2))
            return ka.merge_states(ka.merge_states(after, first), then).s, then.through

        for got, wanted in zip(torch.compile(halves, fullgraph=True, backend="eager")(k), halves(k), strict=True):
            torch.testing.assert_close(got, wanted)
    narrow = {"beta": beta.float(), "backend": "reference"}
    parts = [ka.attention.gated_state(x.float(), v.float(), **narrow) for x in (k, k / 2)]
    wanted = ka.merge_states(*parts)
    with torch.autocast("cpu", torch.bfloat16):
        merge = torch.compile(ka.merge_states, fullgraph=True, backend="eager")
        for found in (ka.merge_states(*parts), merge(*parts)):
            torch.testing.assert_close(tuple(found), tuple(wanted))
    mask, spoilt = beta[:, :1] > 0.3, k.clone()
    spoilt[~mask] = torch.nan
    slopes = []
    for keys in (spoilt, k):  # what is masked reaches no slope
        watched = keys.clone().requires_grad_()
        state = ka.attention.gated_state(watched, v, g=g, key_mask=mask)
        slopes += torch.autograd.grad(state.s.sum() + state.through.sum(), watched)
    torch.testing.assert_close(*slopes)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = call(*(x.detach().float() for x in tensors))[0]
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(narrow.double(), out.detach(), atol=0.03, rtol=0.03)


@pytest.mark.skipif(JAX is None, reason="JAX is not installed")
def test_jax():
    import jax

    (q, k, v), options = draw("delta", "channel", n=20, heads=(2, 1), dtype="float32")
    arrays = [jax.numpy.asarray(x) for x in (q, k, v, options["gk"], options["beta"])]

    def call(q, k, v, gk, beta):
        return ka.gated_linear_attention(q, k, v, gk=gk, beta=beta)

    out, after = jax.jit(call)(*arrays)
    wanted, s = recur(q, k, v, **options)
    close(np.asarray(out), wanted, 1e-6)
    close(np.asarray(after.s), s, 1e-6)
    slopes = jax.jit(jax.grad(lambda *x: jax.numpy.sum(call(*x)[0] ** 2), argnums=tuple(range(5))))(*arrays)
    (got, _), pullback = ka.vjp(ka.gated_linear_attention, q, k, v, **options)
    found = pullback((2 * got, None))
    for slope, name in zip(slopes, ("q", "k", "v", "gk", "beta"), strict=True):
        close(np.asarray(slope), getattr(found, name), 1e-5)
