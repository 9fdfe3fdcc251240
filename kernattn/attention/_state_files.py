"""States in files."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from array_api_compat import is_jax_array
from numpy.typing import NDArray

from kernattn._arrays.hooks import edge
from kernattn._arrays.namespaces import INTEGERS, Array, constant, dtype_name, indices, namespace, on_host, widest
from kernattn._runtime.archive import Archive, open_archive, save_archive
from kernattn._runtime.checks import shown
from kernattn._runtime.extras import numpy_dtype
from kernattn._sums.peaked import LinearState
from kernattn.attention._check_states import known_draw
from kernattn.attention._mechanisms.window_states import WindowState
from kernattn.attention._state_parts import HOLDERS, KINDS, State, kind_of, leaves_of, made_of, parts_of, with_leaves
from kernattn.errors import DTypeError, FileFormatError, KernattnError, ParameterError

FORMAT = "kernattn state 1"
WIDE = "float32", "float64"
HALF = "float16", "bfloat16"


def save_state(state: State, path: str | PathLike[str]) -> None:
    """Write a state to a file, whole or not at all.

    `load_state` returns the same numbers, bit by bit. The map is not in the file, only its fingerprint: save it too.
    What a process leaves that is killed while it writes, ``.kernattn-*.tmp``, a later one removes after an hour.

    Parameters
    ----------
    state : LinearState, GatedState, GatedStretch, WindowState or transformer.State
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
    leaves = leaves_of("state", state)
    _check_whole("state", state)
    if empty := {place.removeprefix("state."): tuple(x.shape) for place, x in leaves.items() if 0 in x.shape}:
        raise ParameterError(f"state must have no empty axis to be saved; got {empty}")
    arrays: dict[str, NDArray[Any]] = {}
    save_archive(path, FORMAT, _described(state, "", arrays), arrays)


