"""Any elementwise function over random projections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from types import ModuleType
from typing import Any, Self, final

import numpy as np

from kernattn._array import Array, Float64, accumulation_dtype, anywhere, frozen, namespace
from kernattn._check import moderate_number, positive_integer, shown
from kernattn._lazy import lazy
from kernattn._random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._spectral.map import check_frequencies
from kernattn.ops.chains import Chains
from kernattn.ops.features import projected, scaled
from kernattn.ops.spec import MapSpec, ScaledFeatures
from kernattn.ops.units import nearer, restored
from kernattn.projections import Projection, resolve

__all__ = ["FUNCTIONS", "Generalized", "generalized"]


def _sigmoid(xp: ModuleType, u: Array) -> Array:
    small = xp.exp(-xp.abs(u))
    return xp.where(u >= 0, xp.ones_like(u), small) / (1 + small)


FUSED = ("cos", "elu1", "exp", "relu")  # which are kinds of MapSpec
COMPUTED: dict[str, Callable[[ModuleType, Array], Array]] = {
    "abs": lambda xp, u: xp.abs(u),
    "sigmoid": _sigmoid,
    "sin": lambda xp, u: xp.sin(u),
    "square": lambda xp, u: u * u,
    "tanh": lambda xp, u: xp.tanh(u),
}
DEGREES = {"abs": 1, "square": 2}  # of functions whose argument's size comes out as a factor
FUNCTIONS = tuple(sorted((*FUSED, *COMPUTED)))


@final
@dataclass(frozen=True, eq=False, repr=False)
class Generalized(FeatureMap):
    r""":math:`\phi(x) = m^{-1/2} f(\Omega x)`; see :func:`generalized`."""

    function: str | Callable[[Array], Array]
    projection: Projection
    omega: Float64 | Chains  # (m, d), the scale folded in
    scale: float

    def __post_init__(self) -> None:
        """Check the function, the design, and the frequencies against it."""
        _check_function(self.function)
        check_frequencies(self.projection, self.omega)
        object.__setattr__(self, "scale", moderate_number("scale", self.scale))

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return int(self.omega.shape[1])

    def num_features_of(self, dim: int) -> int:
        """Return M, the number of features."""
        positive_integer("dim", dim)
        return int(self.omega.shape[0])

    @lazy
    def spec(self) -> MapSpec | None:
        """The map as plain numbers where its function is one that the ops know, else None."""
        if not isinstance(self.function, str) or self.function not in FUSED:
            return None
        return MapSpec(self.function, omega=self.omega, amplitude=len(self.omega) ** -0.5)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), log scale apart."""
        if self.spec is not None:
            return scaled(x, self.spec)
        xp, amplitude = namespace(x=x), len(self.omega) ** -0.5
        degree = DEGREES.get(self.function) if isinstance(self.function, str) else None
        rows, octaves = nearer(xp, xp.astype(x, accumulation_dtype(xp, x), copy=False), tiny=degree is not None)
        u = projected(rows, self.omega)  # (..., n, m)
        if degree is not None:
            return ScaledFeatures(self._values(xp, u) * amplitude, degree * log(2) * octaves)
        values = self._values(xp, restored(xp, u, octaves))
        return ScaledFeatures(values * amplitude, xp.zeros_like(octaves))

    def _values(self, xp: ModuleType, u: Array) -> Array:
        """Return the function of projections."""
        if isinstance(self.function, str):
            return COMPUTED[self.function](xp, u)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            values = self.function(u)
        if anywhere(xp.isfinite(u) & ~xp.isfinite(values)):
            raise ParameterError(
                f"f must give finite numbers where projections are finite; {shown(self.function)} does not, and their "
                f"largest is {float(xp.max(xp.where(xp.isfinite(u), xp.abs(u), xp.zeros_like(u)))):.3g}"
            )
        return values

    def scaled_key(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), log scale apart."""
        return self.scaled_query(x)

    def redraw(self, rng: RNG = None) -> Self:
        """Return a new map of the same design with fresh frequencies."""
        m, d = self.omega.shape
        return replace(self, omega=_scaled(self.scale, self.projection.factors(m, d, generator(rng))))


def generalized(
    f: str | Callable[[Array], Array],
    dim: int,
    num_features: int,
    *,
    scale: float = 1.0,
    projection: str | Projection = "orthogonal",
    rng: RNG = 0,
) -> Generalized:
    r"""Return :math:`\phi(x) = m^{-1/2} f(\Omega x)`, an elementwise function over random projections.

    The generalised attention of Choromanski et al. (2021). It estimates
    :math:`k(x, y) = E f(\omega^T x) f(\omega^T y)`, whatever that is for the function; for relu and abs these are
    arc-cosine kernels.

    Parameters
    ----------
    f : str or callable
        A name of `kernattn.features.FUNCTIONS`, or a function of an array that acts elementwise, in the library of the
        inputs. Maps with a name can be saved, and the ops fuse some of them.
    dim : int
        Input dimension d.
    num_features : int
        Number m of features, one for each frequency.
    scale : float
        Multiplies the inputs.
    projection : str or Projection
        How the frequencies are drawn.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the frequencies.

    Returns
    -------
    Generalized
        The map.

    Raises
    ------
    ParameterError
        If f is neither a known name nor callable, or a number is out of range; where the map is used, if f gives
        infinity or NaN for finite projections.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.generalized("relu", dim=3, num_features=8)
    >>> phi(np.ones((5, 3))).shape
    (5, 8)
    """
    _check_function(f)
    scale, dim = moderate_number("scale", scale), positive_integer("dim", dim)
    spec = resolve(projection)
    omega = spec.factors(positive_integer("num_features", num_features), dim, generator(rng))
    return Generalized(f, spec, _scaled(scale, omega), scale)


def _check_function(f: Any) -> None:
    if not callable(f) and not (isinstance(f, str) and f in FUNCTIONS):
        raise ParameterError(f"f must be callable or one of {', '.join(FUNCTIONS)}; got {shown(f)}")


def _scaled(scale: float, omega: Float64 | Chains) -> Float64 | Chains:
    return omega.scaled(np.ones(omega.dim), scale) if isinstance(omega, Chains) else frozen(scale * omega)
