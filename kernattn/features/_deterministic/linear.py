"""Rows as they are, less a centre and in units of their own: the map of a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from kernattn._arrays.namespaces import (
    Array,
    Float64,
    accumulation_dtype,
    constant,
    frozen,
    namespace,
    without_flags,
    zeros,
)
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import array_of, positive_integer, shown
from kernattn.errors import ParameterError, ShapeError
from kernattn.features._base.deterministic import ExactMap


@final
@dataclass(frozen=True, eq=False, repr=False)
class Linear(ExactMap):
    r""":math:`\phi(x)_i = (x_i - c_i) / \ell_i`, M = d features: ``phi + w * linear`` adds a line to a kernel."""

    lengthscale: Float64  # (d,)
    center: Float64  # (d,)

    def __post_init__(self) -> None:
        lengthscale, center = (_vector(name, getattr(self, name)) for name in ("lengthscale", "center"))
        if lengthscale.shape != center.shape:
            raise ShapeError(f"lengthscale and center must be of one length; got {len(lengthscale)} and {len(center)}")
        if not np.all(lengthscale > 0):
            raise ParameterError(f"lengthscale must be positive; got {shown(self.lengthscale)}")
        object.__setattr__(self, "lengthscale", frozen(lengthscale))
        object.__setattr__(self, "center", frozen(center))

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return len(self.center)

    def num_features_of(self, dim: int) -> int:
        """Return M = d."""
        return positive_integer("dim", dim)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), with a log scale of 0."""
        xp = namespace(x=x)
        dtype = accumulation_dtype(xp, x)
        less, unit = (constant(xp, each, dtype, x) for each in (self.center, self.lengthscale))
        values = (xp.astype(x, dtype, copy=False) - less) / unit
        return ScaledFeatures(values, zeros(xp, (*x.shape[:-1], 1), dtype, x))

    def _pullback(self, x: Array) -> Callable[[Array], tuple[Array, Any]]:
        unit = constant(namespace(x=x), self.lengthscale, x.dtype, x)
        return lambda g: (g / unit, None)

    @without_flags
    def _compute(self, x: Array, key: bool) -> Array:
        """Return the values alone: to multiply them by e^0 would copy them twice."""
        return namespace(x=x).astype(self.scaled_query(x).values, x.dtype, copy=False)


def linear(lengthscale: Any, center: Any = None) -> Linear:
    r"""Return the map of :math:`k(x, y) = \sum_i (x_i - c_i) (y_i - c_i) / \ell_i^2`, of which predictions are lines.

    Parameters
    ----------
    lengthscale : (d,) array_like
        Units of the columns, positive.
    center : (d,) array_like, optional
        What is taken off first: 0 unless given. Where it is the columns' mean, features far from 0 lose no digits.

    Returns
    -------
    Linear
        The map, of M = d features.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.features.linear([1.0, 10.0], [5.0, 0.0])(np.array([[7.0, 20.0]]))
    array([[2., 2.]])
    """
    units = _vector("lengthscale", lengthscale)
    return Linear(units, np.zeros_like(units) if center is None else center)


def _vector(name: str, values: Any) -> Float64:
    given = array_of(values)
    if given.dtype.kind not in "iuf" or given.ndim != 1 or not given.size or not np.isfinite(given).all():
        raise ParameterError(f"{name} must be a vector of finite numbers, one for each column; got {shown(values)}")
    return np.asarray(given, dtype=np.float64)
