"""Calls that `vmap` makes of others, and tensors that lie otherwise in memory."""

import pytest

import kernattn as ka

torch = pytest.importorskip("torch")
kt = pytest.importorskip("kernattn.torch")
PHI = ka.random_features(ka.kernels.Softmax(), 8, 16, rng=0)


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CALLS = {
    "linear": lambda q, k, v, mask: ka.linear_attention(q, k, v, PHI, key_mask=mask),
    "causal": lambda q, k, v, mask: ka.causal_linear_attention(q, k, v, PHI, key_mask=mask)[0],
    "exact": lambda q, k, v, mask: ka.softmax_attention(q, k, v, causal=True, key_mask=mask),
    "local": lambda q, k, v, mask: ka.softmax_attention(q, k, v, pattern=ka.patterns.local(3, 1), key_mask=mask),
    "gated": lambda q, k, v, mask: ka.gated_linear_attention(q, k / 9, v, g=-(v[..., 0] ** 2), key_mask=mask)[0],
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))


@every_call
@pytest.mark.parametrize(
    "mapped",
    [
        pytest.param("qkvm", id="pytorch/pytorch#151558"),  # a mask for each call was refused
        pytest.param("qkv", id="pytorch/pytorch#161310"),  # a mask that is made within the call had no axis
        pytest.param("q", id="jax-ml/jax#38495"),  # all but queries are the same for all calls
        pytest.param("m", id="jax-ml/jax#38495"),
    ],
)
def test_some_arguments_are_mapped(call, mapped):
    given = {name: drawn(3, 2, 7, 8, seed=seed) for seed, name in enumerate("qkv")}
    given["m"] = torch.rand((3, 2, 7), generator=torch.Generator().manual_seed(4)) < 0.7
    arguments = [x if name in mapped else x[0] for name, x in given.items()]
    axes = tuple(0 if name in mapped else None for name in given)
    found = torch.vmap(call, axes)(*arguments)
    alone = [[x[i] if axis == 0 else x for x, axis in zip(arguments, axes, strict=True)] for i in range(3)]
    torch.testing.assert_close(found, torch.stack([call(*each) for each in alone]))


REFERENCE = {"backend": "reference"}
OPERATIONS = {
    "exact": lambda q, k, v: ka.softmax_attention(q, k, v, **REFERENCE),
    "window": lambda q, k, v: ka.attention.window_attention(q, k, v, PHI, 2, **REFERENCE)[0],
    "normalisers": lambda q, k, v: ka.attention.causal_with_lse(q, k, v, PHI)[1].log,
}


@pytest.mark.parametrize("call", OPERATIONS.values(), ids=list(OPERATIONS))
def test_array_operations_are_mapped(call):
    """data-apis/array-api-compat#136: its sign assigns NaN by a mask, which `vmap` refuses."""
    given = [drawn(3, 5, 8, seed=seed) for seed in range(3)]
    slope = torch.func.grad(lambda *given: call(*given).sin().sum())
    for function in (call, slope):
        alone = torch.stack([function(*each) for each in zip(*given, strict=True)])
        torch.testing.assert_close(torch.vmap(function)(*given), alone)


@pytest.mark.parametrize("causal", [False, True])
def test_grouped_queries_are_mapped(causal):
    """ml-explore/mlx#3383: with fewer heads of keys than of queries a mapped call never returned."""
    module = kt.LinearAttention(causal=causal)
    given = drawn(3, 2, 4, 7, 8), drawn(3, 2, 2, 7, 8, seed=1), drawn(3, 2, 2, 7, 8, seed=2)
    alone = torch.stack([module(*each) for each in zip(*given, strict=True)])
    torch.testing.assert_close(torch.vmap(module)(*given), alone)


LAYOUTS = {
    "Dao-AILab/flash-attention#2665": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "pytorch/pytorch#187506": lambda x: x.mT.contiguous().mT,  # channels apart
    "flagos-ai/FlagGems#5896": lambda x: torch.cat([x, x], -1)[..., :8],  # a part of wider rows
    "tokens-apart": lambda x: x.repeat_interleave(2, -2)[..., ::2, :],
}


@every_call
@pytest.mark.parametrize("laid", LAYOUTS.values(), ids=list(LAYOUTS))
def test_layouts_of_memory(call, laid):
    """Dao-AILab/flash-attention#2665 and the others: strides were not looked at."""
    q, k, v = given = [drawn(2, 7, 8, seed=seed) for seed in range(3)]
    mask = torch.arange(7) != torch.tensor([[2], [5]])
    wanted = call(q, k, v, mask)
    for at in range(3):
        mixed = [laid(x) if which == at else x for which, x in enumerate(given)]
        assert torch.equal(call(*mixed, mask.T.contiguous().T), wanted)
