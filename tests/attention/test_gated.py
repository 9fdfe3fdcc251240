"""Gated linear attention and the delta rule: against the recurrence of tokens in float64, and the laws of states."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernattn as ka
from kernattn.attention import GatedState, GatedStretch
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError, StateMismatchError
from xp import JAX, KINDS, to_numpy

N, D, E = 37, 5, 3
RULES = "decay", "delta", "general"
GATES = "none", "scalar", "channel"


def recur(q, k, v, *, g=None, gk=None, beta=None, erase=None, scale=None, l2_normalise=False, state=None):
    """The recurrence as it is written, token by token in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    if l2_normalise:
        q, k = (x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6) for x in (q, k))
    n, d = q.shape[-2:]
    leads = [k[..., 0, 0], v[..., 0, 0], *(x[..., 0] for x in (g, beta) if x is not None)]
    leads += [x[..., 0, 0] for x in (gk, *(erase or ())) if x is not None]
    lead = np.broadcast_shapes(*(x.shape for x in leads))
    s = np.zeros((*lead, d, v.shape[-1])) if state is None else np.asarray(state.s, np.float64)
    out = []
    for t in range(n):
        logs = np.zeros(1)
        for x in (None if g is None else g[..., t % g.shape[-1], None], None if gk is None else gk[..., t, :]):
            logs = logs if x is None else logs + np.asarray(x, np.float64)
        before, s = s, np.exp(logs)[..., None] * s
        value = v[..., t, None, :]
        if beta is not None:
            value = np.asarray(beta, np.float64)[..., t, None, None] * (value - k[..., t, None, :] @ s)
        if erase is not None:
            a, b = (np.asarray(x, np.float64)[..., t, :] for x in erase)
            s = s + b[..., None] * (a[..., None, :] @ before)
        s = s + k[..., t, :, None] * value
        out.append((d**-0.5 if scale is None else scale) * q[..., t, None, :] @ s)
    return np.concatenate(out, axis=-2), s


def draw(rule, gate, *, n=N, seed=0, heads=(2, 3), dtype="float64", l2=False):
    """Arguments with strong gates among mild ones, a reset, and grouped queries."""
    rng = np.random.default_rng(seed)
    lead = (*heads[:-1], 1)
    q, k, v = (rng.standard_normal((*own, n, c)) for own, c in ((heads, D), (lead, D), (lead, E)))
    options = {}
    if gate == "scalar":
        options["g"] = -np.exp(2 * rng.standard_normal((*lead, n)))
        options["g"][..., n // 3] = -np.inf
    elif gate == "channel":
        options["gk"] = -np.exp(2 * rng.standard_normal((*lead, n, D)))
        options["gk"][..., n // 3, :2] = -np.inf
    if rule == "delta":
        k = k if l2 else k / np.linalg.norm(k, axis=-1, keepdims=True)
        options["beta"] = rng.uniform(0, 2, (*lead, n))
        options["beta"][..., 1] = 0
    elif rule == "general":
        options["erase"] = tuple(0.3 * rng.standard_normal((2, *lead, n, D)))
    if l2:
        options["l2_normalise"] = True

    def cast(x):
        return tuple(map(cast, x)) if isinstance(x, tuple) else x.astype(dtype) if hasattr(x, "astype") else x

    return tuple(map(cast, (q, k, v))), {name: cast(x) for name, x in options.items()}


def close(got, wanted, of=1e-12):
    np.testing.assert_allclose(got, wanted, atol=of * np.max(np.abs(wanted)), rtol=0)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("rule", "gate"), [*product(RULES, GATES)])
def test_recurrence(rule, gate, backend):
    for seed, l2 in enumerate((False, True)):
        arrays, options = draw(rule, gate, seed=seed, l2=l2)
        state = GatedState(np.random.default_rng(5).standard_normal((2, 1, D, E)))
        out, after = ka.gated_linear_attention(*arrays, **options, state=state, scale=0.7, backend=backend)
        wanted, s = recur(*arrays, **options, state=state, scale=0.7)
        close(out, wanted)
        close(after.s, s)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("rule", "gate"), [*product(RULES[:2], GATES)])
