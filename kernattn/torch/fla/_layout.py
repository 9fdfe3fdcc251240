"""What all names have in common: tokens before heads, gates in the kernel, states and packed sequences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from kernattn._arrays.namespaces import accumulation_dtype
from kernattn._sums.units import decay_rate
from kernattn.attention import GatedState, gated_linear_attention, gated_linear_attention_step
from kernattn.attention._check_gates import refused_logs
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError, StateMismatchError


def run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None,
    initial_state: Tensor | None,
    output_final_state: bool,
    cu_seqlens: Tensor | None,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    beta: Tensor | None = None,
    erase: tuple[Tensor, Tensor] | None = None,
    constant: Tensor | None = None,
    names: dict[str, str] | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    transpose_state_layout: bool | None = None,
    chunk_size: int | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return outputs (B, T, HV, V) and the state (N, HV, K, V) of each sequence, None where it is not asked for.

    q and k are (B, T, H, K) and v (B, T, HV, V); a head of keys serves HV / H consecutive ones of values. g and beta
    are (B, T, HV), gk and both of `erase` (B, T, HV, K); `constant` (HV,) holds logs of decays. `names` says what a
    caller calls them. Chunks have a size of their own: another changes rounding alone.
    """
    names = names or {}
    _refuse(others)
    if transpose_state_layout is not None:
        if state_v_first:
            raise ParameterError("state_v_first and its old name transpose_state_layout exclude each other")
        warnings.warn("transpose_state_layout is now called state_v_first", DeprecationWarning, stacklevel=3)
        state_v_first = transpose_state_layout
    a, b = (None, None) if erase is None else erase
    given = {"q": q, "k": k, "v": v, "g": g, "gk": gk, "beta": beta, "a": a, "b": b}
    arrays = {name: x for name, x in given.items() if x is not None or name in ("q", "k", "v")}
    check_tensors(arrays if initial_state is None else {**arrays, "initial_state": initial_state}, names)
    _check(arrays, constant, names)
    wide = accumulation_dtype(torch, q)
    arrays |= {name: x.to(wide) for name, x in arrays.items() if x.dtype != wide and name not in ("q", "k", "v")}
    state = None if initial_state is None else initial_state.mT if state_v_first else initial_state
    sequences = q.shape[0] if cu_seqlens is None else check_packed(cu_seqlens, q)
    if state is not None:
        wanted = sequences, *v.shape[2:3], q.shape[3], v.shape[3]
        if tuple(state.shape) != wanted:
            raise StateMismatchError(
                f"initial_state must be (N, HV, K, V), {wanted}, with its last two axes exchanged where state_v_first; "
                f"got {tuple(state.shape)} in that order"
            )
        state = state.to(wide)
    constant = None if constant is None else constant.to(wide)
    attend = partial(_attend, constant=constant, scale=scale, l2_normalise=use_qk_l2norm_in_kernel, reverse=reverse)
    try:
        if cu_seqlens is None:
            out, after = attend(arrays, state)
        elif state is None and not output_final_state:
            out, after = attend(arrays, None, sequences_of(cu_seqlens, q))
        else:
            out, after = by_length(attend, arrays, state, cu_seqlens.tolist())
    except ParameterError as error:
        logs = {names.get(name, name): arrays.get(name) for name in ("g", "gk")}
        why = refused_logs(**logs, g_gamma=constant)
        raise (error if why is None else ParameterError(why)) from None  # by the names of the caller
    if not output_final_state:
        return out, None
    return out, after.mT.contiguous() if state_v_first else after


