"""The records of all ops that edges know: the table to which an op with a gradient is added."""

from dataclasses import replace
from typing import Any

from array_api_compat import device

from kernattn._arrays.namespaces import FLOATS, INTEGERS, Array, anywhere, dtype_name, namespace
from kernattn._sums.cotangents import MapCotangent, in_units_of
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops import (
    attend,
    attend_vjp,
    block_softmax,
    block_softmax_vjp,
    causal,
    causal_vjp,
    features,
    features_vjp,
    gated,
    gated_vjp,
    hybrid,
    hybrid_vjp,
    key_state,
    key_state_vjp,
    step,
)
from kernattn.ops.decayed import OP as DECAYED
from kernattn.ops.decayed import decayed_and_unrounded, pull_decayed
from kernattn.ops.dispatch import Composed
from kernattn.ops.record import Input, Output, Record, Way

LINEAR = Composed("linear_attention", key_state.OP.backends, key_state.OP, 4, attend.OP, ("cpu",))

KEYS = "k", "v"
FADING = "k", "v", "g", "gk"
"""The inputs whose leading axes the state of means that fade has."""

STATE = ("k", "v", "g", "gk", "beta", "read", "write")
"""The inputs whose leading axes the state of gated attention has."""

COARSE = 1000.0  # the largest logarithm that float32 holds with four digits after the point


def rows(name: str, axes: str, through: str | None = None) -> Input:
    """Return an input of rows: queries, keys or values."""
    return Input(name, "array", tuple(axes.split()), through=through)


def given(name: str, axes: str, *, lead: tuple[str, ...] = ()) -> Input:
    """Return an optional input with a cotangent, of any dtype: gates, or a state without a peak."""
    return Input(name, "array", tuple(axes.split()), True, lead=lead, dtypes=tuple(FLOATS))


def beside(name: str, axes: str, dtypes: tuple[str, ...] = ("bool",)) -> Input:
    """Return an optional input beside keys and values, without a cotangent: a mask, or ids."""
    return Input(name, "array", tuple(axes.split()), True, False, lead=KEYS, dtypes=dtypes)


def spec(name: str, rows: str, *, unscaled: bool = False) -> Input:
    """Return an input that is the spec of a map of these rows."""
    return Input(name, "map", rows=rows, unscaled=unscaled)


def sums(name: str, *, optional: bool = False, lead: tuple[str, ...] = ()) -> Input:
    """Return an input of peaked sums."""
    return Input(name, "sums", optional=optional, lead=lead)


def out(lead: str, dtype_of: str = "v") -> Output:
    """Return the output of attention: rows of the leading axes of several inputs together."""
    return Output("out", "array", ("n", "e"), tuple(lead.split()), dtype_of, kept=True)


def normaliser(lead: str, dtype_of: str = "v") -> Output:
    """Return the normalisers of such rows, which the pullback takes."""
    return Output("normaliser", "normaliser", ("n",), tuple(lead.split()), dtype_of, differentiable=False, kept=True)


def unrounded(lead: str) -> Output:
    """Return the outputs of attention before they were rounded to 16 bits, which the pullback takes in their place."""
    return replace(out(lead), name="unrounded", wide=True, differentiable=False, returned=False, before_rounding="out")


def _both(
    way: Way, k: Array, v: Array, k_spec: Any, key_mask: Any, q: Array, q_spec: Any
) -> tuple[Array, Normaliser, PeakedSum]:
    """Return the outputs of `attend`, its normalisers, and the sums of `key_state`."""
    state = way(key_state.OP, v)(k, v, k_spec, key_mask)
    out, rows_z = way(attend.OP, q)(state, q, q_spec, q.dtype, True)
    return out, rows_z, state


