"""Folders of models that are damaged, forged, or hold what a config cannot say: an error of ours, and soon."""

import json
import os
import struct

import numpy as np
import pytest

from kernattn import errors
from kernattn.transformer import Config, forward, initial_params, load_checkpoint, load_params, save_params, shapes

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

SIZES = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12}
LLAMA = transformers.LlamaConfig(vocab_size=11, max_position_embeddings=16, num_key_value_heads=1, **SIZES)
TURNS = {"rope_type": "default", "rope_theta": 50.0}
QWEN = transformers.Qwen3NextConfig(
    vocab_size=11, linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=2, linear_value_head_dim=2,
    head_dim=8, num_key_value_heads=1, mlp_only_layers=[0, 1], layer_types=["linear_attention", "full_attention"],
    **SIZES,
)  # fmt: skip
MAMBA = transformers.Mamba2Config(
    vocab_size=11, num_hidden_layers=2, hidden_size=8, num_heads=4, head_dim=4, state_size=3, n_groups=2
)
GPT2 = transformers.GPT2Config(vocab_size=11, n_positions=16, n_embd=8, n_layer=2, n_head=2)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return what small models' files hold: the configuration, the header of the weights, their bytes."""
    found = {}
    for name, model in (
        ("gpt2", transformers.GPT2LMHeadModel(GPT2)),
        ("llama", transformers.LlamaForCausalLM(LLAMA)),
        ("qwen3_next", transformers.Qwen3NextForCausalLM(QWEN)),
        ("mamba2", transformers.Mamba2ForCausalLM(MAMBA)),
    ):
        place = tmp_path_factory.mktemp(name)
        model.save_pretrained(place)
        blob = (place / "model.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", blob[:8])
        found[name] = (place / "config.json").read_bytes(), blob[8 : 8 + size], blob[8 + size :]
    return found


def written(place, about, header, data):
    (place / "config.json").write_bytes(about if isinstance(about, bytes) else json.dumps(about).encode())
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    (place / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3_next", "mamba2"])
def test_random_damage(name, folders, tmp_path):
    """Bytes that are changed, cut off, or claims that are false; what loads is whole and finite."""
    rng = np.random.default_rng(0)
    about, header, data = folders[name]
    kinds = dict.fromkeys(("loaded", "refused"), 0)
    for case in range(300):
        changed, tensors, fields = bytearray(header), json.loads(header), json.loads(about)
        key = list(tensors)[rng.integers(1, len(tensors))]
        if case % 3 == 0:
            for at in rng.integers(len(changed), size=3):
                changed[at] = rng.integers(256)
            written(tmp_path, about, bytes(changed), data)
        elif case % 3 == 1:
            offsets = [[0, 10**11], [4, 0], [0, len(data)], [-4, 8], None][rng.integers(5)]
            wrong = [{"data_offsets": offsets}, {"shape": [2**40, 2**40]}, {"dtype": "F16"}, {"shape": "x"}]
            tensors[key] |= wrong[rng.integers(4)]
            written(tmp_path, about, tensors, data[: rng.integers(len(data))] if rng.random() < 0.3 else data)
        else:
            values = None, -1, 10**30, 0.5, "x", [], {}, [1], float("nan"), True
            fields[list(fields)[rng.integers(len(fields))]] = values[rng.integers(len(values))]
            written(tmp_path, fields, header, data)
        try:
            params, config = load_checkpoint(tmp_path)
        except errors.KernattnError:
            kinds["refused"] += 1
        else:
            kinds["loaded"] += 1
            assert {name: value.shape for name, value in params.items()} == shapes(config)
            assert all(np.isfinite(value).all() for value in params.values())
    assert min(kinds.values()) > 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layer": 2**31 - 1}, r"lacks the weight that is layers\.2\."),
        ({"scale_attn_weights": False}, "scale_attn_weights = False is not one"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True is not one"),
        ({"model_type": []}, r"must be one of bert, .*; .* holds \[\]"),
        ({"activation_function": []}, "is damaged or not the configuration of a model"),
    ],
    ids=str,
)
def test_configurations_that_are_refused(change, message, folders, tmp_path):
    about, header, data = folders["gpt2"]
    written(tmp_path, json.loads(about) | change, header, data)
    with pytest.raises(errors.KernattnError, match=message):
        load_checkpoint(tmp_path)


