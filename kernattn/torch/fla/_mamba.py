"""Mamba-2's state space, by the names of the package mamba_ssm: one decay for each head."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, silu, softplus

from kernattn._arrays.namespaces import accumulation_dtype
from kernattn.attention import GatedState, gated_linear_attention
from kernattn.attention._check_gates import FEW, largest
from kernattn.errors import ParameterError, ShapeError
from kernattn.ops.selective_step import OP as STEP
from kernattn.ops.selective_step.reference import selective_step
from kernattn.torch._recorded import SEEN
from kernattn.torch.fla._layout import by_length, check_packed, sequences_of, step_in_pool

LEAST = {dtype: torch.finfo(dtype).min for dtype in (torch.float32, torch.float64)}


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int | None = None,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    r"""Run Mamba-2's state space (Dao and Gu 2024).

    :math:`S_t = e^{\Delta_t A} S_{t-1} + \Delta_t x_t B_t^T` and :math:`y_t = S_t C_t + D x_t`. It is
    `kernattn.gated_linear_attention` of `kernattn.gates.mamba2`.

    Parameters
    ----------
    x : (batch, T, heads, p) tensor
        What enters the state.
    dt : (batch, T, heads) tensor
        Steps :math:`\Delta`, or what they are made of.
    A : (heads,) tensor
        Rates, below 0.
    B, C : (batch, T, groups, n) tensor
        How x enters the state, and how it is read; a group serves heads that follow one another.
    chunk_size : int, optional
        Changes nothing but rounding.
    D : (heads,) or (heads, p) tensor, optional
        What of x is added to the output.
    z : (batch, T, heads, p) tensor, optional
        Outputs are multiplied by :math:`z / (1 + e^{-z})`.
    dt_bias : (heads,) tensor, optional
        What is added to `dt` first.
    initial_states : (batch, heads, p, n) tensor, optional
        States before the first token.
    seq_idx : (batch, T) tensor of integers, optional
        Packed sequences: runs of equal numbers do not see each other.
    cu_seqlens : (N + 1,) tensor of integers, optional
        Where packed sequences begin and end in a batch of 1; they do not see each other, whatever `seq_idx` says.
    dt_softplus : bool
        Steps are :math:`\log(1 + e^{dt})`.
    dt_limit : pair of float
        Bounds of steps.
    return_final_states : bool
        Return the states after the last token as well.
    return_varlen_states : bool
        Return the state after each sequence of `cu_seqlens` as well. `initial_states` is that before the first.

    Returns
    -------
    out : (batch, T, heads, p) tensor
        Outputs, of the dtype of x.
    states : (batch, heads, p, n) tensor
        Where asked for: float32, or float64 for float64 tensors.
    varlen_states : (N, heads, p, n) tensor
        Where asked for, of that dtype; zeros of a sequence without tokens.

    Raises
    ------
    ShapeError, DTypeError, ParameterError, StateMismatchError
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import torch
    >>> from kernattn.torch.fla import mamba_chunk_scan_combined
    >>> ones = torch.ones(1, 3, 1, 1)
    >>> mamba_chunk_scan_combined(ones, ones[..., 0], -torch.ones(1), ones, ones).flatten()
    tensor([1.0000, 1.3679, 1.5032])
    """
    if x.ndim != 4 or B.ndim != 4:
        raise ShapeError(
            f"x must be (batch, T, heads, p) and B (batch, T, groups, n); got {tuple(x.shape)} and {tuple(B.shape)}"
        )
    heads, groups, wide = x.shape[2], B.shape[2], accumulation_dtype(torch, x)
    if heads % groups:
        raise ShapeError(f"heads of x must be a multiple of the groups of B, {groups}; got {heads}")
    _check(x, dt, A, B, C, D, z, dt_bias)
    if return_varlen_states and cu_seqlens is None:
        raise ParameterError("return_varlen_states needs cu_seqlens, where sequences begin and end")
    if seq_idx is not None and seq_idx.shape != x.shape[:2]:
        raise ShapeError(f"seq_idx must be (batch, T), {tuple(x.shape[:2])}; got {tuple(seq_idx.shape)}")
    step = _steps(dt.to(wide), dt_bias, dt_softplus).clamp(*dt_limit)
    rows = {"q": C.to(wide), "k": B.to(wide), "v": x.to(wide) * step[..., None], "g": step * _rates(A, wide)}
    state = None if initial_states is None else initial_states.to(wide).mT
    varlen: tuple[Tensor, ...] = ()
    try:
        if return_varlen_states and cu_seqlens is not None and x.shape[1]:
            check_packed(cu_seqlens, x, "x")
            y, after, each = _scan_apart(rows, state, seq_idx, cu_seqlens.tolist())
            varlen = (each.mT.contiguous(),)
        else:
            y, after = _scan(rows, state, _sequences(x, seq_idx, cu_seqlens))
    except ParameterError as error:
        raise (ParameterError(_why_it_grows(A, step)) if largest(rows["g"]) > 0 else error) from None
    out = _finish(y, x.to(wide), D, z).to(x.dtype).contiguous()
    final = (after.mT.contiguous(),) if return_final_states else ()
    return (out, *final, *varlen) if final or varlen else out


def _scan(rows: dict[str, Tensor], state: Tensor | None, ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return outputs (batch, T, heads, p) and the states (batch, heads, n, p) after the last token."""
    rows = dict(rows)
    ids = rows.pop("ids", ids)
    by_group = rows["q"].shape[2], rows["v"].shape[2] // rows["q"].shape[2]
    q, k = (rows[name].transpose(1, 2).unsqueeze(2) for name in ("q", "k"))
    v, g = (rows[name].transpose(1, 2).unflatten(1, by_group) for name in ("v", "g"))
    before = None if state is None else GatedState(state.unflatten(1, by_group))
    ids = None if ids is None else ids[:, None, None]
    y, (after,) = gated_linear_attention(q, k, v, g=g, scale=1.0, state=before, segment_ids=ids)
    return y.flatten(1, 2).transpose(1, 2), after.flatten(1, 2)


