"""States in graphs of PyTorch, also amid transformations."""

import pytest
from numpy.testing import assert_allclose

import kernattn as ka

torch = pytest.importorskip("torch")
pytest.importorskip("kernattn.torch")
PHI = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0)


def rows(*shape):
    return torch.randn((3, *shape), generator=torch.Generator().manual_seed(0))


def test_a_state_that_a_graph_begins():
    """ROCm/aiter#2688: a helper that keeps what it finds broke the graph of its caller."""

    def begun(q, k, v):
        state = ka.initial_state(PHI, q.shape[:1], v.shape[-1], like=q)
        return (*ka.causal_linear_attention(q, k, v, PHI, state=state), *state)

    given = rows(2, 5, 4)
    found = torch.compile(begun, backend="aot_eager", fullgraph=True)(*given)
    for one, other in zip(found, begun(*given), strict=True):
        if torch.is_tensor(one):
            assert one.dtype == other.dtype
            assert_allclose(one, other, atol=1e-6)


def test_steps_of_a_batch_in_a_graph_have_gradients():
    """pytorch/pytorch#97425: `vmap` in a graph ran ops without a rule for it one by one; here gradients were lost."""
    state = ka.causal_linear_attention(*rows(2, 5, 4), PHI)[1]

    def steps(q, k, v):
        return ka.linear_attention_step(state, q, k, v, PHI)[0]

    given = [x.requires_grad_() for x in rows(3, 2, 4)]
    out = torch.compile(torch.vmap(steps), backend="aot_eager", fullgraph=True)(*given)
    found = torch.autograd.grad(out.square().sum(), given)
    alone = torch.stack([steps(*each) for each in zip(*given, strict=True)])
    assert_allclose(out.detach(), alone.detach(), atol=1e-6)
    for one, other in zip(found, torch.autograd.grad(alone.square().sum(), given), strict=True):
        assert_allclose(one, other, atol=1e-5)
