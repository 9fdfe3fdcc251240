"""PyTorch's graphs, JAX's transformations, and other places where calls are not made as they stand."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError
from public_reports import dense

torch = pytest.importorskip("torch")
pytest.importorskip("kernattn.torch")
P, F = ka.patterns, ka.features
PHI = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0)
DOCUMENTS = P.documents([0, 0, 0, 1, 1, 1, 1])


MADE_WITHIN = {
    "local": lambda x: ka.softmax_attention(x, x, x, pattern=P.local(x.shape[0] // 4)),
    "both": lambda x: ka.softmax_attention(x, x, x, pattern=DOCUMENTS & P.local(1)),
    "causal": lambda x: ka.causal_linear_attention(x, x, x, F.elu1())[0],
    "all": lambda x: ka.linear_attention(x, x, x, F.elu1(), backend="reference"),
}


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def near(found, exact, tolerance=1e-5):
    torch.testing.assert_close(found, exact, rtol=0, atol=tolerance)


class Model(torch.nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x):
        return self.attention(torch.tanh(x))


@pytest.mark.parametrize(
    "attention",
    [
        pytest.param(lambda x: ka.linear_attention(x, x, x, PHI), id="pytorch/pytorch#140011"),
        pytest.param(lambda x: ka.softmax_attention(x, x, x, causal=True), id="pytorch/pytorch#124502"),
        pytest.param(
            lambda x: ka.gated_linear_attention(x, x / 9, x, g=-(x[..., 0] ** 2))[0], id="pytorch/pytorch#141710"
        ),
    ],
)
def test_exported_models_take_any_number_of_tokens(attention):
    model, dims = Model(attention), {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", min=2)}
    exported = torch.export.export(model, (normal(2, 7, 4),), dynamic_shapes={"x": dims}, strict=False).module()
    other = normal(3, 11, 4)
    near(exported(other), model(other))


def test_exported_array_operations_take_any_batch():
    """pytorch/pytorch#152018: a batch that was marked as any had the example's size in the file, without a word."""
    seen = P.per_head([P.local(2, 0), P.sinks(1)])

    def operations(q, k, v):
        given, ids = {"backend": "reference"}, torch.arange(2)
        yield ka.softmax_attention(q, k, v, causal=True, **given)
        yield ka.softmax_attention(q, k, v, pattern=seen, **given)
        yield ka.causal_linear_attention(q, k, v, F.elu1(), segment_ids=ids, **given)[0]
        yield ka.gated_linear_attention(q, k / 9, v, g=-(k[..., 0] ** 2), beta=v[..., 0].sigmoid(), **given)[0]
        yield ka.attention.window_attention(q, k, v, F.elu1(), 2, **given)[0]

    class Operations(torch.nn.Module):
        def forward(self, q, k, v):
            return tuple(operations(q, k, v))

    sizes = ({0: torch.export.Dim("batch", min=1, max=64)},) * 3
    given = normal(3, 2, 2, 4), normal(3, 1, 2, 4), normal(3, 1, 2, 4)  # two tokens: each takes operations, and seconds
    exported = torch.export.export(Operations(), given, dynamic_shapes=sizes).module()
    for batch in (1, 4):
        other = [normal(batch, *x.shape[1:]) for x in given]
        for one, own in zip(exported(*other), operations(*other), strict=True):
            near(one, own)


@pytest.mark.parametrize(
    ("seen", "fullgraph"), [("local", False), ("local", True), ("both", False), ("causal", False), ("all", True)]
)
def test_values_that_are_made_within_a_graph(seen, fullgraph):
    """pytorch/pytorch#146313: a constant method of what is made within a graph met an object without its fields."""
    torch._dynamo.reset()
    call = MADE_WITHIN[seen]
    compiled = torch.compile(call, fullgraph=fullgraph, backend="eager")
    for n in (7, 12, 13) if seen == "local" else (7,):
        x = normal(n, 4)
        gap = np.abs(np.arange(n) - np.arange(n)[:, None])
        q, fq = x.numpy(), dense.elu1(x.numpy())
        if seen in ("causal", "all"):
            exact = dense.linear_attention(fq, fq, q, seen == "all" or dense.causal(n, n))
        else:
            ids = np.arange(n) > 2
            exact = dense.softmax_attention(
                q, q, q, gap <= n // 4 if seen == "local" else (ids == ids[:, None]) & (gap < 2)
            )
        near(compiled(x).double(), torch.from_numpy(exact))


def test_packed_rows_are_refused_whatever_the_mask():
    """huggingface/transformers#46634: with a mask of ones, or a cache of its own, a model let packed texts leak."""
    huggingface, transformers = pytest.importorskip("kernattn.huggingface"), pytest.importorskip("transformers")
    huggingface.register(num_features=16, rng=0, name="kernattn_packed")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=13, **sizes)).eval()
    tokens, positions = torch.arange(7)[None], torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
    for name in ("kernattn", "kernattn_packed"):
        model.set_attn_implementation(name)
        for mask in (None, torch.ones_like(tokens)):
            for cached in (False, True):
                with torch.no_grad(), pytest.raises(ParameterError, match="serves no packed sequences"):
                    model(tokens, position_ids=positions, attention_mask=mask, use_cache=cached)


def test_exported_models_of_transformers():
    """huggingface/transformers#29190: a model could not be exported; #128385 of pytorch/pytorch: nor for any length."""
    huggingface, transformers = pytest.importorskip("kernattn.huggingface"), pytest.importorskip("transformers")
    huggingface.register(num_features=16, rng=0, name="kernattn_exported")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=13, **sizes)).eval()
    model.set_attn_implementation("kernattn_exported")
    tokens, other = torch.arange(14).reshape(2, 7) % 13, torch.arange(22).reshape(2, 11) % 13
    dims = {name: {1: torch.export.Dim("tokens", min=3)} for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        exported = torch.export.export(
            model, (tokens, 0 * tokens + 1), {"use_cache": False}, dynamic_shapes=dims | {"use_cache": None}
        ).module()
        mask = (torch.arange(11) > 2 * torch.tensor([[0], [1]])).long()
        found = exported(other, mask, use_cache=False).logits
        alone = model(other[1:, 3:], position_ids=torch.arange(3, 11)[None], use_cache=False).logits
        near(found[1:, 3:], alone)
        near(found, model(other, attention_mask=mask).logits)
