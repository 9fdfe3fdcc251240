"""From arrays and specs to what the loops take: flat read-only arrays, plain numbers, tables of who reads what."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod, sqrt
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array, Host
from kernattn.errors import ParameterError
from kernattn.ops._numba.registers import LINE, ROWS
from kernattn.ops.kinds import KINDS, LOGS, VALUES, Kind
from kernattn.ops.peaked import LogNormaliser
from kernattn.ops.row_scale import row_scale
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = [
    "FLOPS_PER_SECOND",
    "NO_MASK",
    "SECONDS_PER_FEATURE",
    "Heads",
    "Plan",
    "Side",
    "accumulation",
    "add_scales",
    "as_given",
    "bound",
    "flat",
    "given_scales",
    "heads",
    "key_token",
    "keys",
    "panels",
    "plain",
    "plan_of",
    "plan_with",
    "queries",
    "query_scales",
    "query_token",
    "room",
    "unwritten",
    "whole_scales",
]

FLOPS_PER_SECOND, SECONDS_PER_FEATURE = 8e10, 4e-10
"""What a core does in float32, roughly: they decide when work is worth sharing."""

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def accumulation(array: Array) -> np.dtype[Any]:
    """Return the dtype of sums: float64 for float64, else float32."""
    return _DOUBLE if array.dtype == _DOUBLE else _SINGLE


def bound(dtype: np.dtype[Any]) -> Any:
    """Return by how many powers of two the keys of a chunk may rise above its first: 2^-68 is left in float32."""
    return dtype.type(58 if dtype.itemsize == 4 else 720)


def flat(array: Array, dtype: Any) -> NDArray[Any]:
    """Return the array as contiguous numbers of dtype, not writeable: the loops are compiled for such arrays only."""
    result = np.ascontiguousarray(array, dtype=dtype).reshape(-1)
    result.setflags(write=False)
    return result


def plain(array: Array, dtype: Any) -> NDArray[Any]:
    """Return the array as contiguous numbers of dtype, writeable: a copy where it is anything else."""
    if array.dtype != dtype or not array.flags.carray:
        array = np.array(array, dtype, order="C")
    return array.ravel()  # type: ignore[no-any-return]


def room(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return room for a result. A large one begins at a cache line: no vector lies across two, and JAX takes it so."""
    size, unit = prod(shape), LINE // dtype.itemsize
    if size * dtype.itemsize < LARGE:
        return np.empty(shape, dtype)
    memory = np.empty(size + unit, dtype)
    skip = -memory.ctypes.data % LINE // dtype.itemsize
    return memory[skip : skip + size].reshape(shape)


LARGE = 1 << 16  # bytes

NO_MASK = flat(np.zeros(0), bool)
"""Stands for a mask that admits everything."""


class Plan(NamedTuple):
    """A map in the dtype of the loops: `numbers` and `constants` are what `plans.unpacked` reads."""

    kind: Kind
    dim: int
    frequencies: int
    features: int
    projects: bool
    numbers: NDArray[np.int64]  # kind, per feature or not, phase or not, d, D, M, and the sizes of parts of `constants`
    constants: NDArray[Any]  # amplitude and reach, omega, omega_t, weights and offset, each from a cache line on


_plans: WeakKeyDictionary[MapSpec, dict[tuple[np.dtype[Any], int], Plan]] = WeakKeyDictionary()


def plan_of(spec: MapSpec, dtype: np.dtype[Any], dim: int) -> Plan:
    """Return the plan of a spec, made once."""
    plans = _plans.get(spec)
    if plans is None:
        plans = _plans[spec] = {}
    plan = plans.get((dtype, dim))
    if plan is None:
        plan = plans[dtype, dim] = _make_plan(spec, dtype, dim)
    return plan


def _make_plan(spec: MapSpec, dtype: np.dtype[Any], dim: int) -> Plan:
    omega = np.zeros((0, dim)) if spec.omega is None else np.asarray(spec.omega)
    return plan_with(spec, omega, dim if spec.omega is None else len(omega), dtype)


def plan_with(spec: MapSpec, omega: Host, frequencies: int, dtype: np.dtype[Any]) -> Plan:
    """Return the plan of a spec with other frequencies (D, d), or with `frequencies` that come from elsewhere."""
    kind, dim = KINDS[spec.kind], omega.shape[1]
    features = kind.parts * frequencies
    offset = np.zeros(features) if spec.offset is None else spec.offset
    if kind.per_feature:
        offset = offset + spec.log_amplitude
    weights = np.zeros(0) if spec.row_weights is None else spec.row_weights
    # rows of omega rounded up to blocks; its transpose in panels
    parts = (np.pad(omega, ((0, -len(omega) % ROWS), (0, 0))), panels(omega, dtype), weights, offset)
    return _packed(kind, parts, spec.amplitude, dtype, dim, frequencies)


