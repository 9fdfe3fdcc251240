"""Causal linear attention with decays: weighted means, against the weights written out in float64."""

from itertools import product

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError, ShapeError, StateMismatchError

D, E, N, M = 4, 3, 37, 8
MAPS = {
    "elu1": ka.features.elu1(),
    "favor": ka.random_features(ka.kernels.Softmax(), D, M, "positive", rng=0),
    "trig": ka.random_features(ka.kernels.Softmax(), D, M, "trigonometric", rng=0),
}
GATES = ("g", "gk", "both")


def weights_of(phi, q, k, g, gk, mask=None, ids=None):
    """Return sum_a phi_a(q_i) e^(sum of logs after j) phi_a(k_j), (..., n, n), by sums over each stretch."""
    x, y = phi.query(q.astype("f8")), phi.key(k.astype("f8"))
    n = q.shape[-2]
    logs = np.zeros(y.shape)
    for part in (None if g is None else g[..., None], gk):
        if part is not None:
            logs = logs + np.where(True if mask is None else mask[..., None], part.astype("f8"), 0)
    found = np.zeros((*np.broadcast_shapes(x.shape[:-2], logs.shape[:-2]), n, n))
    for i, j in product(range(n), range(n)):
        if j <= i and (mask is None or mask[j]) and (ids is None or ids[i] == ids[j]):
            decay = np.exp(np.sum(logs[..., j + 1 : i + 1, :], axis=-2))
            found[..., i, j] = np.sum(x[..., i, :] * decay * y[..., j, :], axis=-1)
    return found


def mean(weights, v):
    z = np.sum(weights, axis=-1, keepdims=True)
    return weights @ v.astype("f8") / np.where(z == 0, 1, z)


def draw(gate, m, dtype="f8", seed=0, lead=(2,)):
    rng = np.random.default_rng(seed)
    q, k = (rng.standard_normal((*lead, N, D)).astype(dtype) for _ in range(2))
    v = rng.standard_normal((*lead, N, E)).astype(dtype)
    g = -np.exp(3 * rng.standard_normal((*lead, N)) - 2).astype(dtype) if gate != "gk" else None
    gk = -np.exp(3 * rng.standard_normal((*lead, N, m)) - 2).astype(dtype) if gate != "g" else None
    return q, k, v, {name: x for name, x in (("g", g), ("gk", gk)) if x is not None}


def features(name):
    return D if name == "elu1" else MAPS[name].num_features_of(D)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("gate", GATES)
def test_outputs_are_means_under_decayed_weights(name, gate, backend):
    phi = MAPS[name]
    q, k, v, gates = draw(gate, features(name))
    out, state = ka.causal_linear_attention(q, k, v, phi, **gates, backend=backend)
    wanted = mean(weights_of(phi, q, k, gates.get("g"), gates.get("gk")), v)
    tolerance = 1e-6 if name == "trig" else 1e-12  # normalisers of trigonometric features may nearly vanish
    np.testing.assert_allclose(out, wanted, rtol=tolerance, atol=tolerance * abs(wanted).max())
    narrow = [x.astype("f4") for x in (q, k, v)]
    low, _ = ka.causal_linear_attention(*narrow, phi, **{a: x.astype("f4") for a, x in gates.items()}, backend=backend)
    assert low.dtype == np.float32
    if name != "trig":
        np.testing.assert_allclose(low, wanted, rtol=0, atol=1e-5)
    half = 20
    first, middle = ka.causal_linear_attention(
        *(x[:, :half] for x in (q, k, v)), phi, **{a: x[:, :half] for a, x in gates.items()}, backend=backend
    )
    then, last = ka.causal_linear_attention(
        *(x[:, half:] for x in (q, k, v)), phi, **{a: x[:, half:] for a, x in gates.items()}, state=middle,
        backend=backend,
    )  # fmt: skip
    np.testing.assert_allclose(np.concatenate([first, then], axis=1), out, rtol=1e-9, atol=tolerance)
    token = None
    for t in range(N):
        one = {a: x[:, t] for a, x in gates.items()}
        if token is None:
            token = ka.initial_state(phi, (2,), value_dim=E, like=q)
        y, token = ka.linear_attention_step(token, q[:, t], k[:, t], v[:, t], phi, **one, backend=backend)
        np.testing.assert_allclose(y, out[:, t], rtol=1e-7, atol=1e-6 if name == "trig" else 1e-10)
    for ended in (last, token):
        unit = np.exp(ended.peak - state.peak)
        np.testing.assert_allclose(unit * ended.z, state.z, rtol=1e-9, atol=1e-12)
        assert ended.peak.shape == state.peak.shape == ka.key_state(k, v, phi).peak.shape


@pytest.mark.parametrize("name", ["elu1", "favor"])
@pytest.mark.parametrize("gate", ["g", "gk"])
def test_masks_and_segments(name, gate):
    phi, rng = MAPS[name], np.random.default_rng(1)
    q, k, v, gates = draw(gate, features(name), lead=())
    mask, ids = rng.random(N) > 0.3, np.sort(rng.integers(0, 4, N))
    wanted = mean(weights_of(phi, q, k, gates.get("g"), gates.get("gk"), mask, ids), v)
    k[~mask], v[~mask] = np.nan, np.nan
    for x in gates.values():
        x[~mask] = np.nan
    out, _ = ka.causal_linear_attention(q, k, v, phi, **gates, key_mask=mask, segment_ids=ids)
    np.testing.assert_allclose(out, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["elu1", "favor"])
