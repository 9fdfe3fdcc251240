"""Attention of the heads of one layer: a map for each or for all, exact weights near by, a factor of outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, constant, namespace
from kernattn._maps.record import fingerprint
from kernattn._runtime.checks import finite_number, instance_of, list_entries, whole_number
from kernattn._runtime.lazy import lazy, without_lazy
from kernattn.attention import (
    LinearState,
    WindowState,
    attend,
    causal_linear_attention,
    initial_state,
    key_state,
    linear_attention,
    linear_attention_step,
    window_attention,
    window_attention_step,
)
from kernattn.errors import ParameterError, ShapeError, StateMismatchError
from kernattn.features import FeatureMap

State = LinearState | WindowState
TRAILING = {"s": 2, "z": 1, "peak": 1, "k": 2, "v": 2, "present": 1}  # axes of a part of a state after those of heads


@final
@dataclass(frozen=True, eq=False, repr=False)
class Heads:
    r"""Attention of the heads of a layer, each of which may have a map, a bias and a factor of its own.

    :math:`o_i = c \sum_{j \le i} w_{ij} v_j / \sum_{j \le i} w_{ij}`, where :math:`w_{ij} = e^{s q_i^T k_j + b}` for
    the last w tokens and :math:`\phi(q_i)^T \phi(k_j)` before them: the layer of LoLCATs, Zhang et al. (2025), and that
    of Hedgehog, Zhang et al. (2024), where w = 0.

    Queries are (..., h, n, d), or (..., h, g, n, d) where a head of keys serves a group of g; keys and values are
    (..., h, n, d), or (..., h, 1, n, d) then.

    Attributes
    ----------
    maps : FeatureMap or tuple of FeatureMap
        The map of all heads of keys, or one for each.
    window : int
        How many tokens have exact weights, a query's own among them. For causal attention.
    near_bias : tuple of float
        The bias b of exact scores: of all heads, of each, or () for 0.
    scale : tuple of float
        The factor c of outputs, likewise; () for 1.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = [ka.random_features(ka.kernels.Softmax(), 4, 16, rng=seed) for seed in range(2)]
    >>> heads = ka.transfer.Heads(phi, window=8)
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 32, 4))
    >>> out, state = heads.prefill(q[:, :31], k[:, :31], v[:, :31])
    >>> last, state = heads.step(state, q[:, 31:], k[:, 31:], v[:, 31:])
    >>> bool(np.allclose(last, heads.attend(q, k, v, causal=True)[:, 31:]))
    True
    """

    maps: tuple[FeatureMap, ...]
    window: int = 0
    near_bias: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        given: Any = self.maps
        several = (
            [given] if isinstance(given, FeatureMap) else list_entries("maps", given, "a feature map, or one a head")
        )
        maps = tuple(several)
        if not maps:
            raise ParameterError("maps must be a feature map, or one for each head; got none")
        for phi in maps:
            instance_of("maps", phi, FeatureMap)
            for name in ("fingerprint", "query_spec", "key_spec"):  # no graph can trace how they are computed
                getattr(phi, name)
        object.__setattr__(self, "maps", maps)
        whole_number("window", self.window)
        for name in ("near_bias", "scale"):
            numbers: Any = getattr(self, name)
            numbers = tuple(numbers) if isinstance(numbers, Sequence | np.ndarray) else (numbers,)
            object.__setattr__(self, name, tuple(finite_number(name, x) for x in numbers))
        counts = {len(x) for x in (maps, self.near_bias, self.scale)} - {0, 1}
        if len(counts) > 1:
            raise ParameterError(f"maps, near_bias and scale must be of one number of heads; got {sorted(counts)}")

    __getstate__ = without_lazy

    def __repr__(self) -> str:
        parts = [f"{len(self.maps)} x {self.maps[0]!r}" if len(self.maps) > 1 else repr(self.maps[0])]
        parts += [f"window={self.window}"] * bool(self.window)
        return f"Heads({', '.join(parts)})"

    @property
    def count(self) -> int | None:
        """The number of heads of keys; None where any will do."""
        most = max(len(self.maps), len(self.near_bias), len(self.scale))
        return most if most > 1 else None

    @lazy
    def fingerprint(self) -> int:
        """The number by which states belong to these maps."""
        draws = tuple(phi.fingerprint for phi in self.maps)
        return draws[0] if len(draws) == 1 else fingerprint(draws)

    def attend(self, q: Array, k: Array, v: Array, *, causal: bool, key_mask: Array | None = None) -> Array:
        """Return the attention of whole sequences.

        Parameters
        ----------
        q, k, v : array
            Queries, keys and values of heads.
        causal : bool
            Whether a token sees only itself and those before it.
        key_mask : array, optional
            True where there is a key: (..., 1, n), or (..., 1, 1, n) beside groups.

        Returns
        -------
        array
            Outputs of the shape of q, but for the last axis.
        """
        if causal:
            return self.prefill(q, k, v, key_mask=key_mask)[0]
        self._check_causal("attention of all tokens to all")
        return self._scale(self._each(self._full, q, k, v, key_mask), q, k)

    def _full(self, at: int, q: Array, k: Array, v: Array, mask: Array | None) -> Array:
        return linear_attention(q, k, v, self.maps[at], key_mask=mask)

    def prefill(
        self, q: Array, k: Array, v: Array, *, state: State | None = None, key_mask: Array | None = None
    ) -> tuple[Array, State]:
        """Return the causal attention of tokens after a state, and the state after them.

        Parameters
        ----------
        q, k, v : array
            Queries, keys and values of heads.
        state : LinearState or WindowState, optional
            The state before them.
        key_mask : array, optional
            True where there is a key.

        Returns
        -------
        out : array
            Outputs.
        state : LinearState or WindowState
            The state of all heads: parts of (..., h, M, e) and the like.
        """
        axis = self._axis(q, k)
        states: list[Any] = self._states_of(state, axis, k)

        def run(at: int, *given: Any) -> tuple[Array, State]:
            q, k, v, mask = given
            phi, before = self.maps[at], states[at]
            made: tuple[Array, State]
            if self.window:
                bias = self._bias(at, q, axis)
                made = window_attention(q, k, v, phi, self.window, state=before, key_mask=mask, near_bias=bias)
            else:
                made = causal_linear_attention(q, k, v, phi, state=before, key_mask=mask)
            return made

        return self._gather(run, q, k, v, key_mask)

    def step(self, state: State, q: Array, k: Array, v: Array, *, key_mask: Array | None = None) -> tuple[Array, State]:
        """Return the attention of one further token, whose axis is there, and the state after it.

        Parameters
        ----------
        state : LinearState or WindowState
            The state before it.
        q, k, v : array
            Its query, key and value: (..., h, 1, d).
        key_mask : array, optional
            True where there is a token.

        Returns
        -------
        out : array
            Its output.
        state : LinearState or WindowState
            The state after it.
        """
        axis = self._axis(q, k)
        states: list[Any] = self._states_of(state, axis, k)

        def run(at: int, *given: Any) -> tuple[Array, State]:
            *rows, mask = given
            q, k, v = (x[..., 0, :] for x in rows)
            mask = None if mask is None else mask[..., 0]
            phi, before = self.maps[at], states[at]
            if self.window:
                bias = self._bias(at, rows[0], axis)
                out, after = window_attention_step(before, q, k, v, phi, key_mask=mask, near_bias=bias)
            else:
                out, after = linear_attention_step(before, q, k, v, phi, key_mask=mask)
            return out[..., None, :], after

        return self._gather(run, q, k, v, key_mask)

    def summarise(self, k: Array, v: Array, *, key_mask: Array | None = None) -> LinearState:
        """Return the state of keys and values that all queries `read`.

        Parameters
        ----------
        k, v : array
            Keys and values of heads.
        key_mask : array, optional
            True where there is a key.

        Returns
        -------
        LinearState
            The state.
        """
        self._check_causal("a memory of keys")
        axis = self._axis(k, k)
        states = self._each(lambda at, k, v, mask: key_state(k, v, self.maps[at], key_mask=mask), k, v, None, key_mask)
        return self._join(states, axis)  # type: ignore[return-value]

    def read(self, state: LinearState, q: Array) -> Array:
        """Return the attention of queries to all keys of a state.

        Parameters
        ----------
        state : LinearState
            What `summarise` returned.
        q : array
            Queries of heads.

        Returns
        -------
        array
            Outputs.
        """
        axis = -4 if state.s.ndim == q.ndim and state.s.shape[-3] == 1 != q.shape[-3] else -3
        states = self._states_of(state, axis, q)
        outs = [
            attend(each, q if len(self.maps) == 1 else _take(q, at, axis), phi)  # type: ignore[arg-type]
            for at, (each, phi) in enumerate(zip(states, self.maps, strict=True))
        ]
        out = outs[0] if len(outs) == 1 else namespace(q=q).stack(outs, axis=axis)
        return self._factor(out, axis)

    def _check_causal(self, what: str) -> None:
        if self.window:
            raise ParameterError(f"a window is for causal attention; got {what} with window={self.window}")

    def _axis(self, q: Array, k: Array) -> int:
        """Return the axis of heads of keys, counted from the back."""
        namespace(q=q, k=k)
        count = self.count
        if k.ndim < 2 or (count is not None and k.ndim < 3):
            raise ShapeError(f"k must be (..., h, n, d); got shape {tuple(k.shape)}")
        if count is None:
            return -3
        axis = -3 if k.shape[-3] == count or k.ndim < 4 else -4
        for name, x in (("q", q), ("k", k)):
            if x.ndim < -axis or x.shape[axis] != count:
                raise ShapeError(f"{name} must have {count} heads of keys, as the maps do; got shape {tuple(x.shape)}")
        return axis

    def _each(self, run: Callable[..., Any], q: Array, k: Array, v: Array | None, mask: Array | None) -> list[Any]:
        """Call a function of the map's index for each map, with its heads' part of everything."""
        axis = self._axis(q, k)
        if len(self.maps) == 1:
            return [run(0, *(x for x in (q, k, v) if x is not None), mask)]
        outs = []
        for at in range(len(self.maps)):
            parts = [_take(x, at, axis) for x in (q, k, v) if x is not None]
            outs.append(run(at, *parts, None if mask is None else _take(mask, at, axis + 1)))
        return outs

    def _gather(
        self, run: Callable[..., tuple[Array, State]], q: Array, k: Array, v: Array, mask: Array | None
    ) -> tuple[Array, State]:
        outs, states = zip(*self._each(run, q, k, v, mask), strict=True)
        return self._scale(list(outs), q, k), self._join(states, self._axis(q, k))

    def _scale(self, outs: list[Array], q: Array, k: Array) -> Array:
        axis = self._axis(q, k)
        return self._factor(outs[0] if len(outs) == 1 else namespace(q=q).stack(outs, axis=axis), axis)

    def _factor(self, out: Array, axis: int) -> Array:
        if not self.scale:
            return out
        factors = self._numbers(self.scale, -axis - 1, out)
        xp = namespace(out=out)
        return xp.astype(xp.astype(out, factors.dtype, copy=False) * factors, out.dtype, copy=False)

    def _bias(self, at: int, q: Array, axis: int) -> Any:
        """Return the bias of a map's heads."""
        if len(self.near_bias) <= 1 or len(self.maps) > 1:
            return self.near_bias[min(at, len(self.near_bias) - 1)] if self.near_bias else None
        return self._numbers(self.near_bias, -axis - 3, q)

    def _numbers(self, numbers: tuple[float, ...], axes: int, like: Array) -> Array:
        """Return a number for each head, with so many axes after theirs, in the dtype of sums: 16 bits round it."""
        xp = namespace(like=like)
        return constant(xp, np.asarray(numbers).reshape(-1, *[1] * axes), accumulation_dtype(xp, like), like)

    def _states_of(self, state: State | None, axis: int, like: Array) -> list[State | None]:
        """Return the states of the maps, of one that holds all."""
        if state is None:
            return [None] * len(self.maps)
        kind = WindowState if self.window else LinearState
        if not isinstance(state, kind):
            raise StateMismatchError(f"state must be a {kind.__name__}; got {type(state).__name__}")
        if len(self.maps) == 1:
            return [state]
        if state.fingerprint != self.fingerprint:
            raise StateMismatchError("state must be of these maps; got one of others")
        states: list[State | None] = []
        for at, phi in enumerate(self.maps):
            parts = {n: _take(getattr(state, n), at, axis + 2 - t) for n, t in TRAILING.items() if n in kind._fields}
            parts["peak"] = parts["peak"][..., : _peaks(phi, like)]
            states.append(kind(**parts, fingerprint=phi.fingerprint))
        return states

    def _join(self, states: Sequence[State], axis: int) -> State:
        """Return one state of those of all maps."""
        if len(states) == 1:
            return states[0]
        xp, widest = namespace(s=states[0].s), max(state.peak.shape[-1] for state in states)
        parts: dict[str, Any] = {}
        for name, trailing in TRAILING.items():
            if name in states[0]._fields:
                given = [getattr(state, name) for state in states]
                if name == "peak":
                    given = [xp.broadcast_to(x, (*x.shape[:-1], widest)) for x in given]
                parts[name] = xp.stack(given, axis=axis + 2 - trailing)
        return type(states[0])(**parts, fingerprint=self.fingerprint)


def _take(x: Array, at: int, axis: int) -> Array:
    """Return one place of an axis, which goes; of an axis of one place, or of none, there is one for all."""
    if x.ndim < -axis:
        return x
    return x[(..., at if x.shape[axis] > 1 else 0, *[slice(None)] * (-axis - 1))]


def _peaks(phi: FeatureMap, like: Array) -> int:
    """Return how many peaks a row of a map's state has."""
    return int(initial_state(phi, (), 1, like[(0,) * (like.ndim - 1)]).peak.shape[-1])
