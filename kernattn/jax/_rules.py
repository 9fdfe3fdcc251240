"""What runs on the host for each function: its value, what its pullback needs, and the pullback.

Rules are made of specs and plain numbers, and take arrays that fit: whoever makes them has checked. The arrays of what
is learnt come last, in the order of `names`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax import ShapeDtypeStruct

from kernattn._arrays.namespaces import FLOATS, Array, dtype_name
from kernattn._gradients import pairs
from kernattn._maps.spec import MapSpec
from kernattn._plans.plan import Plan
from kernattn._sums.cotangents import MapCotangent
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.attention._linear import BOTH
from kernattn.ops.causal import OP as CAUSAL
from kernattn.ops.dispatch import Op
from kernattn.ops.step import OP as STEP

Numbers = tuple[Array, ...]


def _way(op: Op, like: Array) -> Callable[..., Any]:
    return op.implementation(like)


def _wide(x: Any) -> np.dtype[Any]:
    """Return the dtype of sums over an array."""
    return np.dtype(np.float64 if dtype_name(x) == "float64" else np.float32)


def _rows(last: int, dtype: Any, *arrays: Any) -> Any:
    """Return the form of rows (..., n, last) for the first of arrays (..., n, d) that broadcast."""
    lead = np.broadcast_shapes(*(x.shape[:-2] for x in arrays))
    return ShapeDtypeStruct((*lead, arrays[0].shape[-2], last), dtype)


def _normaliser(out: Any) -> Normaliser:
    """Return the form of the normalisers of outputs."""
    number = ShapeDtypeStruct(out.shape[:-1], _wide(out))
    return Normaliser(number, number)


def _like(x: Any) -> Any:
    """Return the form of a cotangent; None of what has none."""
    if x is None:
        return None
    if isinstance(x, tuple):
        return tuple.__new__(type(x), map(_like, x))
    return ShapeDtypeStruct(x.shape, x.dtype) if dtype_name(x) in FLOATS else None


def _token(x: Any) -> Any:
    """Return one token (..., d) as a sequence (..., 1, d); None stays."""
    return None if x is None else x[..., None, :]


class Rule(ABC):
    """What all rules share."""

    apart: bool
    """Do calls that `vmap` makes stay calls of their own?"""

    staged: Callable[..., Any] | None = None
    """What is traced for the value in place of a callback."""

    def results(self, *args: Any) -> Any:
        """Return the form of the value."""
        return self.forms(*args)[0]

    @abstractmethod
    def forms(self, *args: Any) -> tuple[Any, Any]:
        """Return the forms of the value, and of what the pullback needs."""

    def backward_forms(self, args: Any, out: Any, kept: Any, g: Any) -> Any:
        """Return the forms of the cotangents of the arguments."""
        return _like(args)


@dataclass(frozen=True)
class OfMap(Rule):
    """What rules of maps share: specs, and the names of what is learnt, of one spec then."""

    q_spec: MapSpec
    k_spec: MapSpec
    names: tuple[str, ...] = ()

    @property
    def apart(self) -> bool:  # type: ignore[override]
        """Is anything learnt?"""
        return bool(self.names)

    def specs(self, numbers: Numbers) -> tuple[MapSpec, MapSpec]:
        """Return the specs of queries, less the rows' log scales, which cancel, and of keys, with what is learnt."""
        if not self.names:
            return self.q_spec.unscaled, self.k_spec
        given: dict[str, Any] = {name: np.array(x, np.float64) for name, x in zip(self.names, numbers, strict=True)}
        spec = replace(self.k_spec, **given)
        return spec.unscaled, spec

    def sums(self, k: Any, v: Any) -> PeakedSum:
        """Return the form of a summary of keys and values (..., n, d) and (..., n, e)."""
        lead, m = np.broadcast_shapes(k.shape[:-2], v.shape[:-2]), self.k_spec.num_features_of(k.shape[-1])
        shapes = (*lead, m, v.shape[-1]), (*lead, m), (*lead, m if self.k_spec.per_feature else 1)
        return PeakedSum(*(ShapeDtypeStruct(shape, _wide(v)) for shape in shapes))

    def learnt(self, numbers: Numbers, *sides: MapCotangent) -> Numbers:
        """Return the cotangents of the numbers, those of all sides together; queries have none of row weights."""
        found = []
        for name, x in zip(self.names, numbers, strict=True):
            parts = [part for side in sides if (part := getattr(side, name)) is not None]
            found.append(np.asarray(sum(parts, np.zeros(x.shape)), x.dtype))
        return tuple(found)


