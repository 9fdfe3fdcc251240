"""Heads: how leading axes broadcast, as flat numbers."""

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn.ops._numba.tiles.form_cache import keep_while_small


class Heads(NamedTuple):
    """Which heads of q meet which heads of k and v, all numbered flat."""

    lead: tuple[int, ...]  # of the state: those of k and v together
    out_lead: tuple[int, ...]
    k: NDArray[np.int64]  # (B,) head of k for each head of the state
    v: NDArray[np.int64]  # (B,)
    reads: NDArray[np.int64]  # (B, G, 2) heads of q that read it, and heads of out
    q: NDArray[np.int64]  # (B * G,) the same apart
    out: NDArray[np.int64]  # (B * G,)
    states: NDArray[np.int64]  # (B * G,) the heads of the state that these read
    table: NDArray[np.int64]  # k, v, q and out one after the other


@keep_while_small
def heads(q: tuple[int, ...] | None, k: tuple[int, ...], v: tuple[int, ...]) -> Heads:
    """Return how leading axes broadcast; q None stands for no queries."""
    lead = np.broadcast_shapes(k, v)
    of_k, of_v = (_flat_order(number_heads(x, lead), range(len(lead))) for x in (k, v))
    if q is None:
        none = np.zeros(0, np.int64)
        return Heads(lead, (), of_k, of_v, np.zeros((prod(lead), 0, 2), np.int64), *(none,) * 4)
    out = np.broadcast_shapes(q, lead)
    padded = (1,) * (len(out) - len(lead)) + lead
    order = sorted(range(len(out)), key=lambda axis: padded[axis] == 1)  # the axes of the state first
    of_q, of_out = (_flat_order(number_heads(x, out), order) for x in (q, out))
    reads = np.stack([of_q, of_out], axis=-1).reshape(prod(lead), -1, 2)
    states = np.repeat(np.arange(prod(lead)), reads.shape[1])
    return Heads(lead, out, of_k, of_v, reads, of_q, of_out, states, np.concatenate([of_k, of_v, of_q, of_out]))


def number_heads(lead: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the numbers of heads of leading axes `lead`, broadcast to `shape`."""
    return np.broadcast_to(np.arange(prod(lead)).reshape(lead), shape)


def _flat_order(numbers: NDArray[np.int64], order: Iterable[int]) -> NDArray[np.int64]:
    return np.ascontiguousarray(numbers.transpose(tuple(order))).reshape(-1)
