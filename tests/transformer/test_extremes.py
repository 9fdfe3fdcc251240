"""Numbers at the ends of their range: gates far below 0, temperatures near 0, logits that are not finite."""

from dataclasses import replace

import numpy as np
import pytest

from kernattn import errors
from kernattn.transformer import Config, forward, generate, initial_params, prefill, step

CONFIG = Config(dim=8, layers=2, heads=2, vocab=7, length=16)
X = np.random.default_rng(0).integers(7, size=(3, 5))


@pytest.mark.parametrize("positions", ["learnt", "rotary"])
def test_one_sequence_without_a_batch(positions):
    config = replace(CONFIG, positions=positions, length=16 if positions == "learnt" else None)
    params, x = initial_params(config, rng=0), X[0]
    expected = forward(params, config, x)
    out, state = prefill(params, config, x[:2])
    for t in range(2, 5):
        out, state = step(params, config, state, x[t])
        np.testing.assert_allclose(out, expected[t], rtol=1e-5, atol=1e-5)
    assert generate(params, config, x, 3, rng=0).shape == (3,)


def test_swiglu_of_gates_far_from_zero():
    """exp(200) is no float32: the output has no warning, and gradients are those of float64."""
    torch = pytest.importorskip("torch")
    config = replace(CONFIG, activation="swiglu")
    params = initial_params(config, rng=0)
    name = "layers.0.feed_forward.gate.bias"
    params[name] = np.where(np.arange(32) % 2, -200, 200).astype(np.float32)
    params[name][:4] = 0, -1, 1, -30
    wide = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in params.items()}
    narrow = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    for tensors in (wide, narrow):
        forward(tensors, config, torch.tensor(X)).square().sum().backward()
    np.testing.assert_allclose(forward(params, config, X), forward(wide, config, torch.tensor(X)).detach(), atol=1e-5)
    for each, tensor in wide.items():
        np.testing.assert_allclose(narrow[each].grad, tensor.grad, rtol=1e-3, atol=1e-4, err_msg=each)


def test_the_gradient_of_a_gate_at_zero():
    torch = pytest.importorskip("torch")
    config = replace(CONFIG, activation="swiglu", layers=1)
    params = {name: torch.tensor(value) for name, value in initial_params(config, 0, "float64").items()}
    name = "layers.0.feed_forward.gate"
    params[f"{name}.weight"] = torch.zeros(8, 32, dtype=torch.float64)

    def of(bias):
        return forward({**params, f"{name}.bias": bias}, config, torch.tensor(X)).square().sum()

    bias = torch.zeros(32, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(of, bias)


def test_classes_of_a_sequence_without_tokens_are_those_of_rows_of_zeros():
    config = replace(CONFIG, causal=False, output="classes", classes=3)
    params = initial_params(config, rng=0)
    mask = np.array([[True] * 5, [False] * 5, [True] * 5])
    np.testing.assert_array_equal(forward(params, config, X, key_mask=mask)[1], params["output.bias"])


def test_top_p_that_is_reached_exactly_takes_no_further_token():
    config = replace(CONFIG, vocab=3)
    params = initial_params(config, 0, "float64")
    params["output.weight"][:] = 0
    params["output.bias"][:] = np.log([0.5, 0.25, 0.25])
    for top_p, expected in ((0.5, {0}), (0.5 + 1e-9, {0, 1})):
        drawn = generate(params, config, np.zeros((20, 1), int), 10, top_p=top_p, rng=0)
        assert set(drawn.ravel().tolist()) == expected


@pytest.mark.parametrize("temperature", [1e-320, 1e-30])
def test_a_temperature_near_zero_takes_the_most_likely_token(temperature):
    params = initial_params(CONFIG, rng=0)
    expected = generate(params, CONFIG, X, 6, temperature=0)
    np.testing.assert_array_equal(generate(params, CONFIG, X, 6, temperature=temperature, rng=0), expected)


@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_of_which_no_token_can_be_drawn(temperature):
    params = initial_params(CONFIG, rng=0)
    for bias in ([0, np.nan, 0, 0, 0, 0, 0], [0, np.inf, 0, 0, 0, 0, 0], [-np.inf] * 7):
        with pytest.raises(errors.ParameterError, match="of which one is the largest; got"):
            generate(
                {**params, "output.bias": np.array(bias, np.float32)}, CONFIG, X, 2, temperature=temperature, rng=0
            )
    never = {**params, "output.bias": np.array([-np.inf] * 6 + [0], np.float32)}
    assert np.all(generate(never, CONFIG, X, 4, temperature=temperature, rng=0) == 6)
