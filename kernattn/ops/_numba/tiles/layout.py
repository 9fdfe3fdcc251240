"""Arrays as the loops take them: flat, contiguous, read-only where they are read; and room for results."""

from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, largest
from kernattn.ops._numba.codegen.halves import BFLOAT16, FLOAT16, narrow_all, widen_all
from kernattn.ops._numba.codegen.registers import LINE

FLOPS_PER_SECOND, SECONDS_PER_FEATURE = 8e10, 4e-10  # of a core in float32, roughly

Rows: TypeAlias = tuple[NDArray[Any], NDArray[np.uint16], int]
"""Numbers as loops take them: floats of their own dtype, or the bits of 16-bit ones and their kind, 0 for none."""

LARGE = 1 << 16
"""Bytes from which on an array begins at a cache line."""

_SINGLE, _DOUBLE, _WORD = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.uint16)


def accumulation(array: Array) -> np.dtype[Any]:
    """Return the dtype of sums: float64 for float64, else float32."""
    return _DOUBLE if array.dtype == _DOUBLE else _SINGLE


def seconds_of(flops: float, features: float, itemsize: int) -> float:
    """Return about how many seconds a core takes for so many products and features, to decide whether to share them."""
    return (flops / FLOPS_PER_SECOND + features * SECONDS_PER_FEATURE) * itemsize / 4


def flat(array: Array, dtype: Any, shape: int | tuple[int, ...] = -1) -> NDArray[Any]:
    """Return the array as contiguous numbers of dtype, not writeable: the loops are compiled for such arrays only.

    One that is not flat tells a loop its sizes.
    """
    if type(array) is not np.ndarray or array.dtype is not dtype:
        array = widen_rows(array) if has_bits(array, dtype) else np.ascontiguousarray(array, dtype)
    result: NDArray[Any] = array.ravel() if shape == -1 else array.ravel().reshape(shape)
    result.setflags(write=False)
    return result


def plain(array: Array, dtype: Any) -> NDArray[Any]:
    """Return the array as contiguous numbers of dtype, writeable: a copy where it is anything else."""
    if array.dtype != dtype or not array.flags.carray:
        array = widen_rows(array) if has_bits(array, dtype) else np.array(array, dtype, order="C")
    return array.ravel()  # type: ignore[no-any-return]


def _kind_in(array: Array, dtype: np.dtype[Any]) -> int:
    """Return the kind of 16-bit floats that loops of a dtype widen, 0 where an array has none."""
    if dtype is not _SINGLE or array.size == 0:
        return 0
    own = array.dtype
    kind = _KINDS.get(own)
    if kind is None:
        kind = _KINDS[own] = kind_of(array) if own.itemsize == 2 and own.char in "eE" and own.isnative else 0
    return kind


