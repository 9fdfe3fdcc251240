"""How kinds of models with layers of gated linear attention say their sizes, and call their weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn.errors import FileFormatError
from kernattn.transformer._config import Config
from kernattn.transformer._experts import Experts
from kernattn.transformer._families import Arrays, llama_config, llama_weight, refuse_unless, transpose_weight
from kernattn.transformer._members import Gated

MOST_LAYERS = 1 << 16  # a file may claim any number


def qwen3_next_config(about: dict[str, Any]) -> Config:
    layers, every = about["num_hidden_layers"], about.get("full_attention_interval", 4)
    refuse_unless(layers <= MOST_LAYERS, about, "num_hidden_layers")
    kinds = about.get("layer_types") or [
        "linear_attention" if (i + 1) % every else "full_attention" for i in range(layers)
    ]
    refuse_unless(set(kinds) <= {"linear_attention", "full_attention"}, about, "layer_types")
    dense, step = about.get("mlp_only_layers") or [], about.get("decoder_sparse_step", 1)
    experts = None
    if about.get("num_experts", 512):
        experts = Experts(
            num_experts=about.get("num_experts", 512),
            num_chosen=about.get("num_experts_per_tok", 10),
            hidden=about.get("moe_intermediate_size", 512),
            shared=about.get("shared_expert_intermediate_size", 512),
            normalise=about.get("norm_topk_prob", True),
        )
    mixer = Gated(
        member="gated_delta",
        heads=about["linear_num_value_heads"],
        key_dim=about["linear_key_head_dim"],
        value_dim=about["linear_value_head_dim"],
        key_heads=about["linear_num_key_heads"],
        conv=about.get("linear_conv_kernel_dim", 4),
    )
    plain = llama_config(about)
    factor = (about.get("rope_parameters") or {}).get("partial_rotary_factor", about.get("partial_rotary_factor", 0.25))
    return replace(
        plain,
        rotary_dim=int(plain.head_width * factor),
        head_norm=True,
        head_gate=True,
        gated=tuple(mixer if kind == "linear_attention" else None for kind in kinds),
        experts=tuple(None if i in dense or (i + 1) % step else experts for i in range(layers)),
    )


def qwen3_next_weight(given: Arrays, name: str, config: Config) -> NDArray[Any] | None:
    if part := re.fullmatch(r"layers\.(\d+)\.gated\.(.*)", name):
        layer, m = f"layers.{part[1]}", config.mixer(int(part[1]))
        assert m is not None
        if part[2] == "norm.scale":
            return _from_one(given.get(f"{layer}.input_layernorm.weight"))
        each, widths = m.heads // m.groups, (m.key_dim, m.key_dim, *[m.heads // m.groups * m.value_dim] * 2)
        for joint, parts, sizes in (("qkvz", ("q", "k", "v", "gate"), widths), ("ba", ("beta", "decay"), (each, each))):
            if part[2].removesuffix(".weight") in parts:
                together = given.get(f"{layer}.linear_attn.in_proj_{joint}.weight")
                return _of_groups(together, m.groups, sizes, parts.index(part[2].removesuffix(".weight")))
        return _recurrent_weight(given, f"{layer}.linear_attn", part[2])
    if part := re.fullmatch(r"(layers\.\d+)\.attention\.(q|gate)\.weight", name):
        together = given.get(f"{part[1]}.self_attn.q_proj.weight")
        return _of_groups(together, config.heads, (config.head_width,) * 2, ("q", "gate").index(part[2]))
    if part := re.fullmatch(r"(layers\.\d+)\.feed_forward\.(router|experts|shared)\.(.*)", name):
        return _expert_weight(given, f"{part[1]}.mlp", part[2], part[3], config.experts_of(int(part[1][7:])))
    value = llama_weight(given, name, config)
    return _from_one(value) if name.endswith(".scale") else value


def _expert_weight(given: Arrays, place: str, kind: str, part: str, experts: Experts | None) -> NDArray[Any] | None:
    """Return the weights of all experts, of the shared one, or of what chooses."""
    if kind == "experts":
        assert experts is not None
        rows: list[NDArray[Any]] = []
        for i in range(experts.num_experts):  # a file may claim any number: the first that lacks ends it
            value = given.get(f"{place}.experts.{i}.{part}_proj.weight")
            if value is None or (rows and rows[0].shape != value.T.shape):
                return None
            rows.append(value.T)
        return np.stack(rows)
    if kind == "router":
        return transpose_weight(given, f"{place}.gate.weight")
    if part == "weight":
        return transpose_weight(given, f"{place}.shared_expert_gate.weight")
    return transpose_weight(given, f"{place}.shared_expert.{part.removesuffix('.weight')}_proj.weight")


def _from_one(value: NDArray[Any] | None) -> NDArray[Any] | None:
    """Return a scale that is kept as its distance from 1."""
    return None if value is None else 1 + value.astype(np.float64)


def _of_groups(joint: NDArray[Any] | None, groups: int, widths: Sequence[int], which: int) -> NDArray[Any] | None:
    """Return a part (in, columns) of a joint weight (out, in), whose rows are the parts of each group in turn."""
    if joint is None:
        return None
    if joint.ndim != 2 or len(joint) != groups * sum(widths):
        raise FileFormatError(f"a joint weight must have {groups * sum(widths)} rows; got shape {joint.shape}")
    begin = sum(widths[:which])
    part = joint.reshape(groups, sum(widths), -1)[:, begin : begin + widths[which]]
    return part.reshape(groups * widths[which], -1).T


def _recurrent_weight(given: Arrays, place: str, name: str) -> NDArray[Any] | None:
    """Return a parameter of a gated layer whose name and form Qwen3-Next and Mamba-2 share."""
    names = {
        "conv.weight": "conv1d.weight", "conv.bias": "conv1d.bias", "decay.log_rate": "A_log", "decay.bias": "dt_bias",
        "skip": "D", "out_norm.scale": "norm.weight", "out.weight": "out_proj.weight", "out.bias": "out_proj.bias",
    }  # fmt: skip
    value = given.get(f"{place}.{names.get(name, name)}")
    if value is None or value.ndim < 2:
        return value
    return value[:, 0].T if name == "conv.weight" and value.ndim == 3 else value.T


def mamba2_config(about: dict[str, Any]) -> Config:
    refuse_unless(about.get("hidden_act", "silu") == "silu", about, "hidden_act")
    limits = about.get("time_step_limit") or (0.0, "inf")
    limits = [each["__float__"] if isinstance(each, dict) else each for each in limits]  # JSON has no infinity
    refuse_unless([float(limit) for limit in limits] == [0.0, float("inf")], about, "time_step_limit")
    return Config(
        dim=about["hidden_size"],
        layers=about["num_hidden_layers"],
        heads=1,
        vocab=about["vocab_size"],
        hidden=0,
        norm="rms",
        eps=about.get("layer_norm_epsilon", 1e-5),
        positions=None,
        bias=about.get("use_bias", False),
        output="tied" if about.get("tie_word_embeddings", False) else "tokens",
        gated=Gated(
            member="mamba2",
            heads=about["num_heads"],
            key_dim=about["state_size"],
            value_dim=about["head_dim"],
            key_heads=about.get("n_groups", 8),
            conv=about.get("conv_kernel", 4),
            conv_bias=about.get("use_conv_bias", True),
        ),
    )


def mamba2_weight(given: Arrays, name: str, config: Config) -> NDArray[Any] | None:
    if name in (ends := {"embed.tokens": "embeddings.weight", "norm.scale": "norm_f.weight"}):
        return given.get(ends[name])
    if name == "output.weight":
        return given["lm_head.weight"].T
    if name == "output.bias":
        return np.zeros(config.vocab or 0)
    _, layer, _, part = name.split(".", 3)
    if part == "norm.scale":
        return given.get(f"layers.{layer}.norm.weight")
    m = config.mixer(int(layer))
    assert m is not None
    mixer, ours, end = f"layers.{layer}.mixer", *part.rpartition(".")[::2]
    columns = {"gate": m.values, "v": m.values, "k": m.keys, "q": m.keys, "decay": m.heads}
    if ours == "conv":  # of values, keys and queries, in this order
        value, channels = _recurrent_weight(given, mixer, part), m.values + 2 * m.keys
        if value is not None and (value.ndim not in (1, 2) or value.shape[-1] != channels):
            raise FileFormatError(f"a convolution must have {channels} channels; got shape {value.shape}")
        return None if value is None else value[..., np.r_[-m.keys : 0, m.values : m.values + m.keys, : m.values]]
    if ours in columns and (end == "weight" or (end == "bias" and ours != "decay")):
        return _columns_of(given.get(f"{mixer}.in_proj.{end}"), columns, ours)
    value = _recurrent_weight(given, mixer, part)
    if part == "decay.bias" and value is not None and config.bias:
        more = _columns_of(given.get(f"{mixer}.in_proj.bias"), columns, ours)
        return None if more is None else value.astype(np.float64) + more
    return value


def _columns_of(joint: NDArray[Any] | None, columns: dict[str, int], name: str) -> NDArray[Any] | None:
    """Return a part of a joint weight (out, in), or of its bias, as (in, columns)."""
    if joint is None:
        return None
    if joint.ndim not in (1, 2) or len(joint) != sum(columns.values()):
        raise FileFormatError(f"a joint weight must have {sum(columns.values())} rows; got shape {joint.shape}")
    ends = dict(zip(columns, np.cumsum(list(columns.values())).tolist(), strict=True))
    return joint[ends[name] - columns[name] : ends[name]].T
