"""Arrays of JAX that are spread over a mesh of devices."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernattn as ka

jax = pytest.importorskip("jax")
jnp, P = jax.numpy, jax.sharding.PartitionSpec
MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("batch",))
PHI = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0)
GAUSSIAN = ka.random_features(ka.kernels.Gaussian(), 4, 8, rng=0)


def spread(function, of_keys):
    return jax.shard_map(function, mesh=MESH, in_specs=(P("batch"), of_keys, of_keys), out_specs=P("batch"))


def rows(*shape):
    return tuple(jax.random.normal(key, shape) for key in jax.random.split(jax.random.key(0), 3))


CALLS = {
    "op": lambda q, k, v: ka.linear_attention(q, k, v, PHI),
    "hosted": lambda q, k, v: k * ka.solvers.log_evidence(q, v[:, 0], GAUSSIAN, noise=0.5, amplitude=1.0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_keys_that_all_devices_share(call):
    """NVIDIA/warp#1851: what a call returned within `shard_map` was said to be the same on all devices. Here gradients
    ended in a TypeError, also those of what is the same, which are sums.
    """
    q, k, v = rows(5, 4)
    found = jax.value_and_grad(lambda *x: jnp.sin(spread(call, P())(*x)).sum(), (0, 1, 2))
    wanted = jax.value_and_grad(lambda *x: jnp.sin(call(*x)).sum(), (0, 1, 2))
    for one, other in zip(*map(jax.tree.leaves, (jax.jit(found)(q, k, v), wanted(q, k, v))), strict=True):
        assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="replicated"):
        jax.make_jaxpr(jax.shard_map(call, mesh=MESH, in_specs=P("batch"), out_specs=P()))(q, k, v)


def test_a_scan_of_steps_begins_anew_on_each_device():
    """jax-ml/jax#29965: zeros like an array that differs from device to device were said not to differ."""

    def decode(q, k, v):
        state = ka.initial_state(PHI, (), 4, like=q)
        return jax.lax.scan(lambda state, token: ka.linear_attention_step(state, *token, PHI)[::-1], state, (q, k, v))

    given = rows(5, 4)
    out = jax.jit(spread(lambda *x: decode(*x)[1], P("batch")))(*given)
    assert_allclose(out, ka.causal_linear_attention(*given, PHI)[0], atol=1e-5)
