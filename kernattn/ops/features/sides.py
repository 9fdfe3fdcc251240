"""Queries and keys as the Numba loops read them: inputs beside a map, or projections by chains that are faster."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array
from kernattn.ops._numba import layout
from kernattn.ops._numba.layout import Side, whole_scales
from kernattn.ops.features.chains import FUSED_ABOVE, fast
from kernattn.ops.hadamard.cpu import hadamard
from kernattn.ops.spec import MapSpec

__all__ = ["keys", "queries", "tokens"]


def keys(x: Any, spec: MapSpec | None, dtype: np.dtype[Any]) -> Side:
    """Return keys (..., n, d), or computed features where spec is None."""
    u = _projected(x, spec, dtype)
    if u is None or spec is None:
        return layout.keys(x, spec, dtype)
    return layout.keys(u, spec.nonlinear, dtype)._replace(given=_scales(x, spec, dtype))


def queries(x: Any, spec: MapSpec | None, dtype: np.dtype[Any], scaled: bool) -> Side:
    """Return the same of queries, whose log scales per row cancel unless `scaled`: then all of them are given."""
    u = _projected(x, spec, dtype)
    if u is None or spec is None:
        return layout.queries(x, spec, dtype, scaled)
    side = layout.queries(u, spec.nonlinear, dtype, False)
    return side._replace(given=layout.query_scales(x, spec, dtype)) if scaled else side


def tokens(q: Any, k: Any, q_spec: MapSpec | None, k_spec: MapSpec | None, dtype: np.dtype[Any]) -> tuple[Side, Side]:
    """Return a query and a key a head, (..., d), or their computed features; one map, plain, is looked up once."""
    if q_spec is None or q_spec is not k_spec or q_spec.row_form is not None or fast(q_spec.omega, FUSED_ABOVE):
        return _query_token(q, q_spec, dtype), _key_token(k, k_spec, dtype)
    query = layout.query_token(q, q_spec, dtype)
    return query, Side(query.plan, layout.plain(k, dtype), query.given, k.shape[:-1], 1)


def _key_token(x: Any, spec: MapSpec | None, dtype: np.dtype[Any]) -> Side:
    """Return a key a head, (..., d), or its computed features."""
    u = _projected(x, spec, dtype)
    if u is None or spec is None:
        return layout.key_token(x, spec, dtype)
    return layout.key_token(u, spec.nonlinear, dtype)._replace(given=_scales(x, spec, dtype))


def _query_token(x: Any, spec: MapSpec | None, dtype: np.dtype[Any]) -> Side:
    """Return the same of a query."""
    u = _projected(x, spec, dtype)
    if u is None or spec is None:
        return layout.query_token(x, spec, dtype)
    return layout.query_token(u, spec.nonlinear, dtype)


def _projected(x: Any, spec: MapSpec | None, dtype: np.dtype[Any]) -> Array | None:
    """Return the projections of rows by chains that are faster than their matrix, None where there are none."""
    chains = None if spec is None else fast(spec.omega, FUSED_ABOVE)
    return None if chains is None else hadamard(x.astype(dtype, copy=False), chains)


def _scales(x: Array, spec: MapSpec, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the log scales of rows, flat; nothing where they have none."""
    none = spec.row_weights is None and spec.row_form is None
    return layout.given_scales(x, None, dtype) if none else whole_scales(x, spec, dtype)
