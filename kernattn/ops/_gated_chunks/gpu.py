"""Gated linear attention of 16 bits by chunks of 64 tokens that know no state, and a walk from chunk to chunk.

Of a chunk of C tokens and a head, in elements of 2 bytes: `prepare` reads C (2 d + e), and C d logs of 4 bytes where
channels have decays of their own, and writes C (d + e + C), and then 2 C d more; `walk` reads C (3 d + e + C / 2), rows
of d once a block of columns, from the L2 cache after the first, and writes C e. With C = 64 and d = e = 128: 90 and 87
KB, 0.36 ms in all at 4 TB/s for 64 heads of 8192 tokens; with decays of channels 155 and 87 KB, 0.5 ms. A token costs
3 C d + C (d + e) operations in `prepare`, and 6 d e + C e in `walk`, 1.5e5 with these sizes.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn.ops._cuda import cupy
from kernattn.ops._cuda.runtime import Launch, Limits
from kernattn.ops._cuda.sizes import BYTES, C_TYPES, ceil_div, options, pieces, power_of_two, row_length

FEWEST = 33  # tokens that come by chunks
WIDEST = 256  # d and e
ROOM = 1 << 30  # bytes that chunks may leave for the walk: a longer sequence comes in slabs


@dataclass(frozen=True)
class ChunkedCode:
    """How the kernels are compiled."""

    operand: str  # C type of the rows, and of the operands of products
    channels: bool  # does each channel have a decay of its own?
    erases: bool
    chunk: int  # tokens
    d: int  # in whole 16s, as e
    e: int
    eb: int  # columns of v of a block that walks
    blocks: int = 1  # that prepare on a multiprocessor
    stages: int = 2  # chunks that a block that walks holds
    loaders: int = 4  # its warps that bring them

    @property
    def warps(self) -> int:
        """Warps of a block that prepares: one a strip of scores."""
        return self.chunk // 16 * (2 if self.erases or self.channels else 1)

    @property
    def defines(self) -> tuple[str, ...]:
        """The compiler's options."""
        return options(
            INPUT=self.operand, OPERAND=self.operand, SPLIT=0, WARPS=self.warps, GROUPS=1, CHANNELS=self.channels,
            RULE=int(self.erases), EB=self.eb, CHUNK=self.chunk, WIDE=self.d, WIDE_E=self.e, PREPARE_BLOCKS=self.blocks,
            STAGES=self.stages, LOADERS=self.loaders,
        )  # fmt: skip

    @property
    def facts(self) -> int:
        """Numbers of a chunk that rows are multiplied by."""
        return 2 * self.chunk + 4 + (self.d if self.channels else 4)

    @property
    def prepare_bytes(self) -> int:
        """Shared memory of a block that prepares."""
        x_row, v_row = row_length(self.operand, self.d), row_length(self.operand, self.e)
        tails = self.chunk * (self.chunk // 16 - 1) // 2  # rows of keys that later strips read
        return pieces(
            *[(self.chunk * x_row, self.operand)] * (2 + (self.channels and self.erases)),
            (self.chunk * v_row * self.erases, self.operand),
            (max(self.chunk * (self.chunk + 4) * self.erases, tails // 2 * x_row * self.channels), "float"),
            (self.chunk * 16, "float"),
            *[(self.chunk, "float")] * 8,
        )

    @property
    def walk_bytes(self) -> int:
        """Shared memory of a block that walks."""
        x_row, u_row, p_row = (row_length(self.operand, x) for x in (self.d, self.eb, self.chunk))
        return self.stages * pieces(
            *[(self.chunk * x_row, self.operand)] * (2 + self.erases),
            (self.chunk * u_row, self.operand),
            (self.chunk * p_row, self.operand),
            (self.facts, "float"),
        )

    @property
    def left(self) -> int:
        """Bytes of a chunk that are left for the walk."""
        rows = self.chunk * (self.chunk + self.erases * (self.d + self.e) + 2 * self.channels * self.d)
        return rows * BYTES[self.operand] + 4 * self.facts + 4


@dataclass(frozen=True)
class Chunked:
    """The launches for outputs (entries, n, e)."""

    code: ChunkedCode
    entries: int
    n: int
    slab: int  # tokens of a launch, in whole chunks

    def start(self, arguments: tuple[Any, ...], out: Array, after: Array) -> tuple[Array, Array]:
        """Launch them; return from where on each 16 columns of an entry are left to others, and the states there."""
        code, entries = self.code, self.entries
        most = self.slab // code.chunk
        d, e = (int(x) for x in arguments[-2:])
        kinds = {"half_t": np.float16, "bf16_t": np.uint16}  # by their size

        def room(*shape: int, kind: Any = kinds[code.operand]) -> Array:
            return cupy.empty(shape, dtype=kind)

        rows = entries * most * code.chunk
        w, u = (room(rows if code.erases else 0, x) for x in (code.d, code.e))
        facts = room(entries * most, code.facts, kind=np.float32)
        faded = (room(rows if code.channels else 0, code.d) for _ in range(2))
        left = w, u, room(rows, code.chunk), *faded, facts, room(entries * most, kind=np.int32)
        resumed = room(entries, code.e // 16, kind=np.int64)
        states = room(entries, d, e, kind=np.float32)
        for first in range(0, self.n, self.slab):
            chunks = ceil_div(min(self.n - first, self.slab), code.chunk)
            given = (*arguments, np.int64(first), np.int32(chunks), *left)
            prepare = Launch(code.defines, (entries * chunks,), 32 * code.warps, code.prepare_bytes)
            prepare.start("_gated_chunks", "prepare", *given)
            grid = (entries * ceil_div(code.e, code.eb),)
            walk = Launch(code.defines, grid, 2 * code.eb + 32 * code.loaders, code.walk_bytes)
            walk.start("_gated_chunks", "walk", *given, resumed, states, out, after)
        return resumed, states


def launch(
    entries: int, n: int, d: int, e: int, dtype: str, channels: bool, erases: bool, limits: Limits
) -> Chunked | None:
    """Return the launches, or None where chunks of 16 tokens serve better or have room alone."""
    if (
        dtype not in ("float16", "bfloat16")
        or limits.capability < 80
        or n < FEWEST
        or max(d, e) > (128 if channels else WIDEST)
    ):
        return None
    whole, whole_e = (ceil_div(x, 16) * 16 for x in (d, e))
    code = ChunkedCode(C_TYPES[dtype], channels, erases, 64, whole, whole_e, 16)
    for chunk in (64, 32) if whole <= 128 else (32,):  # of wide rows 32, so that a block that walks has more columns
        for eb, stages in product(widths(entries, e, limits), (3, 2)):
            fits = replace(code, chunk=chunk, eb=eb, stages=stages)
            if max(fits.walk_bytes, fits.prepare_bytes) <= limits.shared_bytes:
                resident = (limits.shared_bytes + 1024) // (fits.prepare_bytes + 1024)
                most = (16 if channels else 24) // fits.warps  # that leave a thread 128 registers, or 85
                fits = replace(fits, blocks=max(1, min(resident, most)))
                tokens = max(1, ROOM // (entries * fits.left)) * chunk
                return Chunked(fits, entries, n, min(tokens, ceil_div(n, chunk) * chunk))
    return None


def widths(entries: int, e: int, limits: Limits) -> list[int]:
    """Return how many columns a block that walks may have: the most that leave few multiprocessors idle, then fewer."""
    widest = power_of_two(e, 16, 128)
    enough = 0.75 * limits.multiprocessors
    wanted = next((eb for eb in (128, 64, 32) if entries * ceil_div(e, eb) >= enough * (1 + (eb == 128))), 16)
    return [eb for eb in (128, 64, 32, 16) if eb <= min(wanted, widest)]
