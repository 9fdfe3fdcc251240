"""Batches of states: sequences that come and go while the others are decoded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import array_api_compat as compat
import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, dtype_name, indices, namespace, placement, records_gradient
from kernattn._runtime.checks import array_of, boolean, shown
from kernattn.attention._check_states import check_draws
from kernattn.attention._state_parts import State, kind_of, made_of, parts_of
from kernattn.errors import EmptyInputError, MixedLibraryError, ParameterError, StateMismatchError


def stack_states(states: Iterable[State]) -> State:
    r"""Return the states of several sequences as one, whose first axis counts them: :math:`S_b = S^{(b)}`.

    A step with it takes a token of each: queries, keys and values have that axis first too.

    Parameters
    ----------
    states : iterable of LinearState, GatedState, GatedStretch or WindowState
        States of one kind, shape, dtype and library, and of one map.

    Returns
    -------
    LinearState, GatedState, GatedStretch or WindowState
        A state of new arrays.

    Raises
    ------
    EmptyInputError, DTypeError, MixedLibraryError, StateMismatchError
        If there is none, or they are not alike.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.elu1()
    >>> first, second = (ka.key_state(np.zeros((n, 2)), np.ones((n, 1)), phi) for n in (3, 5))
    >>> ka.stack_states([first, second]).z
    array([[3., 3.],
           [5., 5.]])
    """
    given = list(states)
    if not given:
        raise EmptyInputError("states must hold at least one state; got none")
    parts = [parts_of(f"states[{at}]", state) for at, state in enumerate(given)]
    for at in range(1, len(given)):
        _check_alike("states[0]", given[0], parts[0], f"states[{at}]", given[at], parts[at])
    xp = namespace(state=given[0].s)
    stacked = {name: xp.stack([each[name] for each in parts], axis=0) for name in parts[0]}
    return _like(given[0], stacked)


def take_states(state: State, index: Any) -> State:
    r"""Return the states of some sequences of a batch: :math:`S'_i = S_{index_i}` along the first axis.

    They come in any order, as often as they are named.

    Parameters
    ----------
    state : LinearState, GatedState, GatedStretch or WindowState
        A batch of states, as `stack_states` or a batch of keys makes one.
    index : int, slice, or sequence or array of int or bool
        Which ones. An int takes the axis away; negative ones count from the end.

    Returns
    -------
    LinearState, GatedState, GatedStretch or WindowState
        A state of new arrays.

    Raises
    ------
    DTypeError, StateMismatchError, ParameterError
        If it is no batch of states, or does not have those asked for.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> batch = ka.key_state(np.zeros((3, 4, 2)), np.arange(3.0)[:, None, None] * np.ones((4, 1)), ka.features.elu1())
    >>> ka.take_states(batch, [2, 0]).s[..., 0]
    array([[8., 8.],
           [0., 0.]])
    >>> ka.take_states(batch, 1).z
    array([4., 4.])
    """
    parts, count = _batch("state", state)
    places, one = _places(index, count)
    xp = namespace(state=state.s)
    at = indices(xp, places, state.s)
    taken = {name: xp.take(x, at, axis=0) for name, x in parts.items()}
    return _like(state, {name: x[0, ...] for name, x in taken.items()} if one else taken)


def put_states(state: State, index: Any, states: State, *, reuse_state: bool = False) -> State:
    r"""Return a batch of states with others in some places: :math:`S'_{index_i} = S^{new}_i` along the first axis.

    Sequences that end make room for new ones.

    Parameters
    ----------
    state : LinearState, GatedState, GatedStretch or WindowState
        A batch of states.
    index : int, slice, or sequence or array of int or bool
        Which ones to replace, each once.
    states : LinearState, GatedState, GatedStretch or WindowState
        What takes their places, of the shapes that `take_states` returns for this index.
    reuse_state : bool
        Whether the memory of `state` may be written to, which saves a copy of all others. What can't be written to, as
        arrays of JAX, is copied all the same.

    Returns
    -------
    LinearState, GatedState, GatedStretch or WindowState
        The batch.

    Raises
    ------
    DTypeError, MixedLibraryError, StateMismatchError, ParameterError
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.elu1()
    >>> batch = ka.initial_state(phi, (3,), value_dim=1, like=np.zeros(2))
    >>> prompt = ka.key_state(np.zeros((4, 2)), np.ones((4, 1)), phi)
    >>> ka.put_states(batch, 1, prompt).z
    array([[0., 0.],
           [4., 4.],
           [0., 0.]])
    """
    parts, count = _batch("state", state)
    places, one = _places(index, count)
    if len(set(places.tolist())) < len(places):
        raise ParameterError(f"index must name each state once; got {shown(index)}")
    new = parts_of("states", states)
    shapes = {name: (*(() if one else (len(places),)), *x.shape[1:]) for name, x in parts.items()}
    _check_alike("state", state, parts, "states", states, new, shapes)
    xp = namespace(state=state.s)
    in_place = boolean("reuse_state", reuse_state) and all(map(_can_be_written, parts.values()))
    if in_place and not any(map(records_gradient, new.values())):
        where: Any = int(places[0]) if one else indices(xp, places, state.s)
        for name, x in parts.items():
            x[where] = new[name]
        return state
    order = np.arange(count)
    order[places] = count + np.arange(len(places))
    at = indices(xp, order, state.s)
    put = {}
    for name, x in parts.items():
        rows = new[name][None, ...] if one else new[name]
        put[name] = xp.take(xp.concat([x, rows], axis=0), at, axis=0)
    return _like(state, put)


def _batch(name: str, state: Any) -> tuple[dict[str, Array], int]:
    """Return the parts of a batch of states, and how many it has."""
    parts = parts_of(name, state)
    if state.s.ndim < 3:
        raise StateMismatchError(
            f"{name} must be a batch, s (batch, ..., M, e), as stack_states makes one; got s {tuple(state.s.shape)}"
        )
    return parts, int(state.s.shape[0])


def _places(index: Any, count: int) -> tuple[NDArray[np.int64], bool]:
    """Return which of so many an index asks for, and whether it is a single one."""
    allowed = f"index must be an int, a slice, or a sequence of int or of {count} bool"
    if isinstance(index, slice):
        try:
            return np.arange(count)[index], False
        except (TypeError, ValueError):
            raise ParameterError(f"{allowed}; got {shown(index)}") from None
    asked = array_of(index)
    if asked.size == 0 and asked.shape == (0,) and asked.dtype != object:
        return np.zeros(0, np.int64), False
    if asked.dtype == bool and asked.shape == (count,):
        return np.flatnonzero(asked), False
    if asked.dtype.kind not in "iu" or asked.ndim > 1:
        raise ParameterError(f"{allowed}; got {shown(index)}")
    if asked.size and not -count <= int(asked.min()) <= int(asked.max()) < count:
        raise ParameterError(f"index must be from {-count} to {count - 1}, as there are {count}; got {shown(index)}")
    places = asked.astype(np.int64)
    return np.where(places < 0, places + count, places).reshape(-1), asked.ndim == 0


def _check_alike(
    name: str, state: Any, parts: dict[str, Array], other_name: str, other: Any, others: dict[str, Array],
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> None:  # fmt: skip
    """Raise unless another state is of the kind, map, dtypes and device of a state, and of these shapes."""
    if kind_of(name, state) != kind_of(other_name, other):
        raise StateMismatchError(f"{name} is a {type(state).__name__}, {other_name} a {type(other).__name__}")
    if hasattr(state, "fingerprint"):
        check_draws(state.fingerprint, other.fingerprint)
    for part, x in parts.items():
        y, shape = others[part], tuple(x.shape) if shapes is None else shapes[part]
        namespace(**{f"{name}.{part}": x, f"{other_name}.{part}": y})
        if tuple(y.shape) != shape or dtype_name(x) != dtype_name(y):
            raise StateMismatchError(
                f"{other_name}.{part} must be {dtype_name(x)} {shape}; got {dtype_name(y)} {tuple(y.shape)}"
            )
        if placement(x) != placement(y):
            raise MixedLibraryError(f"{other_name}.{part} must be on {placement(x)}; got {placement(y)}")


def _can_be_written(x: Array) -> bool:
    """Whether an array takes other numbers in its place."""
    if records_gradient(x) or compat.is_jax_array(x):
        return False
    return bool(x.flags.writeable) if isinstance(x, np.ndarray) else True


def _like(state: State, parts: dict[str, Array]) -> State:
    """Return a state of the kind and the map of another."""
    made: State = made_of(kind_of("state", state), parts, getattr(state, "fingerprint", None))
    return made
