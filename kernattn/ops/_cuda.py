"""What every CUDA sibling shares: sources, compilation, device limits, and a map as the kernels take it.

Plans are pure functions of integers and can be made anywhere; only `kernel`, `limits` and the launches need CuPy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array, Float64, dtype_name, namespace
from kernattn._precision import float32_products
from kernattn.errors import BackendUnavailable, ShapeError
from kernattn.ops.chains import Chains
from kernattn.ops.kinds import LOGS, TABLE, VALUES
from kernattn.ops.row_scale import row_scale
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = [
    "Limits",
    "MapCode",
    "Rows",
    "ceil_div",
    "kernel",
    "launch",
    "limits",
    "map_arguments",
    "map_bytes",
    "map_code",
    "pieces",
    "source",
    "take_rows",
    "two_parts",
    "upload",
    "uploaded",
]

TYPES = ("device.cuh", "tile.cuh", "types.cuh")
MAPS = (*TYPES, "kinds.cuh", "maps.cuh")
LINEAR = (*TYPES, "octaves.cuh", "output.cuh", "kinds.cuh", "maps.cuh", "linear.cuh")
HEADERS = {
    "features": (*MAPS, "features.cuh"),
    "gram": (*MAPS, "features.cuh"),
    "hadamard": MAPS,
    "countsketch": (*TYPES, "sketch.cuh"),
    "tensor_sketch": (*TYPES, "sketch.cuh"),
    "orthogonalize": TYPES,
    "key_state": LINEAR,
    "attend": LINEAR,
    "causal": (*LINEAR, "causal/chunk.cuh"),
    "step": LINEAR,
    "block_softmax": (*TYPES, "output.cuh"),
}
C_TYPES = {"float16": "half_t", "bfloat16": "bf16_t", "float32": "float", "float64": "double"}
BYTES = {"half_t": 2, "bf16_t": 2, "tf32_t": 4, "float": 4, "double": 8}
FB = 32  # frequencies of a tile
NAMED = {kind.name: kind for kind in TABLE}
NULL = np.uint64(0)
GRID = (2**31 - 1, 65_535)  # most blocks along x and y


@dataclass(frozen=True)
class Limits:
    """The limits of a device that plans depend on."""

    capability: int  # 90 for 9.0
    shared_bytes: int  # that one block may ask for
    multiprocessors: int

    @property
    def roomy(self) -> bool:
        """Does a block have the shared memory of the data-centre devices?"""
        return self.shared_bytes >= 160_000


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
        return 16 * self.warps

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    def tiles(self, frequencies: int) -> int:
        """Tiles of FB features that hold all of them."""
        return ceil_div(frequencies, FB) * self.parts

    @property
    def defines(self) -> tuple[str, ...]:
        """The compiler's options."""
        return (
            f"-DINPUT={self.input}",
            f"-DOPERAND={self.operand}",
            f"-DKIND={self.kind}",
            f"-DPROJECT={int(self.project)}",
            f"-DSPLIT={int(self.split)}",
            f"-DFB={FB}",
            f"-DDB={self.db}",
            f"-DWARPS={self.warps}",
        )


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


def limits() -> Limits:
    """Return the limits of the current device."""
    import cupy

    return _limits(int(cupy.cuda.Device().id))


@cache
def _limits(device: int) -> Limits:
    import cupy

    handle = cupy.cuda.Device(device)
    attributes = handle.attributes
    return Limits(
        int(handle.compute_capability), attributes["MaxSharedMemoryPerBlockOptin"], attributes["MultiProcessorCount"]
    )


@cache
def source(op: str) -> str:
    """Return the CUDA C++ of an op: the shared headers that it uses, then its kernels."""
    folder = Path(__file__).parent
    names = (*HEADERS[op], f"{op}/kernels.cu")
    return "\n".join(f'#line 1 "{name}"\n{(folder / name).read_text(encoding="utf-8")}' for name in names)


@cache
def _module(device: int, op: str, defines: tuple[str, ...]) -> Any:
    import cupy

    return cupy.RawModule(code=source(op), options=defines)


@cache
def _function(device: int, op: str, name: str, defines: tuple[str, ...]) -> Any:
    function = _module(device, op, defines).get_function(name)
    function.max_dynamic_shared_size_bytes = _limits(device).shared_bytes
    return function


def kernel(op: str, name: str, defines: tuple[str, ...]) -> Any:
    """Return a kernel of an op, compiled for the current device, that may ask for all shared memory of a block."""
    import cupy

    return _function(int(cupy.cuda.Device().id), op, name, defines)


def launch(function: Any, grid: tuple[int, ...], threads: int, shared_bytes: int, arguments: tuple[Any, ...]) -> None:
    """Launch on the current stream; nothing waits for it."""
    if any(size > most for size, most in zip(grid, GRID, strict=False)):
        raise ShapeError(f"CUDA takes at most {GRID} blocks, this call needs {grid}: fewer rows, entries or features")
    offered = limits().shared_bytes
    if shared_bytes > offered:
        raise BackendUnavailable(
            f"a block of this kernel needs {shared_bytes} bytes of shared memory; this device offers {offered}"
        )
    function(grid, (threads,), arguments, shared_mem=shared_bytes)


