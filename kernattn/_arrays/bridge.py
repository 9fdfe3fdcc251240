"""Arrays of other libraries on compiled ops: their memory is lent without a copy, and results come back in kind.

PyTorch's and JAX's arrays in host memory become NumPy's, PyTorch's CUDA tensors become CuPy's. An array that is being
differentiated, traced or transformed is kept: no compiled op would tell its library what it did. Nothing here imports
PyTorch or JAX; whoever holds one of their arrays has done so.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, final

import array_api_compat as compat
import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.autocast import cast
from kernattn._arrays.graphs import leave_out
from kernattn._arrays.hooks import edge
from kernattn._arrays.namespaces import Array, check_kept
from kernattn._arrays.plain import plain
from kernattn._arrays.streams import stream_of
from kernattn._runtime.fork import import_whole


class CannotLend(Exception):
    """What is raised for an array that cannot be lent; says why."""


class Library(ABC):
    """A library whose arrays can be lent to the compiled ops of one backend."""

    backend: str
    kind: type
    edge: str  # the name of what takes arrays that cannot be lent
    dtype: type | None = None  # of its dtypes, where they are not NumPy's
    named: Mapping[Any, np.dtype[Any]] = {}  # NumPy's, by those

    def __init__(self) -> None:
        self._ways: dict[type, Callable[[Any, dict[int, Array]], Any] | None] = {}

    @abstractmethod
    def lend(self, array: Array) -> Array:
        """Lend an array: return one of NumPy or CuPy over its memory, or raise CannotLend where there is none."""

    @abstractmethod
    def give(self, array: Array, like: Array) -> Array:
        """Return a result in kind."""

    def look(self, array: Array) -> NDArray[Any]:
        """Return the values of an array in host memory, or raise CannotLend where there are none."""
        return self.lend(array)  # type: ignore[no-any-return]

    def hand_over(self, name: str, backend: str | None, arguments: tuple[Any, ...]) -> Any:
        """Hand an op whose arguments cannot be lent to the library's edge; return its outputs, or NotImplemented."""
        return edge(self.edge).hand_over(self, name, backend, arguments)

    def autocast(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the arguments of a call in the dtype that the library asks for."""
        return arrays

    def uncast(self, function: Callable[..., Any], like: Array) -> Callable[..., Any]:
        """Return a function whose array operations choose their dtypes, free of the library's autocast."""
        return function

    @abstractmethod
    def stop_gradient(self, array: Array) -> Array:
        """Return an array as a constant, into which no gradient flows."""

    @abstractmethod
    def refuse_watched(self) -> None:
        """Raise CannotLend while the library watches all that is done to any of its arrays."""

    @final
    def check(self, array: Array) -> None:
        """Raise CannotLend where an array cannot be lent."""
        self.refuse_watched()
        self.lend(array)

    @final
    def call(self, op: Callable[..., Any], like: Array, arguments: tuple[Any, ...]) -> Any:
        """Run `op` on lent arguments; return outputs in kind. Raise CannotLend, before it runs, where one is kept."""
        self.refuse_watched()
        return self.run(op, like, arguments)

    def run(self, op: Callable[..., Any], like: Array, arguments: tuple[Any, ...]) -> Any:
        """Call `op` as `call` does, though the library watches: its edge tells it what is done to its arrays."""
        own: dict[int, Array] = {}  # by what stands for it
        return self._give_back(op(*self._cross(arguments, own)), like, own)

    def _cross(self, values: tuple[Any, ...], own: dict[int, Array]) -> tuple[Any, ...]:
        crossed, ways = [], self._ways
        for value in values:
            kind = type(value)
            way = ways[kind] if kind in ways else self._learn(value)
            crossed.append(value if way is None else way(value, own))
        return tuple.__new__(type(values), crossed)

    def _learn(self, value: Any) -> Callable[[Any, dict[int, Array]], Any] | None:
        """Return how values of a kind cross, from now on; None where they do as they are."""
        way: Callable[[Any, dict[int, Array]], Any] | None = None
        if value is not None and isinstance(value, self.kind):
            way = self._lend_and_note
        elif isinstance(value, tuple):
            way = self._cross
        elif type(value) is self.dtype:
            way = self._name_dtype
        elif getattr(value, "_of_arrays", False):
            way = self._refuse_learnt
        self._ways[type(value)] = way
        return way

    def _lend_and_note(self, array: Array, own: dict[int, Array]) -> Array:
        lent = self.lend(array)
        own[id(lent)] = array
        return lent

    def _refuse_learnt(self, value: Any, own: dict[int, Array]) -> Any:
        raise CannotLend("its map holds arrays that are learnt")

    def _name_dtype(self, dtype: Any, own: dict[int, Array]) -> np.dtype[Any]:
        return self.named[dtype]

    def _give_back(self, value: Any, like: Array, own: dict[int, Array]) -> Any:
        if isinstance(value, tuple):
            return tuple.__new__(type(value), [self._give_back(x, like, own) for x in value])
        if value is None:
            return None
        given = own.get(id(value))  # an op may write to an argument, and return it
        return self.give(value, like) if given is None else given


class Torch(Library):
    """PyTorch's tensors in host memory, as NumPy arrays."""

    backend = "cpu"
    edge = "torch"

    def __init__(self) -> None:
        super().__init__()
        leave_out()
        self.torch = torch = sys.modules["torch"]
        self.kind, self.kinds = torch.Tensor, {torch.Tensor, torch.nn.Parameter}
        self.dtype, self.bfloat16 = torch.dtype, torch.bfloat16
        self.autocasts, self.from_numpy = torch._C._is_any_autocast_enabled, torch.from_numpy
        self.compiling, self.gradients = torch.compiler.is_compiling, torch.is_grad_enabled
        self.compiler = torch._C._dynamo.eval_frame.get_eval_frame_callback
        self.modes = torch._C._len_torch_dispatch_stack
        self.forwards = torch.autograd.forward_ad
        self.transformed = torch._C._functorch.is_functorch_wrapped_tensor
        self.named = {getattr(torch, name): np.dtype(name) for name in ("float16", "float32", "float64")}
        if find_spec("ml_dtypes") is not None:
            from ml_dtypes import bfloat16

            self.named[torch.bfloat16] = np.dtype(bfloat16)

    def autocast(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return tensors in the dtype of autocast where that is on."""
        return cast(self.torch, arrays) if self.autocasts() else arrays

    def uncast(self, function: Callable[..., Any], like: Array) -> Callable[..., Any]:
        """Return a function that runs without autocast."""
        return self.torch.autocast(like.device.type, enabled=False)(function) if self.autocasts() else function

    def stop_gradient(self, array: Array) -> Array:
        """Return a tensor without its history."""
        return array.detach()

    def look(self, array: Array) -> NDArray[Any]:
        """Return the values of a tensor, or raise CannotLend where calls are traced."""
        self.refuse_watched()
        return self.lend(array if not array.requires_grad else array.detach())  # type: ignore[no-any-return]

    def is_traced(self) -> bool:
        """Is what is done to tensors put down in a graph?"""
        return bool(self.compiling() or self.compiler() or self.modes())

    def differentiated_forwards(self) -> bool:
        """Do tensors carry tangents?"""
        return bool(self.forwards._current_level >= 0)

    def refuse_watched(self) -> None:
        """Raise CannotLend while a call is traced, or differentiated forwards."""
        if self.is_traced():
            raise CannotLend("the call is being traced")
        if self.differentiated_forwards():
            raise CannotLend("the call is differentiated forwards")

    def plain(self, array: Array) -> Array:
        """Return a tensor without its gradient, or raise CannotLend where it cannot be lent."""
        if type(array) not in self.kinds:
            raise CannotLend(f"it is a {type(array).__name__}")
        if self.transformed(array):
            raise CannotLend("torch.func transforms it")
        if array.is_neg():
            raise CannotLend("its negation is still to be done")
        if not array.requires_grad:
            return array
        if self.gradients():
            raise CannotLend("it requires a gradient")
        return array.detach()

    def lend(self, array: Array) -> Array:
        """Return the NumPy array of a tensor's memory, or raise CannotLend where it has none."""
        try:
            if type(array) in self.kinds and not self.transformed(array):
                if array.requires_grad and not self.gradients():
                    array = array.detach()
                if not array.requires_grad:  # what else is not plain raises
                    return array.numpy() if array.dtype is not self.bfloat16 else self._memory(array)
        except (RuntimeError, TypeError, KeyError):
            pass
        array = self.plain(array)
        try:
            return self._memory(array)
        except (RuntimeError, TypeError, KeyError) as error:  # a layout, a dtype
            raise CannotLend(str(error)) from None

    def lend_detached(self, array: Array) -> Array:
        """Lend a tensor as a constant, or raise CannotLend."""
        return self.lend(array.detach() if array.requires_grad else array)

    def _memory(self, array: Array) -> Array:
        """Return the NumPy array of a tensor's memory."""
        if array.dtype is self.bfloat16:  # `numpy` refuses it, by an error that costs more than a small call
            return array.view(self.torch.int16).numpy().view(self.named[array.dtype])
        return array.numpy()

    def give(self, array: Array, like: Array) -> Array:
        """Return the tensor of a NumPy array's memory, which nobody else writes to."""
        if not array.flags.carray:
            array = np.array(array, order="C")
        if array.dtype.kind == "V":  # bfloat16
            return self.from_numpy(array.view(np.int16)).view(self.bfloat16)
        return self.from_numpy(array)


class TorchCuda(Torch):
    """PyTorch's CUDA tensors, as CuPy arrays on PyTorch's device and stream."""

    backend = "gpu"

    def lend(self, array: Array) -> Array:
        """Return the CuPy array of a tensor's memory, or raise CannotLend where it is not plain."""
        cupy, array = import_whole("cupy"), self.plain(array)
        if array.dtype is self.bfloat16:
            return cupy.from_dlpack(array.view(self.torch.int16)).view(self.named[array.dtype])
        return cupy.from_dlpack(array)

    def give(self, array: Array, like: Array) -> Array:
        """Return the tensor of a CuPy array's memory, which is PyTorch's."""
        if array.dtype.kind == "V":  # bfloat16
            return self.torch.from_dlpack(array.view(np.int16)).view(self.bfloat16)
        return self.torch.from_dlpack(array)

    def run(self, op: Callable[..., Any], like: Array, arguments: tuple[Any, ...]) -> Any:
        """Call `op` on PyTorch's device and its current stream, in memory of PyTorch's allocator."""
        cupy, device = import_whole("cupy"), like.device.index
        stream = self.torch.cuda.current_stream(like.device)

        def room(size: int) -> Any:
            held = self.torch.empty(size, dtype=self.torch.uint8, device=like.device)
            return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(held.data_ptr(), size, held, device), 0)

        with (
            cupy.cuda.Device(device),
            stream_of(cupy, stream.cuda_stream, device),
            cupy.cuda.using_allocator(room),
        ):
            return super().run(op, like, arguments)


class Jax(Library):
    """JAX's arrays in host memory, as read-only NumPy arrays."""

    backend = "cpu"
    edge = "jax"

    def __init__(self) -> None:
        super().__init__()
        self.jax = jax = sys.modules["jax"]
        self.kind = jax.Array
        self.kinds: set[type] = set()  # those that are no tracers
        self.put = getattr(import_module("jax._src.lib").xla_client, "batched_device_put", None)  # no public name
        self.form = lru_cache(jax.core.ShapedArray)
        edge(self.edge)  # which tells JAX that a state is a tree

    def stop_gradient(self, array: Array) -> Array:
        """Return an array whose gradient stops."""
        return self.jax.lax.stop_gradient(array)

    def refuse_watched(self) -> None:
        """Nothing: what JAX watches is a tracer."""

    def lend(self, array: Array) -> Array:
        """Return the NumPy array of an array's memory, or raise CannotLend where it is not in host memory."""
        if type(array) not in self.kinds:
            if isinstance(array, self.jax.core.Tracer):
                raise CannotLend("it is being traced")
            self.kinds.add(type(array))
        if _one_cpu(array.sharding) is None:
            raise CannotLend("it is not on one CPU device")
        try:
            lent = np.asarray(array)
        except RuntimeError:
            check_kept("every array", array)
            raise
        if lent.dtype == np.float64 and not self.jax.config.jax_enable_x64:
            raise CannotLend("it is float64, which jax_enable_x64 forbids")
        return lent

    def give(self, array: Array, like: Array) -> Array:
        """Return the JAX array of a NumPy array's memory, which nobody else writes to, or of a copy."""
        sharding = like.sharding
        if self.put is None:
            return self.jax.device_put(array, sharding if like.committed else None)
        form = self.form(array.shape, array.dtype)
        return self.put(form, sharding, [array], _one_cpu(sharding), like.committed)


@lru_cache
def _one_cpu(sharding: Any) -> list[Any] | None:
    """Return the device of JAX's arrays where that is a single CPU."""
    devices = list(sharding.device_set)
    return devices if [device.platform for device in devices] == ["cpu"] else None


_libraries: dict[type, type[Library] | None] = {}


@cache
def _instantiate(library: type[Library]) -> Library:
    return library()


def autocast(*arrays: Array) -> tuple[Array, ...]:
    """Return the arguments of a call: of PyTorch, in the dtype of `torch.autocast` where that is on.

    Arrays of a class derived from NumPy's are from then on NumPy's own: what such a class does, it does to no sum.
    """
    if isinstance(arrays[0], np.ndarray):
        for x in arrays:
            if type(x) is not np.ndarray:
                return tuple(map(plain, arrays))
        return arrays
    library = library_of(arrays[0])
    return arrays if library is None else library.autocast(arrays)


def stop_gradient(array: Array) -> Array:
    """Return an array as a constant, into which no gradient flows."""
    library = library_of(array)
    return array if library is None else library.stop_gradient(array)


def library_of(array: Array) -> Library | None:
    """Return the library that may lend an array; None for those that ops take as they are, and for unknown ones."""
    kind = type(array)
    if kind not in _libraries:
        _libraries[kind] = Torch if compat.is_torch_array(array) else Jax if compat.is_jax_array(array) else None
    library = _libraries[kind]
    if library is Torch and not array.is_cpu:
        library = TorchCuda if array.is_cuda else None
    return None if library is None else _instantiate(library)
