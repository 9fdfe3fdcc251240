"""Attention over patterns at the edges of PyTorch and JAX: gradients, graphs and maps over a batch."""

import numpy as np
import pytest

import kernattn as ka

pytest.importorskip("numba")

P, N = ka.patterns, 20
PATTERN = P.local(4, 0) | P.sinks(1)


def inputs():
    """q, k, v; and biases of keys and of pairs, one for both heads that hides some."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, N, width)) for width in (4, 4, 3)]
    bias, pairs = rng.standard_normal((2, N)), rng.standard_normal((N, N))
    pairs[3, 1:4], pairs[7] = -np.inf, -np.inf
    return arrays, (bias, pairs)


def wanted(causal=False):
    """The value and cotangents of a number made of outputs and log normalisers, by ka.vjp."""
    (q, k, v), (bias, pairs) = inputs()
    options = {"key_bias": bias, "score_bias": pairs, "pattern": PATTERN, "causal": causal}
    (out, lse), back = ka.vjp(ka.attention.softmax_with_lse, q, k, v, **options)
    of_lse = np.zeros_like(lse)
    of_lse[..., :7] = -np.sin(lse[..., :7])  # of rows that see something
    found = back((2 * out, of_lse))
    found = found.q, found.k, found.v, found.key_bias, found.score_bias
    return [np.sum(out**2) + np.sum(np.cos(lse[..., :7])), *found]


@pytest.mark.parametrize("way", ["plain", "graph", "graph of array operations"])
def test_torch(way):
    torch = pytest.importorskip("torch")

    arrays, biases = inputs()
    given = [torch.tensor(x, requires_grad=True) for x in (*arrays, *biases)]
    backend = "reference" if way.endswith("operations") else None

    def number(q, k, v, bias, pairs):
        biases = {"key_bias": bias, "score_bias": pairs}
        out, lse = ka.attention.softmax_with_lse(q, k, v, **biases, pattern=PATTERN, backend=backend)
        return (out**2).sum() + lse[..., :7].cos().sum()

    if way.startswith("graph"):
        number = torch.compile(number, backend="aot_eager", fullgraph=True)
    value = number(*given)
    value.backward()
    for x, y in zip([value.detach(), *(x.grad for x in given)], wanted(), strict=True):
        np.testing.assert_allclose(x.numpy(), y, rtol=1e-10, atol=1e-12)


def test_torch_checks():
    torch = pytest.importorskip("torch")
    from kernattn.torch._plans import keep_plan

    arrays, (bias, pairs) = inputs()
    given = [torch.tensor(x, requires_grad=True) for x in (*arrays, bias)]
    heads = P.per_head([P.local(3), P.strided(4, 4)])
    assert torch.autograd.gradcheck(
        lambda q, k, v, b: ka.attention.softmax_with_lse(q, k, v, key_bias=b, pattern=heads, causal=True),
        given,
        fast_mode=True,
    )
    q, k, v, b = given
    op = torch.ops.kernattn.block_softmax.default
    torch.library.opcheck(op, (q, k, v, None, b, torch.tensor(pairs), 0.5, keep_plan(PATTERN.plan(N)), None))
    batch = torch.stack([q, 2 * q])
    mapped = torch.vmap(lambda q: ka.softmax_attention(q, k, v, pattern=heads))(batch)
    torch.testing.assert_close(mapped[1], ka.softmax_attention(2 * q, k, v, pattern=heads))
    compiled = torch.compile(lambda x: ka.softmax_attention(x, x, x, pattern=heads), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.TorchDynamoException, match="pattern is of 2 heads"):
        compiled(torch.ones(N, 4))


def test_jax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        arrays, (bias, pairs) = inputs()
        given = [jax.numpy.asarray(x) for x in (*arrays, bias, pairs)]
        options = {"pattern": PATTERN, "causal": True}

        def number(q, k, v, bias, pairs):
            return (ka.softmax_attention(q, k, v, key_bias=bias, score_bias=pairs, **options) ** 2).sum()

        out, back = ka.vjp(ka.softmax_attention, *arrays, key_bias=bias, score_bias=pairs, **options)
        found = back(2 * out)
        gradients = jax.jit(jax.grad(number, argnums=(0, 1, 2, 3, 4)))(*given)
        for x, y in zip(gradients, (found.q, found.k, found.v, found.key_bias, found.score_bias), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
