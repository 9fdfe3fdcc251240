"""One token of gated linear attention: a sequence of one."""

from collections.abc import Callable
from typing import Any

from kernattn._arrays.namespaces import Array
from kernattn.ops.gated.reference import gated


def gated_step(
    state: Array | None, q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None,
    read: Array | None, write: Array | None, scale: float, l2_normalise: bool, key_mask: Array | None,
    reuse_state: bool, out: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the output of the token and the state after it; of the arguments, only `out` is ever written to."""
    token, after = as_sequence(
        gated, state, q, k, v, g, gk, beta, read, write, scale, l2_normalise, key_mask, reuse_state, out
    )
    return token, after


def as_sequence(
    run: Callable[..., Any], state: Array | None, q: Array, k: Array, v: Array, g: Array | None, gk: Array | None,
    beta: Array | None, read: Array | None, write: Array | None, scale: float, l2_normalise: bool,
    key_mask: Array | None, reuse_state: bool, out: Array | None,
) -> Any:  # fmt: skip
    """Return the outputs of one token, by an implementation of the op `gated`."""
    made = run(*sequence_of(q, k, v, g, gk, beta, read, write, key_mask, scale, l2_normalise, state))
    if made is NotImplemented:
        return made
    token, after = made[0][..., 0, :], made[1]
    if out is not None:
        out[...] = token
    return token if out is None else out, after


def sequence_of(
    q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None, read: Array | None,
    write: Array | None, key_mask: Array | None, scale: float, l2_normalise: bool, state: Array | None,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the arguments of the op `gated` for one token."""
    q, k, v, gk, read, write = (None if x is None else x[..., None, :] for x in (q, k, v, gk, read, write))
    g, beta, key_mask = (None if x is None else x[..., None] for x in (g, beta, key_mask))
    return q, k, v, g, gk, beta, read, write, scale, l2_normalise, state, key_mask, None
