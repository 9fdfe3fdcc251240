"""Someone with a model of transformers: swap, train, save, load without a word, generate, export; also in JAX."""

import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import kernattn as ka
from kernattn.huggingface import StateCache, register
from kernattn.torch import FavorAttention

ELSEWHERE = """
import sys, torch
module = torch.export.load(sys.argv[1]).module()
torch.save(module(*torch.load(sys.argv[2])), sys.argv[3])
assert "kernattn" not in sys.modules
"""


def main(folder):
    """Take a model from its first swap to its loaded copy."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=50, intermediate_size=64, bos_token_id=None, eos_token_id=None, **sizes)
    model, tokens = LlamaForCausalLM(config), torch.randint(50, (2, 16))
    favor = register(num_features=16, projection="iid")
    model.set_attn_implementation("kernattn_favor")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        favor.redraw()
    with torch.no_grad():
        trained = model.eval()(tokens).logits
    model.save_pretrained(folder)

    register()  # another process knows no more
    loaded = LlamaForCausalLM.from_pretrained(folder, attn_implementation="kernattn_favor").eval()
    with torch.no_grad():
        assert torch.equal(loaded(tokens).logits, trained)
    register(num_features=8)
    try:
        loaded(tokens)
    except ka.errors.ParameterError as error:
        said = str(error)
    assert "saved with attention by kernattn of num_features=16" in said
    register()
    settings = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(tokens)}
    text = loaded.generate(tokens, past_key_values=StateCache(), **settings)
    assert torch.equal(text, loaded.generate(tokens, use_cache=False, **settings))

    phi = ka.random_features(ka.kernels.Softmax(), 8, 16, "positive", rng=0)
    q, k, v = torch.randn(3, 2, 12, 8)
    of_torch, _ = ka.causal_linear_attention(q, k, v, phi)
    of_jax, _ = ka.causal_linear_attention(*(jnp.asarray(x.numpy()) for x in (q, k, v)), phi)
    np.testing.assert_allclose(of_jax, of_torch.numpy(), rtol=1e-4, atol=1e-6)

    register(estimator="elu1", name="kernattn_elu1")
    loaded.config.kernattn = None
    loaded.set_attn_implementation("kernattn_elu1")
    loaded(tokens, labels=tokens).loss.backward()
    assert loaded.config.kernattn["estimator"] == "elu1"

    distance = torch.arange(12)[:, None] - torch.arange(12)
    table = torch.zeros(2, 23, requires_grad=True)  # learnt, by distance and head
    out = ka.softmax_attention(q, k, v, score_bias=table[:, distance + 11])
    out.square().sum().backward()

    def loss(table):
        arrays = (jnp.asarray(x.numpy()) for x in (q, k, v))
        return (ka.softmax_attention(*arrays, score_bias=table[:, distance.numpy() + 11]) ** 2).sum()

    np.testing.assert_allclose(jax.grad(loss)(jnp.zeros((2, 23))), table.grad.numpy(), rtol=1e-4, atol=1e-5)
    packed = ka.linear_attention(q, k, v, phi, segment_ids=torch.arange(12) // 6)
    alone = ka.linear_attention(*(x[:, 6:] for x in (q, k, v)), phi)
    torch.testing.assert_close(packed[:, 6:], alone, rtol=1e-4, atol=1e-6)

    mask = torch.rand(12, 12) < 0.5  # of any pairs: a pattern, or a bias of 0 and -inf
    mask |= torch.eye(12, dtype=torch.bool)
    bias = torch.where(mask, 0.0, -torch.inf)
    seen = ka.softmax_attention(q, k, v, pattern=ka.attention.patterns.from_mask(mask.numpy()))
    weights = ka.softmax_attention(q, k, torch.eye(12).expand(2, 12, 12), score_bias=bias)  # of v = I
    torch.testing.assert_close(weights @ v, seen, rtol=1e-4, atol=1e-6)
    assert not weights[:, ~mask].any()

    module = FavorAttention(ka.kernels.Softmax(), 8, 16, causal=True, backend="reference")
    files = folder / "module.pt2", folder / "given.pt", folder / "out.pt"
    given = tuple(x[None] for x in (q, k, v))
    torch.export.save(torch.export.export(module, given), files[0])
    torch.save(given, files[1])
    subprocess.run([sys.executable, "-c", ELSEWHERE, *files], check=True, cwd=folder)
    torch.testing.assert_close(torch.load(files[2]), module(*given), rtol=0, atol=1e-6)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
