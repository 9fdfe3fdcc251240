"""Pullbacks of decayed means, of all their arguments: against central differences, JAX and PyTorch."""

import numpy as np
import pytest

import kernattn as ka
import maps
from gated import close
from kernattn.errors import ParameterError, StateMismatchError
from tangents import inputs, weights
from test_gradients import agrees

NAMES = ["elu1", "phase-ard", "positive-softmax", "favor_sharp_asymmetric"]
GATES = "g", "gk", "both"


def decays(gate, m, n=9, seed=3):
    rng = np.random.default_rng(seed)
    given = {"g": -np.exp(rng.standard_normal((2, 1, n))), "gk": -np.exp(rng.standard_normal((2, 1, n, m)))}
    return {name: x for name, x in given.items() if gate in (name, "both")}


@pytest.mark.parametrize("hides", [False, True])
@pytest.mark.parametrize(("gate", "backend"), [*((gate, "cpu") for gate in GATES), ("both", "reference")])
@pytest.mark.parametrize("name", NAMES)
def test_every_argument(name, gate, hides, backend):
    """Also what comes of the state, in the units of its peak, and flows into the one before."""
    phi = maps.make(name)
    q, k, v, history, mask, ids = inputs()
    gates = decays(gate, phi.num_features_of(maps.DIM))
    options = {"key_mask": mask, "segment_ids": ids} if hides else {}
    past = ka.key_state(*history, phi)

    def run(q, k, v, s, z, *logs):
        logs = dict(zip(gates, logs, strict=True))
        state = past._replace(s=s, z=z)
        return ka.vjp(ka.causal_linear_attention, q, k, v, phi, state=state, **logs, **options, backend=backend)

    given = [q, k, v, past.s, past.z, *gates.values()]
    (out, last), back = run(*given)
    plain, state = ka.causal_linear_attention(q, k, v, phi, state=past, **gates, **options, backend=backend)
    np.testing.assert_array_equal(out, plain)  # a gradient changes no bit
    np.testing.assert_array_equal(last.s, state.s)
    g, of_s, of_z = weights(out.shape), weights(last.s.shape), weights(last.z.shape)
    found = back((g, last._replace(s=of_s, z=of_z)))

    def number(*given):
        (out, after), _ = run(*given)
        unit = np.exp(after.peak - last.peak)
        terms = g * out, of_s * after.s * unit[..., None], of_z * after.z * unit
        return 10 + sum(map(np.sum, terms))  # 10: terms cancel, and differences have the rounding of each

    gradients = [found.q, found.k, found.v, found.state.s, found.state.z, *(getattr(found, x) for x in gates)]
    agrees(number, given, gradients, f"{name} {gate}")
    assert [found.g is None, found.gk is None] == [x not in gates for x in ("g", "gk")]
    if backend == "cpu":  # loops in float32 as well, against this
        *given, g, of_s, of_z = (x.astype("f4") for x in (*given, g, of_s, of_z))
        past = past._replace(peak=past.peak.astype("f4"))
        (_, last), back = run(*given)
        narrow = back((g, last._replace(s=of_s, z=of_z)))
        for x in (*"qkv", *gates):
            close(getattr(narrow, x), getattr(found, x), 2e-5)
    if hides:
        hidden = [found.k, found.v, *(getattr(found, x) if x == "gk" else getattr(found, x)[..., None] for x in gates)]
        assert all((x[..., ~mask, :] == 0).all() for x in hidden)


