"""The one place that knows array libraries: namespaces, dtypes, devices and the way to and from the host."""

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeAlias

import array_api_compat as compat
import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.graphs import traced_as
from kernattn._runtime.fork import importing
from kernattn.errors import DTypeError, MixedLibraryError, ParameterError

Array: TypeAlias = Any
Float64: TypeAlias = NDArray[np.float64]

FLOATS = {
    "float16": 65504.0,
    "bfloat16": 2.0**127 * (2 - 2.0**-7),
    "float32": float(np.finfo(np.float32).max),
    "float64": float(np.finfo(np.float64).max),
}
"""The dtypes, and the largest number of each: not every library's `finfo` knows those of 16 bits."""

INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))

without_flags = np.errstate(invalid="ignore", under="ignore")
"""For NumPy's products: BLAS may raise flags for lanes that hold no data. What is not finite is in the answer."""

without_warnings = np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore")
"""For closed forms, which are infinite where they are beyond the floats."""

_namespaces: dict[type, ModuleType] = {}
_checks: dict[type, Callable[[str, Array], None]] = {}  # of PyTorch's and JAX's arrays, which are looked at one by one
_dtype_names: dict[tuple[type, Any], str] = {}


def _namespace_anew(name: str, array: Array) -> ModuleType:
    """Return the namespace of what graphs have, tensors, of which nothing is remembered."""
    import array_api_compat.torch as of_tensors

    return of_tensors


@traced_as(_namespace_anew)
def _namespace_of(name: str, array: Array) -> ModuleType:
    kind = type(array)
    if kind not in _namespaces:
        _check_array(name, array)
        with importing:
            _namespaces[kind] = compat.array_namespace(array)
        if compat.is_torch_array(array):
            _checks[kind] = _check_tensor
        elif compat.is_jax_array(array) and not isinstance(array, sys.modules["jax"].core.Tracer):
            _checks[kind] = check_kept
    if kind in _checks:
        _checks[kind](name, array)
    return _namespaces[kind]


def _check_array(name: str, array: Array) -> None:
    if isinstance(array, np.ma.MaskedArray):
        raise DTypeError(
            f"{name} must be an array without a mask of its own, which would be lost: give {name}.data, and key_mask "
            "where keys are to be left out; got a masked array"
        )
    if type(array).__module__.startswith("scipy.sparse"):
        raise DTypeError(f"{name} must be a dense array, as {name}.toarray() is; got a sparse {type(array).__name__}")
    if isinstance(array, np.generic | type) or not compat.is_array_api_obj(array):  # a class of arrays is none
        hint = f": give {name}.to_numpy()" if hasattr(array, "to_numpy") else ""  # tables of pandas and Polars have it
        raise DTypeError(
            f"{name} must be an array (NumPy, CuPy, PyTorch, JAX or another array-API library), "
            f"as numpy.asarray makes it; got {type(array).__name__}{hint}"
        )


def _check_tensor(name: str, array: Array) -> None:
    """Raise for a tensor of PyTorch that is more, or less, than its numbers in strides."""
    if sys.modules["torch"].jit.is_tracing():
        refuse_scripts(name)
    if array.layout is sys.modules["torch"].strided and not array.is_meta and not array.is_nested:
        return
    if array.is_meta:
        raise DTypeError(f"{name} must hold numbers; got a tensor on the device 'meta', which has none")
    if array.is_nested:
        raise DTypeError(f"{name} must be a dense tensor, as {name}.to_padded_tensor(0.0) is; got a nested one")
    raise DTypeError(f"{name} must be a dense tensor, as {name}.to_dense() is; got {array.layout}")


def refuse_scripts(name: str) -> None:
    """Raise for what `torch.jit.trace` traces."""
    raise ParameterError(
        f"torch.jit.trace cannot trace kernattn, whose checks read the shapes of tensors; got {name} from it: "
        "use torch.compile"
    )


def check_kept(name: str, array: Array) -> None:
    """Raise for an array of JAX that was deleted, or donated to a call."""
    if array.is_deleted():
        raise DTypeError(f"{name} must hold numbers; got an array that JAX has deleted, of shape {array.shape}")


def namespace(**arrays: Array) -> ModuleType:
    """Return the array-API namespace that all the named arrays share."""
    names = list(arrays)
    libraries = [_namespace_of(name, array) for name, array in arrays.items()]
    for name, xp in zip(names[1:], libraries[1:], strict=True):
        if xp is not libraries[0]:
            first, other = (module.__name__.removeprefix("array_api_compat.") for module in (libraries[0], xp))
            raise MixedLibraryError(
                f"all arrays of one call must come from one library; {names[0]} is of {first}, {name} of {other}"
            )
    return libraries[0]


def _name_anew(array: Array) -> str:
    """Return the plain name of a dtype, which no dictionary keeps: graphs would be made again where one grows."""
    return str(array.dtype).rsplit(".", 1)[-1]


