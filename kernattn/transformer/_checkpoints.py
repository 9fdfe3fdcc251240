"""Parameters of models that others trained: the folders that Hugging Face's libraries write."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._runtime.archive import read_safetensors, reading
from kernattn._runtime.checks import checked_path, one_of, shown
from kernattn.errors import FileFormatError, ParameterError
from kernattn.transformer._config import Config
from kernattn.transformer._params import each_shape

Arrays = dict[str, NDArray[Any]]


def load_checkpoint(folder: str | PathLike[str], dtype: str = "float32") -> tuple[Arrays, Config]:
    """Return the parameters and the config of a folder with config.json and safetensors: GPT-2, BERT or LLaMA.

    `forward` then gives the model's logits; of BERT and of models without a head, such as LlamaModel, the last hidden
    rows. Numbers of 16 bits are widened, bfloat16 too. Weights that GPT-2 keeps as (in, out) and the others as
    (out, in) come as (in, out). A head that is tied to the embedding is not in the file, and not in the parameters.
    What follows BERT's rows, its pooler, is left out.

    Parameters
    ----------
    folder : str or PathLike
        The folder; its safetensors may be one file or several with an index.
    dtype : {"float32", "float64"}
        Of the parameters.

    Returns
    -------
    params : dict of numpy.ndarray
        The parameters, by the names of `shapes`.
    config : Config
        Sizes and choices.

    Raises
    ------
    FileFormatError
        If a file is damaged, or lacks a weight of the model, or a weight is not finite.
    FileNotFoundError
        If the folder lacks config.json or the weights.
    ParameterError
        If the model is none of the three, or has something that `Config` cannot say.
    MissingExtra
        If safetensors is not installed.

    Examples
    --------
    >>> import tempfile
    >>> import transformers
    >>> from kernattn.transformer import load_checkpoint
    >>> sizes = transformers.GPT2Config(vocab_size=5, n_positions=8, n_embd=4, n_layer=1, n_head=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     transformers.GPT2LMHeadModel(sizes).save_pretrained(folder)
    ...     params, config = load_checkpoint(folder)
    >>> config.vocab, config.length
    (5, 8)
    """
    place = checked_path("folder", folder)
    one_of("dtype", dtype, ("float32", "float64"))
    with reading(place / "config.json", "the configuration of a model"):
        about = json.loads((place / "config.json").read_bytes())
        kind = about["model_type"]
        if not isinstance(kind, str) or kind not in FAMILIES:
            raise ParameterError(f"the model must be one of {', '.join(FAMILIES)}; {place} holds {shown(kind)}")
        family = FAMILIES[kind]
        config = family.config(about)
        if about.get("architectures") in (["GPT2Model"], ["LlamaModel"]):
            config = replace(config, output=None)
    given: Arrays = {}
    for name, array in _tensors(place):
        if (own := name.removeprefix(f"{family.prefix}.")) in given:
            raise FileFormatError(f"{place} holds the weight {own} twice")
        given[own] = array
    if config.output == "tokens" and "lm_head.weight" not in given:
        raise FileFormatError(f"{place} lacks the weight lm_head.weight")
    params = {}
    for name, shape in each_shape(config):
        value = family.weight(given, name, config)
        if value is None:
            raise FileFormatError(f"{place} lacks the weight that is {name} here")
        if value.shape != shape:
            raise FileFormatError(f"{name} must be {shape}; {place} holds {value.shape}")
        with np.errstate(over="ignore"):  # what the dtype cannot hold is refused
            params[name] = np.ascontiguousarray(value, dtype)
        if not np.isfinite(params[name]).all():
            raise FileFormatError(f"{name} must be finite numbers of {dtype}; {place} holds others")
    return params, config


def _tensors(folder: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the tensors of all files by name."""
    index = folder / "model.safetensors.index.json"
    files = ["model.safetensors"]
    if index.exists():
        with reading(index, "an index of safetensors"):
            files = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
            if outside := [file for file in files if file in ("", ".", "..") or Path(file).name != file]:
                raise FileFormatError(f"{index} must name files of its folder; got {shown(outside[0])}")
    for file in files:
        yield from read_safetensors(folder / file, "load_checkpoint")


class _Family(NamedTuple):
    """How a kind of models says its sizes, and calls its weights."""

    prefix: str
    config: Callable[[dict[str, Any]], Config]
    weight: Callable[[Arrays, str, Config], NDArray[Any] | None]


def _gpt2_config(about: dict[str, Any]) -> Config:
    _refuse_unless(about.get("scale_attn_weights", True), about, "scale_attn_weights")
    _refuse_unless(not about.get("scale_attn_by_inverse_layer_idx", False), about, "scale_attn_by_inverse_layer_idx")
    return Config(
        dim=about["n_embd"],
        layers=about["n_layer"],
        heads=about["n_head"],
        vocab=about["vocab_size"],
        length=about["n_positions"],
        hidden=about.get("n_inner"),
        activation=_activation(about.get("activation_function", "gelu_new")),
        eps=about.get("layer_norm_epsilon", 1e-5),
        output="tied" if about.get("tie_word_embeddings", True) else "tokens",
    )


def _gpt2_weight(given: Arrays, name: str, config: Config) -> NDArray[Any] | None:
    name = re.sub(r"^layers\.", "h.", name).replace(".scale", ".weight")
    for ours, theirs in (
        ("embed.tokens", "wte.weight"),
        ("embed.positions", "wpe.weight"),
        (".attention.norm", ".ln_1"),
        (".attention.out", ".attn.c_proj"),
        (".feed_forward.norm", ".ln_2"),
        (".feed_forward.up", ".mlp.c_fc"),
        (".feed_forward.down", ".mlp.c_proj"),
    ):
        name = name.replace(ours, theirs)
    if name.startswith("norm."):
        return given.get(f"ln_f.{name.removeprefix('norm.')}")
    if name == "output.weight":
        return given["lm_head.weight"].T
    if name == "output.bias":
        return np.zeros(config.vocab or 0)
    if part := re.fullmatch(r"(h\.\d+)\.attention\.([qkv])\.(weight|bias)", name):
        joint = given.get(f"{part[1]}.attn.c_attn.{part[3]}")
        return None if joint is None else np.array_split(np.atleast_1d(joint), 3, axis=-1)["qkv".index(part[2])]
    return given.get(name)


def _bert_config(about: dict[str, Any]) -> Config:
    _refuse_unless(about.get("position_embedding_type", "absolute") == "absolute", about, "position_embedding_type")
    _refuse_unless(not about.get("is_decoder", False), about, "is_decoder")
    return Config(
        dim=about["hidden_size"],
        layers=about["num_hidden_layers"],
        heads=about["num_attention_heads"],
        vocab=about["vocab_size"],
        length=about["max_position_embeddings"],
        hidden=about["intermediate_size"],
        activation=_activation(about.get("hidden_act", "gelu")),
        eps=about.get("layer_norm_eps", 1e-12),
        norm_first=False,
        causal=False,
        output=None,
        types=about.get("type_vocab_size", 2),
        embedding_norm=True,
    )


def _bert_weight(given: Arrays, name: str, config: Config) -> NDArray[Any] | None:
    for ours, theirs in (
        ("embed.tokens", "embeddings.word_embeddings.weight"),
        ("embed.positions", "embeddings.position_embeddings.weight"),
        ("embed.types", "embeddings.token_type_embeddings.weight"),
        ("embed.norm", "embeddings.LayerNorm"),
        ("layers.", "encoder.layer."),
        (".attention.norm", ".attention.output.LayerNorm"),
        (".attention.q", ".attention.self.query"),
        (".attention.k", ".attention.self.key"),
        (".attention.v", ".attention.self.value"),
        (".attention.out.", ".attention.output.dense."),
        (".feed_forward.norm", ".output.LayerNorm"),
        (".feed_forward.up", ".intermediate.dense"),
        (".feed_forward.down", ".output.dense"),
    ):
        name = name.replace(ours, theirs)
    return _transpose_weight(given, name.replace(".scale", ".weight"))


def _llama_config(about: dict[str, Any]) -> Config:
    of_rope = "rope_parameters" if about.get("rope_parameters") else "rope_scaling"
    rope = about.get(of_rope) or {}
    _refuse_unless(rope.get("rope_type", rope.get("type", "default")) == "default", about, of_rope)
    _refuse_unless(about.get("hidden_act", "silu") == "silu", about, "hidden_act")
    for name in ("attention_bias", "mlp_bias"):
        _refuse_unless(not about.get(name, False), about, name)
    return Config(
        dim=about["hidden_size"],
        layers=about["num_hidden_layers"],
        heads=about["num_attention_heads"],
        vocab=about["vocab_size"],
        kv_heads=about.get("num_key_value_heads"),
        head_dim=about.get("head_dim"),
        hidden=about["intermediate_size"],
        activation="swiglu",
        norm="rms",
        eps=about.get("rms_norm_eps", 1e-6),
        positions="rotary",
        theta=float(about.get("rope_theta") or rope.get("rope_theta", 10000.0)),
        bias=False,
        output="tied" if about.get("tie_word_embeddings", False) else "tokens",
    )


def _llama_weight(given: Arrays, name: str, config: Config) -> NDArray[Any] | None:
    if name == "output.weight":
        return given["lm_head.weight"].T
    for ours, theirs in (
        ("embed.tokens", "embed_tokens.weight"),
        (".attention.norm", ".input_layernorm"),
        (".attention.out.", ".self_attn.o_proj."),
        (".attention.", ".self_attn."),
        (".feed_forward.norm", ".post_attention_layernorm"),
        (".feed_forward.", ".mlp."),
    ):
        name = name.replace(ours, theirs)
    name = re.sub(r"\.(q|k|v|gate|up|down)\.", r".\1_proj.", name).replace(".scale", ".weight")
    return _transpose_weight(given, name)


def _transpose_weight(given: Arrays, name: str) -> NDArray[Any] | None:
    """Return a weight (out, in) as (in, out), and embeddings and vectors as they are."""
    value = given.get(name)
    return value if value is None or value.ndim < 2 or "embed" in name else value.T


def _activation(name: str) -> str:
    names = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
    if name not in names:
        raise ParameterError(f"the activation must be one of {', '.join(names)}; got {shown(name)}")
    return names[name]


def _refuse_unless(fits: bool, about: dict[str, Any], name: str) -> None:
    if not fits:
        raise ParameterError(f"a model with {name} = {shown(about.get(name))} is not one that a config can say")


FAMILIES = {
    "bert": _Family("bert", _bert_config, _bert_weight),
    "gpt2": _Family("transformer", _gpt2_config, _gpt2_weight),
    "llama": _Family("model", _llama_config, _llama_weight),
}
