"""Batches of states: sequences that come and go while the others are decoded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import array_api_compat as compat
import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import (
    Array,
    dtype_name,
    indices,
    may_share_memory,
    namespace,
    placement,
    records_gradient,
    why_not_plain,
)
from kernattn._runtime.checks import array_of, boolean, list_entries, shown
from kernattn.attention._state_parts import KINDS, OWN, State, check_same, leaves_of, with_leaves
from kernattn.errors import EmptyInputError, MixedLibraryError, ParameterError, StateMismatchError


def stack_states(states: Iterable[State]) -> State:
    r"""Return the states of several sequences as one, whose first axis counts them: :math:`S_b = S^{(b)}`.

    A step with it takes a token of each: queries, keys and values have that axis first too.

    Parameters
    ----------
    states : iterable of LinearState, GatedState, GatedStretch, WindowState or transformer.State
        States of one kind, shape, dtype and library, and of one map.

    Returns
    -------
    LinearState, GatedState, GatedStretch, WindowState or transformer.State
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
    given = list_entries("states", states, "an iterable of states")
    if not given:
        raise EmptyInputError("states must hold at least one state; got none")
    leaves = [leaves_of(f"states[{at}]", state) for at, state in enumerate(given)]
    for at in range(1, len(given)):
        check_same("states[0]", given[0], f"states[{at}]", given[at])
        _check_alike(leaves[0], leaves[at], None)
    together = zip(*(each.values() for each in leaves), strict=True)
    stacked = (namespace(state=parts[0]).stack(list(parts), axis=0) for parts in together)
    return with_leaves(given[0], stacked)  # type: ignore[no-any-return]


def take_states(state: State, index: Any) -> State:
    r"""Return the states of some sequences of a batch: :math:`S'_i = S_{index_i}` along the first axis.

    They come in any order, as often as they are named.

    Parameters
    ----------
    state : LinearState, GatedState, GatedStretch, WindowState or transformer.State
        A batch of states, as `stack_states` or a batch of keys makes one.
    index : int, slice, or sequence or array of int or bool
        Which ones. An int takes the axis away; negative ones count from the end.

    Returns
    -------
    LinearState, GatedState, GatedStretch, WindowState or transformer.State
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
    leaves, count = _batch("state", state)
    places, one = places_of(index, count)
    taken = []
    for x in leaves.values():
        xp = namespace(state=x)
        rows = xp.take(x, indices(xp, places, x), axis=0)
        taken.append(rows[0, ...] if one else rows)
    return with_leaves(state, iter(taken))  # type: ignore[no-any-return]


def put_states(state: State, index: Any, states: State, *, reuse_state: bool = False) -> State:
    r"""Return a batch of states with others in some places: :math:`S'_{index_i} = S^{new}_i` along the first axis.

    Sequences that end make room for new ones.

    Parameters
    ----------
    state : LinearState, GatedState, GatedStretch, WindowState or transformer.State
        A batch of states.
    index : int, slice, or sequence or array of int or bool
        Which ones to replace, each once.
    states : LinearState, GatedState, GatedStretch, WindowState or transformer.State
        What takes their places, of the shapes that `take_states` returns for this index.
    reuse_state : bool
        Whether the memory of `state` may be written to, which saves a copy of all others. What can't be written to, as
        arrays of JAX, is copied all the same.

    Returns
    -------
    LinearState, GatedState, GatedStretch, WindowState or transformer.State
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
    leaves, count = _batch("state", state)
    places, one = places_of(index, count)
    if len(set(places.tolist())) < len(places):
        raise ParameterError(f"index must name each state once; got {shown(index)}")
    new = leaves_of("states", states)
    check_same("state", state, "states", states)
    _check_alike(leaves, new, () if one else (len(places),))
    pairs = list(zip(leaves.values(), new.values(), strict=True))
    if boolean("reuse_state", reuse_state) and all(_can_take(x, rows) for x, rows in pairs):
        for x, rows in pairs:
            x[int(places[0]) if one else indices(namespace(state=x), places, x)] = rows
        return state
    order = np.arange(count)
    order[places] = count + np.arange(len(places))
    put = []
    for x, rows in pairs:
        xp = namespace(state=x)
        put.append(xp.take(xp.concat([x, rows[None, ...] if one else rows], axis=0), indices(xp, order, x), axis=0))
    return with_leaves(state, iter(put))  # type: ignore[no-any-return]


def _batch(name: str, state: Any) -> tuple[dict[str, Array], int]:
    """Return the arrays of a batch of states, and how many it has."""
    leaves = leaves_of(name, state)
    own = OWN if isinstance(state, tuple(KINDS.values())) else {}
    if not leaves or any(x.ndim <= own.get(place.rpartition(".")[2], 0) for place, x in leaves.items()):
        shapes = {place: tuple(x.shape) for place, x in leaves.items()}
        raise StateMismatchError(f"{name} must be a batch, as stack_states makes one; got {shapes}")
    counts = {int(x.shape[0]) for x in leaves.values()}
    if len(counts) > 1:
        shapes = {place: tuple(x.shape) for place, x in leaves.items()}
        raise StateMismatchError(f"the parts of {name} must have one first axis; got {shapes}")
    return leaves, counts.pop()


def places_of(index: Any, count: int) -> tuple[NDArray[np.int64], bool]:
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


def _check_alike(leaves: dict[str, Array], others: dict[str, Array], lead: tuple[int, ...] | None) -> None:
    """Raise unless others have the dtypes, devices and shapes of a state's arrays; with a lead in place of axis 0."""
    for (place, x), (other, y) in zip(leaves.items(), others.items(), strict=True):
        shape = tuple(x.shape) if lead is None else (*lead, *x.shape[1:])
        namespace(**{place: x, other: y})
        if tuple(y.shape) != shape or dtype_name(x) != dtype_name(y):
            raise StateMismatchError(f"{other} must be {dtype_name(x)} {shape}; got {dtype_name(y)} {tuple(y.shape)}")
        if placement(x) != placement(y):
            raise MixedLibraryError(f"{other} must be on {placement(x)}; got {placement(y)}")


def _can_take(x: Array, rows: Array) -> bool:
    """Whether an array takes others, which are not its own, in place of some of its rows."""
    kinds = compat.is_numpy_array, compat.is_torch_array, compat.is_cupy_array
    writes = any(is_of(x) for is_of in kinds) and not records_gradient(x) and why_not_plain(x) is None
    return writes and not records_gradient(rows) and not may_share_memory(x, rows)
