"""How a map is compiled, and what a kernel is given of it: the constants and the struct of maps.cuh."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernattn._arrays.precision import float32_products
from kernattn._maps.kinds import LOGS, TABLE, VALUES
from kernattn._maps.spec import MapSpec
from kernattn.ops._cuda.constants import NULL, of_map
from kernattn.ops._cuda.runtime import Limits
from kernattn.ops._cuda.sizes import C_TYPES, REALS, ceil_div, options, pieces, power_of_two, row_length

FB = 32  # frequencies of a tile
NAMED = {kind.name: kind for kind in TABLE}


@dataclass(frozen=True)
class MapCode:
    """How a map is compiled: the constants of maps.cuh."""

    input: str  # C type of the rows
    operand: str  # C type of the operands of products
    kind: str
    project: bool
    split: bool
    db: int
    warps: int
    groups: int = 1  # of warps that share rows

    @property
    def accumulator(self) -> str:
        """The C type sums run in."""
        return "double" if self.input == "double" else "float"

    @property
    def parts(self) -> int:
        """Features made of one frequency."""
        return NAMED[self.kind].parts

    @property
    def per_feature(self) -> bool:
        """Is there a log scale for every feature?"""
        return NAMED[self.kind].per_feature

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return 16 * self.warps // self.groups

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    def tiles(self, frequencies: int) -> int:
        """Tiles of FB features that hold all of them."""
        return ceil_div(frequencies, FB) * self.parts

    @cached_property
    def defines(self) -> tuple[str, ...]:
        """The compiler's options."""
        return options(
            INPUT=self.input, OPERAND=self.operand, KIND=self.kind, PROJECT=self.project, SPLIT=self.split, FB=FB,
            DB=self.db, WARPS=self.warps, GROUPS=self.groups,
        )  # fmt: skip


def operand(dtype: str, capability: int) -> str:
    """Return the C type in which products of arrays of `dtype` take their operands.

    float16 goes through tf32, which has its 10 bits of mantissa and the exponents of float32: sums of many features
    leave the range of float16. float32 does where it is asked for (`kernattn.precision`).
    """
    if dtype == "float64":
        return "double"
    if capability < 80 or (dtype == "float32" and float32_products() == "float32"):
        return "float"
    return "bf16_t" if dtype == "bfloat16" else "tf32_t"


def map_code(
    dtype: str, spec: MapSpec | None, per_feature: bool, d: int, limits: Limits, rows_dtype: str = ""
) -> MapCode:
    """Return how a map of rows (n, d) is compiled; without a spec the rows are features or their logarithms."""
    project = spec is not None and spec.omega is not None
    kind = spec.kind if spec is not None else (LOGS if per_feature else VALUES).name
    element = operand(dtype, limits.capability)
    widest = 64 if limits.roomy and element != "double" else 32
    if element == "bf16_t":
        widest = 128 if limits.roomy else 64
    return MapCode(
        input=C_TYPES[rows_dtype or dtype],
        operand=element,
        kind=kind,
        project=project,
        split=project and element in ("bf16_t", "tf32_t"),
        db=power_of_two(d, 16, widest) if project else 16,
        warps=2 if element == "double" else 4,
    )


def map_bytes(code: MapCode, inputs: int) -> int:
    """Return the shared memory that projecting `inputs` tiles of rows takes."""
    if not code.project:
        return 0
    row = row_length(code.operand, code.db)
    tiles = [(code.rows * row, code.operand)] * inputs + [(FB * row, code.operand)] * (1 + code.split)
    return pieces(*tiles)


def map_arguments(spec: MapSpec | None, code: MapCode, d: int) -> tuple[Any, ...]:
    """Return the members of Map: omega, its parts, row_weights, offset, amplitude, log_amplitude, frequencies, d."""
    real = REALS[code.accumulator]
    if spec is None:
        return (NULL, NULL, NULL, NULL, real(1), real(0), np.int32(d), np.int32(d))
    arrays = of_map(spec, np.dtype(real).name, code.operand if code.split else "")
    frequencies = d if spec.omega is None else spec.omega.shape[0]
    return (*arrays, real(spec.amplitude), real(spec.log_amplitude), np.int32(frequencies), np.int32(d))
