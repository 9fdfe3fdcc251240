"""States of one library and dtype as those of another."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.attention import GatedState, window_attention
from kernattn.errors import DTypeError
from kernattn.transformer import Config, initial_params, prefill
from xp import to_numpy

PHI = ka.random_features(ka.kernels.Softmax(), dim=5, num_features=8, rng=0)
Q, K, V = np.random.default_rng(0).standard_normal((3, 2, 6, 5)).astype("float32")
KINDS = "linear", "gated", "stretch", "window"


def of_kind(kind):
    gates = {"g": -np.abs(Q[..., 0])}
    if kind == "linear":
        return ka.key_state(K, V, PHI)
    if kind == "gated":
        return ka.gated_linear_attention(Q, K, V, **gates)[1]
    return ka.attention.gated_state(K, V, **gates) if kind == "stretch" else window_attention(Q, K, V, PHI, window=4)[1]


def leaves(state):
    return [x for name, x in state._asdict().items() if name != "fingerprint"]


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_keeps_every_bit(kind):
    torch, state = pytest.importorskip("torch"), of_kind(kind)
    there = ka.move_states(state, torch.zeros(1))
    assert all(isinstance(x, torch.Tensor) for x in leaves(there))
    back = ka.move_states(there, Q)
    assert type(back) is type(there) is type(state)
    for x, y in zip(leaves(back), leaves(state), strict=True):
        np.testing.assert_array_equal(x, y)
        assert x.dtype == y.dtype
    for x, y in zip(leaves(ka.move_states(state, Q)), leaves(state), strict=True):
        assert x is y  # nothing is to be done


def test_it_goes_on_where_it_is():
    """In JAX as in NumPy, and in the dtype of the tokens that come."""
    jnp = pytest.importorskip("jax.numpy")
    state = of_kind("linear")
    found = ka.attend(ka.move_states(state, jnp.asarray(Q)), jnp.asarray(Q), PHI)
    np.testing.assert_allclose(found, ka.attend(state, Q, PHI), rtol=1e-5, atol=1e-6)
    wide = ka.move_states(state, Q.astype("float64"))
    assert {x.dtype for x in leaves(wide)} == {np.dtype("float64")}
    np.testing.assert_allclose(ka.attend(wide, Q.astype("f8"), PHI), ka.attend(state, Q, PHI), rtol=1e-5, atol=1e-6)


def test_sums_of_few_bits_stay_wide_and_tokens_do_not():
    half = ka.move_states(of_kind("window"), Q.astype("float16"))
    dtypes = {name: str(x.dtype) for name, x in zip(half._fields, leaves(half), strict=False)}
    sums = dict.fromkeys(("s", "z", "peak"), "float32")
    assert dtypes == sums | {"k": "float16", "v": "float16", "present": "bool"}


def test_a_gradient_goes_along_within_a_library():
    torch = pytest.importorskip("torch")
    s = torch.ones(2, 5, 3, requires_grad=True)
    ka.move_states(GatedState(s), torch.zeros(1, dtype=torch.float64)).s.sum().backward()
    assert torch.equal(s.grad, torch.ones(2, 5, 3))


def test_what_a_model_remembers():
    torch = pytest.importorskip("torch")
    config = Config(dim=8, layers=2, heads=2, vocab=7, positions="rotary")
    _, state = prefill(initial_params(config, rng=0), config, np.arange(5)[None] % 7, attention=ka.features.elu1())
    there = ka.move_states(state, torch.zeros(1, dtype=torch.float64))
    for x, y in zip(to_leaves(there), to_leaves(state), strict=True):
        np.testing.assert_allclose(to_numpy(x), to_numpy(y), rtol=1e-6)


def to_leaves(state):
    from kernattn.attention._state_parts import leaves_of

    return list(leaves_of("state", state).values())


def test_wrong_calls():
    with pytest.raises(DTypeError, match="like"):
        ka.move_states(of_kind("linear"), np.zeros(2, int))
    with pytest.raises(DTypeError, match="state must be a LinearState"):
        ka.move_states(Q, Q)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_integers_stay_whole(library, recwarn):
    """Positions pass through no float, and JAX keeps them in its own width without a warning."""
    module = pytest.importorskip(library)
    like = module.zeros(1) if library == "torch" else module.numpy.zeros(1)
    (there,) = ka.move_states((np.array([2**24 + 1]),), like)
    assert int(there[0]) == int(ka.move_states((there,), Q)[0][0]) == 2**24 + 1
    assert not recwarn.list
