"""Functions that run on the host, as JAX differentiates and traces them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct

from kernattn._arrays.hosted import FIRST, Hosted, give_outputs
from kernattn._arrays.namespaces import to_numpy64, widest
from kernattn.jax._calls import differentiable, is_traced


@dataclass(frozen=True)
class HostedRule:
    """A function as JAX calls it; what pulls back is made again on the way back."""

    function: Hosted
    dtype: Any  # of the value: on the host, arrays would not say whether JAX takes float64
    apart: bool = True
    staged: None = None
    no_tangents: ClassVar = FIRST
    no_second: ClassVar = FIRST

    def results(self, *arrays: Any) -> tuple[Any, ...]:
        """Return the forms of the value."""
        return tuple(ShapeDtypeStruct(shape, self.dtype) for shape in self.function.shapes(*arrays))

    def forms(self, *arrays: Any) -> tuple[Any, Any]:
        """Return the forms of the value, and of what the pullback needs beside it: nothing."""
        return self.results(*arrays), ()

    def backward_forms(self, arrays: Any, value: Any, kept: Any, g: Any) -> Any:
        """Return the forms of the cotangents."""
        return tuple(ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)

    def value(self, *arrays: Any) -> tuple[Any, ...]:
        """Return the outputs."""
        outputs = self.function.forward(*map(to_numpy64, arrays))[0]
        return tuple(np.asarray(x, self.dtype) for x in outputs)

    def forward(self, *arrays: Any) -> tuple[Any, Any]:
        """Return the outputs, and nothing beside them."""
        return self.value(*arrays), ()

    def backward(self, arrays: Any, value: Any, kept: Any, g: Any) -> tuple[Any, ...]:
        """Return the cotangents of the arrays."""
        pull = self.function.forward(*map(to_numpy64, arrays))[1]
        cotangents = pull(tuple(map(to_numpy64, g)))
        return tuple(np.asarray(dx, x.dtype).reshape(x.shape) for dx, x in zip(cotangents, arrays, strict=True))


def run_hosted(function: Hosted, *arrays: Any) -> Any:
    """Return the outputs of a function of arrays."""
    if is_traced(arrays):
        dtype = widest(jnp, arrays[0]) if function.wide else arrays[0].dtype
        return differentiable(HostedRule(function, dtype), *arrays)
    return give_outputs(function, function.forward(*map(to_numpy64, arrays))[0], arrays[0])
