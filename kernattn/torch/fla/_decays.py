"""Decays without a rule that erases: one for each head, a constant one, one for each channel."""

from typing import Any

import torch
from torch import Tensor

from kernattn._arrays.namespaces import accumulation_dtype
from kernattn.attention import gates
from kernattn.torch.fla._layout import check_tensors, run


def chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    r"""Run linear attention with a decay for each head, :math:`S_t = e^{g_t} S_{t-1} + k_t v_t^T`.

    Arguments are those of `chunk_gated_delta_rule`, with logs of decays in g (B, T, H), or constant in `g_gamma` (H,),
    or both.
    """
    return run(
        q, k, v, g=g, constant=g_gamma, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, state_v_first=state_v_first, cu_seqlens=cu_seqlens, **others,
    )  # fmt: skip


def fused_recurrent_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Like `chunk_simple_gla`; with `reverse`, from the last token to the first."""
    return run(
        q, k, v, g=g, constant=g_gamma, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, reverse=reverse, state_v_first=state_v_first, cu_seqlens=cu_seqlens,
        **others,
    )  # fmt: skip


def chunk_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    r"""Run gated linear attention (Yang et al. 2024), :math:`S_t = \mathrm{diag}(e^{g_t}) S_{t-1} + k_t v_t^T`.

    Arguments are those of `chunk_gated_delta_rule`, but g is (B, T, H, K).
    """
    check_tensors({"g": g})
    return run(
        q, k, v, gk=g, names={"gk": "g"}, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, state_v_first=state_v_first, cu_seqlens=cu_seqlens,
    )  # fmt: skip


def fused_recurrent_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Like `chunk_gla`, with logs in `gk`; with `reverse`, from the last token to the first. `gv` is not supported."""
    return run(
        q, k, v, gk=gk, gv=gv, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
        reverse=reverse, state_v_first=state_v_first, cu_seqlens=cu_seqlens, **others,
    )  # fmt: skip


def chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    r"""Run RetNet's retention (Sun et al. 2023), :math:`S_t = (1 - 2^{-5 - h}) S_{t-1} + k_t v_t^T` for head h.

    Arguments are those of `chunk_gated_delta_rule`.
    """
    return run(
        q, k, v, constant=_of_retention(q), scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, cu_seqlens=cu_seqlens, **others,
    )  # fmt: skip


def fused_recurrent_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Like `chunk_retention`; with `reverse`, from the last token to the first."""
    return run(
        q, k, v, constant=_of_retention(q), scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, reverse=reverse, state_v_first=state_v_first, cu_seqlens=cu_seqlens,
        **others,
    )  # fmt: skip


def chunk_lightning_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layer_idx: int,
    num_layers: int,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    r"""Run lightning attention, :math:`S_t = e^{g} S_{t-1} + k_t v_t^T`.

    Here :math:`g = -8 h / H\,(1 - \ell / L)` for head h and layer l of L.

    Arguments are those of `chunk_gated_delta_rule`. MiniMax's own models have other decays: `kernattn.gates.lightning`.
    """
    return run(
        q, k, v, constant=_of_lightning(q, layer_idx, num_layers), scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, cu_seqlens=cu_seqlens, **others,
    )  # fmt: skip


def fused_recurrent_lightning_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layer_idx: int,
    num_layers: int,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Like `chunk_lightning_attn`; with `reverse`, from the last token to the first."""
    return run(
        q, k, v, constant=_of_lightning(q, layer_idx, num_layers), scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, reverse=reverse, cu_seqlens=cu_seqlens, **others,
    )  # fmt: skip


def _of_retention(q: Tensor) -> Tensor:
    check_tensors({"q": q})
    logs: Tensor = gates.retention(q.shape[2], like=q)["g"]
    return logs[:, 0]


def _of_lightning(q: Tensor, layer: int, layers: int) -> Tensor:
    check_tensors({"q": q})
    heads = torch.arange(q.shape[2], dtype=accumulation_dtype(torch, q), device=q.device)
    return -(8 / q.shape[2] * (1 - layer / layers)) * heads
