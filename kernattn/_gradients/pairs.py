"""Which ops go together, forwards and back: the results of each function, what is kept of it, and its pullback.

A way, `way(op, like)`, returns the implementation of an op that runs beside an array; specs are those of a map's
queries and keys. A function takes (way, specs, *given) and returns its results, and what else is kept where anything
is. Its pullback takes (way, specs, learn, given), what it needs of these, and cotangents of the results, those of sums
beside the peak of the sums; it returns cotangents of what was given, but for masks and segments: a `MapCotangent` of
rows that went through a map. Whoever calls these has checked what is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from array_api_compat import device

from kernattn._arrays.namespaces import Array, anywhere, dtype_name, namespace
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent, in_units_of
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops.attend import OP as ATTEND
from kernattn.ops.attend_vjp import OP as ATTEND_VJP
from kernattn.ops.block_softmax import OP as SOFTMAX
from kernattn.ops.block_softmax_vjp import OP as SOFTMAX_VJP
from kernattn.ops.causal import OP as CAUSAL
from kernattn.ops.causal_vjp import OP as CAUSAL_VJP
from kernattn.ops.dispatch import Op
from kernattn.ops.features import OP as FEATURES
from kernattn.ops.features_vjp import OP as FEATURES_VJP
from kernattn.ops.key_state import OP as KEY_STATE
from kernattn.ops.key_state_vjp import OP as KEY_STATE_VJP

MOST_OF_FLOAT32 = 1000.0  # the largest logarithm with four digits after the point

Way: TypeAlias = Callable[[Op, Array], Callable[..., Any]]
Specs: TypeAlias = tuple[MapSpec, MapSpec]
Given: TypeAlias = tuple[Any, ...]


def features(way: Way, specs: Specs, x: Array) -> Array:
    """Return the features of rows, by the keys' spec."""
    phi: Array = way(FEATURES, x)(x, specs[1])
    return phi


def features_vjp(way: Way, specs: Specs, learn: bool, given: Given, g: Array) -> MapCotangent:
    """Return the cotangent of x."""
    (x,) = given
    found: MapCotangent = way(FEATURES_VJP, x)(x, specs[1], g, learn)
    return found


def key_state(way: Way, specs: Specs, k: Array, v: Array, key_mask: Array | None) -> PeakedSum:
    """Return the sums over keys."""
    sums: PeakedSum = way(KEY_STATE, v)(k, v, specs[1], key_mask)
    return sums


def key_state_vjp(way: Way, specs: Specs, learn: bool, given: Given, of_sums: PeakedSum) -> tuple[MapCotangent, Array]:
    """Return the cotangents of k and v."""
    k, v, key_mask = given
    dk, dv = way(KEY_STATE_VJP, v)(k, v, specs[1], key_mask, of_sums, learn)
    return dk, dv


def attend(way: Way, specs: Specs, sums: PeakedSum, q: Array) -> tuple[Array, Normaliser]:
    """Return the outputs of queries; their normalisers are kept."""
    out, normaliser = way(ATTEND, q)(sums, q, specs[0].unscaled, q.dtype, True)
    return out, normaliser


def attend_vjp(
    way: Way, specs: Specs, learn: bool, given: Given, out: Array, normaliser: Normaliser, g: Array
) -> tuple[PeakedSum, MapCotangent]:
    """Return the cotangents of the sums, in the units of their peak, and of q."""
    sums, q = given
    found, dq = way(ATTEND_VJP, q)(sums, q, specs[0].unscaled, out, normaliser, g, learn)
    return in_units_of(sums, found), dq


def linear_attention(
    way: Way, specs: Specs, q: Array, k: Array, v: Array, key_mask: Array | None
) -> tuple[Array, tuple[PeakedSum, Normaliser]]:
    """Return what `attend` does of `key_state`; the sums and the normalisers are kept."""
    sums = key_state(way, specs, k, v, key_mask)
    out, normaliser = attend(way, specs, sums, q)
    return out, (sums, normaliser)


