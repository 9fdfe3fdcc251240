"""Arrays of other libraries on compiled ops: their memory is lent without a copy, and results come back in kind.

PyTorch's and JAX's arrays in host memory become NumPy's, PyTorch's CUDA tensors become CuPy's. An array that is being
differentiated, traced or transformed is kept: no compiled op would tell its library what it did. Nothing here imports
PyTorch or JAX; whoever holds one of their arrays has done so.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any, final

import array_api_compat as compat
import numpy as np

from kernattn._array import Array
from kernattn._fork import imported

__all__ = ["Kept", "Library", "library_of"]

HOST = nullcontext()
SMALL = 1 << 16  # bytes that JAX copies sooner than it borrows them


class Kept(Exception):
    """What is raised for an array that cannot be lent; says why."""


class Library(ABC):
    """A library whose arrays can be lent to the compiled ops of one backend."""

    backend: str
    kind: type
    dtype: type | None = None  # of its dtypes, where they are not NumPy's
    named: Mapping[Any, np.dtype[Any]]  # NumPy's, by those

    @abstractmethod
    def plain(self, array: Array) -> Array:
        """Return an array of this library without its gradient, or raise Kept where it cannot be lent."""

    @abstractmethod
    def lend(self, array: Array) -> Array:
        """Return what stands for a plain array."""

    @abstractmethod
    def give(self, array: Array, like: Array) -> Array:
        """Return a result in kind."""

    @abstractmethod
    def unwatched(self) -> None:
        """Raise Kept while the library watches all that is done to any of its arrays."""

    def context(self, like: Array) -> AbstractContextManager[Any]:
        """Return in which context arrays like this one are lent, the op runs, and its results are taken."""
        return HOST

    @final
    def check(self, array: Array) -> None:
        """Raise Kept where an array cannot be lent."""
        self.unwatched()
        self.plain(array)

    @final
    def call(self, op: Callable[..., Any], like: Array, arguments: tuple[Any, ...]) -> Any:
        """Return what `op` makes of the arguments, in kind; raise Kept before it runs where one cannot be lent."""
        self.unwatched()
        own: dict[int, Array] = {}  # by what stands for it: an op may write to an argument, and return it
        with self.context(like):
            lent = [self._crossed(value, own) for value in arguments]
            return self._returned(op(*lent), like, own)

    def _crossed(self, value: Any, own: dict[int, Array]) -> Any:
        if isinstance(value, self.kind):
            lent = self.lend(self.plain(value))
            own[id(lent)] = value
            return lent
        if isinstance(value, tuple):
            return _tuple(type(value), [self._crossed(member, own) for member in value])
        return self.named[value] if type(value) is self.dtype else value

    def _returned(self, value: Any, like: Array, own: dict[int, Array]) -> Any:
        if isinstance(value, tuple):
            return _tuple(type(value), [self._returned(member, like, own) for member in value])
        if value is None or id(value) in own:
            return own.get(id(value))
        return self.give(value, like)


def _tuple(kind: type[Any], members: list[Any]) -> Any:
    return kind(members) if kind is tuple else kind(*members)


class Torch(Library):
    """PyTorch's tensors in host memory, as NumPy arrays."""

    backend = "cpu"

    def __init__(self) -> None:
        self.torch = torch = sys.modules["torch"]
        self.kind, self.plains = torch.Tensor, (torch.Tensor, torch.nn.Parameter)
        self.dtype, self.bfloat16 = torch.dtype, torch.bfloat16
        self.compiler = torch._C._dynamo.eval_frame.get_eval_frame_callback
        self.modes = torch._C._len_torch_dispatch_stack
        self.transformed = torch._C._functorch.is_functorch_wrapped_tensor
        self.named = {getattr(torch, name): np.dtype(name) for name in ("float16", "float32", "float64")}
        if find_spec("ml_dtypes") is not None:
            from ml_dtypes import bfloat16

            self.named[torch.bfloat16] = np.dtype(bfloat16)

    def unwatched(self) -> None:
        """Raise Kept while a call is traced, or differentiated forwards."""
        torch = self.torch
        if torch.compiler.is_compiling() or self.compiler() or self.modes() or torch.jit.is_tracing():
            raise Kept("the call is being traced")
        if torch.autograd.forward_ad._current_level >= 0:
            raise Kept("the call is differentiated forwards")

    def plain(self, array: Array) -> Array:
        """Return a tensor without its gradient, or raise Kept where it cannot be lent."""
        if type(array) not in self.plains:
            raise Kept(f"it is a {type(array).__name__}")
        if self.transformed(array):
            raise Kept("torch.func transforms it")
        if array.is_neg():
            raise Kept("its negation is still to be done")
        if not array.requires_grad:
            return array
        if self.torch.is_grad_enabled():
            raise Kept("it requires a gradient")
        return array.detach()

    def lend(self, array: Array) -> Array:
        """Return the NumPy array of a plain tensor's memory, or raise Kept where NumPy has no such array."""
        try:
            if array.dtype is self.bfloat16:
                return array.view(self.torch.int16).numpy().view(self.named[array.dtype])
            return array.numpy()
        except (RuntimeError, TypeError, KeyError) as error:  # a layout, a dtype
            raise Kept(str(error)) from None

    def give(self, array: Array, like: Array) -> Array:
        """Return the tensor of a NumPy array's memory, which nobody else writes to."""
        if not array.flags.carray:
            array = np.array(array, order="C")
        if array.dtype.kind == "V":  # bfloat16
            return self.torch.from_numpy(array.view(np.int16)).view(self.bfloat16)
        return self.torch.from_numpy(array)