def _described(state: Any, at: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return what the header says of a state, or of a part of it; its arrays are put among the others."""
    if state is None:
        return None
    if not isinstance(state, tuple):
        arrays[at[:-1]] = _written(at[:-1], state)
        return {"kind": "array", "dtype": dtype_name(state), "scalar": state.ndim == 0}
    if not isinstance(state, tuple(KINDS.values())):
        return {"kind": type(state).__name__, "of": [_described(x, f"{at}{i}.", arrays) for i, x in enumerate(state)]}
    parts, header = parts_of("state", state), dict[str, Any](kind=kind_of("state", state))
    narrow = {at + part: dtype_name(x) for part, x in parts.items() if dtype_name(x) not in _allowed(part)}
    if narrow:
        raise DTypeError(f"state must hold sums of {' or '.join(WIDE)} to be saved; got {narrow}")
    if isinstance(state, LinearState | WindowState):
        header["fingerprint"] = known_draw(state.fingerprint)
        if header["fingerprint"] is None:
            raise ParameterError("state must have a fingerprint that is known to be saved; got a traced one")
    arrays |= {at + part: on_host(f"state.{at}{part}", x) for part, x in parts.items()}
    return header | {"dtypes": {part: dtype_name(x) for part, x in parts.items()}}


def _written(name: str, x: Array) -> NDArray[Any]:
    """Return an array of floats, bools or positions as a file has it, where numbers alone are an axis of one."""
    own = dtype_name(x)
    kept = on_host(f"state.{name}", x, "int64" if own in INTEGERS else None)
    return kept.reshape(-1) if kept.ndim == 0 else kept


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
    LinearState, GatedState, GatedStretch, WindowState or transformer.State
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
    dtypes: list[str] = []
    with open_archive(path, FORMAT) as archive:
        state = _read(archive, archive.header, "", dtypes)
        try:
            _check_whole("the state", state)
        except KernattnError as error:
            raise FileFormatError(str(error)) from error
    leaves = leaves_of("the state", state).values()
    loaded = with_leaves(state, iter([_placed(x, dtype, like) for x, dtype in zip(leaves, dtypes, strict=True)]))
    try:
        leaves_of("the state", loaded)  # of 16 bits now, where the file had them wider
    except KernattnError as error:
        raise FileFormatError(f"{path}: {error}") from error
    return loaded


def _check_whole(name: str, state: Any) -> None:
    """Raise unless it is a state, and no part of one, whose parts belong to each other."""
    check = getattr(state, "_check_whole", None)
    if check is None:
        kind_of(name, state)  # raises
    else:
        check()
    leaves_of(name, state)


def _read(archive: Archive, node: Any, at: str, dtypes: list[str]) -> Any:
    """Return the state, or the part of one, that a header describes, and note the dtypes that its arrays had."""
    kind = node.get("kind") if isinstance(node, dict) else None
    if not isinstance(kind, str) or (kind not in KINDS and kind not in _known()):
        raise FileFormatError(f"its kind must be one of {', '.join(KINDS)}, State; got {shown(kind)}")
    if kind in KINDS:
        return _read_state(archive, node, at, dtypes)
    of = node.get("of")
    fields = getattr(_known()[kind], "_fields", of)
    if node.keys() != {"kind", "of"} or not isinstance(of, list) or len(of) != len(fields):
        raise FileFormatError(f"a part of kind {kind} is wrong: {shown(node)}")
    read = [_read_part(archive, each, f"{at}{i}.", dtypes) for i, each in enumerate(of)]
    return tuple(read) if kind == "tuple" else _known()[kind](*read)


def _known() -> dict[str, type]:
    """Return the tuples that states may stand in."""
    edge("states")
    return HOLDERS | {"tuple": tuple}


def _read_part(archive: Archive, node: Any, at: str, dtypes: list[str]) -> Any:
    """Return a state, an array, or None."""
    if not isinstance(node, dict) or node.get("kind") != "array":
        return None if node is None else _read(archive, node, at, dtypes)
    dtype, name = node.get("dtype"), at[:-1]
    if node.keys() != {"kind", "dtype", "scalar"} or dtype not in (*WIDE, *HALF, "bool", *INTEGERS):
        raise FileFormatError(f"an array is wrong: {shown(node)}")
    held = "int64" if dtype in INTEGERS else "float32" if dtype in HALF else dtype
    x = archive.array(name, (held,))
    dtypes.append(dtype)
    return x[0, ...] if node["scalar"] else x


def _read_state(archive: Archive, header: dict[str, Any], at: str, dtypes: list[str]) -> Any:
    kind = header["kind"]
    fields = KINDS[kind]._fields  # type: ignore[attr-defined]
    draw = header.get("fingerprint")
    if (type(draw) is int) != ("fingerprint" in fields):
        raise FileFormatError(f"the fingerprint of a {kind} state is wrong: {shown(draw)}")
    names = [name for name in fields if name != "fingerprint"]
    given = header.get("dtypes")
    if not isinstance(given, dict) or list(given) != names or not header.keys() <= {"kind", "fingerprint", "dtypes"}:
        raise FileFormatError(f"dtypes must be those of {', '.join(names)}; got {shown(given)}")
    parts = {name: _part(archive, at, name, given[name]) for name in names}
    dtypes += given.values()
    return made_of(kind, parts, draw)


def _placed(x: NDArray[Any], dtype: str, like: Array | None) -> Array:
    """Return an array in its dtype, of the library and on the device of another; of NumPy where there is none."""
    if like is None:
        return x.astype(numpy_dtype(dtype), copy=False)
    xp = namespace(like=like)
    return indices(xp, x, like) if dtype in INTEGERS else constant(xp, x, _dtype_of(dtype, like), like)


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


def _allowed(name: str) -> tuple[str, ...]:
    """Return the dtypes that a part may have."""
    return ("bool",) if name == "present" else (*WIDE, *HALF) if name in ("k", "v") else WIDE


def _part(archive: Archive, at: str, name: str, dtype: Any) -> NDArray[Any]:
    """Take an array, which is stored in float32 where it has 16 bits."""
    allowed = _allowed(name)
    if dtype not in allowed:
        raise FileFormatError(f"{name} must have a dtype of {', '.join(allowed)}; got {shown(dtype)}")
    return archive.array(at + name, (dtype if dtype in ("bool", *WIDE) else "float32",))