def test_strong_gates_lose_no_digits(rule, gate, dtype):
    """Of 300 tokens: at most 1e-6 of the largest output, or the rounding of the dtype."""
    arrays, options = draw(rule, gate, n=300, dtype=dtype)
    out, after = ka.gated_linear_attention(*arrays, **options)
    wanted, s = recur(*arrays, **options)
    assert out.dtype == dtype
    assert after.s.dtype == np.float32
    close(out, wanted, 1e-6 if dtype == "float32" else 6e-4)
    close(after.s, s, 1e-6)


def test_equal_keys_at_the_largest_beta():
    """Every second token undoes the one before: errors add up to what the rule makes of rounding, and no more."""
    rng = np.random.default_rng(0)
    k = np.broadcast_to(rng.standard_normal(D), (512, D)).astype("f4")
    k, v = k / np.linalg.norm(k, axis=-1, keepdims=True), rng.standard_normal((512, E)).astype("f4")
    beta = np.full(512, 2, "f4")
    close(ka.gated_linear_attention(k, k, v, beta=beta)[0], recur(k, k, v, beta=beta)[0], 1e-4)


@given(n=st.integers(1, 70), cut=st.integers(1, 69), rule=st.sampled_from(RULES), gate=st.sampled_from(GATES))
def test_split_resume_merge_and_step(n, cut, rule, gate):
    """One call = two with the state between them = stretches merged in order = segments = token by token."""
    (q, k, v), options = draw(rule, gate, n=n, heads=(1, 2))
    cut = min(cut, n)
    rows = {"g": -1, "beta": -1, "gk": -2}

    def part(at):
        own = {}
        for name, x in options.items():
            if name == "erase":
                own[name] = tuple(y[..., at, :] for y in x)
            else:
                own[name] = x[..., at] if rows[name] == -1 else x[..., at, :]
        return (q[..., at, :], k[..., at, :], v[..., at, :]), own

    out, last = ka.gated_linear_attention(q, k, v, **options)
    begin, own = part(slice(0, cut))
    first, state = ka.gated_linear_attention(*begin, **own)
    close(first, out[..., :cut, :])
    stretch = ka.attention.gated_state(*begin[1:], **own)
    close(stretch.s, state.s)
    if cut < n:
        rest, more = part(slice(cut, n))
        then, state = ka.gated_linear_attention(*rest, **more, state=state)
        close(then, out[..., cut:, :])
        tail = ka.attention.gated_state(*rest[1:], **more)
        both = ka.merge_states(stretch, tail)
        assert isinstance(both, GatedStretch)
        close(both.s, last.s)
        middle = ka.merge_states(GatedState(stretch.s), tail)
        assert isinstance(middle, GatedState)
        close(middle.s, last.s)
        whole = ka.attention.gated_state(k, v, **options)
        close(both.through @ np.ones((D, 1)), whole.through @ np.ones((D, 1)), 1e-10) if rule != "decay" else close(
            both.through, whole.through
        )
        ids = np.arange(n) >= cut
        apart, after = ka.gated_linear_attention(q, k, v, **options, segment_ids=ids.astype(np.int64))
        close(apart[..., :cut, :], first)
        close(after.s, tail.s)
    close(state.s, last.s)
    state = None
    for t in range(n):
        token, own = part(t)
        one, state = ka.gated_linear_attention_step(state, *token, **own)
        close(one, out[..., t, :])


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("rule", "gate"), [*product(RULES, GATES[1:])])
def test_masked_tokens_change_nothing(rule, gate, backend):
    """They are as if they were not there, whatever stands in them; so are their gradients."""
    (q, k, v), options = draw(rule, gate, heads=(2, 1))
    mask = np.random.default_rng(3).random(N) < 0.6
    wanted, s = recur(q[..., mask, :], k[..., mask, :], v[..., mask, :], **_at(options, mask))
    for x in (k, v, *options.get("erase", ()), *(options[name] for name in ("g", "gk", "beta") if name in options)):
        axis = -1 if x.shape[-1] == N else -2
        np.moveaxis(x, axis, 0)[~mask] = np.nan
    if "g" in options:
        options["g"][..., ~mask] = -np.inf  # values are looked at, and -inf is one
    call = (q, k, v), {**options, "key_mask": mask, "backend": backend}
    out, after = ka.gated_linear_attention(*call[0], **call[1])
    close(out[..., mask, :], wanted)
    close(after.s, s)
    _, pullback = ka.vjp(ka.gated_linear_attention, *call[0], **call[1])
    found = pullback((np.where(mask[:, None], 1.0, 0.0) * np.ones_like(out), None))
    for x in (found.k, found.v):
        assert np.isfinite(x).all()
        assert not x[..., ~mask, :].any()