def _pull_both(
    way: Way, given: tuple[Any, ...], kept: tuple[Any, ...], cotangents: tuple[Any, ...], learn: bool
) -> tuple[Any, ...]:
    """Return the cotangents of k, v and q, by way of float64 where the peaks of the sums are too large for digits."""
    k, v, k_spec, key_mask, q, q_spec = given
    (found, rows_z, state), (g,) = kept, cotangents
    if not _coarse(state.peak):
        of_state, dq = way(attend_vjp.OP, q)(state, q, q_spec, found, rows_z, g, learn)
        dk, dv = way(key_state_vjp.OP, v)(k, v, k_spec, key_mask, of_state, learn)
        return dk, dv, dq
    xp = namespace(g=g)
    k64, v64, q64, g64 = (xp.astype(x, xp.float64) for x in (k, v, q, g))
    wide = k64, v64, k_spec, key_mask, q64, q_spec
    dk, dv, dq = _pull_both(way, wide, _both(way, *wide), (g64,), learn)
    return _narrow(dk, k), xp.astype(dv, v.dtype), _narrow(dq, q)


def _coarse(peak: Array) -> bool:
    """Are there peaks in float32, in host memory, whose rounding is felt in what they are a logarithm of?"""
    if dtype_name(peak) == "float64" or str(device(peak)) != "cpu":
        return False
    xp = namespace(peak=peak)
    return anywhere(xp.isfinite(peak) & (xp.abs(peak) > COARSE))


def _narrow(cotangent: MapCotangent, like: Array) -> MapCotangent:
    xp = namespace(like=like)
    numbers = (None if y is None else xp.astype(y, xp.float32) for y in cotangent[1:])
    return MapCotangent(xp.astype(cotangent.x, like.dtype), *numbers)


def _pull_attend(
    way: Way, given: tuple[Any, ...], kept: tuple[Any, ...], cotangents: tuple[Any, ...], learn: bool
) -> tuple[Any, ...]:
    """Return the cotangents of the sums, in the units of their peak, and of q."""
    state, q, _ = given
    of_sums, dq = way(attend_vjp.OP, q)(*given, *kept, *cotangents, learn)
    return in_units_of(state, of_sums), dq


