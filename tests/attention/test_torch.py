"""PyTorch differentiates through the reference path."""

import numpy as np
import pytest

import kernattn as ka
import laws
import maps
from xp import to_numpy

torch = pytest.importorskip("torch")

SOME = [
    "elu1",
    "relu",
    "exp",
    "polynomial",
    "generalized-own",
    "trigonometric-softmax",
    "phase-ard",
    "positive-softmax",
    "hyperbolic-ard",
]


def inputs(n, dtype=torch.float64, scale=0.7):
    return [
        torch.tensor(x, dtype=dtype, requires_grad=True)
        for x in laws.arrays(1, (n, maps.DIM), (n, maps.DIM), (n, 2), scale=scale)
    ]


@pytest.mark.parametrize("name", SOME)
def test_gradcheck(name):
    phi = maps.make(name)
    mask, ids = torch.tensor([False, True, True, False, True]), torch.tensor([0, 0, 1, 1, 1])

    def causal(q, k, v):
        out, state = ka.causal_linear_attention(q, k, v, phi, key_mask=mask, segment_ids=ids)
        return out, ka.attend(state, q, phi)

    def resumed(q, k, v):
        out, state = ka.causal_linear_attention(q[:2], k[:2], v[:2], phi)
        step, state = ka.linear_attention_step(state, q[2], k[2], v[2], phi)
        return out, step, ka.causal_linear_attention(q[3:], k[3:], v[3:], phi, state=state)[0]

    def linear(q, k, v):
        return ka.linear_attention(q, k, v, phi, key_mask=mask)

    for f in (causal, resumed, linear):
        assert torch.autograd.gradcheck(f, inputs(5), eps=1e-6, atol=1e-5, rtol=1e-4, fast_mode=True)


@pytest.mark.parametrize("name", maps.MAPS)
def test_gradients_are_finite_where_nothing_is_seen(name):
    phi = maps.make(name)
    q, k, v = inputs(9, torch.float32)
    out, _ = ka.causal_linear_attention(q, k, v, phi, key_mask=torch.arange(9) >= 3)
    out.square().sum().backward()
    for x in (q, k, v):
        assert torch.isfinite(x.grad).all()


def test_features_and_softmax_differentiate():
    q, k, v = inputs(5)
    assert torch.autograd.gradcheck(maps.make("positive-softmax"), (q,))
    assert torch.autograd.gradcheck(lambda *a: ka.softmax_attention(*a, causal=True), (q, k, v))


def test_closed_forms_take_tensors_that_need_gradients():
    q, k, _ = inputs(5)
    phi = maps.make("positive-softmax")
    wanted = phi.variance(*(to_numpy(x) for x in (q, k)))
    np.testing.assert_allclose(to_numpy(phi.variance(q, k)), wanted, rtol=1e-12)


def test_loops_read_states_of_array_operations():
    """Gradients of keys are those of loops throughout: the peak of a state is held, whoever made it."""
    phi, (q, k, v) = maps.make("positive-softmax"), inputs(5)
    states = {
        "loops": ka.key_state(k, v, phi),
        "array operations": ka.key_state(k, v, phi, backend="reference"),
        "normalisers": ka.attention.causal_with_lse(q, k, v, phi)[-1],
    }
    wanted, *others = (torch.autograd.grad(ka.attend(x, q, phi).sin().sum(), (q, k, v)) for x in states.values())
    for found in others:
        torch.testing.assert_close(found, wanted)
    assert not states["array operations"].peak.requires_grad