def _reach(kind: Kind, omega: Host, weights: Host, dtype: np.dtype[Any]) -> float:
    """Return c, so that nothing that is computed of rows with sum_i |x_i| c < 1 is near the largest float."""
    limit = float(np.finfo(dtype).max) / 64
    steepest, heaviest = (float(np.abs(x).max(initial=0.0)) for x in (omega, weights))
    return max(steepest / limit, sqrt(heaviest / limit), 1 / limit if kind.per_feature else 0.0)


def _packed(
    kind: Kind, arrays: tuple[NDArray[Any], ...], amplitude: float, dtype: np.dtype[Any], dim: int, frequencies: int
) -> Plan:
    """Return the plan of omega, omega_t, weights and offset, copied into one array: a map is two arrays for a call."""
    parts = [np.array([amplitude, _reach(kind, arrays[0], arrays[2], dtype)]), *(x.reshape(-1) for x in arrays)]
    unit, sizes = LINE // dtype.itemsize, [part.size for part in parts]
    starts = np.cumsum([0, *(-(-size // unit) * unit for size in sizes)])
    memory = np.zeros(starts[-1] + unit, dtype)
    skip = -memory.ctypes.data % LINE // dtype.itemsize
    constants = memory[skip : skip + starts[-1]]
    for part, at in zip(parts, starts, strict=False):
        constants[at : at + part.size] = part
    features = kind.parts * frequencies
    settings = (kind.number, kind.per_feature, kind.offset == "phase", dim, frequencies, features)
    numbers = np.array([*settings, *sizes[1:]], np.int64)
    for array in (numbers, constants):
        array.setflags(write=False)
    return Plan(kind, dim, frequencies, features, sizes[1] > 0, numbers, constants)


def panels(omega: Host, dtype: np.dtype[Any]) -> Host:
    """Return omega (D, d) transposed, in panels of two lines of columns: (panels, d, columns)."""
    columns = 2 * LINE // dtype.itemsize
    padded = np.pad(omega, ((0, -len(omega) % columns), (0, 0)))
    return padded.reshape(-1, columns, omega.shape[1]).transpose(0, 2, 1)


class Side(NamedTuple):
    """Queries or keys as the loops read them."""

    plan: Plan
    x: NDArray[Any]  # inputs, or computed features, flat
    given: NDArray[Any]  # log scales per row that the loops do not compute, flat, or empty
    lead: tuple[int, ...]
    n: int


def keys(x: Any, spec: MapSpec | None, dtype: np.dtype[Any]) -> Side:
    """Return inputs beside their map, or computed features beside a map that leaves them as they are."""
    if spec is None:
        return _computed(x, dtype)
    given = given_scales(x, spec, dtype)
    return Side(plan_of(spec, dtype, x.shape[-1]), flat(x, dtype), given, x.shape[:-2], x.shape[-2])


def queries(x: Any, spec: MapSpec | None, dtype: np.dtype[Any], scaled: bool) -> Side:
    """Return the same of queries, whose log scales per row cancel unless `scaled`: then all of them are given."""
    if spec is None:
        return _computed(x, dtype)
    given = query_scales(x, spec, dtype) if scaled else _empty(dtype)
    return Side(plan_of(spec, dtype, x.shape[-1]), flat(x, dtype), given, x.shape[:-2], x.shape[-2])


def query_scales(x: Array, spec: MapSpec, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the log scales of queries (...), flat, with what the loops leave out of their features."""
    return flat(whole_scales(x, spec, dtype) + (0.0 if spec.per_feature else spec.log_amplitude), dtype)


def given_scales(x: Array, spec: MapSpec | None, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the log scales of rows (...), flat, where the loops cannot compute them; else nothing."""
    return _empty(dtype) if spec is None or spec.row_form is None else whole_scales(x, spec, dtype)


def whole_scales(x: Array, spec: MapSpec, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the log scales of rows (...), flat; of a masked row of infinities anything."""
    with np.errstate(invalid="ignore", over="ignore"):
        return flat(row_scale(np, x.astype(dtype, copy=False), spec), dtype)


def _computed(x: ScaledFeatures, dtype: np.dtype[Any]) -> Side:
    values, log_scale = x
    per_feature = log_scale.shape[-1] > 1
    if per_feature and values.shape[-1] > 1:
        values, log_scale = values[..., :1], log_scale + _log(values)
    rows = np.broadcast_to(log_scale if per_feature else values, np.broadcast_shapes(values.shape, log_scale.shape))
    *lead, n, features = rows.shape
    given = _empty(dtype) if per_feature else flat(np.broadcast_to(log_scale, (*lead, n, 1)), dtype)
    return Side(as_given(dtype, features, per_feature), flat(rows, dtype), given, tuple(lead), n)


def query_token(x: Any, spec: MapSpec | None, dtype: np.dtype[Any]) -> Side:
    """Return a query a head beside its map, or its computed features, as `plain` returns them."""
    if spec is None:
        side = _computed(ScaledFeatures(x.values[..., None, :], x.log_scale[..., None, :]), dtype)
        return side._replace(x=plain(side.x, dtype))
    return Side(plan_of(spec, dtype, x.shape[-1]), plain(x, dtype), _empty(dtype), x.shape[:-1], 1)


def key_token(x: Any, spec: MapSpec | None, dtype: np.dtype[Any]) -> Side:
    """Return the same of a key."""
    side = query_token(x, spec, dtype)
    if spec is None or spec.row_form is None:
        return side
    return side._replace(given=whole_scales(x, spec, dtype))


def _log(values: Array) -> Array:
    """Return the logarithms of values that stand beside log scales of their own."""
    if (values < 0).any():
        raise ParameterError(
            "the cpu backend takes a log scale per feature beside positive values; got negative ones: "
            "give signed features a log scale per row, or ask for backend='reference'"
        )
    with np.errstate(divide="ignore"):
        return np.log(values)


@lru_cache(maxsize=64)
def _empty(dtype: np.dtype[Any]) -> NDArray[Any]:
    return flat(np.zeros(0), dtype)


@lru_cache(maxsize=64)
def as_given(dtype: np.dtype[Any], features: int, per_feature: bool = False) -> Plan:
    """Return the plan that leaves computed values, or computed logs of features, as they are."""
    nothing = np.zeros(0)
    parts = (nothing, nothing, nothing, np.zeros(features))
    return _packed(LOGS if per_feature else VALUES, parts, 1.0, dtype, features, features)


class Heads(NamedTuple):
    """Which heads of q meet which heads of k and v, all numbered flat."""

    lead: tuple[int, ...]  # of the state: those of k and v together
    out_lead: tuple[int, ...]
    k: NDArray[np.int64]  # (B,) head of k for each head of the state
    v: NDArray[np.int64]  # (B,)
    reads: NDArray[np.int64]  # (B, G, 2) heads of q that read it, and heads of out
    q: NDArray[np.int64]  # (B * G,) the same apart
    out: NDArray[np.int64]  # (B * G,)
    table: NDArray[np.int64]  # k, v, q and out one after the other


@lru_cache(maxsize=256)
def heads(q: tuple[int, ...] | None, k: tuple[int, ...], v: tuple[int, ...]) -> Heads:
    """Return how leading axes broadcast; q None stands for no queries."""
    lead = np.broadcast_shapes(k, v)
    of_k, of_v = (_flat_order(_numbered(x, lead), range(len(lead))) for x in (k, v))
    if q is None:
        none = np.zeros(0, np.int64)
        return Heads(lead, (), of_k, of_v, np.zeros((prod(lead), 0, 2), np.int64), none, none, none)
    out = np.broadcast_shapes(q, lead)
    padded = (1,) * (len(out) - len(lead)) + lead
    order = sorted(range(len(out)), key=lambda axis: padded[axis] == 1)  # the axes of the state first
    of_q, of_out = (_flat_order(_numbered(x, out), order) for x in (q, out))
    reads = np.stack([of_q, of_out], axis=-1).reshape(prod(lead), -1, 2)
    return Heads(lead, out, of_k, of_v, reads, of_q, of_out, np.concatenate([of_k, of_v, of_q, of_out]))


def _numbered(lead: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the numbers of heads of leading axes `lead`, broadcast to `shape`."""
    return np.broadcast_to(np.arange(prod(lead)).reshape(lead), shape)


def _flat_order(numbers: NDArray[np.int64], order: Iterable[int]) -> NDArray[np.int64]:
    return np.ascontiguousarray(numbers.transpose(tuple(order))).reshape(-1)


@lru_cache(maxsize=8)
def unwritten(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return room for what is not wanted."""
    return np.zeros(0, dtype)


def add_scales(found: LogNormaliser, queries: Side) -> None:
    """Add the log scales of the queries' own rows, which the loops leave out."""
    if queries.given.size:
        np.add(found.log, queries.given.reshape(*queries.lead, queries.n), out=found.log)
