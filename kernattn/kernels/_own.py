"""Any function of rows as a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, namespace
from kernattn._runtime.checks import boolean, shown
from kernattn.errors import ParameterError, ShapeError
from kernattn.kernels._base import Kernel
from kernattn.kernels._rows import Rows
from kernattn.kernels._stationary import Lengthscale, Stationary

Function = Callable[[Rows], Array]
Frequencies = Callable[[np.random.Generator, tuple[int, int]], Float64]


@final
@dataclass(frozen=True)
class Own(Kernel):
    r"""A function of the rows x and y as a kernel; see :func:`from_function`."""

    function: Function
    signed: bool = True

    def _evaluate(self, rows: Rows) -> Array:
        return _values(self.function, rows)


@final
@dataclass(frozen=True)
class OwnStationary(Stationary):
    r"""A function of the differences x' - y', :math:`x' = x / \ell`, as a kernel; see :func:`from_function`."""

    function: Function
    frequencies: Frequencies | None = None
    lengthscale: Lengthscale = 1.0
    signed: bool = True

    def _evaluate(self, rows: Rows) -> Array:
        return _values(self.function, rows)

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Float64:
        """Return m frequencies (m, d)."""
        assert self.frequencies is not None
        at = np.zeros((1, shape[1]))
        one = float(self.of_scaled().pairs(at, at)[0])
        if not abs(one - 1) < 1e-6:  # the weights of a spectral measure, which is a law, sum to 1
            raise ParameterError(
                f"function must be 1 where x = y, for it has frequencies; got {one:g}: divide by it, and multiply the "
                "kernel by it"
            )
        omega = np.asarray(self.frequencies(rng, shape), np.float64)
        if omega.shape != shape:
            raise ShapeError(f"frequencies must give (m, d) = {shape}; got {omega.shape}")
        if not np.isfinite(omega).all():
            raise ParameterError("frequencies must give finite numbers; some are not")
        return omega


def from_function(
    function: Function,
    *,
    lengthscale: Lengthscale | None = None,
    frequencies: Frequencies | None = None,
    signed: bool = True,
) -> Kernel:
    r"""Return k(x, y) = f(rows), any positive definite function as a kernel.

    It goes wherever a kernel of the package goes: matrices, sums and products, landmarks, solvers, estimators, metrics.
    With `frequencies` it has random features too. They draw :math:`\omega` of the spectral measure p of
    :math:`k(\delta) = \int e^{i \omega^T \delta}\, dp(\omega)` (Bochner; Rahimi and Recht 2007), and
    `kernattn.metrics.certify` tests whether the two agree. Maps of it cannot be saved.

    Parameters
    ----------
    function : callable
        Takes :class:`Rows`, whose `dot`, `squared_distance`, `distance`, `sum` and `prod` are of all pairs or of
        rowwise pairs, and whose `xp` is the library of the arrays; returns their kernel.
    lengthscale : float or (d,) array_like, optional
        For functions of the difference x - y: rows are divided by it. Default 1 if there are frequencies; else rows
        stay as they are, and the kernel has no lengthscale.
    frequencies : callable, optional
        Takes a numpy.random.Generator and a shape (m, d), and returns frequencies of that shape, independent rows, of
        the kernel with lengthscale 1.
    signed : bool
        Can it be negative? `kernattn.kernel_attention` takes kernels that cannot, ``signed=False``.

    Returns
    -------
    Kernel
        The kernel. Two of the same function and parameters are equal.

    Raises
    ------
    ParameterError
        If function or frequencies are not callable, or the lengthscale is not positive; where features are drawn, if
        the function is not 1 where x = y, or frequencies are not finite.
    ShapeError
        Where it is used, if the function or the frequencies give other shapes.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> def exponential(rows):
    ...     return rows.xp.exp(-rows.distance())
    >>> ka.kernels.from_function(exponential, lengthscale=2.0)(np.array([[0.0], [2.0]]))
    array([[1.        , 0.36787944],
           [0.36787944, 1.        ]])

    The frequencies of this one are Cauchy's law in d dimensions:

    >>> def cauchy(rng, shape):
    ...     return rng.standard_normal(shape) / np.abs(rng.standard_normal((shape[0], 1)))
    >>> kernel = ka.kernels.from_function(exponential, frequencies=cauchy, lengthscale=2.0, signed=False)
    >>> phi = ka.random_features(kernel, dim=3, num_features=64, projection="iid", rng=0)
    >>> ka.metrics.certify(phi, rng=0).passed
    True
    """
    wanted: dict[str, object] = {"function": function}
    if frequencies is not None:
        wanted["frequencies"] = frequencies
    for name, given in wanted.items():
        if not callable(given):
            raise ParameterError(f"{name} must be callable; got {shown(given)}")
    boolean("signed", signed)
    if lengthscale is None and frequencies is None:
        return Own(function, signed)
    return OwnStationary(function, frequencies, 1.0 if lengthscale is None else lengthscale, signed)


def _values(function: Function, rows: Rows) -> Array:
    values = function(rows)
    namespace(x=rows.x, function=values)
    lead = rows.x.shape[:-2], rows.y.shape[:-2]
    wanted = (*np.broadcast_shapes(*lead), rows.x.shape[-2], rows.y.shape[-2]) if rows.cross else rows.x.shape[:-1]
    if tuple(values.shape) != tuple(wanted) and prod(values.shape) != prod(wanted):
        raise ShapeError(f"function must give the kernel of rows, {tuple(wanted)}; got {tuple(values.shape)}")
    return values