def upload(values: NDArray[Any]) -> Any:
    """Return constants on the current device, there for every stream: the copy is waited for, once a map."""
    import cupy

    if cupy.cuda.get_current_stream().is_capturing():
        raise BackendUnavailable("constants of this call are not on the device yet: make it once before the capture")
    return cupy.asarray(values, blocking=True)


_constants: WeakKeyDictionary[MapSpec, dict[tuple[int, str, str], tuple[Any, ...]]] = WeakKeyDictionary()


def _on_device(spec: MapSpec, dtype: str, split: str) -> tuple[Any, ...]:
    """Return omega, its parts, row_weights and offset on the current device, cached; a null pointer for what is None.

    `split` is the C type of the two parts, or empty.
    """
    import cupy

    key = (int(cupy.cuda.Device().id), dtype, split)
    known = _constants.setdefault(spec, {})
    if key not in known:

        def put(x: Float64 | Chains | None) -> Any:
            return NULL if x is None else upload(np.ascontiguousarray(x, dtype=dtype))

        parts = upload(two_parts(np.asarray(spec.omega), split)) if split else NULL
        known[key] = (put(spec.omega), parts, put(spec.row_weights), put(spec.offset))
    return known[key]


def two_parts(omega: Float64, kind: str) -> NDArray[Any]:
    """Return two matrices of a C type, bit by bit, whose sum is omega up to the square of its rounding: (2, D, d)."""

    def rounded(x: NDArray[np.float32]) -> NDArray[np.uint32]:
        bits = x.view(np.uint32)
        if kind == "bf16_t":
            return (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)  # ties to even
        return (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)  # ties away from 0, as cvt.rna.tf32 has it

    single = np.ascontiguousarray(omega, dtype=np.float32)
    high = rounded(single)
    parts = np.stack([high, rounded(single - high.view(np.float32))])
    return (parts >> 16).astype(np.uint16) if kind == "bf16_t" else parts.view(np.float32)


_uploaded: dict[tuple[int, int, str], tuple[ref[Any], Any]] = {}


def uploaded(values: Any, dtype: str) -> Any:
    """Return a host array on the current device, cached for as long as the host array lives."""
    import cupy

    key = (id(values), int(cupy.cuda.Device().id), dtype)
    if key not in _uploaded:
        owner = ref(values, lambda _: _uploaded.pop(key, None))
        _uploaded[key] = (owner, upload(np.ascontiguousarray(values, dtype=dtype)))
    return _uploaded[key][1]


def map_arguments(spec: MapSpec | None, code: MapCode, d: int) -> tuple[Any, ...]:
    """Return what Map is made of: omega, its parts, row_weights, offset, amplitude, log_amplitude, frequencies, d."""
    real = np.float64 if code.accumulator == "double" else np.float32
    if spec is None:
        return (NULL, NULL, NULL, NULL, real(1), real(0), np.int32(d), np.int32(d))
    arrays = _on_device(spec, np.dtype(real).name, code.operand if code.split else "")
    frequencies = d if spec.omega is None else spec.omega.shape[0]
    return (*arrays, real(spec.amplitude), real(spec.log_amplitude), np.int32(frequencies), np.int32(d))


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows a map is applied to, contiguous: raw ones, features, or their logarithms."""

    x: Array  # (..., n, d)
    scale: Array  # (..., n) given log scales per row, or a null pointer
    per_feature: bool
    dtype: str

    def broadcast(self, lead: tuple[int, ...]) -> Rows:
        """Return the same rows, their leading axes broadcast to `lead`."""
        import cupy

        def spread(x: Array, inner: int) -> Array:
            shape = (*lead, *x.shape[x.ndim - inner :])
            return x if x is NULL or x.shape == shape else cupy.ascontiguousarray(cupy.broadcast_to(x, shape))

        return Rows(spread(self.x, 2), spread(self.scale, 1), self.per_feature, self.dtype)


def take_rows(x: Array | ScaledFeatures, spec: MapSpec | None, accumulator: str, whole: bool = True) -> Rows:
    """Return the rows of an op's input: an array where there is a spec, else features in float32 or float64.

    Log scales that the kernels cannot make are given, but where they cancel: not `whole`.
    """
    import cupy

    real = "float64" if accumulator == "double" else "float32"
    if spec is not None:
        scale = NULL
        if whole and spec.row_form is not None:
            wide = cupy.asarray(x, dtype=real)
            scale = cupy.ascontiguousarray(row_scale(namespace(x=wide), wide, spec, _constant)[..., 0])
        return Rows(cupy.ascontiguousarray(x), scale, spec.per_feature, dtype_name(x))
    values, log_scale = x
    m = math.prod(np.broadcast_shapes(values.shape[-1:], log_scale.shape[-1:]))
    if log_scale.shape[-1] == 1 and values.shape[-1] == m:
        scale = cupy.ascontiguousarray(log_scale[..., 0].astype(real, copy=False))
        return Rows(cupy.ascontiguousarray(values.astype(real, copy=False)), scale, False, real)
    return Rows(cupy.ascontiguousarray(log_scale.astype(real, copy=False)), NULL, True, real)


def _constant(_: Any, values: NDArray[Any], dtype: Any, __: Array) -> Any:
    return uploaded(values, np.dtype(dtype).name)
