"""Cotangents of rows and of a map's numbers, as the kernels of pulled.cuh leave them."""

from dataclasses import dataclass, replace
from typing import Any

from kernattn._arrays.namespaces import Array, dtype_name, namespace
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent, sum_onto
from kernattn.ops._cuda import cupy
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.maps import MapCode
from kernattn.ops._cuda.runtime import Limits
from kernattn.ops._cuda.sizes import C_TYPES, REALS, power_of_two
from kernattn.ops.features_vjp.reference import of_normaliser, slope


def pulled_code(code: MapCode, d: int, limits: Limits) -> MapCode:
    """Return how a map is compiled whose rows' cotangents are summed in registers: in whole groups of 32 columns."""
    return replace(code, db=power_of_two(d, 32, 64 if limits.roomy and code.operand != "double" else 32))


def result_type(x: Array, spec: MapSpec, lead: tuple[int, ...], accumulator: str) -> str:
    """Return the C type of cotangents (*lead, n, d) of x: its own, unless more is added to them."""
    whole = tuple(x.shape[:-2]) == lead and not spec.scales_apart
    return C_TYPES[dtype_name(x)] if whole else accumulator


def workers(tiles: int, learn: bool, limits: Limits) -> int:
    """Return how many blocks share out tiles of work: few where each has sums of its own."""
    return max(1, min(tiles, 2 * limits.multiprocessors) if learn else tiles)


@dataclass(frozen=True, eq=False)
class Pulled:
    """Room for the cotangents of rows (*lead, n, d), and for every worker's sums."""

    dx: Array  # (*lead, n, d)
    dr: Any  # (*lead, n), or a null pointer
    omega: Any  # (workers, D, d), or a null pointer
    offset: Any  # (workers, M), or a null pointer

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the kernels are given."""
        return self.dx, self.dr, self.omega, self.offset

    def cotangent(self, x: Array, spec: MapSpec, scale: bool, learn: bool) -> MapCotangent:
        """Return the cotangents of x and of its map's numbers; log scales count with `scale` only."""
        xp, dx, scale = namespace(x=x), self.dx, scale and KINDS[spec.kind].scale != "none"
        asked = self.dr is not NULL
        wide = xp.astype(x, self.dr.dtype, copy=False) if asked else x
        dr = sum_onto(xp, self.dr, tuple(x.shape[:-1]))[..., None] if asked else None
        if scale and spec.scales_apart:
            of_form = dr * slope(wide, replace(spec, row_weights=None))
            dx = sum_onto(xp, dx, tuple(x.shape)) + xp.where(dr == 0, 0.0, of_form)
        dx = xp.astype(sum_onto(xp, dx, tuple(x.shape)), x.dtype, copy=False)
        if not learn:
            return MapCotangent(dx)
        weights = None
        if spec.row_weights is not None:
            squares = xp.reshape(xp.where(dr == 0, 0.0, dr * wide * wide), (-1, x.shape[-1]))
            weights = xp.sum(squares, axis=0) * (1.0 if scale else 0.0)
        omega, offset = (None if part is NULL else xp.sum(part, axis=0) for part in (self.omega, self.offset))
        if scale and spec.normalised:
            lost = of_normaliser(wide, spec, dr)
            omega, offset = omega + lost[0], None if offset is None else offset + lost[1]
        return MapCotangent(dx, omega, offset, weights)


def pulled_room(
    x: Array, spec: MapSpec, lead: tuple[int, ...], code: MapCode, result: str, blocks: int, learn: bool
) -> Pulled:
    """Return room for the cotangents of x (..., n, d) whose leading axes are broadcast to `lead`."""
    real = REALS[code.accumulator]
    n, d = x.shape[-2:]
    frequencies = d if spec.omega is None else spec.omega.shape[0]

    def zeros(wanted: bool, *shape: int) -> Any:
        return cupy.zeros((blocks, *shape), dtype=real) if wanted and learn else NULL

    asked = spec.scales_apart or (learn and spec.row_weights is not None)
    return Pulled(
        cupy.empty((*lead, n, d), dtype=x.dtype if result == code.input else real),
        cupy.empty((*lead, n), dtype=real) if asked else NULL,
        zeros(spec.omega is not None, frequencies, d),
        zeros(spec.offset is not None, frequencies * code.parts),
    )
