"""Queries and keys as the Numba loops read them: rows beside a map, or projections by chains that are faster."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.parallel import share
from kernattn._sums.units import restore, scaled_down
from kernattn.errors import ParameterError
from kernattn.ops._numba.tiles.layout import Rows, flat, nothing, rows, seconds_of, token_rows
from kernattn.ops._numba.tiles.packing import PackedMap, map_as_given, pack_map, panels
from kernattn.ops.features.crossover import FUSED_ABOVE, fast
from kernattn.ops.features.loops import write_scales
from kernattn.ops.features.normalised import ROWS, normalisers
from kernattn.ops.hadamard.cpu import hadamard


class Side(NamedTuple):
    """Queries or keys as the loops read them."""

    phi: PackedMap
    x: Rows  # their projections by chains, or computed features
    given: NDArray[Any]  # log scales per row that the loops do not compute, flat, or empty
    lead: tuple[int, ...]
    n: int


Token = tuple[tuple[NDArray[np.int64], NDArray[Any]], Rows, tuple[int, ...]]
"""The map, the rows and the leading axes of a query or a key a head: a plain tuple, which costs least."""


def keys(x: Any, spec: MapSpec | None, dtype: np.dtype[Any]) -> Side:
    """Return keys (..., n, d), or computed features where spec is None."""
    if spec is None:
        return _computed_side(x, dtype)
    return _rows(x, spec, nothing(dtype) if spec.direct else _key_scales(x, spec, dtype), dtype)


def queries(x: Any, spec: MapSpec | None, dtype: np.dtype[Any], scaled: bool) -> Side:
    """Return queries (..., n, d), whose log scales per row cancel unless `scaled`: then all of them are given."""
    if spec is None:
        return _computed_side(x, dtype)
    given = _scales(x, spec, dtype) if scaled and spec.unscaled is not spec else nothing(dtype)
    return _rows(x, spec, given, dtype)


def tokens(
    q: Any, k: Any, q_spec: MapSpec | None, k_spec: MapSpec | None, dtype: np.dtype[Any]
) -> tuple[Token, Token, NDArray[Any]]:
    """Return a query and a key a head, (..., d), or their computed features, and the keys' log scales, if any."""
    if k_spec is not None and k_spec is q_spec and k_spec.direct:
        phi = pack_map(k_spec, dtype, k.shape[-1]).arrays  # one map, plain: looked up once
        return (phi, token_rows(q, dtype), q.shape[:-1]), (phi, token_rows(k, dtype), k.shape[:-1]), nothing(dtype)
    query = _computed_token(q, dtype)[0] if q_spec is None else _token(q, q_spec, dtype)
    if k_spec is None:
        return query, *_computed_token(k, dtype)
    return query, _token(k, k_spec, dtype), _key_scales(k, k_spec, dtype)


def given_scales(x: Array, spec: MapSpec, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the log scales of rows (...), flat, where the loops cannot compute them of rows; else nothing."""
    return _scales(x, spec, dtype) if spec.scales_apart else nothing(dtype)


def _project(x: Any, spec: MapSpec, dtype: np.dtype[Any]) -> tuple[Any, MapSpec]:
    """Return rows as the loops read them, projected by chains where these are faster, and the map of these."""
    chains = fast(spec.omega, FUSED_ABOVE)
    if chains is None:
        return x, spec
    near, octaves = scaled_down(np, x.astype(dtype, copy=False))
    u = hadamard(near, chains)
    return (restore(np, u, octaves) if octaves.any() else u), spec.nonlinear


def _rows(x: Any, spec: MapSpec, given: NDArray[Any], dtype: np.dtype[Any]) -> Side:
    if not spec.direct:
        x, spec = _project(x, spec, dtype)
    shape = x.shape
    return Side(pack_map(spec, dtype, shape[-1]), rows(x, dtype), given, shape[:-2], shape[-2])


def _token(x: Any, spec: MapSpec, dtype: np.dtype[Any]) -> Token:
    x, spec = _project(x, spec, dtype)
    return pack_map(spec, dtype, x.shape[-1]).arrays, token_rows(x, dtype), x.shape[:-1]


def _computed_side(x: ScaledFeatures, dtype: np.dtype[Any]) -> Side:
    """Return computed features beside a map that leaves them as they are."""
    values, log_scale = x
    per_feature = log_scale.shape[-1] > 1
    if per_feature and values.shape[-1] > 1:
        values, log_scale = values[..., :1], log_scale + _log(values)
    values = np.broadcast_to(log_scale if per_feature else values, np.broadcast_shapes(values.shape, log_scale.shape))
    *lead, n, features = values.shape
    given = nothing(dtype) if per_feature else flat(np.broadcast_to(log_scale, (*lead, n, 1)), dtype)
    return Side(map_as_given(dtype, features, per_feature), rows(values, dtype), given, tuple(lead), n)


def _computed_token(x: ScaledFeatures, dtype: np.dtype[Any]) -> tuple[Token, NDArray[Any]]:
    values = x.values.astype(dtype, copy=False)
    side = _computed_side(ScaledFeatures(values[..., None, :], x.log_scale[..., None, :]), dtype)
    return (side.phi.arrays, token_rows(side.x[0], dtype), side.lead), side.given


def _key_scales(x: Array, spec: MapSpec, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the log scales of keys, flat, where the loops cannot compute them of what they read."""
    if spec.row_weights is not None and fast(spec.omega, FUSED_ABOVE) is not None:
        return _scales(x, spec, dtype)
    return given_scales(x, spec, dtype)


def _scales(x: Array, spec: MapSpec, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the log scales of rows (...), flat; of a masked row of infinities anything."""
    if spec.normalised:
        return flat(normalisers(x, spec, dtype), dtype)
    scales = np.empty(x.size // x.shape[-1], dtype)
    form = _packed_form(spec, dtype)
    seconds = seconds_of(2.0 * x.size * (1 + form[-1]), 0, 4)
    share(partial(write_scales, *form, rows(x, dtype), scales, ROWS), -(-scales.size // ROWS), seconds)
    return flat(scales, dtype)


def _packed_form(spec: MapSpec, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return weights, centre, linear, the factor in panels and its rank, as `write_scales` takes them, made once."""
    if ("form", dtype) not in spec.prepared:
        none = np.zeros(0)
        weights = none if spec.row_weights is None else spec.row_weights
        parts, rank = (weights, none, none, none), 0
        if spec.row_form is not None:
            form = spec.row_form
            parts, rank = (weights, form.centre, form.linear, panels(form.factor, dtype)), len(form.factor)
        spec.prepared["form", dtype] = (*(flat(part, dtype) for part in parts), rank)
    packed: tuple[Any, ...] = spec.prepared["form", dtype]
    return packed


def _log(values: Array) -> Array:
    """Return the logarithms of values that stand beside log scales of their own."""
    if (values < 0).any():
        raise ParameterError(
            "backend 'cpu' takes a log scale for every feature beside positive values only; got negative ones: "
            "ask for backend='reference', or for none in particular"
        )
    with np.errstate(divide="ignore"):
        return np.log(values)
