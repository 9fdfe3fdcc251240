"""Keys as the parts of a plan want them: the mask and the bias of each, and their order."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._plans.parts import Tokens
from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.layout import NO_MASK, Rows, flat, nothing

BYTES_PER_SECOND = 4e9  # of rows that are put in another order, roughly

Inputs = tuple[Rows, Rows, NDArray[np.bool_], NDArray[Any]]


class Order(NamedTuple):
    """In which order a part wants the keys of which heads."""

    tokens: NDArray[np.int64]
    once: bool  # is each token there once at most?
    k: NDArray[np.int64]
    v: NDArray[np.int64]
    rows: NDArray[np.int64]  # of the mask and the bias


def mask_and_bias(
    key_mask: Array | None, key_bias: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Return both flat, broadcast to a shape, or without numbers; a bias of -inf becomes one of the mask's, and 0."""
    mask, bias = NO_MASK, nothing(dtype)
    if key_bias is not None:
        key_bias = np.broadcast_to(key_bias, shape)
        shown = ~np.isneginf(key_bias)
        if key_mask is not None or not np.all(shown):
            key_mask = shown if key_mask is None else shown & key_mask
            key_bias = np.where(key_mask, key_bias, 0)
        bias = flat(key_bias, dtype)
    if key_mask is not None:
        mask = flat(np.broadcast_to(key_mask, shape), bool)
    return mask, bias


def order_of(tokens: Tokens, heads: NDArray[np.int64]) -> tuple[Order | None, NDArray[np.int64]]:
    """Return the order of keys that a part wants, if any, and heads (R, 3) of k, v and the mask numbered therein."""
    if tokens is None:
        return None, heads
    heads_met = [np.unique(heads[:, at], return_inverse=True) for at in range(3)]
    once = len(np.unique(tokens)) == len(tokens)
    return Order(tokens, once, *(x for x, _ in heads_met)), np.stack([at.reshape(-1) for _, at in heads_met], axis=-1)


def reorder(
    order: Order, k: Rows, v: Rows, mask: NDArray[np.bool_], bias: NDArray[Any], sizes: tuple[int, int, int, int]
) -> Inputs:
    """Return keys, values and what is said of them, in the order of a part; sizes are (n, d, l, e)."""
    _, dim, length, e = sizes
    given = [(_numbers(k), dim, order.k), (_numbers(v), e, order.v)]
    given += [(x, 1, order.rows) for x in (mask, bias) if x.size > 0]
    taken = [np.empty((len(heads), len(order.tokens), width), x.dtype) for x, width, heads in given]

    def take(low: int, high: int) -> None:
        for (x, width, numbers), y in zip(given, taken, strict=True):
            heads = x.reshape(-1, length, width)
            for head in range(low, min(high, len(numbers))):
                np.take(heads[numbers[head]], order.tokens, axis=0, out=y[head], mode="clip")

    share(take, max(len(numbers) for *_, numbers in given), sum(y.nbytes for y in taken) / BYTES_PER_SECOND)
    ordered = [y.reshape(-1) for y in taken]
    for y in ordered:
        y.setflags(write=False)
    if bias.size > 0:
        bias = ordered.pop()
    if mask.size > 0:
        mask = ordered.pop()
    return _with_numbers(k, ordered[0]), _with_numbers(v, ordered[1]), mask, bias


def _numbers(rows: Rows) -> NDArray[Any]:
    """Return the floats of rows, or their bits."""
    return rows[1] if rows[2] else rows[0]


def _with_numbers(rows: Rows, numbers: NDArray[Any]) -> Rows:
    """Return rows with other numbers."""
    return (rows[0], numbers, rows[2]) if rows[2] else (numbers, *rows[1:])


def put_back(order: Order, found: NDArray[Any], total: NDArray[Any]) -> None:
    """Add rows (R, keys of a part, c) in its order to those of the heads `order.rows` of a total (heads, l, c)."""

    def add(low: int, high: int) -> None:
        for head in range(low, high):
            if order.once:
                total[order.rows[head], order.tokens] += found[head]
            else:
                np.add.at(total[order.rows[head]], order.tokens, found[head])

    share(add, len(found), found.nbytes / BYTES_PER_SECOND)