def _attend(
    arrays: dict[str, Tensor],
    state: Tensor | None,
    ids: Tensor | None = None,
    *,
    constant: Tensor | None,
    scale: float | None,
    l2_normalise: bool,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """Return outputs and the last states of sequences of one length."""
    if reverse:
        arrays = {name: x.flip(1) for name, x in arrays.items()}
        ids = None if ids is None else ids.flip(0)
    alone = arrays["q"].shape[1] == 1
    grouped = arrays["q"].shape[2], arrays["v"].shape[2] // arrays["q"].shape[2]
    rows = {name: _heads_first(x, name in ("q", "k"), grouped, alone) for name, x in arrays.items()}
    q, k, v, g = rows["q"], rows["k"], rows["v"], rows.get("g")
    if constant is not None:
        logs = constant.unflatten(0, grouped) if grouped[1] > 1 else constant
        logs = logs.expand(v.shape[:-1]) if alone else logs[..., None]
        g = logs if g is None else g + logs
    if state is not None and grouped[1] > 1:
        state = state.unflatten(1, grouped)
    beside = {"g": g, "gk": rows.get("gk"), "beta": rows.get("beta")}
    options: dict[str, Any] = {**beside, "scale": scale, "l2_normalise": l2_normalise}
    if "a" in rows:
        options["erase"] = rows["a"], rows["b"]
    before = None if state is None else GatedState(state)
    if alone:
        out, (after,) = gated_linear_attention_step(before, q, k, v, **options)
    else:
        out, (after,) = gated_linear_attention(q, k, v, state=before, segment_ids=ids, **options)
    if grouped[1] > 1:
        out, after = out.flatten(1, 2), after.flatten(1, 2)
    if alone:
        return out.unsqueeze(1), after
    out = out.transpose(1, 2)
    return (out.flip(1) if reverse else out).contiguous(), after


def _heads_first(x: Tensor, of_keys: bool, grouped: tuple[int, int], alone: bool) -> Tensor:
    """Return (B, H, T, ...), or (B, H, HV / H, T, ...) where there are more heads of values than of keys: a view.

    Of a token that is alone there is no axis T.
    """
    x = x.squeeze(1) if alone else x.transpose(1, 2)
    if grouped[1] == 1:
        return x
    return x.unsqueeze(2) if of_keys else x.unflatten(1, grouped)


def by_length(attend: Any, arrays: dict[str, Tensor], state: Tensor | None, bounds: list[int]) -> tuple[Tensor, Tensor]:
    """Return outputs of packed sequences side by side, and the state of each; an empty one keeps what it had.

    Those of one length are a batch.
    """
    lengths = [stop - start for start, stop in pairwise(bounds)]
    groups: dict[int, list[int]] = {}
    for at, length in enumerate(lengths):
        groups.setdefault(length, []).append(at)
    if len(groups) == 1:
        out, after = attend({name: x[0].unflatten(0, (-1, *groups)) for name, x in arrays.items()}, state)
        return out.flatten(0, 1)[None], after
    parts = {name: x[0].split(lengths) for name, x in arrays.items()}
    outs: dict[int, Tensor] = {}
    states: dict[int, Tensor] = {}
    q, v = arrays["q"], arrays["v"]
    for length, members in groups.items():
        before = None if state is None else state[members]
        if length:
            out, before = attend({name: _batch(x, members) for name, x in parts.items()}, before)
            outs |= dict(zip(members, out, strict=True))
        elif before is None:
            wide = accumulation_dtype(torch, v)
            before = v.new_zeros((len(members), v.shape[2], q.shape[3], v.shape[3]), dtype=wide)
        states |= dict(zip(members, before, strict=True))
    return torch.cat([outs[at] for at in sorted(outs)])[None], torch.stack([states[at] for at in range(len(lengths))])


def _batch(parts: tuple[Tensor, ...], members: list[int]) -> Tensor:
    """Return parts of one length as a batch; a single one lies where it is."""
    return parts[members[0]][None] if len(members) == 1 else torch.stack([parts[at] for at in members])


def _refuse(others: dict[str, Any]) -> None:
    """Raise where an argument asks for what there is not."""
    for name, value in others.items():
        if value is not None and value is not False:
            hint = "transpose to (B, T, heads, channels)" if name == "head_first" else "leave it out"
            raise ParameterError(f"{name} is not among what gated linear attention can do here; {hint}")


def check_tensors(given: dict[str, Any], names: dict[str, str] | None = None) -> None:
    """Raise where something is no tensor."""
    for name, x in given.items():
        if not isinstance(x, Tensor):
            hint = "; give its array, state.s" if isinstance(x, GatedState) else ""
            raise DTypeError(f"{(names or {}).get(name, name)} must be a tensor; got {type(x).__name__}{hint}")


def _check(arrays: dict[str, Tensor], constant: Tensor | None, names: dict[str, str]) -> None:
    """Raise where an array has not the layout of tokens before heads."""
    for name in ("q", "v"):
        if arrays[name].ndim != 4:
            shape = tuple(arrays[name].shape)
            raise ShapeError(f"{names.get(name, name)} must be (B, T, heads, channels); got shape {shape}")
    (b, t, h, d), (*_, heads, e) = arrays["q"].shape, arrays["v"].shape
    if not b * t * h * d * heads * e:
        raise EmptyInputError(f"no axis may be empty; got shapes {(b, t, h, d)} and {tuple(arrays['v'].shape)}")
    if heads % h:
        raise ShapeError(f"heads of v must be a multiple of those of {names.get('q', 'q')}, {h}; got {heads}")
    keys, values, rows, numbers = (b, t, h, d), (b, t, heads, e), (b, t, heads, d), (b, t, heads)
    wanted = {"q": keys, "k": keys, "v": values, "g": numbers, "beta": numbers}
    for name, x in arrays.items():
        if x.shape != wanted.get(name, rows):
            raise ShapeError(
                f"{names.get(name, name)} must be {wanted.get(name, rows)} beside {names.get('q', 'q')} of shape "
                f"{keys}; got {tuple(x.shape)}"
            )
    if constant is not None and tuple(constant.shape) != (heads,):
        raise ShapeError(f"g_gamma must be {(heads,)}, a number for each head; got shape {tuple(constant.shape)}")


def sequences_of(cu_seqlens: Tensor, q: Tensor) -> Tensor:
    """Return the number of each token's sequence (T,), of packed tokens (1, T, ...)."""
    places = torch.arange(q.shape[1], device=q.device)
    return torch.searchsorted(cu_seqlens[1:].to(places), places, right=True)


def check_packed(cu_seqlens: Tensor, q: Tensor, name: str = "q") -> int:
    """Return how many sequences are packed."""
    if not isinstance(cu_seqlens, Tensor):
        raise DTypeError(f"cu_seqlens must be a tensor of integers (N + 1,); got {type(cu_seqlens).__name__}")
    if cu_seqlens.ndim != 1 or len(cu_seqlens) < 2 or cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise DTypeError(
            f"cu_seqlens must be (N + 1,) integers; got {cu_seqlens.dtype} of shape {tuple(cu_seqlens.shape)}"
        )
    if q.shape[0] != 1:
        raise ShapeError(f"packed sequences lie in a batch of 1; got {name} {tuple(q.shape)} beside cu_seqlens")
    if not torch.compiler.is_compiling():
        bounds = cu_seqlens.tolist()
        if bounds[0] != 0 or bounds[-1] != q.shape[1] or bounds != sorted(bounds):
            raise ParameterError(f"cu_seqlens must rise from 0 to the number of tokens, {q.shape[1]}; got {bounds}")
    return len(cu_seqlens) - 1


def step_in_pool(pool: Tensor, name: str, indices: Tensor, tokens: int, step: Callable[[Tensor], Tensor]) -> Tensor:
    """Take a step of so many tokens from rows of a pool of states, which are renewed there."""
    if not isinstance(indices, Tensor) or indices.dtype not in (torch.int32, torch.int64):
        raise DTypeError(
            f"{name} must be a tensor of integers; got {getattr(indices, 'dtype', type(indices).__name__)}"
        )
    if tuple(indices.shape) != (tokens,):
        raise ShapeError(f"{name} must be {(tokens,)}, a row of the pool for each token; got {tuple(indices.shape)}")
    if not torch.compiler.is_compiling():
        rows = indices.tolist()
        if len(set(rows)) < tokens or min(rows) < 0 or max(rows) >= len(pool):
            raise ParameterError(f"{name} must name rows of the pool, 0 to {len(pool) - 1}, each once; got {rows}")
    at = indices.long()
    states = pool[at]
    out = step(states)
    pool[at] = states
    return out


def gate(g: Any, a_log: Tensor | None, dt_bias: Tensor | None, lower_bound: float | None = None) -> Tensor:
    r"""Return :math:`-e^A \log(1 + e^{g + b})`, or :math:`l\,\sigma(e^A (g + b))` of a lower bound l; no A is 0."""
    if a_log is None and lower_bound is None:
        raise ParameterError("use_gate_in_kernel=True needs A_log, the logarithm of each head's rate")
    check_tensors({"g": g})
    wide = accumulation_dtype(torch, g)
    heads, channels = g.shape[2], g.shape[3:]
    own = 1.0 if a_log is None else decay_rate(a_log.to(wide)).reshape(heads, *(1 for _ in channels))
    x = g.to(wide)
    if dt_bias is not None:
        x = x + dt_bias.to(wide).reshape(heads, *channels)
    return -own * softplus(x) if lower_bound is None else lower_bound * torch.sigmoid(own * x)


def strength(beta: Tensor, use_sigmoid: bool, allow_neg_eigval: bool) -> Tensor:
    """Return beta, or its sigmoid, which is doubled where eigenvalues may be negative."""
    check_tensors({"beta": beta})
    if not use_sigmoid:
        if allow_neg_eigval:
            raise ParameterError("allow_neg_eigval=True needs use_beta_sigmoid_in_kernel=True")
        return beta
    wide = accumulation_dtype(torch, beta)
    return beta.to(wide).sigmoid() * (2 if allow_neg_eigval else 1)
