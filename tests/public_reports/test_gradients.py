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


PHI = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0)
BATCHED = {
    "linear": lambda q, k, v: ka.linear_attention(q, k, v, PHI),
    "causal": lambda q, k, v: ka.causal_linear_attention(q, k, v, ELU)[0],
    "state": lambda q, k, v: ka.causal_linear_attention(q, k, v, ELU)[1].s,
    "softmax": lambda q, k, v: ka.softmax_attention(q, k, v, causal=True),
    "delta": lambda q, k, v: ka.gated_linear_attention(q, k / 9, v, g=-k[..., 0].square(), beta=q[..., 0].sigmoid())[0],
}


@pytest.mark.parametrize("name", BATCHED)
def test_gradients_of_a_batch_of_cotangents(name):
    """pypose/pypose#122: with vectorize=True, `jacobian` ended in "Batching rule not implemented for aten::alias"."""
    rows = leaves((2, 5, 4), (2, 5, 4), (2, 5, 4))
    out = BATCHED[name](*rows)
    cotangents = torch.randn((3, *out.shape), generator=torch.Generator().manual_seed(0))

    def pulled(g, batched=False):
        return torch.autograd.grad(out, rows, g, retain_graph=True, is_grads_batched=batched, allow_unused=True)

    each = [pulled(g) for g in cotangents]
    for found, *parts in zip(pulled(cotangents, True), *each, strict=True):
        assert (found is None) == (parts[0] is None)
        if found is not None:
            assert_allclose(found, torch.stack(parts), atol=1e-6)
    short = tuple(row[:1, :2].detach() for row in rows)
    for found, exact in zip(
        torch.autograd.functional.jacobian(BATCHED[name], short, vectorize=True),
        torch.autograd.functional.jacobian(BATCHED[name], short),
        strict=True,
    ):
        assert_allclose(found, exact, atol=1e-6)


@pytest.mark.parametrize("name", BATCHED)
def test_cotangents_that_are_parts_of_a_wider_array(name):
    """pytorch/pytorch#194719: slopes behind `torch.cat` were read by the strides of the inputs; likewise
    Dao-AILab/flash-attention#355.
    """
    rows = leaves((2, 5, 4), (2, 5, 4), (2, 5, 4))
    out = BATCHED[name](*rows)
    wide = torch.cat([torch.ones(*out.shape[:-1], 9), out.mT.contiguous().mT], -1)
    found = torch.autograd.grad(wide.square().sum(), rows, allow_unused=True)
    exact = torch.autograd.grad(BATCHED[name](*rows).square().sum(), rows, allow_unused=True)
    for one, other in zip(found, exact, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("name", BATCHED)
def test_checkpoints_and_inputs_that_change(name):
    """pytorch/pytorch#103726: what a checkpoint kept of a layer's own tensors was gone; #24413: a change in place of
    what was kept went by unseen.
    """
    from torch.utils.checkpoint import checkpoint

    rows = leaves((2, 5, 4), (2, 5, 4), (2, 5, 4))

    def call(*leaf):
        return BATCHED[name](*(1.0 * x for x in leaf)).square().sum()

    exact = torch.autograd.grad(call(*rows), rows, allow_unused=True)
    kept = torch.autograd.grad(checkpoint(call, *rows, use_reentrant=False), rows, allow_unused=True)
    for one, other in zip(kept, exact, strict=True):
        assert one is other is None or torch.equal(one, other)
    changed = [1.0 * x for x in rows]
    out = BATCHED[name](*changed)
    changed[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(out.sum(), rows, allow_unused=True)