def _at(options, mask):
    def rows(x):
        return x[..., mask] if x.shape[-1] == N else x[..., mask, :]

    return {name: tuple(map(rows, x)) if isinstance(x, tuple) else rows(x) for name, x in options.items()}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_blind_to_the_future(backend):
    (q, k, v), options = draw("delta", "channel")
    out, _ = ka.gated_linear_attention(q, k, v, **options, backend=backend)
    k[..., 20:, :], v[..., 20:, :] = k[..., :17, :] * 1e3, 1e6
    options["gk"][..., 20:, :] = -1.0
    again, _ = ka.gated_linear_attention(q, k, v, **options, backend=backend)
    np.testing.assert_array_equal(again[..., :20, :], out[..., :20, :])
    for x in (v, k, options["beta"][..., None], options["gk"]):
        x[..., 21, 0] = np.nan
        again, _ = ka.gated_linear_attention(q, k, v, **options, backend=backend)
        close(again[..., :20, :], out[..., :20, :])
        assert np.isfinite(again[..., 20, :]).all()
        x[..., 21, 0] = -1.0


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


@pytest.mark.parametrize("xp", [xp for xp in KINDS if xp is not np], ids=str)
def test_other_libraries(xp):
    arrays, options = draw("delta", "scalar", dtype="float32")
    wanted, s = recur(*arrays, **options)
    own = {name: xp.asarray(x) for name, x in options.items()}
    out, after = ka.gated_linear_attention(*map(xp.asarray, arrays), **own)
    assert type(out) is type(own["g"])
    close(to_numpy(out), wanted, 1e-6)
    close(to_numpy(after.s), s, 1e-6)


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
    torch.testing.assert_close(ka.gated_linear_attention_step(after, *watched, **given, backend="cpu")[0], plain)
    kept = GatedState(after.s.clone())
    for run in (step, lambda s, *x: ka.gated_linear_attention_step(s, *x, **given, reuse_state=True, out=room)):
        held = GatedState(kept.s.clone())
        found, renewed = run(held, *token[:3])
        torch.testing.assert_close(found, plain)
        assert found.data_ptr() == room.data_ptr()
        assert renewed.s.data_ptr() == held.s.data_ptr()
        torch.testing.assert_close(held.s, last.s)
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


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"g": np.full((1, 9), 0.1)}, ParameterError, "g must be natural logarithms of decays, at most 0; got 0.1"),
        ({"gk": np.full((1, 9, 4), 1e-9)}, ParameterError, "gk must be natural logarithms"),
        ({"g": np.zeros((1, 8))}, ShapeError, r"g must be \(..., 9\) or \(..., 1\)"),
        ({"g": np.zeros((1, 9, 4))}, ShapeError, "decays of each channel are gk"),
        ({"gk": np.zeros((1, 9))}, ShapeError, r"gk must be \(..., 9, 4\)"),
        ({"beta": np.zeros((3, 1, 9), "f4")}, DTypeError, "beta must have dtype float64; got float32"),
        ({"beta": np.zeros((2, 9)), "k": np.zeros((3, 9, 4))}, ShapeError, "the leading axes must broadcast"),
        ({"erase": np.zeros((2, 1, 9, 4))}, ParameterError, "erase must be a pair of arrays"),
        ({"erase": (np.zeros((1, 9, 4)),) * 2, "beta": np.zeros((1, 9))}, ParameterError, "exclude each other"),
        ({"k": np.zeros((1, 8, 4)), "v": np.zeros((1, 8, 2))}, ShapeError, "the number of tokens"),
        ({"q": np.zeros((1, 9, 3))}, ShapeError, r"the last axis \(d\)"),
        ({"state": np.zeros((1, 4, 2))}, DTypeError, "state must be a GatedState.*; got ndarray$"),
        ({"state": GatedState(np.zeros((2, 4, 2)))}, StateMismatchError, r"\(1, 4, 2\); got \(2, 4, 2\)"),
        ({"state": GatedState(np.zeros((1, 4, 2), "f4"))}, DTypeError, "is float64; got float32"),
        ({"erase": (None, np.zeros((1, 9, 4)))}, ParameterError, "got None for one of them"),
        ({"g": np.zeros((0, 9))}, EmptyInputError, "g must not be empty"),
        ({"scale": float("nan")}, ParameterError, "scale must be a finite number"),
        ({"l2_normalise": 1}, (DTypeError, ParameterError), "l2_normalise must be"),
    ],
)
def test_refusals(change, error, says):
    arguments = {"q": np.zeros((1, 9, 4)), "k": np.zeros((1, 9, 4)), "v": np.zeros((1, 9, 2))} | change
    with pytest.raises(error, match=says):
        ka.gated_linear_attention(**arguments)