@pytest.mark.parametrize("strong", [-1e4, -1e38, -np.inf])
def test_no_decay_is_too_strong(name, strong):
    """A mean over what is left: of keys far smaller than those before them, and of one that is long gone."""
    phi, rng = MAPS[name], np.random.default_rng(2)
    q, k, v = (rng.standard_normal((N, c)).astype("f4") for c in (D, D, E))
    g = -0.01 * np.ones(N, "f4")
    g[20] = strong
    out, _ = ka.causal_linear_attention(q, k, v, phi, g=g)
    wanted = mean(weights_of(phi, q, k, g, None), v)
    np.testing.assert_allclose(out, wanted, rtol=0, atol=3e-6)
    least = {"g": np.full(N, -3e38, "f4"), "gk": np.full((N, features(name)), -3e38, "f4")}
    own, state = ka.causal_linear_attention(q, k, v, phi, **least)
    np.testing.assert_allclose(own, v, rtol=1e-5)
    own, _ = ka.linear_attention_step(state, q[0], k[0], v[0], phi, g=np.array(least["g"][0]), gk=least["gk"][0])
    np.testing.assert_allclose(own, v[0], rtol=1e-5)
    faded, _ = ka.causal_linear_attention(q, k, v, phi, g=np.full(N, -80, "f4"), key_mask=np.arange(N) < 1)
    np.testing.assert_allclose(faded, np.broadcast_to(v[0], v.shape), rtol=1e-6)
    hidden, _ = ka.causal_linear_attention(
        np.repeat(q[:1], 3, 0), np.repeat(k[:1], 3, 0), v[:3], phi, g=np.array([0, -200, -200], "f4"),
        gk=np.zeros((3, features(name)), "f4"),
    )  # fmt: skip
    np.testing.assert_allclose(hidden, v[:3], rtol=1e-6)


@pytest.mark.parametrize("name", [pytest.param("elu1", marks=pytest.mark.slow), "favor"])
def test_frameworks(name):
    torch = pytest.importorskip("torch")
    phi = MAPS[name]
    q, k, v, gates = draw("both", features(name), lead=())
    g, gk = gates["g"], gates["gk"]
    given = [torch.tensor(x[:7], requires_grad=True) for x in (q, k, v, g - 0.1, gk - 0.1)]

    def call(q, k, v, g, gk):
        return ka.causal_linear_attention(q, k, v, phi, g=g, gk=gk)[0]

    assert torch.autograd.gradcheck(call, given)
    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), call(*given))
    state = ka.key_state(*(x.detach() for x in given[1:3]), phi)
    token = [x[0].detach() for x in given]

    def step(state, q, k, v, g, gk):
        return ka.linear_attention_step(state, q, k, v, phi, g=g, gk=gk)[0]

    torch.testing.assert_close(
        torch.compile(step, fullgraph=True, backend="aot_eager")(state, *token), step(state, *token)
    )


