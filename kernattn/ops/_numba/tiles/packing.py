"""A map as it goes into compiled code: two flat arrays, made once for a spec, a dtype and a dimension."""

from functools import lru_cache
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn._maps.kinds import KINDS, LOGS, VALUES, Kind
from kernattn._maps.spec import MapSpec
from kernattn._sums.limits import ENDS
from kernattn.ops._numba.codegen.registers import LINE, ROWS


class PackedMap(NamedTuple):
    """A map in the dtype of the loops: two arrays, which `maps.unpack` reads."""

    kind: Kind
    dim: int
    frequencies: int
    features: int
    projects: bool
    arrays: tuple[NDArray[np.int64], NDArray[Any]]
    """What loops take. Numbers: the kind, columns of its row, d, D, M, and the sizes of the parts of the other array.

    Constants: amplitude, reach, precise, moderate; omega, omega_t, weights and offset, each from a cache line on.
    """


def pack_map(spec: MapSpec, dtype: np.dtype[Any], dim: int) -> PackedMap:
    """Return the map of a spec, packed once."""
    phi: PackedMap | None = spec.prepared.get((dtype, dim))
    if phi is None:
        spec.check(dim)
        omega = np.zeros((0, dim)) if spec.omega is None else np.asarray(spec.omega)
        phi = spec.prepared[dtype, dim] = pack_with(spec, omega, dim if spec.omega is None else len(omega), dtype)
    return phi


def pack_with(spec: MapSpec, omega: Float64, frequencies: int, dtype: np.dtype[Any]) -> PackedMap:
    """Return the map of a spec with other frequencies (D, d), or with `frequencies` that come from elsewhere."""
    kind, dim = KINDS[spec.kind], omega.shape[1]
    features = kind.parts * frequencies
    offset = np.zeros(features) if spec.offset is None else spec.offset
    if kind.per_feature:
        offset = offset + spec.log_amplitude
    weights = np.zeros(0) if spec.row_weights is None else spec.row_weights
    # rows of omega rounded up to blocks; its transpose in panels
    parts = (_up_to_multiple(omega, ROWS), panels(omega, dtype), weights, offset)
    return _pack(kind, parts, spec.amplitude, dtype, dim, frequencies)


def _reach(kind: Kind, omega: Float64, weights: Float64, dtype: np.dtype[Any]) -> float:
    """Return c, so that nothing that is computed of rows with sum_i |x_i| c < 1 is near the largest float.

    With weights, squares x_i^2 are computed too: a loop may form them before it multiplies by a weight below 1.
    """
    limit = ENDS[dtype.name].held
    steepest = float(np.abs(omega).max(initial=0.0))
    heaviest = float(np.abs(weights).max(initial=1.0)) if weights.size else 0.0
    return max(steepest / limit, sqrt(heaviest / limit), 1 / limit if kind.per_feature else 0.0)


def _precise(kind: Kind, omega: Float64, reach: float, dtype: np.dtype[Any]) -> float:
    """Return c, so that logs of rows with sum_i |x_i| c < 1 have digits after the point."""
    steepest = float(np.abs(omega).max(initial=0.0)) if omega.size else 1.0
    return max(reach, steepest * 2.0 ** (-20 if dtype.itemsize == 4 else -49)) if kind.per_feature else reach


def _pack(
    kind: Kind, arrays: tuple[NDArray[Any], ...], amplitude: float, dtype: np.dtype[Any], dim: int, frequencies: int
) -> PackedMap:
    """Return the map of omega, omega_t, weights and offset, copied into one array: a map is two arrays for a call."""
    reach = _reach(kind, arrays[0], arrays[2], dtype)
    moderate = kind.moderate if 1 / 16 <= amplitude <= 16 else 0.0
    scalars = np.array([amplitude, reach, _precise(kind, arrays[0], reach, dtype), moderate])
    parts = [scalars, *(x.reshape(-1) for x in arrays)]
    unit, sizes = LINE // dtype.itemsize, [part.size for part in parts]
    starts = np.cumsum([0, *(-(-size // unit) * unit for size in sizes)])
    constants = zeros_by_lines(starts[-1], dtype)
    for part, at in zip(parts, starts, strict=False):
        constants[at : at + part.size] = part
    features = kind.parts * frequencies
    columns = (kind.per_feature, kind.offset == "phase", kind.positive, kind.exponential_tail)
    numbers = np.array([kind.number, *columns, dim, frequencies, features, *sizes[1:]], np.int64)
    for array in (numbers, constants):
        array.setflags(write=False)
    return PackedMap(kind, dim, frequencies, features, sizes[1] > 0, (numbers, constants))


def zeros_by_lines(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return `size` zeros that begin at a cache line."""
    memory = np.zeros(size + LINE // dtype.itemsize, dtype)
    skip = -memory.ctypes.data % LINE // dtype.itemsize
    return memory[skip : skip + size]


def panels(omega: Float64, dtype: np.dtype[Any]) -> Float64:
    """Return omega (D, d) transposed, in panels of two lines of columns: (panels, d, columns)."""
    columns = 2 * LINE // dtype.itemsize
    return _up_to_multiple(omega, columns).reshape(-1, columns, omega.shape[1]).transpose(0, 2, 1)


def _up_to_multiple(omega: Float64, unit: int) -> Float64:
    """Return omega (D, d) with rows of zeros up to a multiple of `unit`; numpy.pad takes as long as all the rest."""
    missing = -len(omega) % unit
    return np.concatenate([omega, np.zeros((missing, omega.shape[1]), omega.dtype)]) if missing else omega


@lru_cache(maxsize=64)
def map_as_given(dtype: np.dtype[Any], features: int, per_feature: bool = False) -> PackedMap:
    """Return the map that leaves computed values, or computed logs of features, as they are."""
    nothing = np.zeros(0)
    parts = (nothing, nothing, nothing, np.zeros(features))
    return _pack(LOGS if per_feature else VALUES, parts, 1.0, dtype, features, features)
