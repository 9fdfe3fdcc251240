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


GAUSSIAN = ka.random_features(ka.kernels.Gaussian(), 4, 8, rng=0)
ON_THE_HOST = {
    "kernel": lambda x, _: ka.kernels.Gaussian()(x, x),
    "variance": lambda x, _: GAUSSIAN.variance(x[0], x),
    "bias": lambda x, _: GAUSSIAN.bias(x[0], x),
    "process": lambda x, process: process.mean(x) + process.variance(x),
    "errors": lambda x, _: ka.metrics.gram_errors(x, x + 1).frobenius * x,
}


@pytest.fixture(scope="module")
def process():
    x, y = torch.eye(4).double().numpy(), torch.arange(4.0).double().numpy()
    return ka.solvers.gp(ka.solvers.moments(x, GAUSSIAN, y=y), noise=0.1, amplitude=1.0)


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_what_the_host_computes_is_not_traced(name, process):
    """fferflo/einx#33: what the compiler traced of a library's own arrays failed in inference mode."""
    call = ON_THE_HOST[name]
    with torch.inference_mode():
        x = rows(4, 4)[0].double()
        wanted = call(2 * x, process)
        torch._dynamo.reset()
        assert_allclose(torch.compile(lambda x: call(2 * x, process), backend="eager")(x), wanted)
