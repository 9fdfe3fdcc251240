"""Short causal convolutions, by the names of the package causal_conv1d."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError, ShapeError
from kernattn.ops.causal_conv import OP
from kernattn.ops.causal_conv.reference import causal_conv
from kernattn.ops.causal_conv_step import OP as STEP
from kernattn.ops.causal_conv_step.reference import causal_conv_step
from kernattn.torch.fla._layout import step_in_pool

ACTIVATIONS = None, "silu", "swish"


def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Return :math:`y_t = f(b + \sum_j w_j x_{t - K + 1 + j})` of every channel, with zeros before the first token.

    Parameters
    ----------
    x : (B, C, T) tensor
        Tokens; those whose channels lie side by side in memory are read, and returned, as they lie.
    weight : (C, K) tensor
        Taps, the last of which is for the token itself.
    bias : (C,) tensor, optional
        What is added.
    seq_idx : (B, T) tensor of integers, optional
        Packed sequences: runs of equal numbers do not see each other. It excludes the three that follow.
    initial_states : (B, C, K - 1) tensor, optional
        The tokens before the first, in place of zeros.
    return_final_states : bool
        Return the last K - 1 tokens as well, from which the next call goes on.
    final_states_out : (B, C, K - 1) tensor, optional
        Where they are written.
    activation : {None, "silu", "swish"}
        The function f: none, or :math:`y / (1 + e^{-y})`.

    Returns
    -------
    out : (B, C, T) tensor
        Outputs, of the dtype of x.
    final_states : (B, C, K - 1) tensor
        Where asked for, of that dtype.

    Raises
    ------
    ShapeError, ParameterError
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import torch
    >>> from kernattn.torch.fla import causal_conv1d_fn
    >>> causal_conv1d_fn(torch.tensor([[[1.0, 2.0, 3.0]]]), torch.tensor([[1.0, 10.0]]))
    tensor([[[10., 21., 32.]]])
    """
    silu, tokens, before = _check(x, weight, bias, activation), x.mT, weight.shape[1] - 1
    if seq_idx is not None:
        if tuple(seq_idx.shape) != (x.shape[0], x.shape[2]):
            raise ShapeError(f"seq_idx must be (B, T), {(x.shape[0], x.shape[2])}; got shape {tuple(seq_idx.shape)}")
        if initial_states is not None or return_final_states:
            raise ParameterError("seq_idx excludes initial_states and return_final_states; take sequences one by one")
    for name, y in (("initial_states", initial_states), ("final_states_out", final_states_out)):
        if y is not None and tuple(y.shape) != (*x.shape[:2], before):
            raise ShapeError(f"{name} must be (B, C, K - 1), {(*x.shape[:2], before)}; got shape {tuple(y.shape)}")
    if initial_states is not None:
        tokens = torch.cat([initial_states.mT.to(x.dtype), tokens], dim=1)
    out = _convolved(tokens, weight, bias, silu, seq_idx)[:, tokens.shape[1] - x.shape[2] :].mT
    if not return_final_states:
        return out
    final = pad(tokens, (0, 0, before - tokens.shape[1], 0)).mT  # a width below 0 leaves out the first
    return out, final if final_states_out is None else final_states_out.copy_(final)


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
) -> Tensor:
    """Go on from the last tokens, which `conv_state` holds and is moved on by, in place.

    Parameters
    ----------
    x : (B, C) or (B, C, T) tensor
        The next token, or tokens.
    conv_state : (B, C, L) tensor
        The last L tokens before, L at least K - 1; afterwards, the last L with those of x.
    weight : (C, K) tensor
        Taps, as in `causal_conv1d_fn`.
    bias : (C,) tensor, optional
        What is added.
    activation : {None, "silu", "swish"}
        As in `causal_conv1d_fn`.
    cache_seqlens : None
        Not supported: `conv_state` begins with the oldest token.
    conv_state_indices : (B,) tensor of integers, optional
        Where the states of these tokens stand in `conv_state`, which is then a pool (N, C, L).

    Returns
    -------
    tensor
        Outputs, of the shape and dtype of x.

    Raises
    ------
    ShapeError, ParameterError
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import torch
    >>> from kernattn.torch.fla import causal_conv1d_update
    >>> state = torch.tensor([[[2.0]]])
    >>> causal_conv1d_update(torch.tensor([[3.0]]), state, torch.tensor([[1.0, 10.0]])), state
    (tensor([[32.]]), tensor([[[3.]]]))
    """
    if cache_seqlens is not None:
        raise ParameterError("cache_seqlens, for circular states, is not supported; conv_state begins with the oldest")
    if conv_state_indices is not None:
        return step_in_pool(
            conv_state, "conv_state_indices", conv_state_indices, len(x),
            lambda own: causal_conv1d_update(x, own, weight, bias, activation),
        )  # fmt: skip
    if x.ndim == 2:
        return causal_conv1d_update(x[..., None], conv_state, weight, bias, activation)[..., 0]
    silu = _check(x, weight, bias, activation)
    length = conv_state.shape[-1]
    if tuple(conv_state.shape[:-1]) != tuple(x.shape[:2]) or length < weight.shape[1] - 1:
        raise ShapeError(
            f"conv_state must be (B, C, L), {tuple(x.shape[:2])} and L at least {weight.shape[1] - 1}; "
            f"got shape {tuple(conv_state.shape)}"
        )
    if x.shape[2] > 1:
        whole = torch.cat([conv_state.to(x.dtype), x], dim=-1)
        conv_state.copy_(whole[..., x.shape[2] :])
        return _convolved(whole.mT, weight, bias, silu, None).mT[..., length:]
    run = causal_conv_step if torch.compiler.is_compiling() else STEP.implementation(x)
    out, after = run(conv_state, x[..., 0], weight, bias, silu)
    if after is not conv_state:
        conv_state.copy_(after)
    return out[..., None]


def _convolved(tokens: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, seq_idx: Tensor | None) -> Tensor:
    """Return outputs (B, T, C) of tokens (B, T, C)."""
    run = causal_conv if torch.compiler.is_compiling() else OP.implementation(tokens)
    out: Tensor = run(tokens, weight, bias, silu, seq_idx)
    return out


def _check(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Any) -> bool:
    """Return whether there is an activation; raise where an argument does not fit."""
    if x.ndim != 3:
        raise ShapeError(f"x must be (B, C, T); got shape {tuple(x.shape)}")
    channels = x.shape[1]
    if weight.ndim != 2 or weight.shape[0] != channels or not weight.shape[1]:
        raise ShapeError(f"weight must be (C, K) for {channels} channels; got shape {tuple(weight.shape)}")
    if bias is not None and tuple(bias.shape) != (channels,):
        raise ShapeError(f"bias must be (C,), {(channels,)}; got shape {tuple(bias.shape)}")
    if activation not in ACTIVATIONS:
        raise ParameterError(f"activation must be None, 'silu' or 'swish'; got {shown(activation)}")
    return activation is not None