RECORDS = {
    record.name: record
    for record in (
        Record(
            "features", features.OP, features_vjp.OP, "x",
            (rows("x", "n d", "spec"), spec("spec", "x")),
            (Output("phi", "array", ("n", "m"), ("x",), "x"),),
        ),
        Record(
            "key_state", key_state.OP, key_state_vjp.OP, "v",
            (rows("k", "l d", "k_spec"), rows("v", "l e"), spec("k_spec", "k"), beside("key_mask", "l")),
            (Output("state", "sums", (), ("k", "v"), "v"),),
        ),
        Record(
            "attend", attend.OP, attend_vjp.OP, "q",
            (sums("state"), rows("q", "n d", "q_spec"), spec("q_spec", "q", unscaled=True)),
            (out("state q", "q"), normaliser("state q", "q")),
            options=lambda given, keep: (given["q"].dtype, keep),
            pull=_pull_attend,
        ),
        Record(
            "linear_attention", LINEAR, None, "v",
            (
                rows("k", "l d", "k_spec"), rows("v", "l e"), spec("k_spec", "k"), beside("key_mask", "l"),
                rows("q", "n d", "q_spec"), spec("q_spec", "q", unscaled=True),
            ),
            (
                out("q k v", "q"), normaliser("q k v", "q"),
                Output("state", "sums", (), ("k", "v"), "v", differentiable=False, kept=True, returned=False),
            ),
            options=lambda given, keep: (given["q"].dtype, keep),
            run=_both,
            pull=_pull_both,
        ),
        Record(
            "causal", causal.OP, causal_vjp.OP, "v",
            (
                rows("q", "n d", "q_spec"), rows("k", "n d", "k_spec"), rows("v", "n e"),
                spec("q_spec", "q", unscaled=True), spec("k_spec", "k"), sums("state", optional=True, lead=KEYS),
                beside("key_mask", "n"), beside("segment_ids", "n", INTEGERS),
            ),
            (out("q k v"), normaliser("q k v"), Output("after", "sums", (), ("k", "v"), "v")),
            options=lambda given, keep: (keep,),
        ),
        Record(
            "decayed", DECAYED, None, "v",
            (
                rows("q", "n d", "q_spec"), rows("k", "n d", "k_spec"), rows("v", "n e"),
                spec("q_spec", "q", unscaled=True), spec("k_spec", "k"), sums("state", optional=True, lead=FADING),
                beside("key_mask", "n"), beside("segment_ids", "n", INTEGERS), given("g", "n"), given("gk", "n m"),
            ),
            (
                out("q k v g gk"), normaliser("q k v g gk"),
                Output("after", "sums", (), FADING, "v"), unrounded("q k v g gk"),
            ),
            run=decayed_and_unrounded,
            pull=pull_decayed,
        ),
        Record(
            "block_softmax", block_softmax.OP, block_softmax_vjp.OP, "q",
            (
                rows("q", "n d"), rows("k", "l d"), rows("v", "l e"),
                Input("scale", "constant", schema="float"), Input("plan", "constant", differentiable=False),
                beside("key_mask", "l"), Input("key_bias", "array", ("l",), True, lead=KEYS),
                Input("score_bias", "array", ("n", "l"), True, lead=("q", "k", "v")),
            ),
            (
                out("q k v"),
                Output("lse", "array", ("n",), ("q", "k", "v"), "v", wide=True, kept=True),
                unrounded("q k v"),
            ),
            options=lambda given, keep: (keep,),
        ),
        Record(
            "gated", gated.OP, gated_vjp.OP, "v",
            (
                rows("q", "n d"), rows("k", "n d"), rows("v", "n e"), given("g", "n"), given("gk", "n d"),
                given("beta", "n"), given("read", "n d"), given("write", "n d"),
                Input("scale", "constant", differentiable=False, schema="float"),
                Input("l2_normalise", "constant", differentiable=False, schema="bool"),
                given("state", "d e", lead=STATE), beside("key_mask", "n"), beside("segment_ids", "n", INTEGERS),
            ),
            (
                Output("out", "array", ("n", "e"), ("q", *STATE), "v"),
                Output("after", "array", ("d", "e"), STATE, "v", wide=True),
            ),
        ),
        Record(
            "hybrid", hybrid.OP, hybrid_vjp.OP, "v",
            (
                rows("q", "n d", "q_spec"), rows("k", "l d", "k_spec"), rows("v", "l e"),
                spec("q_spec", "q"), spec("k_spec", "k"),
                Input("scale", "constant", differentiable=False, schema="float"),
                Input("plan", "constant", differentiable=False), Input("within", "constant", differentiable=False),
                Input("causal", "constant", differentiable=False, schema="bool"),
                sums("state", optional=True, lead=KEYS), beside("key_mask", "l"), beside("segment_ids", "l", INTEGERS),
                Input("near_bias", "array", (), True, lead=("q", "k", "v"), dtypes=tuple(FLOATS)),
            ),
            (
                out("q k v"), normaliser("q k v"), Output("after", "sums", (), KEYS, "v"),
                Output("near", "array", ("n", "e"), ("q", "k", "v"), "v", True, False, True, False),
                Output("near_lse", "array", ("n",), ("q", "k", "v"), "v", True, False, True, False),
                unrounded("q k v"),
            ),
            options=lambda given, keep: (keep,),
        ),
        Record(
            "step", step.OP, causal_vjp.OP, "v",
            (
                sums("state", lead=KEYS), rows("q", "d", "q_spec"), rows("k", "d", "k_spec"), rows("v", "e"),
                spec("q_spec", "q"), spec("k_spec", "k"), beside("key_mask", ""),
            ),
            (
                Output("out", "array", ("e",), ("q", "k", "v"), "v"),
                Output("after", "sums", (), ("k", "v"), "v"),
            ),
            options=lambda given, keep: (False, None),
        ),
    )
}  # fmt: skip
"""By the name of the op. A step has no pullback of its own: it is causal attention of one token."""