def linear_attention_vjp(
    way: Way, specs: Specs, learn: bool, given: Given, out: Array, kept: tuple[PeakedSum, Normaliser], g: Array
) -> tuple[MapCotangent, MapCotangent, Array]:
    """Return the cotangents of q, k and v, of float64 where the peaks of the sums are too large for digits."""
    (q, k, v, key_mask), (sums, normaliser) = given, kept
    if _coarse(sums.peak):
        return _linear_attention_vjp_in_float64(way, specs, learn, given, g)
    found, dq = way(ATTEND_VJP, q)(sums, q, specs[0].unscaled, out, normaliser, g, learn)
    dk, dv = way(KEY_STATE_VJP, v)(k, v, specs[1], key_mask, found, learn)
    return dq, dk, dv


def _coarse(peak: Array) -> bool:
    """Are there peaks in float32, in host memory, whose rounding is felt in what they are a logarithm of?"""
    if dtype_name(peak) == "float64" or str(device(peak)) != "cpu":
        return False
    xp = namespace(peak=peak)
    return anywhere(xp.isfinite(peak) & (xp.abs(peak) > MOST_OF_FLOAT32))


def _linear_attention_vjp_in_float64(
    way: Way, specs: Specs, learn: bool, given: Given, g: Array
) -> tuple[MapCotangent, MapCotangent, Array]:
    """Return the same, from arrays in float64 on: no number of another rounding gets in."""
    *arrays, key_mask = given
    xp = namespace(g=g)
    wide = *(xp.astype(x, xp.float64) for x in arrays), key_mask
    out, kept = linear_attention(way, specs, *wide)
    dq, dk, dv = linear_attention_vjp(way, specs, learn, wide, out, kept, xp.astype(g, xp.float64))
    found = []
    for x, (dx, *numbers) in zip(arrays, (dq, dk), strict=False):
        rest = (None if y is None else xp.astype(y, xp.float32) for y in numbers)
        found.append(MapCotangent(xp.astype(dx, x.dtype), *rest))
    return found[0], found[1], xp.astype(dv, arrays[2].dtype)


def causal(
    way: Way,
    specs: Specs,
    q: Array,
    k: Array,
    v: Array,
    before: PeakedSum | None,
    key_mask: Array | None,
    segment_ids: Array | None,
) -> tuple[tuple[Array, PeakedSum], Normaliser]:
    """Return the outputs, and the sums after the last token; the normalisers are kept."""
    given = q, k, v, specs[0].unscaled, specs[1], before, key_mask, segment_ids
    out, normaliser, after = way(CAUSAL, v)(*given, True)
    return (out, after), normaliser


def causal_vjp(
    way: Way,
    specs: Specs,
    learn: bool,
    given: Given,
    out: Array,
    normaliser: Normaliser,
    g: Array | None,
    of_after: PeakedSum | None,
) -> tuple[MapCotangent, MapCotangent, Array, PeakedSum | None]:
    """Return the cotangents of q, k, v and the sums before; one that is None counts as 0."""
    q, k, v, before, key_mask, segment_ids = given
    g = namespace(out=out).zeros_like(out) if g is None else g
    tokens = q, k, v, specs[0].unscaled, specs[1], before, key_mask, segment_ids
    dq, dk, dv, of_before = way(CAUSAL_VJP, v)(*tokens, out, normaliser, g, of_after, learn)
    return dq, dk, dv, of_before


def block_softmax(way: Way, *given: Any) -> tuple[Array, Array]:
    """Return the outputs and the log normalisers of q, k, v, scale, plan, key_mask and key_bias."""
    out, lse = way(SOFTMAX, given[0])(*given)
    return out, lse


def block_softmax_vjp(
    way: Way, given: Given, out: Array, lse: Array, g: Array | None, g_lse: Array | None
) -> tuple[Array, Array, Array, Array, Array | None]:
    """Return the cotangents of q, k, v, the scale and the bias; one that is None counts as 0."""
    g = namespace(out=out).zeros_like(out) if g is None else g
    dq, dk, dv, ds, db = way(SOFTMAX_VJP, given[0])(*given, out, lse, g, g_lse)
    return dq, dk, dv, ds, db
