"""Elementwise functions over random projections, times a factor of the row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import log
from types import ModuleType
from typing import Any, Self, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, accumulation_dtype, anywhere, frozen, namespace
from kernattn._maps.chains import Chains
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.checks import moderate_number, positive_integer, shown
from kernattn._runtime.lazy import lazy
from kernattn._runtime.random import RNG, generator
from kernattn._sums.units import clip_huge, restore, scaled_down
from kernattn.errors import ParameterError, ShapeError
from kernattn.features._base.map import FeatureMap
from kernattn.features._spectral.map import check_frequencies
from kernattn.ops.features import project, scaled
from kernattn.projections import Projection, resolve

Function = str | Callable[[Array], Array]


def _sigmoid(xp: ModuleType, u: Array) -> Array:
    small = xp.exp(-xp.abs(u))
    return xp.where(u >= 0, xp.ones_like(u), small) / (1 + small)


FUSED = {  # which are kinds of MapSpec
    ("cos",): "cos",
    ("cos", "sin"): "sincos",
    ("elu1",): "elu1",
    ("exp",): "exp",
    ("exp", "exp_minus"): "exp_pair",
    ("relu",): "relu",
}
COMPUTED: dict[str, Callable[[ModuleType, Array], Array]] = {
    "abs": lambda xp, u: xp.abs(u),
    "cos": lambda xp, u: xp.cos(u),
    "elu1": KINDS["elu1"].formula,
    "exp": lambda xp, u: xp.exp(u),
    "exp_minus": lambda xp, u: xp.exp(-u),
    "relu": KINDS["relu"].formula,
    "sigmoid": _sigmoid,
    "sin": lambda xp, u: xp.sin(u),
    "square": lambda xp, u: u * u,
    "tanh": lambda xp, u: xp.tanh(u),
}
DEGREES = {"abs": 1, "square": 2}  # of functions whose argument's size comes out as a factor
FUNCTIONS = tuple(sorted(COMPUTED))
EXPONENTS = {"gaussian": -0.5, "inverse_gaussian": 0.5}  # of |x|^2
ROW_FACTORS = tuple(EXPONENTS)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Generalized(FeatureMap):
    r""":math:`\phi(x) = h(x)\, m^{-1/2} [f_1(\Omega x), \dots, f_l(\Omega x)]`; see :func:`generalized`."""

    function: Function | tuple[Function, ...]
    projection: Projection
    omega: Float64 | Chains  # (m, d), the scale folded in
    scale: float
    h: str | Callable[[Array], Array] | None = field(default=None, metadata={"later": "than files of 0.1.0"})

    def __post_init__(self) -> None:
        _check_functions(self.function, self.h)
        check_frequencies(self.projection, self.omega)
        object.__setattr__(self, "scale", moderate_number("scale", self.scale))

    @property
    def dim(self) -> int:
        return int(self.omega.shape[1])

    def num_features_of(self, dim: int) -> int:
        positive_integer("dim", dim)
        return len(self._functions) * int(self.omega.shape[0])

    @property
    def _functions(self) -> tuple[Function, ...]:
        return self.function if isinstance(self.function, tuple) else (self.function,)

    @lazy
    def spec(self) -> MapSpec | None:
        """The map as plain numbers where its functions are those that the ops know, else None."""
        named = tuple(f for f in self._functions if isinstance(f, str))
        kind = FUSED.get(named) if len(named) == len(self._functions) else None
        if kind is None or callable(self.h) or (self.h is not None and KINDS[kind].scale == "none"):
            return None
        weights = None if self.h is None else np.full(self.dim, EXPONENTS[self.h] * self.scale**2)
        return MapSpec(kind, omega=self.omega, row_weights=weights, amplitude=len(self.omega) ** -0.5)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        if self.spec is not None:
            return scaled(x, self.spec)
        xp, amplitude = namespace(x=x), len(self.omega) ** -0.5
        x = xp.astype(x, accumulation_dtype(xp, x), copy=False)
        degree = DEGREES.get(self.function) if isinstance(self.function, str) else None
        rows, octaves = scaled_down(xp, x, tiny=degree is not None)
        u = project(rows, self.omega)  # (..., n, m)
        if degree is not None:
            values, log_scale = COMPUTED[str(self.function)](xp, u), degree * log(2) * octaves
        else:
            u = restore(xp, u, octaves)
            parts = [_values(xp, "f", f, u) for f in self._functions]
            values, log_scale = parts[0] if len(parts) == 1 else xp.concat(parts, axis=-1), xp.zeros_like(octaves)
        if isinstance(self.h, str):
            squares = xp.sum((self.scale * x) ** 2, axis=-1, keepdims=True)
            log_scale = log_scale + clip_huge(xp, EXPONENTS[self.h] * clip_huge(xp, squares))
        elif self.h is not None:
            values = values * _factors(xp, self.h, self.scale * x)
        return ScaledFeatures(values * amplitude, log_scale)

    def redraw(self, rng: RNG = None) -> Self:
        m, d = self.omega.shape
        return replace(self, omega=_scale_frequencies(self.scale, self.projection.factors(m, d, generator(rng))))


def generalized(
    f: Function | tuple[Function, ...],
    dim: int,
    num_features: int,
    h: str | Callable[[Array], Array] | None = None,
    *,
    scale: float = 1.0,
    projection: str | Projection = "orthogonal",
    rng: RNG = None,
) -> Generalized:
    r"""Return :math:`\phi(x) = h(x)\, m^{-1/2} [f_1(\Omega x), \dots, f_l(\Omega x)]`, functions of random projections.

    Choromanski et al. (2021), equation 5, with one :math:`\Omega` for all l functions. It estimates
    :math:`k(x, y) = h(x) h(y) \sum_i E f_i(\omega^T x) f_i(\omega^T y)`, whatever that is for the functions:

    - ``("cos", "sin")`` with h "inverse_gaussian", :math:`e^{|x|^2/2}`, is :class:`Trigonometric` of
      :math:`e^{x^T y}`;
    - ``"exp"`` with h "gaussian", :math:`e^{-|x|^2/2}`, is :class:`Positive` of that kernel, and
      ``("exp", "exp_minus")`` is :class:`Hyperbolic` times :math:`\sqrt 2`;
    - one "relu", or "abs", gives arc-cosine kernels.

    Parameters
    ----------
    f : str, callable, or a tuple of these
        Names of `kernattn.features.FUNCTIONS`, or functions of an array that act elementwise, in the library of the
        inputs. Maps of names can be saved, and the ops fuse some of them.
    dim : int
        Input dimension d.
    num_features : int
        Number M = l m of features, one for each frequency and function.
    h : str or callable, optional
        A factor of each row x, already times `scale`: a name of `kernattn.features.ROW_FACTORS`, which no norm
        overflows, or a function of rows (..., n, d) that gives (..., n) or (..., n, 1); by default 1.
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
        If f or h is neither a known name nor callable, num_features is no multiple of l, or a number is out of range;
        where the map is used, if a function gives infinity or NaN for finite numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.generalized("relu", dim=3, num_features=8, rng=0)
    >>> phi(np.ones((5, 3))).shape
    (5, 8)
    >>> x = np.array([[0.3, 0.1, -0.2]])
    >>> own = ka.features.generalized((np.cos, np.sin), 3, 8, lambda x: np.exp(np.sum(x**2, axis=-1) / 2), rng=0)
    >>> named = ka.random_features(ka.kernels.Softmax(scale=1.0), 3, 8, "trigonometric", rng=0)
    >>> bool(np.allclose(own(x), named(x)))
    True
    """
    _check_functions(f, h)
    scale, dim = moderate_number("scale", scale), positive_integer("dim", dim)
    spec, count = resolve(projection), len(f) if isinstance(f, tuple) else 1
    m, rest = divmod(positive_integer("num_features", num_features), count)
    if rest:
        raise ParameterError(f"num_features must be a multiple of {count}, the number of functions; got {num_features}")
    omega = spec.factors(m, dim, generator(rng))
    return Generalized(f, spec, _scale_frequencies(scale, omega), scale, h)


def _values(xp: ModuleType, name: str, function: Function, u: Array) -> Array:
    """Return a function of projections; raise where one's own makes of finite numbers others."""
    if isinstance(function, str):
        with np.errstate(over="ignore", under="ignore"):
            return COMPUTED[function](xp, u)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        values = function(u)
    if anywhere(xp.isfinite(u) & ~xp.isfinite(values)):
        raise ParameterError(
            f"{name} must give finite numbers where projections are finite; {shown(function)} does not, and their "
            f"largest is {float(xp.max(xp.where(xp.isfinite(u), xp.abs(u), xp.zeros_like(u)))):.3g}"
        )
    return values


