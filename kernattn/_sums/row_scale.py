"""The log scale that all features of a row share, by array operations."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from kernattn._arrays.namespaces import Array, constant, zeros
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec
from kernattn._sums.units import restore, scaled_down


def row_scale(xp: ModuleType, x: Array, spec: MapSpec, put: Callable[..., Any] = constant) -> Array:
    """Return the log scale r of rows x (..., n, d) of an accumulation dtype, (..., n, 1); `put` brings host values."""
    dtype, weights, form = x.dtype, spec.row_weights, spec.row_form
    row = zeros(xp, (*x.shape[:-1], 1), dtype, x)
    if spec.normalised:
        return -log_sum(xp, _logs(xp, x, spec, put))
    if weights is None and form is None:
        return row
    x, octaves = scaled_down(xp, x)
    if weights is not None:
        row = _restore_twice(xp, xp.sum(put(xp, weights, dtype, x) * x * x, axis=-1, keepdims=True), octaves)
    if form is not None:
        centre = put(xp, form.centre, dtype, x) * 2.0**-octaves
        y, more = scaled_down(xp, xp.matmul(x - centre, put(xp, form.factor, dtype, x).T))
        linear = restore(xp, xp.matmul(x, put(xp, form.linear, dtype, x)[:, None]), octaves)
        row = row + (linear - _restore_twice(xp, xp.sum(y * y, axis=-1, keepdims=True) / 2, octaves + more))
    return row


def _restore_twice(xp: ModuleType, y: Array, octaves: Array) -> Array:
    """Return y 4^octaves, held."""
    return restore(xp, restore(xp, y, octaves), octaves)


def log_sum(xp: ModuleType, logs: Array) -> Array:
    """Return log sum_a e^(l_a) of rows of logs (..., n, M), (..., n, 1)."""
    top = xp.max(logs, axis=-1, keepdims=True)
    return top + xp.log(xp.sum(xp.exp(logs - top), axis=-1, keepdims=True))


def _logs(xp: ModuleType, x: Array, spec: MapSpec, put: Callable[..., Any]) -> Array:
    """Return the logs of the features of a map that is normalised, before they are."""
    x, octaves = scaled_down(xp, x)
    u = restore(xp, xp.matmul(x, put(xp, spec.omega, x.dtype, x).T), octaves)
    u = KINDS[spec.kind].formula(xp, u)
    return u if spec.offset is None else u + put(xp, spec.offset, x.dtype, x)
