"""Functions that run on the host in float64, of arrays of any library, and their one rule of derivatives."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from kernattn._arrays.bridge import library_of
from kernattn._arrays.hooks import edge
from kernattn._arrays.namespaces import Array, Float64, like, namespace, to_numpy64, widest, zeros

FIRST = (
    "a function that runs on the host has first derivatives in reverse mode alone: it cannot be differentiated again, "
    "nor forwards"
)

Pull = Callable[[tuple[Float64, ...]], tuple[Float64, ...]]
"""From the cotangents of all outputs to those of all arrays."""


class Hosted(ABC):
    """A function of arrays whose outputs have known shapes: in the dtype of the first array, or the widest beside."""

    wide: bool

    @abstractmethod
    def shapes(self, *arrays: Array) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the outputs."""

    @abstractmethod
    def forward(self, *arrays: Float64) -> tuple[tuple[Float64, ...], Pull]:
        """Return the outputs, and what pulls their cotangents back."""


def call_hosted(function: Hosted, *arrays: Array) -> tuple[Array, ...]:
    """Return the outputs beside the arrays; PyTorch and JAX differentiate them, by the function's rule."""
    library = library_of(arrays[0])
    if library is not None:
        return edge(library.edge).run_hosted(function, *arrays)  # type: ignore[no-any-return]
    return give_outputs(function, function.forward(*map(to_numpy64, arrays))[0], arrays[0])


def give_outputs(function: Hosted, outputs: tuple[Float64, ...], beside: Array) -> tuple[Array, ...]:
    """Return outputs in the library of an array, and in its dtype or the widest."""
    if function.wide:
        xp = namespace(beside=beside)
        beside = zeros(xp, (0,), widest(xp, beside), beside)
    with np.errstate(over="ignore", under="ignore"):
        return tuple(like(np.asarray(values), beside) for values in outputs)
