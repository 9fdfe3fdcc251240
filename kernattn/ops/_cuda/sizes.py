"""Sizes: C types of arrays, tiles of shared memory, whole numbers of blocks; and how a compiler gets them."""

import numpy as np

C_TYPES = {"float16": "half_t", "bfloat16": "bf16_t", "float32": "float", "float64": "double"}
REALS: dict[str, type[np.float32] | type[np.float64]] = {"float": np.float32, "double": np.float64}
BYTES = {"half_t": 2, "bf16_t": 2, "tf32_t": 4, "float": 4, "double": 8}


def options(**values: str | int) -> tuple[str, ...]:
    """Return the compiler's options that define macros; a bool is 0 or 1."""
    return tuple(f"-D{name}={int(x) if isinstance(x, bool) else x}" for name, x in values.items())


def accumulator_of(dtype: str) -> str:
    """Return the C type of sums over arrays of a dtype."""
    return "double" if dtype == "float64" else "float"


def ceil_div(a: int, b: int) -> int:
    """Return a / b rounded up."""
    return -(-a // b)


def power_of_two(x: int, low: int, high: int) -> int:
    """Return the least power of two that is at least x, within [low, high]."""
    return min(high, max(low, 1 << max(0, x - 1).bit_length()))


def pieces(*counts_and_types: tuple[int, str]) -> int:
    """Return the bytes of pieces of shared memory, each in whole 16 bytes: what Carver hands out."""
    return sum(ceil_div(count * BYTES[kind], 16) * 16 for count, kind in counts_and_types)


def row_length(kind: str, columns: int) -> int:
    """Return the elements from one row of a tile in shared memory to the next."""
    return columns + 16 // BYTES[kind]