class TorchCuda(Torch):
    """PyTorch's CUDA tensors, as CuPy arrays on PyTorch's device and stream."""

    backend = "gpu"

    def lend(self, array: Array) -> Array:
        """Return the CuPy array of a plain tensor's memory."""
        cupy = imported("cupy")
        if array.dtype is self.bfloat16:
            return cupy.from_dlpack(array.view(self.torch.int16)).view(self.named[array.dtype])
        return cupy.from_dlpack(array)

    def give(self, array: Array, like: Array) -> Array:
        """Return the tensor of a CuPy array's memory, which it keeps from CuPy's pool for as long as it lives."""
        if array.dtype.kind == "V":  # bfloat16
            return self.torch.from_dlpack(array.view(np.int16)).view(self.bfloat16)
        return self.torch.from_dlpack(array)

    def context(self, like: Array) -> AbstractContextManager[Any]:
        """Return the context of PyTorch's device and its current stream."""
        cupy = imported("cupy")
        stack = ExitStack()
        stack.enter_context(cupy.cuda.Device(like.device.index))
        stream = self.torch.cuda.current_stream(like.device)
        stack.enter_context(cupy.cuda.ExternalStream(stream.cuda_stream, like.device.index))
        return stack


class Jax(Library):
    """JAX's arrays in host memory, as read-only NumPy arrays."""

    backend = "cpu"

    def __init__(self) -> None:
        self.jax = jax = sys.modules["jax"]
        self.kind = jax.Array

    def unwatched(self) -> None:
        """Nothing: what JAX watches is a tracer."""

    def plain(self, array: Array) -> Array:
        """Return the array, or raise Kept where it cannot be lent."""
        if isinstance(array, self.jax.core.Tracer):
            raise Kept("it is being traced")
        if [device.platform for device in array.sharding.device_set] != ["cpu"]:
            raise Kept("it is not on one CPU device")
        if array.dtype == np.float64 and not self.jax.config.jax_enable_x64:
            raise Kept("it is float64, which jax_enable_x64 forbids")
        return array

    def lend(self, array: Array) -> Array:
        """Return the NumPy array of an array's memory."""
        return np.asarray(array)

    def give(self, array: Array, like: Array) -> Array:
        """Return the JAX array of a NumPy array's memory, which nobody else writes to, or of a copy."""
        if like.committed:
            return self.jax.device_put(array, like.sharding)
        return self.jax.numpy.asarray(array) if array.nbytes < SMALL else self.jax.device_put(array)


@cache
def _made(library: type[Library]) -> Library:
    return library()


def library_of(array: Array) -> Library | None:
    """Return the library that may lend an array; None for those that ops take as they are, and for unknown ones."""
    if compat.is_torch_array(array):
        return _made(Torch) if array.is_cpu else _made(TorchCuda) if array.is_cuda else None
    return _made(Jax) if compat.is_jax_array(array) else None