def test_jax():
    jax = pytest.importorskip("jax")
    phi = MAPS["favor"]
    q, k, v, gates = draw("g", 0, "f4", lead=())

    def loss(q, g):
        return ka.causal_linear_attention(q, jax.numpy.asarray(k), jax.numpy.asarray(v), phi, g=g)[0].sum()

    slope = jax.jit(jax.grad(loss, argnums=1))(jax.numpy.asarray(q), jax.numpy.asarray(gates["g"]))
    torch = pytest.importorskip("torch")
    g = torch.tensor(gates["g"], requires_grad=True)
    ka.causal_linear_attention(*map(torch.tensor, (q, k, v)), phi, g=g)[0].sum().backward()
    np.testing.assert_allclose(slope, g.grad.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("gate", ["g", "gk"])
def test_decays_may_have_axes_that_keys_have_not(gate):
    """One key for heads that fade apart: a call goes on from its own state, by sequences and by tokens."""
    q, k, v, gates = draw(gate, D, lead=())
    wide = {name: np.stack([x, 2 * x]) for name, x in gates.items()}
    rows = {"g": -1, "gk": -2}

    def part(at):
        own = {name: x[..., at] if rows[name] == -1 else x[..., at, :] for name, x in wide.items()}
        return (q[at], k[at], v[at], MAPS["elu1"]), own

    out, last = ka.causal_linear_attention(q, k, v, MAPS["elu1"], **wide)
    for head, (o, s) in enumerate(zip(out, last.s, strict=True)):
        own = {name: x[head] for name, x in wide.items()}
        one, state = ka.causal_linear_attention(q, k, v, MAPS["elu1"], **own)
        np.testing.assert_allclose(o, one, atol=1e-12)
        np.testing.assert_allclose(s, state.s, atol=1e-12)
    begin, own = part(slice(0, 20))
    _, state = ka.causal_linear_attention(*begin, **own)
    rest, own = part(slice(20, N))
    then, _ = ka.causal_linear_attention(*rest, **own, state=state)
    np.testing.assert_allclose(then, out[:, 20:], atol=1e-12)
    token, own = part(20)
    one, after = ka.linear_attention_step(state, *token, **own, out=np.empty((2, E)))
    np.testing.assert_allclose(one, out[:, 20], atol=1e-12)
    assert after.s.shape == state.s.shape
    with pytest.raises(StateMismatchError, match="leading axes"):
        ka.causal_linear_attention(*rest, **part(slice(20, N))[1], state=ka.key_state(k, v, MAPS["elu1"]))
    with pytest.raises(StateMismatchError, match="leading axes"):
        ka.linear_attention_step(ka.key_state(k, v, MAPS["elu1"]), *token, **own)
    with pytest.raises(ShapeError, match="the leading axes must broadcast"):
        ka.causal_linear_attention(np.stack([q] * 3), k, v, MAPS["elu1"], **wide)


def test_a_step_s_output_is_apart_from_decays_and_from_the_state_that_was_given():
    q, k, v, gates = draw("gk", D, lead=(2,))
    _, state = ka.causal_linear_attention(q, k, v[..., :1], MAPS["elu1"], **gates)
    token, logs = (q[:, 0], k[:, 0], v[:, 0, :1], MAPS["elu1"]), np.array(gates["gk"][:, 0])
    with pytest.raises(ParameterError, match=r"overlaps that of s$"):
        ka.linear_attention_step(state, *token, gk=logs, out=state.s.reshape(-1)[:2].reshape(2, 1))
    with pytest.raises(ParameterError, match=r"overlaps that of gk$"):
        ka.linear_attention_step(state, *token, gk=logs, out=logs.reshape(-1)[:2].reshape(2, 1))


def test_wrong_decays():
    q, phi = np.ones((5, D)), MAPS["favor"]
    for options, error, says in (
        ({"g": np.ones(5)}, ParameterError, "g must be natural logarithms"),
        ({"g": np.zeros(4)}, ShapeError, "g must be"),
        ({"gk": np.zeros((5, D))}, ShapeError, f"gk must be .*5, {M}"),
    ):
        with pytest.raises(error, match=says):
            ka.causal_linear_attention(q, q, q, phi, **options)
    with pytest.raises(ParameterError, match="at most 0"):
        ka.linear_attention_step(ka.key_state(q, q, phi), q[0], q[0], q[0], phi, g=np.array(1.0))
    for given in ({"gk": np.array(-1.0)}, {"g": np.array(-1.0), "k": np.array(1.0)}):
        token = {"q": q[0], "k": q[0], "v": q[0]} | given
        with pytest.raises(ShapeError, match=r"k must be \(..., d\), and gk \(..., M\)"):
            ka.linear_attention_step(ka.key_state(q, q, phi), phi=phi, **token)
    with pytest.raises(ParameterError, match="g must be natural logarithms"):
        ka.vjp(ka.causal_linear_attention, q, q, q, phi, g=np.ones(5))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("gate", ["g", "gk"])
def test_the_largest_values_overflow_no_sum(name, gate, backend):
    phi, largest = MAPS[name], np.finfo("f4").max
    q, k, v, gates = draw(gate, features(name), "f4", lead=())
    q, k = (abs(x) / 8 for x in (q, k))  # where no sum cancels
    usual, _ = ka.causal_linear_attention(q, k, v, phi, **gates, backend=backend)
    v[9:] = largest * np.sign(v[9:])
    out, state = ka.causal_linear_attention(q, k, v, phi, **gates, backend=backend)
    wanted = mean(weights_of(phi, q, k, gates.get("g"), gates.get("gk")), v)
    np.testing.assert_allclose(out / largest, wanted / largest, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(out[:9], usual[:9])
    assert all(np.isfinite(x).all() for x in (out, state.s, state.z, state.peak))
    first, then = ({name: x[part] for name, x in gates.items()} for part in (np.s_[:20], np.s_[20:]))
    _, before = ka.causal_linear_attention(q[:20], k[:20], v[:20], phi, **first, backend=backend)
    rest, _ = ka.causal_linear_attention(q[20:], k[20:], v[20:], phi, **then, state=before, backend=backend)
    np.testing.assert_allclose(rest / largest, out[20:] / largest, rtol=1e-4, atol=1e-5)


def test_keys_that_are_not_finite_raise_no_flag():
    q, k, v = np.random.default_rng(0).standard_normal((3, 6, 4))
    k[2], phi = np.inf, ka.random_features(ka.kernels.Softmax(), 4, 8, "positive", rng=0)
    with np.errstate(all="raise"):
        out, _ = ka.causal_linear_attention(q, k, v, phi, g=np.full(6, -1.0), backend="reference")
    wanted, _ = ka.causal_linear_attention(q[:2], k[:2], v[:2], phi, g=np.full(2, -1.0), backend="reference")
    np.testing.assert_allclose(out[:2], wanted)
