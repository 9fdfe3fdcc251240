"""States of one library, device or dtype as those of another."""

from __future__ import annotations

from typing import Any

import array_api_compat as compat

from kernattn._arrays.namespaces import (
    INTEGERS,
    Array,
    accumulation_dtype,
    check_floating,
    constant,
    dtype_name,
    indices,
    namespace,
    on_host,
    placement,
)
from kernattn.attention._state_parts import OWN, State, leaves_of, with_leaves

SUMS = OWN.keys() - {"k", "v", "present"}
"""Parts that are sums, or decays of sums."""


def move_states(state: State, like: Array) -> State:
    r"""Return the same sums, :math:`S' = S`, of the library, on the device and of the dtype of another array.

    Sums are float64 beside float64, else float32, as all sums are. Numbers that keep their dtype keep their bits, and
    the map of the state is the same: it goes on where the other array is.

    Parameters
    ----------
    state : LinearState, GatedState, GatedStretch, WindowState or transformer.State
        The state. Its gradient goes with it within a library; from one library to another, numbers alone go, by way of
        the host.
    like : array
        An array of floats, such as the next queries. Of a library that places arrays itself, as JAX does, its device
        is not looked at.

    Returns
    -------
    LinearState, GatedState, GatedStretch, WindowState or transformer.State
        The state; arrays that need no change are those of the one that was given.

    Raises
    ------
    DTypeError, StateMismatchError, ParameterError
        If it is no state, or numbers are to go to another library that are not known yet.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> state = ka.key_state(np.zeros((3, 2)), np.ones((3, 1)), ka.features.elu1())
    >>> state.s.dtype, ka.move_states(state, np.zeros(2, np.float32)).s.dtype
    (dtype('float64'), dtype('float32'))
    """
    xp = namespace(like=like)
    check_floating("like", like)
    wide = accumulation_dtype(xp, like)
    moved = []
    for place, x in leaves_of("state", state).items():
        name, own = place.rpartition(".")[2], dtype_name(x)
        dtype = getattr(xp, own) if not _is_float(own) else wide if name in SUMS else like.dtype
        moved.append(_moved(place, x, dtype, like))
    return with_leaves(state, iter(moved))  # type: ignore[no-any-return]


def _is_float(dtype: str) -> bool:
    return "float" in dtype


def _moved(place: str, x: Array, dtype: Any, like: Array) -> Array:
    """Return an array of a dtype, where another one is."""
    xp = namespace(like=like)
    if namespace(state=x) is not xp:
        if (own := dtype_name(x)) in INTEGERS:
            return indices(xp, on_host(place, x, own), like)
        return constant(xp, on_host(place, x), dtype, like)
    x = xp.astype(x, dtype, copy=False)
    return x if placement(x) == placement(like) else compat.to_device(x, placement(like)["device"])
