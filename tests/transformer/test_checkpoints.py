"""Models of transformers: the same logits from the folders that it writes, without torch."""

import json
import subprocess
import sys

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.transformer import forward, generate, load_checkpoint

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {"vocab_size": 50, "max_position_embeddings": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


QWEN = {
    "hidden_size": 24, "intermediate_size": 40, "num_key_value_heads": 2, "head_dim": 8, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 5, "mlp_only_layers": [0, 1, 2, 3],
}  # fmt: skip
MAMBA = {"vocab_size": 50, "hidden_size": 24, "num_heads": 6, "head_dim": 8, "state_size": 7, "n_groups": 2}
MAMBA |= {"num_hidden_layers": 2, "chunk_size": 8}
GATED = "qwen3_next", "qwen3_next-experts", "mamba2"
EAGER = {}, {"experts_implementation": "eager"}


def models(name):
    torch.manual_seed(0)
    if name.startswith("qwen3_next"):
        experts = {"mlp_only_layers": [2], "decoder_sparse_step": 2, "num_experts": 5, "num_experts_per_tok": 2}
        sizes = {"moe_intermediate_size": 9, "shared_expert_intermediate_size": 7}
        more = {**experts, **sizes} if name == "qwen3_next-experts" else {}
        config = transformers.Qwen3NextConfig(**{**SMALL, **QWEN, "num_hidden_layers": 4, **more})
        model = transformers.Qwen3NextForCausalLM(config)
        model.set_experts_implementation("eager")  # the other ones want rows of whole 16 bytes
        return model
    if name.startswith("mamba2"):
        more = {"use_bias": True, "use_conv_bias": False, "tie_word_embeddings": True} if name == "mamba2-tied" else {}
        return transformers.Mamba2ForCausalLM(transformers.Mamba2Config(**MAMBA, **more))
    if name == "gpt2":
        config = transformers.GPT2Config(vocab_size=50, n_positions=32, n_embd=24, n_layer=2, n_head=4)
        return transformers.GPT2LMHeadModel(config)
    if name == "bert":
        config = transformers.BertConfig(hidden_size=24, intermediate_size=40, **SMALL)
        return transformers.BertModel(config)
    config = transformers.LlamaConfig(
        hidden_size=24, intermediate_size=40, num_key_value_heads=2, tie_word_embeddings=name == "llama-tied", **SMALL
    )
    return transformers.LlamaForCausalLM(config)


def moved(model):
    """Return the model with no parameter at 0 or 1, in evaluation."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "llama-tied", *GATED, "mamba2-tied"])
def test_logits_are_those_of_the_model(name, dtype, tmp_path):
    model = moved(models(name)).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path, max_shard_size="20KB" if dtype == "float32" else "1GB")
    assert (tmp_path / "model.safetensors.index.json").exists() == (dtype == "float32")
    params, config = load_checkpoint(tmp_path)
    assert {value.dtype for value in params.values()} == {np.dtype(np.float32)}
    tokens = np.random.default_rng(0).integers(50, size=(2, 13))
    more = {"token_type_ids": torch.tensor(tokens % 2)} if name == "bert" else {}
    model = (
        type(model).from_pretrained(tmp_path, dtype=torch.float32, **EAGER[name.endswith("experts")]).eval()
    )  # frequencies were rounded with the rest
    with torch.no_grad():
        out = model(torch.tensor(tokens), **more)
    expected = (out.last_hidden_state if name == "bert" else out.logits).numpy()
    got = forward(params, config, tokens, types=tokens % 2 if name == "bert" else None)
    within = 5e-5 if name.startswith("qwen3_next") else 1e-5  # float32 rounds keys of norm 1 and their differences
    np.testing.assert_allclose(got, expected, rtol=within, atol=within)
    if name.startswith("qwen3_next"):
        with torch.no_grad():
            expected = model.double()(torch.tensor(tokens)).logits.numpy()
        wide = {part: value.astype(np.float64) for part, value in params.items()}
        np.testing.assert_allclose(forward(wide, config, tokens), expected, rtol=1e-5, atol=1e-5)


def test_parameters_of_the_dtype_that_is_asked_for(tmp_path):
    moved(models("gpt2")).save_pretrained(tmp_path)
    (narrow, config), (wide, same) = (load_checkpoint(tmp_path, dtype) for dtype in ("float32", "float64"))
    assert config == same
    assert {value.dtype for value in wide.values()} == {np.dtype(np.float64)}
    for name, value in narrow.items():
        np.testing.assert_array_equal(wide[name], value)
    with pytest.raises(errors.ParameterError, match="dtype must be"):
        load_checkpoint(tmp_path, "int8")


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "dtype"), [("gpt2", "float16"), ("llama", "bfloat16"), (GATED[0], "bfloat16")])
def test_matrices_stay_in_16_bits(name, dtype, stored, tmp_path):
    pytest.importorskip("ml_dtypes")
    moved(models(name)).to(getattr(torch, stored)).save_pretrained(tmp_path)
    (narrow, config), (wide, same) = (load_checkpoint(tmp_path, kind) for kind in (dtype, "float32"))
    assert config == same
    for part, value in narrow.items():
        assert value.dtype == (dtype if value.ndim > 1 else "float32")
        np.testing.assert_array_equal(value, wide[part].astype(value.dtype))
    tokens = np.random.default_rng(0).integers(50, size=(2, 5))
    rounded = {part: value.astype(np.float32) for part, value in narrow.items()}
    expected = generate(rounded, config, tokens, 8, temperature=0)
    np.testing.assert_array_equal(generate(narrow, config, tokens, 8, temperature=0), expected)


def test_what_16_bits_cannot_hold_is_refused(tmp_path):
    model = models("gpt2")
    with torch.no_grad():
        model.transformer.wte.weight[0, 0] = 1e5
    model.save_pretrained(tmp_path)
    with pytest.raises(errors.FileFormatError, match=r"embed\.tokens must be finite numbers of float16"):
        load_checkpoint(tmp_path, "float16")


@pytest.mark.parametrize("name", ["llama", *GATED])
def test_generation_is_that_of_the_model(name, tmp_path):
    model = moved(models(name))
    model.save_pretrained(tmp_path)
    params, config = load_checkpoint(tmp_path)
    prompt = np.random.default_rng(0).integers(1, 50, size=(2, 5))
    theirs = model.generate(torch.tensor(prompt), max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=None)
    np.testing.assert_array_equal(generate(params, config, prompt, 20, temperature=0), theirs.numpy()[:, 5:])


@pytest.mark.statistical
def test_favor_in_place_of_softmax_errs_less_with_more_features(tmp_path):
    """The weights stay; the error of the logits, over eight draws, falls about as one over the root of m."""
    model = models("gpt2").eval()
    model.save_pretrained(tmp_path)
    params, config = load_checkpoint(tmp_path)
    tokens = np.random.default_rng(0).integers(50, size=(2, 20))
    exact = forward(params, config, tokens)
    kernel, errors_of = ka.kernels.Softmax(), []
    for m in (16, 256):
        maps = (ka.random_features(kernel, config.head_width, m, rng=seed) for seed in range(8))
        found = [np.mean((forward(params, config, tokens, attention=phi) - exact) ** 2) for phi in maps]
        errors_of.append(np.sqrt(np.mean(found)))
    assert 2 < errors_of[0] / errors_of[1] < 8


def test_no_torch_is_imported(tmp_path):
    moved(models("gpt2")).save_pretrained(tmp_path)
    script = (
        "import sys; from kernattn.transformer import load_checkpoint; load_checkpoint(sys.argv[1]); "
        "assert not {'torch', 'transformers', 'ml_dtypes'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


def test_what_is_refused(tmp_path):
    model = models("gpt2")
    model.save_pretrained(tmp_path)
    about = json.loads((tmp_path / "config.json").read_bytes())

    def refuses(message, kind=errors.KernattnError, **changes):
        (tmp_path / "config.json").write_text(json.dumps({**about, **changes}))
        with pytest.raises(kind, match=message):
            load_checkpoint(tmp_path)

    refuses("must be one of bert, gpt2, llama, mamba2, qwen3_next", model_type="t5")
    refuses("activation must be one of", activation_function="silu")
    refuses(r"embed\.tokens must be \(51, 24\)", vocab_size=51)
    refuses(r"lacks the weight that is layers\.2\.attention\.norm\.scale", n_layer=3)
    refuses("lacks the weight lm_head", tie_word_embeddings=False)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(errors.FileFormatError, match="not the configuration"):
        load_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(about))
    (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nonsense")
    with pytest.raises(errors.FileFormatError, match="not a file of safetensors"):
        load_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path)
    turned = {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 2}}
    (tmp_path / "config.json").write_text(json.dumps(turned))
    with pytest.raises(errors.ParameterError, match="rope_scaling"):
        load_checkpoint(tmp_path)
