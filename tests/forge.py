"""Forged map files, and the verdict on what becomes of them: refused in words, or a map that works."""

import copy
import io
import json
import sys
import tracemalloc
import warnings
import zipfile
from contextlib import contextmanager
from functools import partial
from math import prod

import numpy as np

import kernattn as ka
import saved

BOMB = 1 << 27  # bytes
MOST_CALLS = 100_000  # of functions, Python's and compiled ones; a sound file takes some thousands
MOST_BYTES = BOMB // 16  # allocated at once
STRAY = (AttributeError, IndexError, KeyError, TypeError)
"""Errors that say a check is missing, be they wrapped or not."""

VALUES = [None, True, -1, 0, 3, 0.5, -0.5, 2**31, 2**70, 10**400, 1e308, -1e308, "", "x", "chi", [], [1.0], [[]], {}]
VALUES += [{"array": "array0"}, {"array": "array99"}, {"array": 0}, {"array": "../array0"}, {"type": "x", "fields": {}}]
VALUES += [
    {"type": "kernels.Cauchy", "fields": {"lengthscale": 1.0}},
    {"type": "kernels.Gaussian", "fields": {"lengthscale": [1.0, 2.0]}},
    {"type": "projections.Simplex", "fields": {"norms": "chi"}},
    {"type": "features.Elementwise", "fields": {"function": "elu1"}},
    {"type": "ops.Chains", "fields": {"diagonals": {"array": "array0"}, "norms": {"array": "array1"}, "dim": 3}},
]


