"""Any function of rows as a feature map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, anywhere, check_floating, namespace
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import instance_of, positive_integer, shown
from kernattn._runtime.random import RNG, generator
from kernattn.errors import ParameterError, ShapeError
from kernattn.features._base.map import FeatureMap
from kernattn.kernels import Kernel

Function = Callable[[Array], Array]


@final
@dataclass(frozen=True, eq=False, repr=False)
class FromFunction(FeatureMap):
    r""":math:`\phi(x) = f(x)`, whatever the function f of rows is; see :func:`from_function`."""

    function: Function
    columns: int | None  # d
    number: int | None  # M
    factory: Callable[[np.random.Generator], Function] | None
    kernel: Kernel | None

    @property
    def dim(self) -> int | None:
        return self.columns

    def num_features_of(self, dim: int) -> int:
        """Return M, the number of features: what was given, or what a row of zeros in NumPy has."""
        positive_integer("dim", dim)
        if self.number is not None:
            return self.number
        try:
            with np.errstate(all="ignore"):
                shape = tuple(self.function(np.zeros((1, dim))).shape)
        except Exception as error:
            raise ParameterError(
                f"num_features must be given: function does not take a NumPy row of {dim} zeros, {error}"
            ) from error
        if len(shape) != 2:
            raise ShapeError(f"function must give features (n, M) of rows (n, d); of rows (1, {dim}) it gives {shape}")
        return int(shape[-1])

    def scaled_query(self, x: Array) -> ScaledFeatures:
        xp = namespace(x=x)
        rows = xp.astype(x, accumulation_dtype(xp, x), copy=False)
        with np.errstate(all="ignore"):
            values = self.function(rows)
        namespace(x=rows, features=values)
        check_floating("features", values)
        lead, wanted = tuple(x.shape[:-1]), "M" if self.number is None else self.number
        if tuple(values.shape[:-1]) != lead or len(values.shape) < 2 or wanted not in ("M", values.shape[-1]):
            raise ShapeError(
                f"function must give features of the shape {(*lead, wanted)} of x {tuple(x.shape)}; "
                f"got {tuple(values.shape)}"
            )
        finite = xp.all(xp.isfinite(rows), axis=-1, keepdims=True)
        if anywhere(finite & ~xp.all(xp.isfinite(values), axis=-1, keepdims=True)):
            raise ParameterError(f"function must give finite features of finite rows; {shown(self.function)} does not")
        values = xp.astype(values, rows.dtype, copy=False)
        return ScaledFeatures(values, xp.zeros_like(values[..., :1]))

    def redraw(self, rng: RNG = None) -> Self:
        """Return a map of the factory's next function; without a factory the map itself."""
        source = generator(rng)
        return self if self.factory is None else replace(self, function=_draw_function(self.factory, source))


def from_function(
    function: Function | None = None,
    dim: int | None = None,
    num_features: int | None = None,
    *,
    factory: Callable[[np.random.Generator], Function] | None = None,
    kernel: Kernel | None = None,
    rng: RNG = None,
) -> FromFunction:
    r"""Return :math:`\phi(x) = f(x)`, any function of rows as a feature map.

    It goes wherever a map of the package goes: attention, metrics, `certify`, studies. No closed form is known of it,
    and it cannot be saved.

    Parameters
    ----------
    function : callable, optional
        Rows (..., n, d) to features (..., n, M), in the library of the rows. Rows of 16 bits come as float32.
    dim : int, optional
        Input dimension d; by default any is taken.
    num_features : int, optional
        Number M of features; by default what the function makes of a NumPy row of zeros.
    factory : callable, optional
        In place of `function`, for random features: takes a numpy.random.Generator and returns such a function, with
        fresh random numbers for every `redraw`.
    kernel : Kernel, optional
        What the features are to estimate; `certify` asks for it otherwise.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the factory's first draw.

    Returns
    -------
    FromFunction
        The map.

    Raises
    ------
    ParameterError
        If not exactly one of `function` and `factory` is given, one is not callable, or a number is no positive
        integer; where the map is used, if features of finite rows are not finite.
    ShapeError
        Where the map is used, if features are not (..., n, M).

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.from_function(lambda x: np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)], axis=-1))
    >>> ka.linear_attention(np.eye(3), np.eye(3), np.eye(3), phi).shape
    (3, 3)

    Random features bring a factory:

    >>> def cosines(rng):
    ...     omega, b = rng.standard_normal((64, 4)), rng.uniform(0, 2 * np.pi, 64)
    ...     return lambda x: np.sqrt(2 / 64) * np.cos(x @ omega.T + b)
    >>> phi = ka.features.from_function(dim=4, factory=cosines, rng=0)
    >>> ka.metrics.certify(phi, ka.kernels.Gaussian(), rng=0).passed
    True
    """
    if (function is None) == (factory is None):
        raise ParameterError("exactly one of function and factory must be given")
    for name, value in (("function", function), ("factory", factory)):
        if value is not None and not callable(value):
            raise ParameterError(f"{name} must be callable; got {shown(value)}")
    if kernel is not None:
        instance_of("kernel", kernel, Kernel)
    columns, number = (
        None if value is None else positive_integer(name, value)
        for name, value in (("dim", dim), ("num_features", num_features))
    )
    generator(rng)
    first: Any = function if factory is None else _draw_function(factory, rng)
    return FromFunction(first, columns, number, factory, kernel)


def _draw_function(factory: Callable[[np.random.Generator], Function], rng: RNG) -> Function:
    function = factory(generator(rng))
    if not callable(function):
        raise ParameterError(f"factory must return a function of rows; got {shown(function)}")
    return function
