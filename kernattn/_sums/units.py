"""Rows that leave the range of ordinary floats, by array operations: they get units of their own, or are held.

Each row is judged by itself, and a row of ordinary size stays as it is, bit for bit.
"""

from math import log
from types import ModuleType

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name, namespace
from kernattn._maps.spec import ScaledFeatures
from kernattn._sums.limits import ENDS

BAND = 16  # rows whose largest number lies within so many octaves of 1 are ordinary
LOW = -11.0  # the logarithm of what lies so far below 1
SAFE = {"float32": (112.0, 60.0), "float64": (1000.0, 600.0)}  # powers of 2 and of e that are floats, inverses too


def clip_huge(xp: ModuleType, y: Array) -> Array:
    """Return y within a 64th of the largest float, so that sums of a few are finite; infinity and NaN stay."""
    limit = ENDS[dtype_name(y)].held
    return xp.where(xp.isinf(y), y, _between(xp, -limit, y, limit))


def scaled_down(xp: ModuleType, x: Array, degree: int = 1, *, tiny: bool = False) -> tuple[Array, Array]:
    """Return rows x (..., n, d) with those that are huge divided by 2^octaves, and the octaves (..., n, 1).

    Rows are ordinary where their powers of that degree are. `tiny` rows are treated likewise where that is asked for.
    """
    octaves = octaves_of(xp, xp.max(xp.abs(x), axis=-1, keepdims=True), BAND / degree)
    if not tiny:
        octaves = xp.where(octaves < 0, 0.0, octaves)
    return x * 2.0**-octaves, octaves


def restore(xp: ModuleType, y: Array, octaves: Array) -> Array:
    """Return y 2^octaves, held."""
    factor = 2.0**octaves
    limit = ENDS[dtype_name(y)].held / factor
    return xp.where(xp.isinf(y), y, xp.minimum(xp.maximum(y, -limit), limit) * factor)


def in_units(xp: ModuleType, x: Array, band: float = 0) -> tuple[Array, Array]:
    """Return rows x (..., n, d) over 2^octaves near their size, and the octaves (..., n, 1): 0 within the band."""
    octaves = octaves_of(xp, xp.max(xp.abs(x), axis=-1, keepdims=True), band, 2)
    return shift_octaves(xp, x, -octaves), octaves


def shift_octaves(xp: ModuleType, y: Array, octaves: Array) -> Array:
    """Return y 2^octaves, where that power may be no float; infinite where the product is none."""
    most = SAFE[dtype_name(octaves)][0]
    for _ in range(4):
        step = _between(xp, -most, octaves, most)
        y, octaves = y * 2.0**step, octaves - step
    return y


def octaves_of(xp: ModuleType, top: Array, band: float = BAND, powers: int = 1) -> Array:
    """Return whole numbers near log2 of sizes, 0 for those of ordinary rows, of nothing, and of what is not finite."""
    most = powers * SAFE[dtype_name(top)][0]
    known = xp.where(xp.isfinite(top) & (top > 0), top, xp.ones_like(top))
    octaves = _between(xp, -most, xp.round(xp.log2(known)), most)
    return xp.where(xp.abs(octaves) <= band, xp.zeros_like(octaves), octaves)


def balance(features: ScaledFeatures) -> ScaledFeatures:
    """Return features with values near 1 in every row; the log scale of a row of zeros is -inf."""
    values, log_scale = features
    xp = namespace(values=values, log_scale=log_scale)
    log_scale = clip_huge(xp, log_scale)
    if values.shape[-1] == 1 < log_scale.shape[-1]:
        return ScaledFeatures(values, log_scale)
    if log_scale.shape[-1] > 1:
        top = xp.abs(values)
    else:
        top = xp.maximum(xp.max(values, axis=-1, keepdims=True), -xp.min(values, axis=-1, keepdims=True))
    octaves = octaves_of(xp, top)
    if isinstance(octaves, np.ndarray) and not octaves.any() and top.all():
        return ScaledFeatures(values, log_scale)
    log_scale = xp.where(top == 0, -xp.inf, log_scale + octaves * log(2))
    return ScaledFeatures(values * 2.0**-octaves, log_scale)


def multiply_out(features: ScaledFeatures, like: Array, *, own: bool = False) -> Array:
    """Return values e^log_scale in the dtype of `like`: infinite where that is beyond it.

    Values that are the caller's `own`, which no other holds, come back as they are where no row has a scale.
    """
    values, log_scale = features
    xp = namespace(values=values)
    if own and is_unscaled(features):
        return xp.astype(values, like.dtype, copy=False)
    safe = SAFE[dtype_name(log_scale)][1]
    with np.errstate(over="ignore"):
        phi = values * xp.exp(xp.where(log_scale > safe, safe, log_scale))
        phi = phi * xp.exp(_between(xp, 0.0, log_scale - safe, safe))
        return xp.astype(phi, like.dtype, copy=False)


def is_unscaled(features: ScaledFeatures) -> bool:
    """Say whether rows have one log scale each, which is 0 in all: of NumPy's arrays, where a look costs nothing."""
    scale = features.log_scale
    return isinstance(scale, np.ndarray) and scale.shape[-1] == 1 and not scale.any()


def decay_rate(a_log: Array) -> Array:
    """Return e^A, a float even where A is large: infinity times 0, a slope among them, would be NaN."""
    xp = namespace(a_log=a_log)
    return xp.exp(xp.clip(a_log, None, 88.0 if a_log.dtype == xp.float32 else 709.0))


def _between(xp: ModuleType, low: float, y: Array, high: float) -> Array:
    return xp.where(y < low, low, xp.where(y > high, high, y))