def test_a_state_comes_before_a_stretch():
    state = GatedState(np.zeros((2, 2)))
    with pytest.raises(StateMismatchError, match="after a gated state comes a GatedStretch"):
        ka.merge_states(state, state)


@pytest.mark.parametrize("name", ["a_log", "dt_bias"])
def test_parameters_that_do_not_fit_the_heads_are_refused(name):
    arguments = {"a_log": np.zeros(4), "dt_bias": np.zeros(4)}
    with pytest.raises(ShapeError, match=rf"{name} \(heads,\); got \(2, 4, 9\) and \(3,\)"):
        ka.gates.delta(np.zeros((2, 4, 9)), **arguments | {name: np.zeros(3)})


def test_a_step_takes_a_list_as_the_pair_that_erases():
    q, k, v, a, b = np.random.default_rng(4).standard_normal((5, 2, D))
    pair, _ = ka.gated_linear_attention_step(None, q, k, v, erase=(a, b))
    same, _ = ka.gated_linear_attention_step(None, q, k, v, erase=[a, b])
    np.testing.assert_array_equal(pair, same)


def test_members():
    """Each member beside its paper's recurrence."""
    rng = np.random.default_rng(2)
    q, k, v = rng.standard_normal((3, 4, 9, D))
    gamma = 1 - 2.0 ** (-5 - np.arange(4))
    far = np.tril(gamma[:, None, None] ** np.maximum(np.subtract.outer(np.arange(9), np.arange(9)), 0))
    out, _ = ka.gated_linear_attention(q, k, v, **ka.gates.retention(4, like=q), scale=1.0)
    close(out, (far * (q @ k.mT)) @ v, 1e-12)
    slopes = 2.0 ** (-2 * (np.arange(4) + 1.0))
    np.testing.assert_allclose(ka.gates.lightning(4, 0, 12, like=q)["g"][:, 0], -slopes * (1 + 1e-5), rtol=1e-12)
    x, dt, a = rng.standard_normal((4, 9, E)), rng.uniform(0.1, 1, (4, 9)), -rng.uniform(0.5, 2, 4)
    b, c = rng.standard_normal((2, 1, 9, D))
    out, _ = ka.gated_linear_attention(**ka.gates.mamba2(x, dt, a, b, c))
    s, wanted = np.zeros((4, D, E)), []
    for t in range(9):
        s = np.exp(dt[:, t] * a)[:, None, None] * s + b[:, t, :, None] * (dt[:, t, None] * x[:, t])[:, None, :]
        wanted.append(np.einsum("ad,hde->he", c[:, t], s))
    close(out, np.stack(wanted, 1))
    f = rng.uniform(0, 1, (4, 9, D))
    member = ka.gates.hgrn2(f)
    out, _ = ka.gated_linear_attention(q=q, v=v, **member)
    close(out, recur(q, 1 - f, v, gk=np.log(f), scale=1.0)[0])
    w, a, b = -rng.uniform(0, 1, (4, 9, D)), *(0.3 * rng.standard_normal((2, 4, 9, D)))
    out, _ = ka.gated_linear_attention(**ka.gates.rwkv7(q, w, k, v, a, b))
    close(out, recur(q, k, v, gk=w, erase=(a, b), scale=1.0)[0])
    logits = rng.standard_normal((4, 9, D))
    np.testing.assert_allclose(ka.gates.gla(logits)["gk"], np.log(1 / (1 + np.exp(-logits))) / 16)
    np.testing.assert_allclose(
        ka.gates.delta(logits[..., 0], np.zeros(4), np.ones(4))["g"], -np.log1p(np.exp(logits[..., 0] + 1))
    )


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("rule", "gate"), [("decay", "none"), ("delta", "scalar"), ("general", "channel")])
def test_segments_do_not_see_each_other_s_nan(rule, gate, backend):
    (q, k, v), options = draw(rule, gate, heads=(2, 1))
    ids = np.repeat([0, 1, 2], [9, 11, N - 20])
    part = {name: tuple(y[..., 20:, :] for y in x) if name == "erase" else x for name, x in options.items()}
    part = {
        name: x[..., 20:] if name in ("g", "beta") else x[..., 20:, :] if name == "gk" else x
        for name, x in part.items()
    }
    wanted, s = recur(q[..., 20:, :], k[..., 20:, :], v[..., 20:, :], **part)
    v[..., 3, :], k[..., 12, 0] = np.inf, np.nan
    call = (q, k, v), {**options, "segment_ids": ids, "backend": backend}
    out, after = ka.gated_linear_attention(*call[0], **call[1])
    close(out[..., 20:, :], wanted)
    close(after.s, s)
    _, pullback = ka.vjp(ka.gated_linear_attention, *call[0], **call[1])
    found = pullback((np.where(ids == 2, 1.0, 0.0)[:, None] * np.ones_like(out), None))
    for x in (found.q, found.k, found.v):
        assert np.isfinite(x[..., 20:, :]).all()