def _scan_apart(
    rows: dict[str, Tensor], state: Tensor | None, ids: Tensor | None, bounds: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs, the state after the last token, and that after each of the packed sequences."""
    filled = [at for at, (start, stop) in enumerate(pairwise(bounds)) if stop > start]
    if state is not None:
        state = torch.cat([state if at == filled[0] else torch.zeros_like(state) for at in range(len(bounds) - 1)])
    y, each = by_length(_scan, rows if ids is None else {**rows, "ids": ids}, state, bounds)
    return y, each[filled[-1] :][:1], each


def _sequences(x: Tensor, seq_idx: Tensor | None, cu_seqlens: Tensor | None) -> Tensor | None:
    """Return a number (batch, T) of each token's sequence; another begins where one of the arguments says so."""
    if cu_seqlens is None:
        return seq_idx
    check_packed(cu_seqlens, x, "x")
    packed = sequences_of(cu_seqlens, x)[None]
    if seq_idx is None:
        return packed
    return pad(((seq_idx.diff() != 0) | (packed.diff() != 0)).cumsum(-1), (1, 0))


def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: Tensor | None = None,
) -> Tensor:
    r"""Take one token of `mamba_chunk_scan_combined`, with its state renewed in place.

    Parameters
    ----------
    state : (batch, heads, p, n) tensor
        The state before the token, and afterwards the one after it.
    x : (batch, heads, p) tensor
        The token.
    dt : (batch, heads) or (batch, heads, p) tensor
        Its step, or what it is made of. Here, and in A and `dt_bias`, numbers are the same along further axes.
    A : (heads,) or (heads, p, n) tensor
        Rates, below 0.
    B, C : (batch, groups, n) tensor
        How x enters the state, and how it is read.
    D : (heads,) or (heads, p) tensor, optional
        What of x is added to the output.
    z : (batch, heads, p) tensor, optional
        Outputs are multiplied by :math:`z / (1 + e^{-z})`.
    dt_bias : (heads,) or (heads, p) tensor, optional
        What is added to `dt` first.
    dt_softplus : bool
        The step is :math:`\log(1 + e^{dt})`.
    state_batch_indices : (batch,) tensor of integers, optional
        Where the states of these tokens stand in `state`, which is then a pool (N, heads, p, n).

    Returns
    -------
    (batch, heads, p) tensor
        The output, of the dtype of x.

    Raises
    ------
    ShapeError, ParameterError
        Before any work, if an argument does not fit, or rates of a head differ, as those of Mamba-1 do; where values
        can be looked at, if a rate is above 0, or a step below.

    Examples
    --------
    >>> import torch
    >>> from kernattn.torch.fla import selective_state_update
    >>> state, ones = torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1)
    >>> selective_state_update(state, ones, ones[..., 0], -torch.ones(1), ones, ones).flatten(), state.flatten()
    (tensor([1.3679]), tensor([1.3679]))
    """
    if state_batch_indices is not None:
        return step_in_pool(
            state, "state_batch_indices", state_batch_indices, len(x),
            lambda own: selective_state_update(own, x, dt, A, B, C, D, z, dt_bias, dt_softplus),
        )  # fmt: skip
    if state.ndim != 4 or tuple(state.shape[:3]) != tuple(x.shape):
        raise ShapeError(
            f"state must be (batch, heads, p, n) and x (batch, heads, p); got {tuple(state.shape)} and {tuple(x.shape)}"
        )
    for name, y in (("B", B), ("C", C)):
        if y.ndim != 3 or (y.shape[0], y.shape[2]) != (state.shape[0], state.shape[3]) or x.shape[1] % y.shape[1]:
            raise ShapeError(
                f"{name} must be (batch, groups, n) beside a state {tuple(state.shape)}; got {tuple(y.shape)}"
            )
    A, dt = _one_a_head("A", A, 1), _one_a_head("dt", dt, 2)
    dt_bias = None if dt_bias is None else _one_a_head("dt_bias", dt_bias, 1)
    D = D if D is None or any(D.stride()[1:]) else D[(..., *[0] * (D.ndim - 1))]
    _check(x, dt, A, B, C, D, z, dt_bias)
    later = z is not None or (D is not None and D.ndim > 1)
    wide = accumulation_dtype(torch, x)
    step = _steps(dt.to(wide), dt_bias, dt_softplus)
    if not torch.compiler.is_compiling() and (_above_0(A) or (not dt_softplus and _above_0(-step))):
        raise ParameterError(_why_it_grows(A, step))
    before = state.to(wide)
    if torch.is_grad_enabled() and before is state and any(y.requires_grad for y in (state, x, dt, A, B, C)):
        before = state.clone()  # gradients need what was there
    run, token = selective_step if torch.compiler.is_compiling() else STEP.implementation(x), x.to(wide) if later else x
    out, after = run(before, token, step, _rates(A, wide), B, C, None if later else D)
    if after is not state:
        state.copy_(after)
    return _finish(out, token, D, z).to(x.dtype) if later else out


