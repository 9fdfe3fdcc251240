"""RWKV: version 6 reads a state before its token is in it, version 7 erases by a pair of rows."""

from typing import Any

import torch
from torch import Tensor

from kernattn._arrays.namespaces import accumulation_dtype
from kernattn.errors import ShapeError
from kernattn.torch.fla._layout import check_tensors, run, sequences_of

NAMES = {"q": "r", "gk": "w"}


def chunk_rwkv6(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    u: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    r"""Run RWKV-6 (Peng et al. 2024), :math:`o_t = (S_{t-1} + \mathrm{diag}(u) k_t v_t^T)^T r_t`.

    :math:`S_t = \mathrm{diag}(e^{w_t}) S_{t-1} + k_t v_t^T`. w (B, T, H, K) has logs of decays, and u is (H, K).
    Arguments are otherwise those of `chunk_gated_delta_rule`.
    """
    return _before_its_token(r, k, v, w, u, scale, initial_state, output_final_state, False, cu_seqlens, others)


def fused_recurrent_rwkv6(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    u: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Like `chunk_rwkv6`; with `reverse`, from the last token to the first."""
    return _before_its_token(r, k, v, w, u, scale, initial_state, output_final_state, reverse, cu_seqlens, others)


def _before_its_token(
    r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor, scale: float | None, initial_state: Tensor | None,
    output_final_state: bool, reverse: bool, cu_seqlens: Tensor | None, others: dict[str, Any],
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Read each token's state one place early: a token of nothing goes ahead of each sequence."""
    check_tensors({"r": r, "k": k, "v": v, "w": w, "u": u})
    if r.ndim != 4 or u.shape != r.shape[2:]:
        raise ShapeError(f"r must be (B, T, H, K) and u (H, K); got shapes {tuple(r.shape)} and {tuple(u.shape)}")
    t, sequences = r.shape[1], 1
    places = torch.arange(t, device=r.device)
    if cu_seqlens is not None:
        sequences = len(cu_seqlens) - 1
        places = places + sequences_of(cu_seqlens, r)
        cu_seqlens = cu_seqlens + torch.arange(sequences + 1, dtype=cu_seqlens.dtype, device=cu_seqlens.device)
    reads, writes = (places + 1, places) if reverse else (places, places + 1)
    wide = accumulation_dtype(torch, r)

    def spread(x: Tensor, at: Tensor) -> Tensor:  # wide, for the sum with what the token itself gives is rounded once
        return x.new_zeros((x.shape[0], t + sequences, *x.shape[2:]), dtype=wide).index_copy(1, at, x.to(wide))

    out, state = run(
        spread(r, reads), spread(k, writes), spread(v, writes), gk=spread(w, writes), names=NAMES, scale=scale,
        initial_state=initial_state, output_final_state=output_final_state, reverse=reverse, cu_seqlens=cu_seqlens,
        **others,
    )  # fmt: skip
    own = (r.to(wide) * u * k).sum(-1, keepdim=True) * (r.shape[-1] ** -0.5 if scale is None else scale)
    return (out[:, reads] + own * v).to(v.dtype), state


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
    r"""Run RWKV-7 (Peng et al. 2025), :math:`S_t = (\mathrm{diag}(e^{w_t}) + b_t a_t^T) S_{t-1} + k_t v_t^T`.

    w (B, T, H, K) has logs of decays; r, k, a and b are of that shape. Arguments are otherwise those of
    `chunk_gated_delta_rule`, but for the scale, which is 1 by default.
    """
    check_tensors({"w": w, "a": a, "b": b})
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
    check_tensors({"w": w, "a": a, "b": b})
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
    check_tensors({"w": w, "kk": kk, "a": a})
    return run(
        r, k, v, gk=w, erase=(-kk, kk * a), names=NAMES, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, reverse=reverse, cu_seqlens=cu_seqlens, **others,
    )  # fmt: skip
