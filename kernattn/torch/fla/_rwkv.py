"""RWKV-7, which erases by a pair of rows."""

from typing import Any

from torch import Tensor

from kernattn.torch.fla._layout import run

NAMES = {"q": "r", "gk": "w"}


def chunk_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    safe_gate: bool = False,
    chunk_size: int | None = None,
    disable_recompute: bool = False,
    cp_context: Any = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    r""":math:`S_t = (\mathrm{diag}(e^{w_t}) + b_t a_t^T) S_{t-1} + k_t v_t^T`, read by r (Peng et al. 2025).

    w (B, T, H, K) has logs of decays; r, k, a and b are of that shape. Arguments are otherwise those of
    `chunk_gated_delta_rule`, but for the scale, which is 1 by default.
    """
    return run(
        r, k, v, gk=w, erase=(a, b), names=NAMES, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, cu_seqlens=cu_seqlens, cp_context=cp_context, **others,
    )  # fmt: skip


def fused_recurrent_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = True,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    r"""Like `chunk_rwkv7`, with :math:`K^{-1/2}` for the scale and states returned by default."""
    return run(
        r, k, v, gk=w, erase=(a, b), names=NAMES, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, cu_seqlens=cu_seqlens, **others,
    )  # fmt: skip


def fused_mul_recurrent_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    kk: Tensor,
    a: Tensor,
    scale: float | None = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Like `chunk_rwkv7` with a = -kk and b = kk a; with `reverse`, from the last token to the first."""
    return run(
        r, k, v, gk=w, erase=(-kk, kk * a), names=NAMES, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, reverse=reverse, cu_seqlens=cu_seqlens, **others,
    )  # fmt: skip