@traced_as(_name_anew)
def dtype_name(array: Array) -> str:
    """Return the plain name of an array's dtype: "float32" for numpy.float32, torch.float32 and the rest."""
    key = (type(array.dtype), array.dtype)  # dtypes of different libraries must not be compared
    if key not in _dtype_names:
        _dtype_names[key] = _name_anew(array)
    return _dtype_names[key]


def largest(dtype: Any) -> float:
    """Return the largest number of a floating dtype."""
    return FLOATS[str(dtype).rsplit(".", 1)[-1]]


def check_floating(name: str, array: Array) -> str:
    """Return the name of the array's dtype, which must be a real floating one."""
    given = dtype_name(array)
    if given not in FLOATS:
        raise DTypeError(f"{name} must have one of the dtypes {', '.join(FLOATS)}; got {given}{hint_at_columns(array)}")
    return given


def hint_at_columns(array: Array) -> str:
    """Return a hint, after a colon, at what to make of text, dates and the bits of a file; empty for numbers."""
    kind = getattr(array.dtype, "kind", None)
    if dtype_name(array) == "|V2":
        return ": numpy.load gives bfloat16 as its bits, whose .view(ml_dtypes.bfloat16) has the numbers"
    if kind in ("M", "m"):
        return ": days are times less a first one, divided by numpy.timedelta64(1, 'D')"
    if kind in ("O", "S", "T", "U"):
        return ": make text, categories and dates numbers first, as scikit-learn's ColumnTransformer does"
    return ""


def accumulation_dtype(xp: ModuleType, array: Array) -> Any:
    """Return the dtype in which sums over `array` run: float64 for float64, float32 for the smaller types."""
    return xp.float64 if dtype_name(array) == "float64" else xp.float32


def widest(xp: ModuleType, array: Array) -> Any:
    """Return the widest floating dtype beside `array`: float64, but for JAX where that is not switched on, and MPS."""
    if compat.is_jax_array(array):
        return xp.asarray(0.0).dtype
    return xp.float32 if compat.is_torch_array(array) and array.device.type == "mps" else xp.float64


def placement(array: Array) -> dict[str, Any]:
    """Return the keywords that create an array beside `array`; JAX and NumPy place their own."""
    if isinstance(array, np.ndarray) or compat.is_jax_array(array):
        return {}
    return {"device": array.device if compat.is_torch_array(array) else compat.device(array)}


def check_alike(rows: Mapping[str, Array], beside: Mapping[str, Array]) -> str:
    """Return the name of the one floating dtype of rows, by name; they and the arrays beside must be on one device."""
    dtypes = {name: check_floating(name, array) for name, array in rows.items()}
    if len(set(dtypes.values())) > 1:
        raise DTypeError(f"all of {', '.join(rows)} must have one dtype, nothing is promoted silently; got {dtypes}")
    devices = {name: placement(array).get("device") for name, array in {**rows, **beside}.items()}
    first = next(iter(devices.values()))
    if any(device != first for device in devices.values()):
        raise MixedLibraryError(f"all arrays of one call must be on one device; got {devices}")
    return next(iter(dtypes.values()))


def zeros(xp: ModuleType, shape: tuple[int, ...], dtype: Any, beside: Array) -> Array:
    """Return zeros of `shape` on the device of `beside`, and in its part of a mesh of JAX."""
    if compat.is_jax_array(beside):
        return xp.zeros_like(beside, shape=shape, dtype=dtype, **placement(beside))
    return xp.zeros(shape, dtype=dtype, **placement(beside))


def zero_masked(x: Array, mask: Array | None) -> Array:
    """Return rows x (..., n, c) with 0 in those that a mask (..., n) hides: there, NaN has no effect, nor gradient."""
    if mask is None:
        return x
    xp = namespace(x=x)
    return xp.where(mask[..., None], x, xp.zeros_like(x))


def sign(xp: ModuleType, x: Array) -> Array:
    """Return -1, 0 or 1, and NaN of NaN; array-api-compat assigns by a mask, which `torch.vmap` refuses."""
    if compat.is_torch_array(x):
        return xp.where(xp.isnan(x), x, sys.modules["torch"].sign(x))
    return xp.sign(x)


def constant(xp: ModuleType, values: NDArray[Any], dtype: Any, beside: Array) -> Array:
    """Return host values, or those of a tensor, as an array of `dtype` on the device of `beside`."""
    if isinstance(beside, np.ndarray):
        return values.astype(dtype, copy=False)
    if compat.is_torch_array(values):
        return values.to(beside.device, dtype)
    return xp.asarray(values.copy(), dtype=dtype, **placement(beside))


def indices(xp: ModuleType, values: NDArray[np.int64], beside: Array) -> Array:
    """Return host integers on the device of `beside`; of the library's own width, as JAX has no int64 by default."""
    return values if isinstance(beside, np.ndarray) else xp.asarray(values.copy(), **placement(beside))


