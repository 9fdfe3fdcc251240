"""How kinds of models say their sizes, and call their weights: those whose layers attend."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError
from kernattn.transformer._config import Config

Arrays = dict[str, NDArray[Any]]


class Family(NamedTuple):
    """How a kind of models says its sizes, and calls its weights."""

    prefix: str  # of weights that a model with a head has
    headless: str  # the class without one
    config: Callable[[dict[str, Any]], Config]
    weight: Callable[[Arrays, str, Config], NDArray[Any] | None]


def gpt2_config(about: dict[str, Any]) -> Config:
    refuse_unless(about.get("scale_attn_weights", True), about, "scale_attn_weights")
    refuse_unless(not about.get("scale_attn_by_inverse_layer_idx", False), about, "scale_attn_by_inverse_layer_idx")
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


def gpt2_weight(given: Arrays, name: str, config: Config) -> NDArray[Any] | None:
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


def bert_config(about: dict[str, Any]) -> Config:
    refuse_unless(about.get("position_embedding_type", "absolute") == "absolute", about, "position_embedding_type")
    refuse_unless(not about.get("is_decoder", False), about, "is_decoder")
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


def bert_weight(given: Arrays, name: str, config: Config) -> NDArray[Any] | None:
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
    return transpose_weight(given, name.replace(".scale", ".weight"))


def llama_config(about: dict[str, Any]) -> Config:
    of_rope = "rope_parameters" if about.get("rope_parameters") else "rope_scaling"
    rope = about.get(of_rope) or {}
    refuse_unless(rope.get("rope_type", rope.get("type", "default")) == "default", about, of_rope)
    refuse_unless(about.get("hidden_act", "silu") == "silu", about, "hidden_act")
    for name in ("attention_bias", "mlp_bias"):
        refuse_unless(not about.get(name, False), about, name)
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


def llama_weight(given: Arrays, name: str, config: Config) -> NDArray[Any] | None:
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
    return transpose_weight(given, name)


def transpose_weight(given: Arrays, name: str) -> NDArray[Any] | None:
    """Return a weight (out, in) as (in, out), and embeddings and vectors as they are."""
    value = given.get(name)
    return value if value is None or value.ndim < 2 or "embed" in name else value.T


def _activation(name: str) -> str:
    names = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
    if name not in names:
        raise ParameterError(f"the activation must be one of {', '.join(names)}; got {shown(name)}")
    return names[name]


def refuse_unless(fits: bool, about: dict[str, Any], name: str) -> None:
    if not fits:
        raise ParameterError(f"a model with {name} = {shown(about.get(name))} is not one that a config can say")