def has_bits(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether an array has 16-bit floats that loops of a dtype widen."""
    return _kind_in(array, dtype) > 0


def in_bits(asked: np.dtype[Any] | None, dtype: np.dtype[Any]) -> bool:
    """Whether loops of a dtype write results in the one that is asked for as 16 bits."""
    return asked is not None and has_bits(np.empty(1, asked), dtype)


def kind_of(array: Array) -> int:
    """Return the kind of 16-bit floats."""
    return FLOAT16 if array.dtype.char == "e" else BFLOAT16


def _bits(array: Array) -> tuple[NDArray[np.uint16], int]:
    """Return the bits of 16-bit floats, flat, and their kind."""
    return array.ravel().view(_WORD), kind_of(array)


def widen_rows(array: Array) -> NDArray[np.float32]:
    """Return 16-bit floats as float32."""
    bits, kind = _bits(array)
    bits.setflags(write=False)
    wide = np.empty(array.shape, np.float32)
    widen_all(bits, kind, wide.reshape(-1))
    return wide


def rows(array: Array, dtype: np.dtype[Any]) -> Rows:
    """Return numbers that are read: 16-bit ones as they are."""
    if array.dtype is dtype and type(array) is np.ndarray:  # a small call takes as long as it looks
        result = array.ravel()
        result.setflags(False)  # type: ignore[call-arg]  # by name it takes twice as long
        return result, _NO_BITS, 0
    kind = _kind_in(array, dtype)
    if kind == 0:
        return flat(array, dtype), _NO_BITS, 0
    bits = array.getfield(_WORD).ravel()  # sooner than a view
    bits.setflags(False)
    return _NO_FLOATS_READ, bits, kind


def skipped(x: Rows, count: int) -> Rows:
    """Return numbers without so many of the first, where there are any."""
    floats, bits, kind = x
    return floats[count:], bits[count:], kind


def token_rows(array: Array, dtype: np.dtype[Any]) -> Rows:
    """Return rows of one token, flat, in the type of arrays that are written: in as few calls as may be."""
    own = array.dtype
    if own is dtype and array.flags.carray:
        return array.ravel(), _NO_BITS_WRITTEN, 0
    kind = _KINDS.get(own) or _kind_in(array, dtype)
    if kind == 0 or dtype is not _SINGLE:
        return plain(array, dtype), _NO_BITS_WRITTEN, 0
    bits = array.getfield(_WORD).ravel()
    return _NO_FLOATS, bits if bits.flags.carray else bits.copy(), kind


def written(array: NDArray[Any], dtype: np.dtype[Any]) -> Rows:
    """Return room for numbers that are written, in the dtype of sums or with 16 bits."""
    own = array.dtype
    if own is dtype:
        return array.ravel(), _NO_BITS_WRITTEN, 0
    kind = _KINDS.get(own) or (kind_of(array) if own.itemsize == 2 else 0)
    if kind == 0:
        return array.ravel(), _NO_BITS_WRITTEN, 0
    return _NO_FLOATS, array.getfield(_WORD).ravel(), kind


def room(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return room for a result. A large one begins at a cache line: no vector lies across two, and JAX takes it so."""
    size, unit = prod(shape), LINE // dtype.itemsize
    if size * dtype.itemsize < LARGE:
        return np.empty(shape, dtype)
    memory = np.empty(size + unit, dtype)
    skip = -memory.ctypes.data % LINE // dtype.itemsize
    return memory[skip : skip + size].reshape(shape)


def room_like(array: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return room for cotangents of an array: of 16 bits where it has these, and nothing is added to them."""
    own = has_bits(array, dtype) and array.shape == shape
    return np.empty(shape, array.dtype if own else dtype)


def narrow(out: NDArray[Any], dtype: np.dtype[Any], held: bool = True) -> NDArray[Any]:
    """Return outputs in the dtype of the inputs: held to what this can say, or infinite beyond it."""
    if out.dtype == dtype:
        return out
    narrowed: NDArray[Any] = np.empty(out.shape, dtype)
    if has_bits(narrowed, out.dtype):
        narrow_all(np.ascontiguousarray(out).reshape(-1), *_bits(narrowed), held)
        return narrowed
    with np.errstate(over="ignore"):
        if held:
            limit = largest(dtype)
            np.clip(out, -limit, limit, out=out, where=np.isfinite(out))
        return out.astype(dtype)


def settled(out: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return outputs as `narrow` does, 16-bit ones in the memory of these, which is cut: nobody may look there again.

    Bits are written no further on than floats are read. Where others hold the memory, too, there is a copy.
    """
    memory = out
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    own = type(memory) is np.ndarray and memory.flags.owndata and memory.dtype == out.dtype and out.flags.carray
    if not own or out.nbytes < LARGE or memory.size - out.size > LINE or not in_bits(dtype, out.dtype):
        return narrow(out, dtype)
    shape, count = out.shape, out.size
    numbers = out.reshape(-1)
    bits = memory.reshape(-1).view(_WORD)[:count]
    narrow_all(numbers, bits, kind_of(np.empty(0, dtype)), True)
    del numbers, bits
    memory.resize(-(-count * 2 // memory.itemsize), refcheck=False)
    return memory.view(dtype)[:count].reshape(shape)


_KINDS: dict[np.dtype[Any], int] = {}
"""Kinds of the dtypes that arrays had, 0 of those that have no floats of 16 bits."""

_NO_FLOATS, _NO_FLOATS_READ = np.zeros(0, _SINGLE), flat(np.zeros(0), _SINGLE)
_NO_BITS, _NO_BITS_WRITTEN = flat(np.zeros(0, _WORD), _WORD), np.zeros(0, _WORD)

NO_MASK = flat(np.zeros(0), bool)
"""Stands for a mask that admits everything."""


@lru_cache(maxsize=8)
def nothing(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return no numbers, for what is not given."""
    return flat(np.zeros(0), dtype)


@lru_cache(maxsize=8)
def no_rows(dtype: np.dtype[Any]) -> Rows:
    """Return no rows, for what is not given."""
    return nothing(dtype), _NO_BITS, 0


@lru_cache(maxsize=8)
def unwritten(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return no room, for what is not wanted."""
    return np.zeros(0, dtype)