def test_rotary_positions_that_are_scaled_are_named(folders, tmp_path):
    about, header, data = folders["llama"]
    scaled = {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}
    for change, message in (
        (scaled, "rope_parameters = {'rope_type': 'llama3'"),
        ({"rope_parameters": [1]}, "damaged"),
    ):
        written(tmp_path, json.loads(about) | change, header, data)
        with pytest.raises(errors.KernattnError, match=message):
            load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("qwen3_next", {"mlp_only_layers": [0]}, r"lacks the weight that is layers\.1\.feed_forward\.router"),
        ("qwen3_next", {"mlp_only_layers": [], "num_experts": 2}, "num_chosen must be 2 at most; got 10"),
        ("qwen3_next", {"layer_types": ["linear_attention", "sliding_attention"]}, "layer_types = .* is not one"),
        ("qwen3_next", {"num_hidden_layers": 2**31 - 1}, "num_hidden_layers = 2147483647 is not one"),
        ("qwen3_next", {"linear_num_key_heads": 2}, "a joint weight must have"),
        ("qwen3_next", {"hidden_act": "gelu"}, "hidden_act = 'gelu' is not one"),
        ("qwen3_next", {"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters = .* is not one"),
        ("mamba2", {"time_step_limit": [0.0, 0.1]}, r"time_step_limit = \[0.0, 0.1\] is not one"),
        ("mamba2", {"hidden_act": "gelu"}, "hidden_act = 'gelu' is not one"),
        ("mamba2", {"state_size": 4}, "a joint weight must have|must be"),
        ("mamba2", {"use_bias": True}, r"lacks the weight that is layers\.0\.gated\.q\.bias"),
        ("mamba2", {"num_hidden_layers": 2**31 - 1}, r"lacks the weight that is layers\.2\."),
    ],
    ids=str,
)
def test_gated_models_that_are_refused(name, change, message, folders, tmp_path):
    about, header, data = folders[name]
    written(tmp_path, json.loads(about) | change, header, data)
    with pytest.raises(errors.KernattnError, match=message):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("conv1d.weight", lambda c, *rest: (c - 1, *rest), "a convolution must have"),
        ("conv1d.bias", lambda c: (c - 1,), "a convolution must have"),
        ("conv1d.weight", lambda *_: (), "a convolution must have"),
        ("in_proj.weight", lambda *_: (), "a joint weight must have"),
    ],
)
def test_weights_of_a_mamba_of_another_shape(name, shape, message, folders, tmp_path):
    """One channel less would shift all others."""
    written(tmp_path, *folders["mamba2"])
    file = tmp_path / "model.safetensors"
    tensors = safetensors_numpy.load_file(file)
    (key,) = (key for key in tensors if key.endswith(f"layers.0.mixer.{name}"))
    tensors[key] = np.zeros(shape(*tensors[key].shape), "f4")
    safetensors_numpy.save_file(tensors, file)
    with pytest.raises(errors.FileFormatError, match=message):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"wte.weight": "../model.safetensors"}, "must name files of its folder"),
        ({"wte.weight": ".."}, "must name files of its folder"),
        ({"wte.weight": 3}, "is damaged or not an index"),
        ([], "is damaged or not an index"),
        (None, "lacks 'weight_map'"),
    ],
    ids=str,
)
def test_an_index_that_is_forged(files, message, folders, tmp_path):
    written(tmp_path, *folders["gpt2"])
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({} if files is None else {"weight_map": files}))
    with pytest.raises(errors.FileFormatError, match=message):
        load_checkpoint(tmp_path)


def test_weights_twice_or_not_finite_or_no_file(folders, tmp_path):
    about, header, data = folders["gpt2"]
    tensors = json.loads(header)
    twice = tensors | {"wte.weight": tensors["transformer.wpe.weight"]}
    del twice["transformer.wpe.weight"]
    written(tmp_path, about, twice, data)
    with pytest.raises(errors.FileFormatError, match=r"holds the weight wte\.weight twice"):
        load_checkpoint(tmp_path)
    numbers = np.frombuffer(data, np.float32).copy()
    numbers[7] = np.inf
    written(tmp_path, about, header, numbers.tobytes())
    with pytest.raises(errors.FileFormatError, match="must be finite numbers of float32"):
        load_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(errors.FileFormatError, match="is a device, not a file"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("GPT2Model", GPT2),
        ("GPT2Model", transformers.GPT2Config(**{**GPT2.to_dict(), "n_inner": 10, "layer_norm_epsilon": 0.1})),
        ("LlamaModel", LLAMA),
        ("LlamaModel", transformers.LlamaConfig(**{**LLAMA.to_dict(), "head_dim": 6, "rms_norm_eps": 0.1})),
        ("LlamaModel", transformers.LlamaConfig(**{**LLAMA.to_dict(), "rope_parameters": TURNS})),
        ("Qwen3NextModel", QWEN),
        ("Mamba2Model", MAMBA),
    ],
    ids=["gpt2", "hidden", "llama", "head_dim", "theta", "qwen3_next", "mamba2"],
)
def test_models_without_a_head_give_rows(kind, sizes, tmp_path):
    torch.manual_seed(0)
    model = getattr(transformers, kind)(sizes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    params, config = load_checkpoint(tmp_path)
    tokens = np.random.default_rng(0).integers(11, size=(2, 9))
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).last_hidden_state
    np.testing.assert_allclose(forward(params, config, tokens), expected, rtol=1e-5, atol=1e-5)


def test_a_saved_config_that_claims_layers_without_end(tmp_path):
    config = Config(dim=2, layers=1, heads=1, vocab=2, positions=None)
    save_params(initial_params(config, rng=0), config, tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as found:
        arrays = dict(found)
    arrays["header"] = np.array(json.dumps(json.loads(str(arrays["header"])) | {"layers": 2**31 - 1}))
    np.savez(tmp_path / "model.npz", **arrays)
    with pytest.raises(errors.FileFormatError, match=r"no member 'layers\.1\."):
        load_params(tmp_path / "model.npz")