@pytest.mark.parametrize("gate", GATES)
def test_a_step_is_a_sequence_of_one(gate):
    phi = maps.make("positive-softmax")
    q, k, v, history, _, _ = inputs(1)
    gates = decays(gate, phi.num_features_of(maps.DIM), 1)
    state = ka.key_state(*history, phi)
    (out, after), back = ka.vjp(ka.causal_linear_attention, q, k, v, phi, state=state, **gates)
    token = [x[..., 0, :] for x in (q, k, v)]
    logs = {name: x[..., 0] if name == "g" else x[..., 0, :] for name, x in gates.items()}
    (one, last), step = ka.vjp(ka.linear_attention_step, state, *token, phi, **logs)
    plain, ended = ka.linear_attention_step(state, *token, phi, **logs)
    np.testing.assert_allclose(one, plain, rtol=1e-12)
    np.testing.assert_allclose(last.z * np.exp(last.peak - ended.peak), ended.z, rtol=1e-12)
    g, of_after = weights(out.shape), after._replace(s=weights(after.s.shape), z=weights(after.z.shape))
    wanted, found = back((g, of_after)), step((g[..., 0, :], of_after))
    for name in ("q", "k", "v", *gates):
        x, y = getattr(found, name), getattr(wanted, name)
        np.testing.assert_allclose(x, y[..., 0] if name == "g" else y[..., 0, :], rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(found.state.s, wanted.state.s, rtol=1e-12)
    (one, _), step = ka.vjp(ka.linear_attention_step, state, *token, phi)
    (_, _), back = ka.vjp(ka.causal_linear_attention, q, k, v, phi, state=state)
    np.testing.assert_allclose(step((one, None)).q, back((one[..., None, :], None)).q[..., 0, :], rtol=1e-12)
    for options in ({"reuse_state": True}, {"out": np.empty_like(one)}):
        with pytest.raises(ParameterError, match="out must be None and reuse_state False"):
            ka.vjp(ka.linear_attention_step, state, *token, phi, **options)
    with pytest.raises(StateMismatchError):
        ka.vjp(ka.linear_attention_step, state._replace(fingerprint=1), *token, phi, **logs)


def test_frameworks_find_the_same():
    """JAX in float32 and PyTorch in float64 differentiate the array operations; NumPy's rule is written out."""
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    phi = maps.make("positive-softmax")
    q, k, v, _, mask, ids = inputs()
    gates = decays("both", phi.num_features_of(maps.DIM))
    given = [q, k, v, *gates.values()]
    h = weights((2, 3, 9, 3))
    _, back = ka.vjp(ka.causal_linear_attention, q, k, v, phi, **gates, key_mask=mask, segment_ids=ids)
    wanted = back((h, None))
    wanted = [getattr(wanted, name) for name in ("q", "k", "v", "g", "gk")]

    def loss(q, k, v, g, gk, h, mask, ids):
        return (h * ka.causal_linear_attention(q, k, v, phi, g=g, gk=gk, key_mask=mask, segment_ids=ids)[0]).sum()

    tensors = [torch.tensor(x, requires_grad=True) for x in given]
    slopes = torch.autograd.grad(loss(*tensors, *map(torch.tensor, (h, mask, ids))), tensors)
    arrays = [jax.numpy.asarray(x, "float32") for x in given]
    beside = jax.numpy.asarray(h, "float32"), jax.numpy.asarray(mask), jax.numpy.asarray(ids)
    of_jax = jax.jit(jax.grad(loss, argnums=tuple(range(5))))(*arrays, *beside)
    for own, exact, near in zip(wanted, slopes, of_jax, strict=True):
        np.testing.assert_allclose(own, exact, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(own, near, rtol=1e-3, atol=1e-5)


def test_frameworks_find_the_same_of_steps():
    """Two of them: the state between holds the decay in its sums, beside a peak that has no gradient."""
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    phi, (q, k, v, history, _, _) = maps.make("positive-softmax"), inputs(2)
    logs = decays("both", phi.num_features_of(maps.DIM), 2)
    past = ka.key_state(*history, phi)

    def loss(g, gk, q, k, v, s, z, peak):
        state, total = past._replace(s=s, z=z, peak=peak), 0
        for t in range(2):
            token = (x[..., t, :] for x in (q, k, v))
            out, state = ka.linear_attention_step(state, *token, phi, g=g[..., t], gk=gk[..., t, :])
            total = total + (out**2).sum()
        return total

    (out, _), back = ka.vjp(ka.causal_linear_attention, q, k, v, phi, state=past, **logs)
    wanted = back((2 * out, None))
    given = [*logs.values(), q, k, v, *past[:3]]
    tensors = [torch.tensor(x, requires_grad=at < 2) for at, x in enumerate(given)]
    slopes = torch.autograd.grad(loss(*tensors), tensors[:2])
    of_jax = jax.jit(jax.grad(loss, argnums=(0, 1)))(*(jax.numpy.asarray(x, "float32") for x in given))
    for name, exact, near in zip(logs, slopes, of_jax, strict=True):
        np.testing.assert_allclose(getattr(wanted, name), exact, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(getattr(wanted, name), near, rtol=1e-3, atol=1e-5)


def test_numbers_of_the_map_are_learnt():
    phi = maps.make("trigonometric-softmax")
    q, k, v, _, mask, _ = inputs()
    gates = decays("g", 0)

    def run(omega):
        learnt = ka.with_numbers(phi, omega=omega)
        return ka.vjp(ka.causal_linear_attention, q, k, v, learnt, **gates, key_mask=mask)

    (out, _), back = run(phi.spec.omega)
    h = weights(out.shape)
    agrees(lambda omega: np.sum(h * run(omega)[0][0]), [phi.spec.omega], [back((h, None)).phi.omega], "omega")


@pytest.mark.parametrize("strong", [-80.0, -3e38, -np.inf])
def test_strong_decays_and_what_nobody_sees(strong):
    """Gradients are finite and those of what is left; NaN in masked tokens, or a query without one, changes none."""
    phi, (q, k, v, _, mask, _) = maps.make("positive-softmax"), inputs(dtype="float32")
    g = np.full((2, 1, 9), -0.1, "f4")
    g[..., 5] = strong
    (out, _), back = ka.vjp(ka.causal_linear_attention, q, k, v, phi, g=g, key_mask=mask)
    h = weights(out.shape).astype("f4")
    h[..., 3, :] = 0
    found = back((h, None))
    assert (abs(found.g[..., 5]) < 1e-30).all()
    late = (..., slice(5, None), slice(None))
    (_, _), apart = ka.vjp(ka.causal_linear_attention, q[late], k[late], v[late], phi, g=g[..., 5:], key_mask=mask[5:])
    alone = apart((h[late], None))
    for name in "qkv":
        np.testing.assert_allclose(getattr(found, name)[late], getattr(alone, name), rtol=1e-4, atol=1e-6)
        assert getattr(found, name).dtype == np.float32
    spoilt = [np.where(mask[:, None], x, np.nan).astype("f4") for x in (k, v)]
    unseen = np.where(np.arange(9)[:, None] == 3, np.nan, q).astype("f4")
    _, back = ka.vjp(
        ka.causal_linear_attention, unseen, *spoilt, phi, g=np.where(mask, g, np.nan).astype("f4"), key_mask=mask
    )
    for x, y in zip(back((h, None)), found, strict=True):
        if isinstance(x, np.ndarray):
            np.testing.assert_array_equal(x, y)