def test_a_reset_forgets_what_is_not_finite():
    """On the host: chunks end where a state begins anew."""
    k, v, g = np.ones((5, 1), "f4"), np.array([[np.nan], [np.inf], [1], [2], [4]], "f4"), np.zeros(5, "f4")
    g[2] = -np.inf
    out, _ = ka.gated_linear_attention(k, k, v, g=g, backend="cpu")
    np.testing.assert_array_equal(out[2:, 0], [1, 3, 7])
    both = ka.merge_states(GatedState(np.full((1, 1), np.inf)), GatedStretch(np.ones((1, 1)), np.zeros((1, 1))))
    np.testing.assert_array_equal(both.s, [[1]])


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_extreme_rows_and_gates(backend):
    """No warning, and the right value: huge rows that are normalised, and logs at the end of their dtype."""
    q, v = np.full((3, 2), 1e30, "f4"), np.arange(3, dtype="f4")[:, None]
    out, _ = ka.gated_linear_attention(q, q, v, l2_normalise=True, scale=1.0, backend=backend)
    np.testing.assert_allclose(out[:, 0], [0, 1, 3], rtol=1e-6)
    least = np.finfo("f4").min
    logs = {"g": np.full(3, least), "gk": np.full((3, 2), least)}
    out, _ = ka.gated_linear_attention(np.ones_like(q), np.ones_like(q), v, **logs, scale=1.0, backend=backend)
    np.testing.assert_array_equal(out[:, 0], [0, 2, 4])
    half = {"g": np.full(3, -1, "f2"), "gk": np.full((3, 2), -0.0003, "f2")}
    ones = np.ones((3, 2), "f2")
    _, after = ka.gated_linear_attention(ones, ones, ones, **half, backend=backend)
    close(after.s, recur(ones, ones, ones, **half)[1], 1e-6)
    wide = np.ones((2, 3, 2))
    out, _ = ka.gated_linear_attention(*3 * [wide[0]], erase=(wide[0], -0.1 * wide), backend=backend)
    close(out, recur(*3 * [wide[0]], erase=(wide[0], -0.1 * wide))[0])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ka.gates.gla(np.zeros((2, 2)), temperature=0), "temperature must be"),
        (
            lambda: ka.gates.delta(np.zeros((2, 9)), np.zeros(3), np.zeros(2)),
            r"a_log \(heads,\)",
        ),
        (lambda: ka.gates.hgrn2(np.full((2, 2), 2.0)), "f must hold forget gates in"),
        (
            lambda: ka.gates.mamba2(*[np.ones((2, 3, 1)), np.ones((2, 3)), np.ones(2)], *2 * [np.ones((1, 3, 1))]),
            "a must",
        ),
        (lambda: ka.gates.lightning(2, 3, 3, like=np.zeros(1)), "layer must be below num_layers = 3"),
        (
            lambda: ka.merge_states(GatedState(np.zeros((2, 1))), GatedStretch(np.zeros((2, 1)), np.zeros((3, 1)))),
            "through of b must be",
        ),
    ],
)
def test_refusals_of_members_and_merges(call, says):
    with pytest.raises((ParameterError, ShapeError, StateMismatchError), match=says):
        call()
