"""States in files."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from array_api_compat import is_jax_array
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, constant, dtype_name, namespace, on_host, widest
from kernattn._runtime.archive import Archive, open_archive, save_archive
from kernattn._runtime.checks import shown
from kernattn._runtime.extras import numpy_dtype
from kernattn._sums.peaked import LinearState
from kernattn.attention._check_states import known_draw
from kernattn.attention._mechanisms.window_states import WindowState
from kernattn.attention._state_parts import KINDS, State, kind_of, made_of, parts_of
from kernattn.errors import DTypeError, FileFormatError, KernattnError, ParameterError

FORMAT = "kernattn state 1"
WIDE = "float32", "float64"


def save_state(state: State, path: str | PathLike[str]) -> None:
    """Write a state to a file, whole or not at all.

    `load_state` returns the same numbers, bit by bit. The map is not in the file, only its fingerprint: save it too.

    Parameters
    ----------
    state : LinearState, GatedState, GatedStretch or WindowState
        The state, of arrays of any library, whose numbers are known.
    path : str or PathLike
        The .npz file. One of that name is replaced.

    Raises
    ------
    DTypeError, StateMismatchError, ParameterError
        If it is no state, an axis is empty, or its numbers are not known yet.
    FileNotFoundError
        If there is no such directory.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import kernattn as ka
    >>> state = ka.key_state(np.zeros((3, 2)), np.ones((3, 1)), ka.features.elu1())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ka.save_state(state, pathlib.Path(folder) / "state.npz")
    ...     ka.load_state(pathlib.Path(folder) / "state.npz").z
    array([3., 3.])
    """
    parts = parts_of("state", state)
    narrow = {part: dtype_name(x) for part, x in parts.items() if dtype_name(x) not in _allowed(part)}
    if narrow:
        raise DTypeError(f"state must hold sums of {' or '.join(WIDE)} to be saved; got {narrow}")
    empty = {part: tuple(x.shape) for part, x in parts.items() if 0 in x.shape}
    if empty:
        raise ParameterError(f"state must have no empty axis to be saved; got {empty}")
    header: dict[str, Any] = {"kind": kind_of("state", state)}
    if isinstance(state, LinearState | WindowState):
        header["fingerprint"] = known_draw(state.fingerprint)
        if header["fingerprint"] is None:
            raise ParameterError("state must have a fingerprint that is known to be saved; got a traced one")
    header["dtypes"] = {part: dtype_name(x) for part, x in parts.items()}
    save_archive(path, FORMAT, header, {part: on_host(f"state.{part}", x) for part, x in parts.items()})


def load_state(path: str | PathLike[str], like: Array | None = None) -> Any:
    """Return the state that `save_state` wrote.

    Parameters
    ----------
    path : str or PathLike
        The .npz file; it is read without pickle.
    like : array, optional
        An array of the library, and on the device, that the state shall have; NumPy's unless given.

    Returns
    -------
    LinearState, GatedState, GatedStretch or WindowState
        The state.

    Raises
    ------
    FileFormatError
        If the file is damaged or holds no state.
    DTypeError
        If `like` is no array, or its library does not have the dtypes of the state, as JAX has no float64 by default.
    FileNotFoundError
        If there is no such file.
    MissingExtra
        If numbers of bfloat16 shall be NumPy's, and ml_dtypes is not installed.

    Examples
    --------
    See `save_state`.
    """
    if like is not None:
        namespace(like=like)
    with open_archive(path, FORMAT) as archive:
        header = archive.header
        kind = header.get("kind") if isinstance(header, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            raise FileFormatError(f"its kind must be one of {', '.join(KINDS)}; got {shown(kind)}")
        fields = KINDS[kind]._fields  # type: ignore[attr-defined]
        draw = header.get("fingerprint")
        if (type(draw) is int) != ("fingerprint" in fields):
            raise FileFormatError(f"the fingerprint of a {kind} state is wrong: {shown(draw)}")
        names = [name for name in fields if name != "fingerprint"]
        dtypes = header.get("dtypes")
        if (
            not isinstance(dtypes, dict)
            or list(dtypes) != names
            or not header.keys() <= {"kind", "fingerprint", "dtypes"}
        ):
            raise FileFormatError(f"dtypes must be those of {', '.join(names)}; got {shown(dtypes)}")
        parts = {name: _part(archive, name, dtypes[name]) for name in names}
        try:
            parts_of("the state", made_of(kind, parts, draw))
        except KernattnError as error:
            raise FileFormatError(str(error)) from error
    if like is not None:
        xp, kept = namespace(like=like), {name: _dtype_of(dtypes[name], like) for name in parts}
        parts = {name: constant(xp, x, kept[name], like) for name, x in parts.items()}
    else:
        parts = {name: x.astype(numpy_dtype(dtypes[name]), copy=False) for name, x in parts.items()}
    return made_of(kind, parts, draw)


def _allowed(name: str) -> tuple[str, ...]:
    """Return the dtypes that a part may have."""
    return ("bool",) if name == "present" else (*WIDE, "float16", "bfloat16") if name in ("k", "v") else WIDE


def _dtype_of(name: str, like: Array) -> Any:
    """Return the dtype of that name in the library of an array, which must keep its numbers."""
    if isinstance(like, np.ndarray):
        return numpy_dtype(name)
    xp = namespace(like=like)
    dtype = getattr(xp, name, None)
    if dtype is None or (name == "float64" and not str(widest(xp, like)).endswith(name)):
        jax = "; JAX has it under jax_enable_x64" if is_jax_array(like) and name == "float64" else ""
        raise DTypeError(
            f"like must be an array of a library that has the state's {name} where it is: load NumPy's, without like, "
            f"and move_states rounds to another dtype; got {type(like).__module__}.{type(like).__name__}{jax}"
        )
    return dtype


def _part(archive: Archive, name: str, dtype: Any) -> NDArray[Any]:
    """Take an array, which is stored in float32 where it has 16 bits."""
    allowed = _allowed(name)
    if dtype not in allowed:
        raise FileFormatError(f"{name} must have a dtype of {', '.join(allowed)}; got {shown(dtype)}")
    return archive.array(name, (dtype if dtype in ("bool", *WIDE) else "float32",))
