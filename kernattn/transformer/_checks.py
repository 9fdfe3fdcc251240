"""What is checked before any work."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import INTEGERS, Array, dtype_name, namespace, placement
from kernattn._runtime.checks import instance_of, shown
from kernattn.attention import LinearState, WindowState
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError, StateMismatchError
from kernattn.transfer import Transfer
from kernattn.transformer._attention import (
    Exact,
    HeadAttention,
    KeysValues,
    Kind,
    LayerState,
    Memory,
    resolve_attention,
)
from kernattn.transformer._config import Config
from kernattn.transformer._gated import GatedLayer
from kernattn.transformer._halves import row_dtype
from kernattn.transformer._params import check_params
from kernattn.transformer._parts import Params
from kernattn.transformer._positions import limit


def check_call(
    params: Params,
    config: Config,
    x: Array,
    attention: Kind | Transfer | Sequence[Kind],
    mask: Array | None,
    memory: Memory | None,
) -> list[HeadAttention]:
    """Check the arguments of a model, and return the attention of each layer."""
    instance_of("config", config, Config)
    beside = check_params(params, config)
    namespace(params=beside, x=x, **({} if mask is None else {"key_mask": mask}))
    how = resolve_attention(attention, config.layers)
    if config.vocab is not None:
        if dtype_name(x) not in INTEGERS or x.ndim < 1:
            raise DTypeError(f"x must be integers (..., n), as the config has vocab; got {dtype_name(x)}{x.shape}")
        lead = tuple(x.shape)
    else:
        if x.ndim < 2 or x.shape[-1] != config.inputs or dtype_name(x) != row_dtype(beside):
            raise ShapeError(
                f"x must be (..., n, {config.inputs}) of {row_dtype(beside)}; got {dtype_name(x)}{tuple(x.shape)}"
            )
        lead = tuple(x.shape[:-1])
    if 0 in lead:
        raise EmptyInputError(f"x must not be empty; got shape {tuple(x.shape)}")
    if config.vocab is not None:
        check_indices("x", x, config.vocab)
    most = limit(config)
    if most is not None and lead[-1] > most:
        raise ShapeError(f"x must have {most} tokens at most, the positions of the config; got {lead[-1]}")
    check_mask(mask, lead)
    if (memory is not None) != config.cross:
        raise ParameterError(f"memory is for a config with cross=True, which needs it; got cross={config.cross}")
    if memory is not None:
        instance_of("memory", memory, Memory)
        check_remembered("memory", config, how, memory.layers)
    return how


def check_remembered(
    of: str,
    config: Config,
    how: Sequence[HeadAttention],
    layers: Sequence[LayerState],
    lead: tuple[int, ...] | None = None,
) -> None:
    """Raise unless layers remember what their attention reads, of sequences `lead` if given."""
    if len(layers) != len(how):
        raise StateMismatchError(f"{of} must be of {len(how)} layers; got {len(layers)}")
    heads = (config.key_heads,) if config.key_heads == config.heads else (config.key_heads, 1)
    for layer, (each, state) in enumerate(zip(how, layers, strict=True)):
        mixer = None if lead is None else config.mixer(layer)  # a memory is of attention
        kind = each.state_type() if mixer is None else GatedLayer
        if not isinstance(state, kind):
            raise StateMismatchError(f"layer {layer} must hold {kind.__name__}; got {type(state).__name__}")
        if lead is None:
            continue
        if isinstance(state, GatedLayer):
            _check_gated(layer, mixer, state, lead)
            continue
        *shape, _, d = state.v.shape if isinstance(state, KeysValues) else state.s.shape
        if (*shape, d) != (*lead, *heads, config.head_width):
            raise StateMismatchError(
                f"layer {layer} must hold heads {(*lead, *heads)} of {config.head_width}; got {tuple(shape)} of {d}"
            )


def check_positions(positions: Array, most: int | None = None) -> tuple[int, ...]:
    """Return the shape of positions, which must be integers from 0 to below a limit; traced ones are not looked at."""
    namespace(**{"state.positions": positions})
    if dtype_name(positions) not in INTEGERS:
        raise StateMismatchError(f"positions of a State must be integers; got {dtype_name(positions)}")
    least, largest = (0 not in positions.shape and extremes(positions)) or (0, 0)
    if least < 0:
        raise StateMismatchError(f"positions of a State must be integers from 0; got {least}")
    if most is not None and largest >= most:
        raise ParameterError(f"the token must stand before position {most}, the most that the config has")
    return tuple(positions.shape)


def _check_gated(layer: int, m: Any, state: GatedLayer, lead: tuple[int, ...]) -> None:
    """Raise unless a layer remembers what gated linear attention of this form reads."""
    wanted = (*lead, m.groups, m.heads // m.groups, m.key_dim, m.value_dim), (*lead, m.span - 1, m.channels)
    given = tuple(state.s.shape), None if state.window is None else tuple(state.window.shape)
    if given != (wanted[0], wanted[1] if m.span else None):
        raise StateMismatchError(f"layer {layer} must hold s {wanted[0]} and window {wanted[1]}; got {given}")


def check_whole(layers: Any, positions: Any, memory: Any) -> None:
    """Raise unless a state of unknown origin has the parts of one, in shapes that fit together."""
    if not isinstance(layers, tuple):
        raise StateMismatchError(f"a State must have a tuple of layers; got a {type(layers).__name__}")
    check_positions(positions)
    if memory is not None and not (isinstance(memory, Memory) and isinstance(memory.layers, tuple)):
        raise StateMismatchError(f"the memory of a State must be a Memory; got {type(memory).__name__}")
    for each in (*layers, *(() if memory is None else memory.layers)):
        if isinstance(each, KeysValues):
            k, v, mask = each
            shapes = [tuple(getattr(x, "shape", ())) for x in each]
            if not (_fits(k, v) and (mask is None or (_is_array(mask) and shapes[2][-1:] == shapes[0][-2:-1]))):
                raise StateMismatchError(f"k, v and mask of a layer must be of the same tokens; got {shapes}")
        elif isinstance(each, GatedLayer):
            if not (_is_array(each.s) and (each.window is None or _is_array(each.window))):
                raise StateMismatchError("s and window of a layer must be arrays")
        elif not isinstance(each, LinearState | WindowState):
            raise StateMismatchError(f"a layer of a State must hold a state; got {type(each).__name__}")


def _is_array(x: Any) -> bool:
    return x is not None and not isinstance(x, tuple)


def _fits(k: Any, v: Any) -> bool:
    return _is_array(k) and _is_array(v) and k.ndim > 2 and tuple(k.shape) == tuple(v.shape)


def check_indices(name: str, x: Array, size: int) -> None:
    """Raise unless x holds integers from 0 to size - 1; traced ones are not looked at."""
    if dtype_name(x) not in INTEGERS:
        raise DTypeError(f"{name} must be integers from 0 to {size - 1}; got {shown(x)}")
    least, largest = extremes(x) or (0, 0)
    if not 0 <= least <= largest < size:
        raise ParameterError(f"{name} must be integers from 0 to {size - 1}; got {least} to {largest}")


def check_mask(mask: Array | None, lead: tuple[int, ...]) -> None:
    """Raise unless a mask is bool, of this shape."""
    if mask is None:
        return
    namespace(key_mask=mask)
    if dtype_name(mask) != "bool" or tuple(mask.shape) != tuple(lead):
        raise ShapeError(f"key_mask must be bool {tuple(lead)}; got {dtype_name(mask)}{tuple(mask.shape)}")


def as_sequence(name: str, x: Array, vectors: bool = False) -> Array:
    """Return a token (...), or a vector (..., inputs), as a sequence of one."""
    x = np.asarray(x) if isinstance(x, np.integer) and not vectors else x  # a token of one sequence
    namespace(**{name: x})
    if x.ndim < vectors:
        raise DTypeError(f"{name} must be an array of a token of each sequence; got {shown(x)}")
    return x[..., None, :] if vectors else x[..., None]


def check_steps(config: Config, how: Sequence[HeadAttention]) -> None:
    """Raise unless a model can go token by token."""
    if not config.causal or config.output == "classes":
        raise ParameterError(f"steps are for a causal config whose output is not of classes; got {config!r}")
    for each in how:
        if isinstance(each, Exact) and each.pattern is not None and not each.pattern._static:
            raise ParameterError(
                f"steps take patterns whose rows stay as they are when tokens follow; got {shown(each.pattern)}"
            )


def mask_lengths(config: Config, x: Array, lengths: Array) -> Array:
    """Return a mask (..., n), True for the tokens of prompts of these lengths."""
    lead = tuple(x.shape if config.vocab is not None else x.shape[:-1])
    xp = namespace(x=x, lengths=lengths)
    if dtype_name(lengths) not in INTEGERS or tuple(lengths.shape) != lead[:-1]:
        raise ShapeError(
            f"lengths must be integers {lead[:-1]}, one for each prompt; got {dtype_name(lengths)}{lengths.shape}"
        )
    least, largest = extremes(lengths) or (1, 1)
    if not 1 <= least <= largest <= lead[-1]:
        raise ParameterError(f"lengths must lie from 1 to {lead[-1]}; got {least} to {largest}")
    return xp.arange(lead[-1], **placement(x)) < lengths[..., None]


def extremes(x: Array) -> tuple[int, int] | None:
    """Return the least and the largest of an array's integers; None of one that is traced, which nobody can look at."""
    xp = namespace(x=x)
    try:
        return int(xp.min(x)), int(xp.max(x))
    except (TypeError, RuntimeError):  # of JAX, of PyTorch
        return None