def anywhere(condition: Array) -> bool:
    """Is the condition true somewhere? An array that is traced or transformed cannot tell: no."""
    if isinstance(condition, np.bool_):  # what NumPy makes of all axes
        return bool(condition)
    if type(_unwrap(condition)).__name__ in ("FakeTensor", "FunctionalTensor"):  # they would note it
        return False
    try:
        return bool(namespace(condition=condition).any(condition))
    except (TypeError, RuntimeError):  # of JAX, of PyTorch
        return False


def _unwrap(x: Any) -> Any:
    """Return the tensor within those that torch.func wraps around it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.is_tensor(x):
        while torch._C._functorch.is_functorch_wrapped_tensor(x):
            x = torch._C._functorch.get_unwrapped(x)
    return x


def frozen(values: Float64) -> Float64:
    """Return host values, from now on read-only."""
    values.setflags(write=False)
    return values


def to_numpy64(array: Array, name: str = "an array") -> Float64:
    """Return a float64 copy on the host; `name` is what an error calls an array whose numbers are not known."""
    if isinstance(array, np.ndarray):
        return np.array(array, dtype=np.float64)
    check_computed(name, array)
    try:
        if compat.is_torch_array(array):
            array = array.detach().cpu().double().numpy()
        elif compat.is_cupy_array(array):
            array = array.get()
        elif not compat.is_jax_array(array):
            array = np.from_dlpack(array)
        return np.array(array, dtype=np.float64)
    except (TypeError, RuntimeError) as error:  # of JAX, of PyTorch
        raise _unknown(name, array) from error


def check_computed(name: str, array: Array) -> None:
    """Raise for an array of Dask, whose numbers are not there: for what is computed on the host."""
    if compat.is_dask_array(array):
        raise DTypeError(f"{name} must hold its numbers, as {name}.compute() does; got a Dask array: see kernattn.dask")


def on_host(name: str, array: Array, dtype: str | None = None) -> NDArray[Any]:
    """Return an array's numbers on the host, in the dtype in which sums over it run; bools stay, and nothing is copied.

    They must be known: those of an array that is traced are not. Another dtype, such as integers', is asked for.
    """
    check_computed(name, array)
    if dtype is None:
        dtype = "bool" if dtype_name(array) == "bool" else "float64" if dtype_name(array) == "float64" else "float32"
    try:
        if compat.is_torch_array(array):
            array = array.detach().cpu()
            array = (array.float() if dtype == "float32" else array).numpy()
        elif compat.is_cupy_array(array):
            array = array.get()
        elif not isinstance(array, np.ndarray) and not compat.is_jax_array(array):
            array = np.from_dlpack(array)
        return np.asarray(array).astype(dtype, copy=False)
    except (TypeError, RuntimeError) as error:  # of JAX, of PyTorch
        raise _unknown(name, array) from error


def _unknown(name: str, array: Array) -> ParameterError:
    return ParameterError(
        f"{name} must hold numbers that are known, as they are read on the host; got a traced {type(array).__name__}: "
        "call this outside of what is traced, such as jit, grad and vmap"
    )


def like(values: Float64, array: Array) -> Array:
    """Return host values as an array of the kind, dtype and device of `array`."""
    return constant(namespace(array=array), np.asarray(values), array.dtype, array)


def why_not_plain(array: Array) -> str | None:
    """Return why a NumPy, CuPy or PyTorch array is not both C-contiguous and writeable, None where it is."""
    if not isinstance(array, np.ndarray) and compat.is_torch_array(array):
        if array.is_inference() and not sys.modules["torch"].is_inference_mode_enabled():
            return "a tensor of inference mode, outside of which nothing is written to it"
        return None if array.is_contiguous() else f"shape {tuple(array.shape)}, strides {array.stride()}"
    fixed = not getattr(array.flags, "writeable", True)
    if array.flags.c_contiguous and not fixed:
        return None
    return f"shape {array.shape}, strides {array.strides}{', read-only' * fixed}"


def records_gradient(array: Array) -> bool:
    """Whether PyTorch records what is done to an array, to differentiate it later."""
    if isinstance(array, np.ndarray) or not compat.is_torch_array(array):
        return False
    return bool(array.requires_grad and sys.modules["torch"].is_grad_enabled())


def may_share_memory(a: Array, b: Array) -> bool:
    """Whether the memory between the ends of two arrays of one library, NumPy, CuPy or PyTorch, overlaps."""
    if isinstance(a, np.ndarray):
        return bool(np.may_share_memory(a, b))
    if not compat.is_torch_array(a):
        return bool(namespace(a=a, b=b).may_share_memory(a, b))
    ends = []
    for array in (a, b):
        last = sum((size - 1) * stride for size, stride in zip(array.shape, array.stride(), strict=True))
        ends.append((array.data_ptr(), array.data_ptr() + (last + 1) * array.element_size()))
    return bool(max(start for start, _ in ends) < min(end for _, end in ends))