def _rates(A: Tensor, wide: torch.dtype) -> Tensor:
    """Return rates, finite even where e^A_log was not: infinity times a step of 0 would be NaN."""
    return A.to(wide).clamp(min=LEAST[wide])


def _above_0(x: Tensor) -> bool:
    """Is a number above 0? Of few, as a step has, Python finds it sooner than a loan to NumPy."""
    if x.numel() <= FEW and x.device.type == "cpu" and not SEEN(x):
        return any(each > 0 for each in x.flatten().tolist())
    return largest(x) > 0


def _why_it_grows(A: Tensor, step: Tensor) -> str:
    """Return why a state grows: a decay's logarithm, a step times a rate, is above 0."""
    if (most := largest(A)) > 0:
        return f"A must hold rates, at most 0; got {most:g}"
    return f"dt must hold steps, at least 0; got {-largest(-step):g}"


def _check(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None, dt_bias: Tensor | None
) -> None:
    """Raise where an argument does not fit x (..., heads, p) and B (..., groups, n)."""
    size, groups = tuple(x.shape), (*x.shape[:-2], *B.shape[-2:])
    by_head, numbers = size[:-1], size[-2:-1]
    if (
        dt.shape == by_head and A.shape == numbers and B.shape == groups and C.shape == groups
        and (D is None or D.shape == numbers)
        and (z is None or z.shape == size)
        and (dt_bias is None or dt_bias.shape == numbers)
    ):  # fmt: skip
        return  # a step has no time to say more
    fits = {
        "dt": (dt, (by_head,)), "A": (A, (numbers,)), "B": (B, (groups,)), "C": (C, (groups,)),
        "D": (D, (numbers, size[-2:])), "z": (z, (size,)), "dt_bias": (dt_bias, (numbers,)),
    }  # fmt: skip
    for name, (y, shapes) in fits.items():
        if y is not None and tuple(y.shape) not in shapes:
            wanted = " or ".join(map(str, shapes))
            raise ShapeError(f"{name} must be {wanted} beside x {size}; got {tuple(y.shape)}")


def _steps(dt: Tensor, bias: Tensor | None, made: bool) -> Tensor:
    """Return steps, made of `dt` and its bias."""
    if bias is not None:
        dt = dt + bias.to(dt.dtype)
    return softplus(dt) if made else dt


def _finish(out: Tensor, x: Tensor, d: Tensor | None, z: Tensor | None) -> Tensor:
    """Return outputs (..., heads, p) with what is added of x, times silu(z)."""
    if d is not None:
        out = torch.addcmul(out, x, d.to(out.dtype).reshape(x.shape[-2], -1))
    return out if z is None else out * silu(z.to(out.dtype))


def _one_a_head(name: str, x: Tensor, axes: int) -> Tensor:
    """Return the number of each head of what may have been expanded along further axes; in graphs none is compared."""
    if x.ndim <= axes:
        return x
    own: Any = x[(..., *[0] * (x.ndim - axes))]
    if torch.compiler.is_compiling() or not any(x.stride()[axes:]):
        return own
    if not torch.equal(x, own[(..., *[None] * (x.ndim - axes))].expand_as(x)):
        raise ParameterError(
            f"{name} must be the same along the axes after heads, as Mamba-2 has it; got others, as Mamba-1 has them"
        )
    return own
