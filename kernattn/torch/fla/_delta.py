"""The delta rule, with a decay for each head, with one for each channel, and without."""

from typing import Any

from torch import Tensor

from kernattn.torch.fla._layout import check_tensors, gate, run, strength


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    cp_context: Any = None,
    *,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    r"""Run the gated delta rule (Yang, Kautz and Hatamizadeh 2024).

    :math:`S_t = (I - \beta_t k_t k_t^T) e^{g_t} S_{t-1} + \beta_t k_t v_t^T`

    Parameters
    ----------
    q, k : (B, T, H, K) tensor
        Queries and keys.
    v : (B, T, HV, V) tensor
        Values; HV is a multiple of H, and a head of keys serves HV / H consecutive heads of values.
    g : (B, T, HV) tensor or None
        Natural logarithms of decays, at most 0; with `use_gate_in_kernel`, what they are made of.
    beta : (B, T, HV) tensor
        How much of what k reads is replaced by v; with `use_beta_sigmoid_in_kernel`, its logit.
    scale : float, optional
        The factor of outputs; :math:`K^{-1/2}` by default.
    initial_state : (N, HV, K, V) tensor, optional
        The state of each sequence before its tokens.
    output_final_state : bool
        Return the states after them.
    use_qk_l2norm_in_kernel : bool
        Divide queries and keys by :math:`(x^T x + 10^{-6})^{1/2}` first.
    use_beta_sigmoid_in_kernel, allow_neg_eigval : bool
        Take :math:`\sigma(\beta)`, or :math:`2 \sigma(\beta)`.
    state_v_first : bool
        States are (N, HV, V, K).
    cu_seqlens : (N + 1,) tensor of integers, optional
        Where packed sequences begin and end in a batch of 1.
    cu_seqlens_cpu : tensor, optional
        The same; `cu_seqlens` is read.
    cp_context : None
        Not supported, as no other name of `others` that changes results.
    use_gate_in_kernel : bool
        The gate is :math:`-e^A \log(1 + e^{g + b})`.
    A_log, dt_bias : (HV,) tensor, optional
        Its parameters A and b.
    **others
        `chunk_size`, which changes nothing but rounding, and `transpose_state_layout`, the old name of `state_v_first`.

    Returns
    -------
    o : (B, T, HV, V) tensor
        Outputs, of the dtype of v.
    final_state : (N, HV, K, V) tensor or None
        States, float32 (float64 for float64 tensors).

    Raises
    ------
    ShapeError, DTypeError, ParameterError, StateMismatchError
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import torch
    >>> from kernattn.torch.fla import chunk_gated_delta_rule
    >>> k, v = torch.ones(1, 3, 1, 1), torch.tensor([8.0, 4.0, 2.0]).reshape(1, 3, 1, 1)
    >>> o, _ = chunk_gated_delta_rule(k, k, v, g=torch.zeros(1, 3, 1), beta=torch.ones(1, 3, 1))
    >>> o.flatten()  # the same key again: its value is replaced
    tensor([8., 4., 2.])
    """
    return run(
        q, k, v, g=gate(g, A_log, dt_bias) if use_gate_in_kernel else g,
        beta=strength(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval), scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        state_v_first=state_v_first, cu_seqlens=cu_seqlens, cp_context=cp_context, **others,
    )  # fmt: skip


def fused_recurrent_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Like `chunk_gated_delta_rule`, with gk (B, T, HV, K) besides g and beta = 1 by default; no `gv`."""
    return run(
        q, k, v, g=gate(g, A_log, dt_bias) if use_gate_in_kernel else g, gk=gk, gv=gv,
        beta=strength(_ones(v) if beta is None else beta, use_beta_sigmoid_in_kernel, allow_neg_eigval), scale=scale,
        initial_state=initial_state, output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, state_v_first=state_v_first, cu_seqlens=cu_seqlens, **others,
    )  # fmt: skip


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    cp_context: Any = None,
    *,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    r"""Run Kimi Delta Attention (Kimi 2025).

    :math:`S_t = (I - \beta_t k_t k_t^T) \mathrm{diag}(e^{g_t}) S_{t-1} + \beta_t k_t v_t^T`

    Arguments are those of `chunk_gated_delta_rule`, but g is (B, T, HV, K) and `dt_bias` (HV K,). With
    `use_gate_in_kernel` and a `lower_bound` l, the gate is :math:`l\,\sigma(e^A (g + b))`, and A may be left out.
    `safe_gate` and `disable_recompute` change no result; `return_intermediate_states` is not supported.
    """
    check_tensors({"g": g})
    return run(
        q, k, v, gk=gate(g, A_log, dt_bias, lower_bound) if use_gate_in_kernel else g, names={"gk": "g"},
        beta=strength(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval), scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        state_v_first=state_v_first, cu_seqlens=cu_seqlens, cp_context=cp_context,
        return_intermediate_states=return_intermediate_states, **others,
    )  # fmt: skip


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Like `chunk_kda`, in another order of arguments."""
    check_tensors({"g": g})
    return run(
        q, k, v, gk=gate(g, A_log, dt_bias, lower_bound) if use_gate_in_kernel else g, names={"gk": "g"},
        beta=strength(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval), scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        state_v_first=state_v_first, cu_seqlens=cu_seqlens, **others,
    )  # fmt: skip


def chunk_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    r"""Run the delta rule (Yang et al. 2024), :math:`S_t = (I - \beta_t k_t k_t^T) S_{t-1} + \beta_t k_t v_t^T`.

    Arguments are those of `chunk_gated_delta_rule`.
    """
    check_tensors({"beta": beta})
    return run(
        q, k, v, beta=beta, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, cu_seqlens=cu_seqlens, **others,
    )  # fmt: skip


def fused_recurrent_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Like `chunk_delta_rule`, with beta = 1 by default."""
    return run(
        q, k, v, beta=_ones(v) if beta is None else beta, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, cu_seqlens=cu_seqlens,
    )  # fmt: skip


def _ones(v: Tensor) -> Tensor:
    check_tensors({"v": v})
    return v.new_ones(v.shape[:3])