def unpacked(path):
    """Return the description and the arrays of a saved map."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file if name.startswith("array")}
        return json.loads(str(file["header"])), arrays


def packed(header, arrays, text=None):
    """Return the bytes of a file with that description and those arrays."""
    file = io.BytesIO()
    text = json.dumps(header) if text is None else text
    np.savez(file, format=np.array("kernattn map 1"), header=np.array(text), **arrays)
    return file.getvalue()


def _places(record, at=()):
    """Yield where in a description something stands."""
    yield at
    for key, value in (
        record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    ):
        yield from _places(value, (*at, key))


def _replaced(record, at, value):
    record = copy.deepcopy(record)
    if not at:
        return value
    part = record
    for key in at[:-1]:
        part = part[key]
    if value is ...:
        del part[at[-1]]
    else:
        part[at[-1]] = value
    return record


def of_descriptions(header, arrays):
    """Yield what was done, and what makes it, for forgeries of the JSON."""
    for at in _places(header):
        if at:
            yield f"{at} removed", partial(packed, _replaced(header, at, ...), arrays)
        for value in [*VALUES, header]:
            yield f"{at} = {str(value)[:40]}", partial(packed, _replaced(header, at, value), arrays)
        if at and at[-1] == "fields":
            yield f"{at} has one more", partial(packed, _replaced(header, (*at, "more"), 1), arrays)
    for text in ("", "NaN", "[" * 100000, "[" * 500 + "]" * 500, '{"type": NaN}', "\0", "1" * 5000, '"\\ud800"'):
        yield f"text {text[:20]!r}", partial(packed, None, arrays, text)
    nested = header
    for _ in range(60):
        nested = {"type": "features.Multiple", "fields": {"factor": 2.0, "inner": nested}}
    yield "nested", partial(packed, nested, arrays)


def _changed(array):
    """Yield arrays that are not the one."""
    yield "float32", array.astype(np.float32)
    yield "complex", array.astype(complex)
    yield "big-endian", array.astype(array.dtype.newbyteorder(">"))
    yield "text", array.astype("U8")
    yield "bool", array.astype(bool)
    yield "objects", np.array([{"a": 1}], dtype=object)
    yield "structured", np.zeros(3, [("a", "f8"), ("b", "i4")])
    yield "no axis", array.reshape(-1)[0].copy()
    yield "flat", array.reshape(-1)
    yield "one more axis", array[None]
    yield "other order", np.asfortranarray(array) if array.ndim > 1 else array[::-1].copy()
    yield "transposed", array.T.copy()
    yield "empty", array[:0]
    yield "cut", array[1:]
    yield "cut at the end", array[..., 1:]
    yield "twice", np.concatenate([array, array])
    for value in (0, 1, -1, 2, 9, 127, -128):
        yield f"all {value}", np.full_like(array, value)
        other = array.copy()
        other.flat[-1] = value
        yield f"last {value}", other
        other = array.copy()
        with np.errstate(over="ignore"):
            other.flat[0] += value
        yield f"first moved by {value}", other
    if array.dtype.kind == "f":
        for value in (np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320):
            other = array.copy()
            other.flat[0] = value
            yield f"first {value}", other
            yield f"all {value}", np.full_like(array, value)
    if array.dtype == np.int64:
        for value in (2**31, 2**62, -(2**63)):
            other = array.copy()
            other.flat[0] = value
            yield f"first {value}", other


def of_arrays(header, arrays):
    """Yield the same for forgeries of the arrays."""
    for name, array in arrays.items():
        yield f"{name} removed", partial(packed, header, {n: a for n, a in arrays.items() if n != name})
        for what, other in _changed(array):
            yield f"{name} {what}", partial(packed, header, arrays | {name: other})
        for other in arrays:
            if other != name:
                yield f"{name} is {other}", partial(packed, header, arrays | {name: arrays[other]})
    yield "one more array", partial(packed, header, arrays | {"array77": np.zeros(3)})
    yield "other member", partial(packed, header, arrays | {"more": np.zeros(3)})


def _npy(shape, dtype="<f8", data=b"", order=False):
    header = f"{{'descr': {dtype!r}, 'fortran_order': {order}, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def _cut(content, at):
    return content[:at]


def _flipped(content, at, bits):
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]


def of_zips(header, arrays):
    """Yield the same for forgeries of the container."""
    whole = packed(header, arrays)
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        members = {name: file.read(name) for name in file.namelist()}

    def built(members, compression=zipfile.ZIP_STORED):
        out = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(out, "w", compression, compresslevel=1) as file:
            warnings.simplefilter("ignore")  # of duplicates
            for name, data in members:
                file.writestr(name, data)
        return out.getvalue()

    items = list(members.items())
    yield "deflated", partial(built, items, zipfile.ZIP_DEFLATED)
    yield "bzip2", partial(built, items, zipfile.ZIP_BZIP2)
    yield "a member twice", partial(built, [*items, items[-1]])
    yield "a bomb that nothing names", partial(built, [*items, ("array99.npy", bytes(BOMB))], zipfile.ZIP_DEFLATED)
    yield "many members", partial(built, [*items, *((f"x{i}.npy", b"") for i in range(30000))])
    yield "a directory", partial(built, [*items, ("folder/", b"")])
    for name, member in members.items():
        rest = [item for item in items if item[0] != name]
        yield f"no {name}", partial(built, rest)
        yield (
            f"{name} is a bomb",
            lambda rest=rest, name=name: built([*rest, (name, _npy((BOMB // 8,)) + bytes(BOMB))], zipfile.ZIP_DEFLATED),
        )
        for what, data in {
            "empty": b"",
            "no npy": b"x" * 200,
            "version 2": b"\x93NUMPY\x02\x00" + member[8:],
            "huge": _npy((1 << 50,)),
            "huge, many axes": _npy((1 << 20,) * 20),
            "negative": _npy((-1,)),
            "negative twice": _npy((-4, -4), data=bytes(128)),
            "true": _npy("(True, 8)", data=bytes(64)),
            "no tuple": _npy("8", data=bytes(64)),
            "code": _npy("(__import__('os'),)"),
            "nested": _npy("(" * 90),
            "short": member[:-4],
            "long": member + b"1234",
            "void": _npy((1,), "|V999999999"),
            "long text": _npy("()", "<U400000000"),
        }.items():
            yield f"{name}: {what}", partial(built, [*rest, (name, data)])
    for i in range(0, len(whole), max(1, len(whole) // 60)):
        yield f"cut at {i}", partial(_cut, whole, i)
        yield f"bit of byte {i}", partial(_flipped, whole, i, 16)
    for i in range(len(whole) - 22 - 70 * len(members), len(whole)):  # the list of members
        for flip in (1, 128, 255):
            yield f"byte {i} ^ {flip}", partial(_flipped, whole, i, flip)


KINDS = {"descriptions": of_descriptions, "arrays": of_arrays, "zips": of_zips}


def inputs(name):
    """Return rows that the map of that name takes."""
    rows = np.abs(np.random.default_rng(5).standard_normal((2, 12 if name == "nystrom_precomputed" else saved.DIM)))
    return np.ceil(rows) if name == "minwise" else rows


def verdict(path, make, x):
    """Return None where a forged file is refused or works, else what is wrong."""
    path.write_bytes(make())
    try:
        with _cost() as cost:
            phi = ka.load(path)
    except ka.errors.FileFormatError as error:
        cause = error
        while (cause := cause.__cause__) is not None:
            if isinstance(cause, STRAY) and not isinstance(cause, ka.errors.KernattnError):
                return f"refused by chance: {cause!r}"
        return "not named" if path.name not in str(error) else _dear(cost)
    except Exception as error:
        return f"raised {error!r}"
    if (dear := _dear(cost)) is not None:
        return dear
    try:
        return _use(phi, path, x)
    except ka.errors.KernattnError:
        return None
    except Exception as error:
        return f"loaded, then raised {error!r}"


@contextmanager
def _cost():
    """Count calls of functions, and the bytes that are allocated at once."""
    cost = {"calls": 0, "bytes": 0}

    def count(frame, event, arg):
        cost["calls"] += event in ("call", "c_call")

    before = sys.getprofile()
    tracemalloc.start()
    sys.setprofile(count)
    try:
        yield cost
    finally:
        sys.setprofile(before)
        cost["bytes"] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def _dear(cost):
    return f"took {cost}" if cost["calls"] > MOST_CALLS or cost["bytes"] > MOST_BYTES else None


def _use(phi, path, x):
    phi.save(path)
    if ka.load(path).fingerprint != phi.fingerprint:
        return "not what it says"
    x = x[:, : phi.dim] if phi.dim is not None and phi.dim <= x.shape[1] else x
    if phi.dim is not None and x.shape[1] != phi.dim:
        x = np.ones((2, phi.dim))
    if phi.num_features_of(x.shape[1]) > 10**5 or prod((x.shape[1], phi.num_features_of(x.shape[1]))) > 10**6:
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numbers as large as these overflow
        if phi(x).shape != (2, phi.num_features_of(x.shape[1])):
            return "other features than it says"
        state = ka.key_state(x, x, phi, backend="reference")
        if ka.attend(state, x, phi, backend="reference").shape != x.shape:
            return "other outputs than it says"
    return None
