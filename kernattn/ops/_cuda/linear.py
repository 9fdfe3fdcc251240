"""What the CUDA siblings of linear attention share: columns of a block, slabs, both sides, states."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.inputs import MapInput, map_input
from kernattn.ops._cuda.maps import FB, MapCode, map_arguments, map_code
from kernattn.ops._cuda.sizes import C_TYPES, REALS, accumulator_of, ceil_div, options, power_of_two, row_length

WIDEST = {"bf16_t": 128, "tf32_t": 128, "float": 64, "double": 32}  # columns of v whose sums fit the registers
WIDEST_IN_LITTLE = {"bf16_t": 128, "tf32_t": 64, "float": 64, "double": 32}  # and where shared memory is scarce
SLAB_TILES = 4  # least tiles of rows in a slab


@dataclass(frozen=True)
class LinearCode:
    """How a kernel of linear.cuh is compiled."""

    map: MapCode
    value: str  # C type of v and of the outputs
    eb: int

    @cached_property
    def defines(self) -> tuple[str, ...]:
        """The compiler's options."""
        return (*self.map.defines, *options(VALUE=self.value, EB=self.eb))

    @property
    def v_row(self) -> int:
        """Elements from one row of a tile of v to the next."""
        return row_length(self.map.operand, self.eb)

    @property
    def phi_row(self) -> int:
        """Elements from one row of a tile of features to the next."""
        return row_length(self.map.operand, FB)


@dataclass(frozen=True)
class Slabs:
    """The rows of every sequence cut into slabs that are summarised apart."""

    count: int
    rows: int


@lru_cache(512)
def linear_code(map_code: MapCode, dtype: str, e: int, limits: runtime.Limits) -> LinearCode:
    """Return how kernels with values of `dtype`, (..., e), are compiled."""
    widest = (WIDEST if limits.roomy else WIDEST_IN_LITTLE)[map_code.operand]
    return LinearCode(map_code, C_TYPES[dtype], power_of_two(e, 32, widest))


def cut(n: int, wanted: int, tile: int) -> Slabs:
    """Return n rows cut into about `wanted` slabs, none of less than SLAB_TILES tiles but the last."""
    count = min(wanted, ceil_div(n, SLAB_TILES * tile))
    rows = ceil_div(ceil_div(n, count), tile) * tile
    return Slabs(ceil_div(n, rows), rows)


@dataclass(frozen=True, eq=False)
class Side:
    """Queries or keys as the kernels take them."""

    rows: MapInput
    arguments: tuple[Any, ...]  # what Map is made of

    @property
    def lead(self) -> tuple[int, ...]:
        """The leading axes."""
        return tuple(self.rows.x.shape[:-2])

    @property
    def frequencies(self) -> int:
        """D."""
        return int(self.arguments[-2])


def side(
    x: Array | ScaledFeatures, spec: MapSpec | None, dtype: str, limits: runtime.Limits, whole: bool = True
) -> tuple[Side, MapCode]:
    """Return an op's input, and how its map is compiled beside values of `dtype`; see `map_input` for `whole`."""
    rows = map_input(x, spec, accumulator_of(dtype), whole)
    code = _map_code(rows, spec, dtype, rows.x.shape[-1], limits)
    return Side(rows, map_arguments(spec, code, rows.x.shape[-1])), code


def both_sides(
    q: Array | ScaledFeatures,
    k: Array | ScaledFeatures,
    q_spec: MapSpec | None,
    k_spec: MapSpec | None,
    dtype: str,
    limits: runtime.Limits,
    normaliser: bool = False,
) -> tuple[Side, Side, MapCode, int]:
    """Return queries, keys, how their maps are compiled, and whether these are 1 or 2; they must be `alike`."""
    queries = map_input(q, q_spec, accumulator_of(dtype), normaliser)
    keys = map_input(k, k_spec, accumulator_of(dtype))
    d_q, d_k = queries.x.shape[-1], keys.x.shape[-1]
    code = _map_code(keys, k_spec, dtype, max(d_q, d_k), limits)
    return (
        Side(queries, map_arguments(q_spec, code, d_q)),
        Side(keys, map_arguments(k_spec, code, d_k)),
        code,
        1 if q_spec is k_spec else 2,
    )


def alike(a: MapSpec | None, b: MapSpec | None) -> bool:
    """Can two maps run in one kernel: are they of one kind, and do both project or neither?"""
    if a is None or b is None:
        return a is b
    return a.kind == b.kind and (a.omega is None) == (b.omega is None)


def _map_code(rows: MapInput, spec: MapSpec | None, dtype: str, d: int, limits: runtime.Limits) -> MapCode:
    return map_code(dtype if spec is None else rows.dtype, spec, rows.per_feature, d, limits, rows.dtype)


def normalisers(shape: tuple[int, ...], dtype: Any, wanted: bool) -> Normaliser | None:
    """Return room for the normalisers of rows, where they are wanted: logs of their sizes, and signs."""
    return Normaliser(cupy.empty(shape, dtype=dtype), cupy.empty(shape, dtype=dtype)) if wanted else None


def pointers(parts: tuple[Array, ...] | None, count: int) -> tuple[Any, ...]:
    """Return the arrays, contiguous, or null pointers."""
    return (NULL,) * count if parts is None else tuple(map(cupy.ascontiguousarray, parts))


def empty_state(lead: tuple[int, ...], code: MapCode, frequencies: int, e: int) -> PeakedSum:
    """Return room for a state (*lead, M, e) of a map of `frequencies`."""
    features, real = frequencies * code.parts, REALS[code.accumulator]
    shapes = (features, e), (features,), (features if code.per_feature else 1,)
    return PeakedSum(*(cupy.empty((*lead, *shape), dtype=real) for shape in shapes))