class Linear(OfMap):
    """`linear_attention`, of q, k, v and the mask."""

    def forms(self, q: Any, k: Any, v: Any, mask: Any, numbers: Numbers) -> tuple[Any, Any]:
        """Return the forms of the value, and of what the pullback needs."""
        out = _rows(v.shape[-1], q.dtype, q, k, v)
        return out, (self.sums(k, v), _normaliser(out))

    def value(self, q: Array, k: Array, v: Array, mask: Array | None, numbers: Numbers) -> Array:
        """Return the outputs."""
        q_spec, k_spec = self.specs(numbers)
        out, _ = BOTH.implementation(v)(k, v, k_spec, mask, q, q_spec, q.dtype, False)
        return out

    def forward(self, q: Array, k: Array, v: Array, mask: Array | None, numbers: Numbers) -> Any:
        """Return the same, and the sums and normalisers."""
        return pairs.linear_attention(_way, self.specs(numbers), q, k, v, mask)

    def backward(self, args: Any, out: Array, kept: Any, g: Array) -> Any:
        """Return the cotangents of the arguments."""
        *given, numbers = args
        dq, dk, dv = pairs.linear_attention_vjp(_way, self.specs(numbers), self.apart, (*given,), out, kept, g)
        return dq.x, dk.x, dv, None, self.learnt(numbers, dq, dk)


class Causal(OfMap):
    """`causal_linear_attention`, of q, k, v, the state before, the mask and the segments."""

    def forms(self, q: Any, k: Any, v: Any, state: Any, mask: Any, ids: Any, numbers: Numbers) -> tuple[Any, Any]:
        """Return the forms of the value, and of what the pullback needs."""
        out = _rows(v.shape[-1], v.dtype, q, k, v)
        return (out, self.sums(k, v)), _normaliser(out)

    def value(self, q: Array, k: Array, v: Array, state: Any, mask: Any, ids: Any, numbers: Numbers) -> Any:
        """Return the outputs and the sums after the last token."""
        out, _, after = CAUSAL.implementation(v)(q, k, v, *self.specs(numbers), state, mask, ids, False)
        return out, after

    def forward(self, *args: Any) -> Any:
        """Return the same, and the normalisers."""
        *given, numbers = args
        return pairs.causal(_way, self.specs(numbers), *given)

    def backward(self, args: Any, out: Any, kept: Any, g: Any) -> Any:
        """Return the cotangents of the arguments."""
        (*given, numbers), (rows, last), (of_rows, of_last) = args, out, g
        specs, of_last = self.specs(numbers), of_last._replace(peak=last.peak)
        dq, dk, dv, before = pairs.causal_vjp(_way, specs, self.apart, (*given,), rows, kept, of_rows, of_last)
        return dq.x, dk.x, dv, before, None, None, self.learnt(numbers, dq, dk)


@dataclass(frozen=True)
class Step(OfMap):
    """`linear_attention_step`, of the state, q, k, v and the mask; its pullback is that of a sequence of one token."""

    staged: Callable[..., Any] | None = None

    def forms(self, state: Any, q: Any, k: Any, v: Any, mask: Any, numbers: Numbers) -> tuple[Any, Any]:
        """Return the forms of the value, and of what the pullback needs."""
        lead = np.broadcast_shapes(*(x.shape[:-1] for x in (q, k, v)))
        out = ShapeDtypeStruct((*lead, v.shape[-1]), v.dtype)
        return (out, _like(state)), _normaliser(ShapeDtypeStruct((*lead, 1, v.shape[-1]), v.dtype))

    def value(self, state: Any, q: Array, k: Array, v: Array, mask: Array | None, numbers: Numbers) -> Any:
        """Return the output and the sums after the token."""
        return STEP.implementation(v)(state, q, k, v, *self.specs(numbers), mask, False, None)

    def forward(self, *args: Any) -> Any:
        """Return the same, and the normaliser."""
        (out, after), normaliser = self._sequence.forward(*_sequence(*args))
        return (np.ascontiguousarray(out[..., 0, :]), after), normaliser

    def backward(self, args: Any, out: Any, kept: Any, g: Any) -> Any:
        """Return the cotangents of the arguments."""
        rows, of_rows = ((_token(x[0]), x[1]) for x in (out, g))
        dq, dk, dv, before, *_, numbers = self._sequence.backward(_sequence(*args), rows, kept, of_rows)
        return before, dq[..., 0, :], dk[..., 0, :], dv[..., 0, :], None, numbers

    @property
    def _sequence(self) -> Causal:
        return Causal(self.q_spec, self.k_spec, self.names)