def _factors(xp: ModuleType, h: Callable[[Array], Array], x: Array) -> Array:
    """Return one's own factors of rows x (..., n, d), as (..., n, 1)."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        factors = h(x)
    shape = tuple(x.shape[:-1])
    if tuple(factors.shape) not in (shape, (*shape, 1)):
        raise ShapeError(f"h must give a number for each row, {shape} or {(*shape, 1)}; got {tuple(factors.shape)}")
    factors = xp.reshape(factors, (*shape, 1))
    if anywhere(xp.all(xp.isfinite(x), axis=-1, keepdims=True) & ~xp.isfinite(factors)):
        raise ParameterError(f"h must give finite numbers where rows are finite; {shown(h)} does not")
    return factors


def _check_functions(f: Any, h: Any) -> None:
    for each in f if isinstance(f, tuple) and f else (f,):
        if not callable(each) and not (isinstance(each, str) and each in FUNCTIONS):
            raise ParameterError(f"f must be callable or one of {', '.join(FUNCTIONS)}; got {shown(each)}")
    if h is not None and not callable(h) and not (isinstance(h, str) and h in ROW_FACTORS):
        raise ParameterError(f"h must be callable, None or one of {', '.join(ROW_FACTORS)}; got {shown(h)}")


def _scale_frequencies(scale: float, omega: Float64 | Chains) -> Float64 | Chains:
    return omega.scale(np.ones(omega.dim), scale) if isinstance(omega, Chains) else frozen(scale * omega)
