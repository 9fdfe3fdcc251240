"""Functions of measures of pairs in array-API; what is made of y alone serves many blocks of x."""

from functools import reduce
from math import sqrt
from operator import add
from types import ModuleType
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, namespace
from kernattn.ops.pairwise.forms import DOT, EXPONENTIAL, LINEAR, MATERN, MINIMA, QUADRATIC, SQUARED, Form

SOME = 64  # rows of y, or up to twice as many, whose median is amid all of them


def pairwise(x: Array, y: Array, form: Form, dtype: Any = None) -> Array:
    """Return f(m(x_i, y_j)), (..., n, k)."""
    xp = namespace(x=x, y=y)
    values = apply_form(xp, measure_rows(xp, x, prepare_rows(xp, y, form.measure), form.measure), form)
    return values if dtype is None else xp.astype(values, dtype, copy=False)


def apply_form(xp: ModuleType, u: Array, form: Form) -> Array:
    """Return the function of measures u."""
    if form.function == EXPONENTIAL:
        return xp.exp(form.number * u)
    if form.function == MATERN:
        return _decay_of_squares(xp, u, form)
    return _power(u + form.number if form.number else u, form.degree)


def decay(xp: ModuleType, s: Array, degree: int) -> Array:
    """Return p(s) e^-s with p of a Matern kernel."""
    p = 1 + s * (LINEAR[degree] + s * QUADRATIC[degree]) if degree else 1
    return p * xp.exp(-s)


def _decay_of_squares(xp: ModuleType, u: Array, form: Form) -> Array:
    """Return p(s) e^-s for s^2 = c u; where u is 0 by its series, whose slope no library finds through a root."""
    s = sqrt(form.number) * root(xp, u)
    if isinstance(u, np.ndarray):
        return decay(xp, s, form.degree)
    slope = (0.5 - QUADRATIC[form.degree]) * form.number if form.degree else 0.0
    return xp.where(u == 0, 1 - slope * u, decay(xp, s, form.degree))


def root(xp: ModuleType, u: Array) -> Array:
    """Return the root of u >= 0, with the slope 0 at 0 in place of an infinite one."""
    if isinstance(u, np.ndarray):
        return xp.sqrt(u)
    return xp.where(u == 0, u, xp.sqrt(xp.where(u == 0, xp.ones_like(u), u)))


def _power(u: Array, degree: int) -> Array:
    """Return u^degree by squares: libraries take a logarithm for a whole power too."""
    if degree == 1:
        return u
    half = _power(u, degree // 2)
    return half * half * u if degree % 2 else half * half


def prepare_rows(xp: ModuleType, y: Array, measure: int) -> tuple[Array, ...]:
    """Return y as `measure_rows` takes it."""
    return _centre(xp, y) if measure == SQUARED else (xp.matrix_transpose(y),)


def measure_rows(xp: ModuleType, x: Array, y: tuple[Array, ...], measure: int) -> Array:
    """Return m(x_i, y_j), (..., n, k), for what was prepared of y."""
    if measure == DOT:
        return xp.matmul(x, y[0])
    if measure == SQUARED:
        centre, across, norms = y
        x = x - centre
        norms = xp.sum(x * x, axis=-1, keepdims=True) + norms  # by themselves: rounded alike for K_ij and K_ji
        return xp.clip(norms + xp.matmul(-2.0 * x, across), min=0.0)
    terms = (
        xp.minimum(x[..., :, None, i], y[0][..., i, None, :])
        if measure == MINIMA
        else xp.abs(x[..., :, None, i] - y[0][..., i, None, :])
        for i in range(x.shape[-1])
    )
    return reduce(add, terms)


def _centre(xp: ModuleType, y: Array) -> tuple[Array, Array, Array]:
    """Return a centre c amid y, (y - c)^T and |y - c|^2, (..., 1, k).

    Rows far from the origin would cancel. Medians of some rows: an outlier or a NaN among y would move a mean, and
    all other rows would cancel because of it.
    """
    some = xp.sort(y[..., :: max(1, y.shape[-2] // SOME), :], axis=-2)
    middle = some.shape[-2] // 2
    centre = some[..., middle : middle + 1, :]
    centre = xp.where(xp.isfinite(centre), centre, xp.zeros_like(centre))
    y = y - centre
    norms = xp.sum(y * y, axis=-1, keepdims=True)
    return centre, xp.matrix_transpose(y), xp.matrix_transpose(norms)
