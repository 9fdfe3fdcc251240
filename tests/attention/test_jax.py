"""JAX traces the reference path: jit, scan, grad and vmap, in float32 without any 64-bit type."""

import numpy as np
import pytest

import kernattn as ka
import laws
import maps
from xp import to_numpy

jax = pytest.importorskip("jax")
jnp = jax.numpy


def usual(names, others):
    """Names, and others where time is given: XLA takes a second or two for each, and they take the same paths."""
    return [*names, *(pytest.param(name, marks=pytest.mark.slow) for name in others)]


SOME = usual(["generalized-own", "positive-softmax"], ["elu1", "polynomial", "trigonometric-softmax"])
JITTED = usual(["trigonometric-softmax", "positive-softmax"], ["elu1"])
MORE = usual(["polynomial", "hyperbolic-ard"], ["elu1", "relu", "trigonometric-softmax"])


def inputs(n=11, lead=(2,), scale=0.7):
    return laws.arrays(1, (*lead, n, maps.DIM), (*lead, n, maps.DIM), (*lead, n, 3), scale=scale)


def test_equal_maps_share_a_trace():
    """jax-ml/jax#4712: a static argument that is equal, and another object, was traced again."""
    traced, x = [], jnp.ones((3, maps.DIM))

    def run(x, phi):
        traced.append(phi)
        return ka.linear_attention(x, x, x, phi)

    jitted, phi = jax.jit(run, static_argnames="phi"), maps.make("positive-softmax")
    for each, so_far in ((phi, 1), (maps.make("positive-softmax"), 1), (phi.redraw(1), 2), (phi.redraw(1), 2)):
        jitted(x, phi=each)
        assert len(traced) == so_far
    learnt = [ka.with_numbers(phi, scale=jnp.asarray(2.0)) for _ in range(2)]
    assert learnt[0] != learnt[1]


def test_without_tracing():
    phi = maps.make("positive-softmax")
    q, k, v = inputs(1, ())
    given = [jnp.asarray(x) for x in (q, k, v)]
    out, state = ka.causal_linear_attention(*given, phi)
    step, state = ka.linear_attention_step(state, *(x[0] for x in given), phi)
    assert isinstance(state.fingerprint, int)
    assert all(isinstance(x, jax.Array) for x in (out, step, *state[:3]))
    wanted, before = laws.causal(phi, q, k, v)
    laws.close(out, wanted, 1e-5, "causal")
    laws.close(step, ka.linear_attention_step(before, q[0], k[0], v[0], phi)[0], 1e-5, "step")
    with pytest.raises(ka.errors.StateMismatchError):
        ka.attend(state, given[0], phi.redraw(9))


@pytest.mark.parametrize("name", JITTED)
def test_jit(name):
    phi = maps.make(name)
    q, k, v = inputs()
    mask, ids = np.arange(11) % 4 != 0, np.arange(11) // 7

    @jax.jit
    def run(q, k, v, mask, ids):
        out, state = ka.causal_linear_attention(q, k, v, phi, key_mask=mask, segment_ids=ids)
        again, _ = ka.causal_linear_attention(q, k, v, phi, state=state)
        return out, again, ka.linear_attention(q, k, v, phi, key_mask=mask), ka.attend(state, q, phi), phi(q)

    wanted_out, state = laws.causal(phi, q, k, v, key_mask=mask, segment_ids=ids)
    wanted = [
        wanted_out,
        laws.causal(phi, q, k, v, state=state)[0],
        laws.linear(phi, q, k, v, key_mask=mask),
        laws.attend(phi, state, q),
        phi(q),
    ]
    for got, each in zip(run(*map(jnp.asarray, (q, k, v, mask, ids))), wanted, strict=True):
        assert got.dtype == jnp.float32
        laws.close(got, each, 1e-4 * max(1.0, np.abs(each).max()), name)


@pytest.mark.parametrize("name", SOME)
def test_scan_of_steps(name):
    phi = maps.make(name)
    q, k, v = inputs()

    @jax.jit
    def decode(q, k, v):
        def body(state, token):
            out, state = ka.linear_attention_step(state, *token, phi)
            return state, out

        tokens = tuple(jnp.moveaxis(x, -2, 0) for x in (q, k, v))
        state, out = jax.lax.scan(body, ka.initial_state(phi, (2,), 3, like=k), tokens)
        return jnp.moveaxis(out, 0, -2), ka.attend(state, q, phi)

    out, rest = decode(*map(jnp.asarray, (q, k, v)))
    wanted, state = laws.causal(phi, q, k, v)
    scale = max(1.0, np.abs(wanted).max())
    laws.close(out, wanted, 1e-4 * scale, "scan of steps")
    laws.close(rest, laws.attend(phi, state, q), 1e-4 * scale, "its state")


@pytest.mark.parametrize("name", ["trigonometric-softmax", "positive-softmax"])
def test_gradients(name):
    """Against finite differences in float64, with masked keys, an empty start and several segments."""
    from jax.test_util import check_grads

    phi = maps.make(name)
    with jax.enable_x64(True):
        q, k, v = (jnp.asarray(x, dtype=jnp.float64) for x in inputs(4, ()))
        mask, ids = jnp.asarray([False, True, False, True]), jnp.asarray([0, 0, 1, 1])

        @jax.jit
        def forms(q, k, v):
            out, state = ka.causal_linear_attention(q, k, v, phi, key_mask=mask, segment_ids=ids)
            step, state = ka.linear_attention_step(state, q[0], k[0], v[0], phi)
            return jnp.sin(out), step, ka.attend(state, q, phi), ka.linear_attention(q, k, v, phi, key_mask=mask)

        check_grads(forms, (q, k, v), order=1, modes=["rev"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", MORE)
def test_gradients_are_finite_in_float32(name):
    phi = maps.make(name)
    q, k, v = map(jnp.asarray, inputs(4, ()))
    mask = jnp.asarray([False, False, True, True])  # rows that see nothing

    @jax.jit
    def loss(q, k, v):
        out, state = ka.causal_linear_attention(q, k, v, phi, key_mask=mask)
        return jnp.sum(out * out) + jnp.sum(ka.attend(state, q, phi))

    for gradient in jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(q, k, v):
        assert np.isfinite(to_numpy(gradient)).all()


def test_gradients_at_large_norms_are_finite():
    phi = maps.make("positive-softmax")
    q, k, v = (jnp.asarray(30 * x) for x in inputs(4, ()))
    gradients = jax.jit(jax.grad(lambda *a: jnp.sum(ka.causal_linear_attention(*a, phi)[0]), argnums=(0, 1, 2)))
    for gradient in gradients(q, k, v):
        assert np.isfinite(to_numpy(gradient)).all()


def test_vmap_is_a_leading_axis():
    phi = maps.make("positive-softmax")
    q, k, v = map(jnp.asarray, inputs())
    got = jax.jit(jax.vmap(lambda *a: ka.causal_linear_attention(*a, phi)[0]))(q, k, v)
    laws.close(got, laws.causal(phi, *inputs())[0], 1e-5, "vmap")


def test_softmax_traces():
    q, k, v = map(jnp.asarray, inputs())
    got = jax.jit(lambda *a: ka.softmax_attention(*a, causal=True))(q, k, v)
    laws.close(got, ka.softmax_attention(*inputs(), causal=True), 1e-5, "softmax")

    @jax.jit
    @jax.grad
    def gradient(q):
        return jnp.sum(ka.softmax_attention(q, k, v, causal=True, key_mask=jnp.arange(11) > 3))  # rows that see nothing

    assert np.isfinite(to_numpy(gradient(q))).all()