def _sequence(state: Any, q: Array, k: Array, v: Array, mask: Array | None, numbers: Numbers) -> tuple[Any, ...]:
    """Return the arguments of a step as those of a causal sequence."""
    return _token(q), _token(k), _token(v), state, None if mask is None else mask[..., None], None, numbers


class KeyState(OfMap):
    """`key_state`, of k, v and the mask."""

    def forms(self, k: Any, v: Any, mask: Any, numbers: Numbers) -> tuple[Any, Any]:
        """Return the forms of the value, and of what the pullback needs."""
        return self.sums(k, v), ()

    def value(self, *args: Any) -> Any:
        """Return the sums."""
        return self.forward(*args)[0]

    def forward(self, *args: Any) -> Any:
        """Return the same: the pullback needs no more."""
        *given, numbers = args
        return pairs.key_state(_way, self.specs(numbers), *given), ()

    def backward(self, args: Any, out: Any, kept: Any, g: Any) -> Any:
        """Return the cotangents of the arguments."""
        *given, numbers = args
        of_sums = g._replace(peak=out.peak)
        dk, dv = pairs.key_state_vjp(_way, self.specs(numbers), self.apart, (*given,), of_sums)
        return dk.x, dv, None, self.learnt(numbers, dk)


class Attend(OfMap):
    """`attend`, of the state and q."""

    def forms(self, state: Any, q: Any, numbers: Numbers) -> tuple[Any, Any]:
        """Return the forms of the value, and of what the pullback needs."""
        out = _rows(state.s.shape[-1], q.dtype, q, state.s)
        return out, _normaliser(out)

    def value(self, *args: Any) -> Any:
        """Return the outputs."""
        return self.forward(*args)[0]

    def forward(self, state: Any, q: Array, numbers: Numbers) -> Any:
        """Return the same, and the normalisers."""
        return pairs.attend(_way, self.specs(numbers), state, q)

    def backward(self, args: Any, out: Any, kept: Any, g: Any) -> Any:
        """Return the cotangents of the arguments."""
        *given, numbers = args
        sums, dq = pairs.attend_vjp(_way, self.specs(numbers), self.apart, (*given,), out, kept, g)
        return sums, dq.x, self.learnt(numbers, dq)


class Features(OfMap):
    """The features of rows x, by the keys' spec."""

    def forms(self, x: Any, numbers: Numbers) -> tuple[Any, Any]:
        """Return the forms of the value, and of what the pullback needs."""
        return _rows(self.q_spec.num_features_of(x.shape[-1]), x.dtype, x), ()

    def value(self, *args: Any) -> Any:
        """Return the features."""
        return self.forward(*args)[0]

    def forward(self, x: Array, numbers: Numbers) -> Any:
        """Return the same: the pullback needs no more."""
        return pairs.features(_way, self.specs(numbers), x), ()

    def backward(self, args: Any, out: Any, kept: Any, g: Any) -> Any:
        """Return the cotangents of the arguments."""
        x, numbers = args
        found = pairs.features_vjp(_way, self.specs(numbers), self.apart, (x,), g)
        return found.x, self.learnt(numbers, found)


@dataclass(frozen=True)
class Softmax(Rule):
    """`softmax_attention`, of q, k, v, the mask, the bias, and the scale where it is an array."""

    plan: Plan
    scale: float | None  # None where it is an array

    @property
    def apart(self) -> bool:  # type: ignore[override]
        """Is the scale an array?"""
        return self.scale is None

    def forms(self, q: Any, k: Any, v: Any, mask: Any, bias: Any, scale: Any) -> tuple[Any, Any]:
        """Return the forms of the value, and of what the pullback needs."""
        out = _rows(v.shape[-1], v.dtype, q, k, v)
        return out, ShapeDtypeStruct(out.shape[:-1], _wide(out))

    def value(self, *args: Any) -> Any:
        """Return the outputs."""
        return self.forward(*args)[0]

    def forward(self, q: Array, k: Array, v: Array, mask: Array | None, bias: Array | None, scale: Any) -> Any:
        """Return the same, and the logs of the normalisers."""
        factor = float(scale) if self.scale is None else self.scale
        return pairs.block_softmax(_way, q, k, v, factor, self.plan, mask, bias)

    def backward(self, args: Any, out: Any, kept: Any, g: Any) -> Any:
        """Return the cotangents of the arguments."""
        q, k, v, mask, bias, scale = args
        factor = float(scale) if self.scale is None else self.scale
        given = q, k, v, factor, self.plan, mask, bias
        dq, dk, dv, found, db = pairs.block_softmax_vjp(_way, given, out, kept, g, None)
        return dq, dk, dv, None, db, None if scale is None else np.asarray(found, scale.dtype)
