r"""Cotangents of rows in array-API.

With f the cotangent of the features and c = phi f: dx = Omega^T du + dr (2 w x + form'), where du is what the kind
makes of f, or of c where features have logs of their own, and dr = sum_a c_a; dOmega = sum du x^T, doffset = sum du or
sum c, and dw = sum dr x^2.
"""

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, constant, namespace
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent
from kernattn._sums.peaked import finite
from kernattn._sums.row_scale import log_sum
from kernattn._sums.units import multiply_out
from kernattn.ops.features.reference import arguments, scaled


def features_vjp(x: Array, spec: MapSpec, g: Array, learn: bool) -> MapCotangent:
    """Return the cotangents of x and, where they are learnt, of the map's numbers."""
    xp = namespace(x=x)
    features = scaled(x, spec)
    g = xp.astype(g, features.log_scale.dtype, copy=False)
    f = xp.where(g == 0, g, multiply_out(features._replace(values=g), g))
    return pull_back(x, spec, f, True, learn)


def pull_back(x: Array, spec: MapSpec, f: Array, scale: bool, learn: bool) -> MapCotangent:
    """Return cotangents of rows x (..., n, d) from f (..., n, M), those of `scaled`: of its values, or of logs.

    Without `scale` the row's log scale counts for nothing: that of a query cancels. Where f is 0, x may be anything.
    """
    xp, kind, dtype = namespace(x=x), KINDS[spec.kind], x.dtype
    x = xp.astype(x, accumulation_dtype(xp, x), copy=False)
    x = xp.where(xp.any(f != 0, axis=-1, keepdims=True), x, xp.zeros_like(x))
    u = arguments(x, spec)
    phi, log_scale = scaled(x, spec)
    one = xp.full_like(log_scale[..., :1], spec.amplitude)
    if kind.scale == "none":
        grows = xp.max(u, axis=-1, keepdims=True) > 0
        one = one * xp.exp(-xp.where(grows, finite(xp, log_scale), xp.zeros_like(one)))
    assert kind.pull is not None
    du = kind.pull(xp, u, phi, one, f)  # (..., n, D)
    dx = du if spec.omega is None else xp.matmul(du, constant(xp, np.asarray(spec.omega), x.dtype, x))
    dr = xp.sum(f if kind.per_feature else f * phi, axis=-1, keepdims=True)  # (..., n, 1)
    if scale and kind.scale != "none":
        dx = dx + dr * slope(x, spec)
    else:
        dr = xp.zeros_like(dr)
    dx = xp.astype(dx, dtype, copy=False)
    return MapCotangent(dx, *_numbers(x, spec, f, du, dr)) if learn else MapCotangent(dx)


def slope(x: Array, spec: MapSpec) -> Array:
    """Return the derivative of each row's log scale, (..., n, d)."""
    xp = namespace(x=x)
    weights = spec.row_weights
    slope = xp.zeros_like(x) if weights is None else constant(xp, 2 * weights, x.dtype, x) * x
    if spec.row_form is not None:
        form = spec.row_form
        factor, centre, linear = (constant(xp, part, x.dtype, x) for part in (form.factor, form.centre, form.linear))
        slope = slope + linear - xp.matmul(xp.matmul(x - centre, factor.T), factor)
    if spec.normalised:
        slope = slope - xp.matmul(of_shares(x, shares(x, spec), spec), constant(xp, np.asarray(spec.omega), x.dtype, x))
    return slope


def _numbers(x: Array, spec: MapSpec, f: Array, du: Array, dr: Array) -> tuple[Array | None, ...]:
    """Return the cotangents of omega, offset and row_weights, each None where the map has none."""
    xp, kind = namespace(x=x), KINDS[spec.kind]
    lost = of_normaliser(x, spec, dr) if spec.normalised else None
    x, f, du, dr = (xp.reshape(y, (-1, y.shape[-1])) for y in (x, f, du, dr))
    omega = None if spec.omega is None else xp.matmul(du.T, x)
    offset = None if spec.offset is None else xp.sum(du if kind.offset == "phase" else f, axis=0)
    if lost is not None:
        omega, offset = omega + lost[0], None if offset is None else offset + lost[1]
    return (
        omega,
        offset,
        None if spec.row_weights is None else xp.sum(dr * x * x, axis=0),
    )


def shares(x: Array, spec: MapSpec) -> Array:
    """Return each feature's share in the sum of a row's, (..., n, M), of a map that is normalised."""
    xp = namespace(x=x)
    logs = scaled(x, spec).log_scale
    return xp.exp(logs - log_sum(xp, logs))


def of_shares(x: Array, shares: Array, spec: MapSpec) -> Array:
    """Return cotangents of projections, (..., n, D), of such of logs, (..., n, M)."""
    pull = KINDS[spec.kind].pull
    assert pull is not None
    return pull(namespace(x=x), shares[..., : len(np.asarray(spec.omega))], shares, shares, shares)


def of_logs(x: Array, spec: MapSpec, g: Array, learn: bool) -> MapCotangent:
    """Return cotangents of rows, of omega and of an offset, from those of logs that are then normalised, (..., n, M).

    Where a row has none, it may be anything.
    """
    xp = namespace(x=x)
    du = of_shares(x, g, spec)
    dx = xp.matmul(du, constant(xp, np.asarray(spec.omega), x.dtype, x))
    if not learn:
        return MapCotangent(dx)
    alive = xp.any(g != 0, axis=-1, keepdims=True)
    x = x if isinstance(x, np.ndarray) and alive.all() else xp.where(alive, x, xp.zeros_like(x))
    x, g, du = (xp.reshape(y, (-1, y.shape[-1])) for y in (x, g, du))
    return MapCotangent(dx, xp.matmul(du.T, x), xp.sum(g, axis=0))


def of_normaliser(x: Array, spec: MapSpec, dr: Array) -> tuple[Array, Array]:
    """Return cotangents of omega and offset from those of log scales, dr (..., n, 1), by a row's sum of features."""
    xp = namespace(x=x)
    lost = xp.where(dr == 0, xp.zeros_like(dr), -dr) * shares(x, spec)
    return of_logs(x, spec, lost, True)[1:3]
