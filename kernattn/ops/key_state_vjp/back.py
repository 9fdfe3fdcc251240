"""How the kernels of back.cuh are compiled, what they are given, and the one that only reads."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._sums.peaked import PeakedSum
from kernattn.ops._cuda import runtime
from kernattn.ops._cuda.axes import batch
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.inputs import MapInput
from kernattn.ops._cuda.linear import LinearCode, pointers
from kernattn.ops._cuda.maps import FB, MapCode, map_bytes
from kernattn.ops._cuda.sizes import C_TYPES, ceil_div, options, pieces, power_of_two, row_length
from kernattn.ops.features_vjp.pulled import Pulled, pulled_code, workers


@dataclass(frozen=True)
class BackCode:
    """How a kernel of back.cuh is compiled."""

    linear: LinearCode
    result: str  # C type of what it returns
    keys: bool  # are the readers keys?
    walk: bool = False
    maps: int = 1  # 2 where queries and keys are projected apart

    @property
    def defines(self) -> tuple[str, ...]:
        """The compiler's options."""
        own = options(RESULT=self.result, KEYS=self.keys, WALK=self.walk, MAPS=self.maps)
        return (*self.linear.defines, *own)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory, without those of a walk's sums."""
        m = self.linear.map
        accumulator, operand = m.accumulator, m.operand
        tokens = [(m.rows * self.linear.v_row, operand), *[(m.rows, accumulator)] * 2, (m.rows, "float")]
        features = (m.rows * self.linear.phi_row, operand)
        read = [*tokens, (FB * self.linear.v_row, operand), features, *[(FB, accumulator)] * 3]
        read.append((m.warps * FB, accumulator))
        walk = [*tokens, features, (m.rows * row_length(operand, m.rows), operand), (FB, accumulator)]
        return map_bytes(m, 1 + self.walk) + pieces(*read, *(walk if self.walk else ()))


def back_code(code: MapCode, d: int, dtype: str, e: int, result: str, keys: bool, limits: runtime.Limits) -> BackCode:
    """Return how readers (n, d) of sums (M, e) are compiled, whose map is compiled as `code` says."""
    widest = 64 if limits.roomy and code.operand != "double" else 32
    linear = LinearCode(pulled_code(code, d, limits), C_TYPES[dtype], power_of_two(e, 32, widest))
    return BackCode(linear, result, keys)


def launch(entries: int, n: int, code: BackCode, learn: bool, limits: runtime.Limits) -> runtime.Launch:
    """Return the launch of `read_back` for readers (entries, n, d)."""
    tiles = entries * ceil_div(n, code.linear.map.rows)
    grid = (workers(tiles, learn, limits),)
    return runtime.Launch(code.defines, grid, code.linear.map.threads, code.shared_bytes)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Rows [v, h] beside the rows that a map is applied to, as back.cuh takes them."""

    rows: MapInput
    arguments: tuple[Any, ...]  # what Map is made of
    v: Array  # (*lead, n, e)
    scale: Any  # (*lead, n), or a null pointer
    h: Any = NULL  # (*lead, n), or a null pointer for 1
    mask: Any = NULL  # (*lead, n) bytes, or a null pointer


def read_back(how: runtime.Launch, tokens: Tokens, sums: PeakedSum, room: Pulled, read: Any) -> None:
    """Launch `read_back`: into `room` the cotangents of the rows, into `read` what keys read."""
    lead, (n, e) = tuple(tokens.v.shape[:-2]), tokens.v.shape[-2:]
    inputs = (tokens.rows.x, tokens.v, tokens.scale, tokens.h, tokens.mask, *pointers(sums, 3))
    strides = batch(lead, tuple(tokens.rows.x.shape[:-2]), tuple(sums.s.shape[:-2]))
    sizes = (np.int64(n), np.int32(e), np.int32(math.prod(lead)), *strides)
    how.start("key_state_vjp", "read_back", *inputs, *room.arguments, read, *tokens.arguments, *sizes)


def walk_code(code: BackCode, maps: int, limits: runtime.Limits) -> BackCode:
    """Return how a walk with `maps` maps is compiled: as `code`, but of 32 rows a tile where more leave no room."""
    walk, m = replace(code, walk=True, maps=maps), code.linear.map
    if walk.shared_bytes <= limits.shared_bytes or m.rows == 32:
        return walk
    return replace(walk, linear=replace(code.linear, map=replace(m, warps=m.warps // 2)))
