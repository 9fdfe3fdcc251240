"""What is checked before any work."""

from __future__ import annotations

from collections.abc import Sequence

from kernattn._arrays.namespaces import Array, dtype_name, namespace, placement
from kernattn._runtime.checks import instance_of, shown
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError, StateMismatchError
from kernattn.transformer._attention import Attends, Exact, KeysValues, Kind, LayerState, Memory, attends
from kernattn.transformer._config import Config
from kernattn.transformer._params import checked_params
from kernattn.transformer._parts import Params
from kernattn.transformer._positions import limit


def checked(
    params: Params,
    config: Config,
    x: Array,
    attention: Kind | Sequence[Kind],
    mask: Array | None,
    memory: Memory | None,
) -> list[Attends]:
    """Return how each layer attends, unless something does not fit."""
    instance_of("config", config, Config)
    beside = checked_params(params, config)
    xp = namespace(params=beside, x=x, **({} if mask is None else {"key_mask": mask}))
    how = attends(attention, config.layers)
    if config.vocab is not None:
        if not xp.isdtype(x.dtype, "integral") or x.ndim < 1:
            raise DTypeError(f"x must be integers (..., n), as the config has vocab; got {dtype_name(x)}{x.shape}")
        lead = tuple(x.shape)
    else:
        if x.ndim < 2 or x.shape[-1] != config.inputs or x.dtype != beside.dtype:
            raise ShapeError(
                f"x must be (..., n, {config.inputs}) of {dtype_name(beside)}; got {dtype_name(x)}{tuple(x.shape)}"
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
        check_held("memory", config, how, memory.layers)
    return how


def check_held(
    of: str,
    config: Config,
    how: Sequence[Attends],
    layers: Sequence[LayerState],
    lead: tuple[int, ...] | None = None,
) -> None:
    """Raise unless layers hold what they remember: of sequences (lead), where these have to be as many."""
    if len(layers) != len(how):
        raise StateMismatchError(f"{of} must be of {len(how)} layers; got {len(layers)}")
    heads = (config.key_heads,) if config.key_heads == config.heads else (config.key_heads, 1)
    for layer, (each, held) in enumerate(zip(how, layers, strict=True)):
        if not isinstance(held, each.holds()):
            raise StateMismatchError(f"layer {layer} must hold {each.holds().__name__}; got {type(held).__name__}")
        if lead is None:
            continue
        *shape, _, d = held.v.shape if isinstance(held, KeysValues) else held.s.shape
        if (*shape, d) != (*lead, *heads, config.head_width):
            raise StateMismatchError(
                f"layer {layer} must hold heads {(*lead, *heads)} of {config.head_width}; got {tuple(shape)} of {d}"
            )


def check_indices(name: str, x: Array, size: int) -> None:
    xp = namespace(x=x)
    if not xp.isdtype(x.dtype, "integral") or not 0 <= least(x) <= largest(x) < size:
        raise ParameterError(f"{name} must be integers from 0 to {size - 1}; got {least(x)} to {largest(x)}")


def check_mask(mask: Array | None, lead: tuple[int, ...]) -> None:
    if mask is not None and (dtype_name(mask) != "bool" or tuple(mask.shape) != tuple(lead)):
        raise ShapeError(f"key_mask must be bool {tuple(lead)}; got {dtype_name(mask)}{tuple(mask.shape)}")


def one_token(name: str, x: Array, vectors: bool = False) -> Array:
    """Return a token (...), or a vector (..., inputs), as a sequence of one."""
    if not hasattr(x, "shape") or len(x.shape) < vectors:
        raise DTypeError(f"{name} must be an array of a token of each sequence; got {shown(x)}")
    return x[..., None, :] if vectors else x[..., None]


def check_steps(config: Config, how: Sequence[Attends]) -> None:
    if not config.causal or config.output == "classes":
        raise ParameterError(f"steps are for a causal config whose output is not of classes; got {config!r}")
    for each in how:
        if isinstance(each, Exact) and each.pattern is not None and not each.pattern._static:
            raise ParameterError(
                f"steps take patterns whose rows stay as they are when tokens follow; got {shown(each.pattern)}"
            )


def present(config: Config, x: Array, lengths: Array) -> Array:
    """Return the mask (..., n) of prompts of these lengths."""
    lead = tuple(x.shape if config.vocab is not None else x.shape[:-1])
    xp = namespace(x=x, lengths=lengths)
    if not xp.isdtype(lengths.dtype, "integral") or tuple(lengths.shape) != lead[:-1]:
        raise ShapeError(
            f"lengths must be integers {lead[:-1]}, one for each prompt; got {dtype_name(lengths)}{lengths.shape}"
        )
    if not 1 <= least(lengths) <= largest(lengths) <= lead[-1]:
        raise ParameterError(f"lengths must lie from 1 to {lead[-1]}; got {least(lengths)} to {largest(lengths)}")
    return xp.arange(lead[-1], **placement(x)) < lengths[..., None]


def least(x: Array) -> int:
    return int(namespace(x=x).min(x))


def largest(x: Array) -> int:
    return int(namespace(x=x).max(x))
