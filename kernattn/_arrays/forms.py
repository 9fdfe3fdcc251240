"""Forms of arrays: what decides whether they fit each other. What has passed a check once passes it again unseen."""

from collections.abc import Callable, Hashable
from contextlib import suppress
from operator import attrgetter
from typing import Any

import array_api_compat as compat
import numpy as np

from kernattn._arrays.namespaces import Array

MOST = 256  # forms that are remembered
Facts = Callable[[Array], tuple[Any, ...]]

_FORM: Facts = attrgetter("shape", "dtype")
_TENSOR: Facts = attrgetter("shape", "dtype", "device", "layout")
_CUPY: Facts = attrgetter("shape", "dtype", "data.device_id")
_facts: dict[type, Facts | None] = {np.ndarray: _FORM}


class Forms:
    """Forms that have passed: the last few hundred. Threads may ask and add at once."""

    def __init__(self) -> None:
        self._passed: set[tuple[Any, ...]] = set()

    def __contains__(self, form: tuple[Any, ...] | None) -> bool:
        try:
            return form in self._passed
        except TypeError:  # sizes that are symbols have no hash
            return False

    def add(self, form: tuple[Any, ...] | None) -> None:
        """Remember a form, unless it is None."""
        if form is not None:
            if len(self._passed) >= MOST:
                self._passed.clear()
            with suppress(TypeError):
                self._passed.add(form)


def form_of(key: Hashable, *arrays: Array) -> tuple[Any, ...] | None:
    """Return the form of arrays, and of what else decides; None for arrays of several kinds, or of an unknown one."""
    kind = type(arrays[0])
    for x in arrays:
        if type(x) is not kind:
            return None
    facts = _facts[kind] if kind in _facts else _learn(kind, arrays[0])
    if facts is None:
        return None
    try:
        return key, kind, *map(facts, arrays)
    except RuntimeError:  # of nested tensors, which have no shape
        return None


def form_of_given(*arrays: Array | None) -> tuple[Any, ...] | None:
    """Return the form of arrays of which some are not given, None in their places; by a shorter way for NumPy's."""
    form: list[Any] = []
    for x in arrays:
        if type(x) is np.ndarray:
            form += x.shape, x.dtype
        elif x is None:
            form.append(None)
        else:
            return form_of(tuple(each is None for each in arrays), *[each for each in arrays if each is not None])
    return tuple(form)


def _learn(kind: type, array: Array) -> Facts | None:
    """Return, from now on, what decides about arrays of a kind."""
    known = ((compat.is_torch_array, _TENSOR), (compat.is_jax_array, _FORM), (compat.is_cupy_array, _CUPY))
    _facts[kind] = next((facts for is_of, facts in known if is_of(array)), None)
    return _facts[kind]
