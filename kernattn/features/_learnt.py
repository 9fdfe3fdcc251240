"""Maps some of whose numbers are given anew, to be learnt by whatever differentiates arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, final

import array_api_compat as compat
import numpy as np

from kernattn._arrays.graphs import in_a_graph, traceable
from kernattn._arrays.namespaces import (
    Array,
    accumulation_dtype,
    check_floating,
    constant,
    namespace,
    to_numpy64,
    zero_masked,
)
from kernattn._maps.chains import Chains
from kernattn._maps.learnt import NUMBERS, LearntSpec
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.checks import instance_of, shown
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.lazy import lazy
from kernattn._runtime.random import RNG
from kernattn.errors import ParameterError, ShapeError
from kernattn.features._base.map import FeatureMap
from kernattn.features._spectral.map import RandomFeatureMap
from kernattn.kernels import Softmax, Stationary
from kernattn.ops.features import scaled


@final
@dataclass(frozen=True, eq=False, repr=False)
class LearntMap(FeatureMap):
    r"""A map :math:`\phi` with arrays in place of some of its numbers, as `kernattn.with_numbers` makes it.

    Attributes
    ----------
    base : FeatureMap
        The map that says all other numbers. States carry its fingerprint.
    numbers : dict of str to array
        The arrays, by name.
    """

    base: FeatureMap
    numbers: dict[str, Array]

    def __post_init__(self) -> None:
        """Take the draw of the base."""
        object.__setattr__(self, "fingerprint", self.base.fingerprint)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the draw of the base in a copy, which computes lazy attributes anew."""
        vars(self).update(state)
        self.__post_init__()

    @property
    def dim(self) -> int | None:
        return self.base.dim

    def num_features_of(self, dim: int) -> int:
        return self.base.num_features_of(dim)

    @property
    def query_dim(self) -> int | None:
        return self.base.query_dim

    @property
    def key_dim(self) -> int | None:
        return self.base.key_dim

    @property
    def _of_arrays(self) -> bool:
        return True

    @property
    def _is_shared(self) -> bool:
        return self.base._is_shared

    @property
    def query_spec(self) -> MapSpec | None:
        return self.base.query_spec if self.base.spec is None else self.spec

    @property
    def key_spec(self) -> MapSpec | None:
        return self.base.key_spec if self.base.spec is None else self.spec

    @property
    def spec(self) -> MapSpec | None:
        """The map as plain numbers and arrays; None where queries and keys have two, whose rows are scaled."""
        number = kernel_number(self)
        # what a framework computes belongs to the gradient mode, the trace or the graph of the call, and is not kept
        return self._spec if number is None or isinstance(number, np.ndarray) else self._make_spec()

    @lazy
    def _spec(self) -> MapSpec | None:
        return self._make_spec()

    def _make_spec(self) -> MapSpec | None:
        spec = self.base.spec
        if spec is None:
            return None
        given = spec_numbers(self)
        if not given:
            return spec
        if not any(compat.is_torch_array(number) or compat.is_jax_array(number) for number in given.values()):
            plain: dict[str, Any] = {name: to_numpy64(number) for name, number in given.items()}
            return replace(spec, **plain)
        numbers = {name: getattr(spec, name) for name in NUMBERS} | given
        kept = {name: getattr(spec, name) for name in ("amplitude", "row_form", "normalised")}
        return LearntSpec(spec.kind, **kept, base=spec, **numbers)

    def _rows(self, x: Array, mask: Array | None = None) -> Array:
        """Return rows scaled as the kernel's new number asks, where frequencies are factors and cannot be.

        What a mask hides is 0: the number's gradient has products of rows and their cotangents, of NaN and 0.
        """
        return x if kernel_folds(self) else times(zero_masked(x, mask), kernel_ratio(self))

    def _check_library(self, name: str, x: Array) -> None:
        """Raise unless x is of the library of the numbers; those of NumPy serve arrays of every library."""
        number = next(iter(self.numbers.values()))
        if not isinstance(number, np.ndarray):
            namespace(**{name: x}, phi=number)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        assert self.query_spec is not None
        return scaled(self._rows(x), self.query_spec)

    def scaled_key(self, x: Array) -> ScaledFeatures:
        assert self.key_spec is not None
        return scaled(self._rows(x), self.key_spec)

    def redraw(self, rng: RNG = None) -> Self:
        """Raise: what is learnt is not drawn."""
        raise ParameterError("a map with numbers of its own is not redrawn: redraw the map that it was made of")


def beside(x: Array, number: Array) -> Array:
    """Return a number of a map in the dtype in which sums over x run; NumPy's as an array of the library of x."""
    xp = namespace(x=x)
    wide = accumulation_dtype(xp, x)
    return constant(xp, number, wide, x) if isinstance(number, np.ndarray) else xp.astype(number, wide, copy=False)


def times(x: Array, number: Array) -> Array:
    """Return rows times a number of a map, in their dtype."""
    xp = namespace(x=x)
    return xp.astype(xp.astype(x, accumulation_dtype(xp, x), copy=False) * beside(x, number), x.dtype)


def part_from_scale(phi: FeatureMap) -> tuple[FeatureMap, Array | None]:
    """Return a map as it is without a learnt scale, and by what rows are multiplied in its place; None for nothing.

    Rows that are multiplied give any function of :math:`s q^T k` the scale, features and exact scores alike.
    """
    if not isinstance(phi, LearntMap) or "scale" not in phi.numbers:
        return phi, None
    rest = {name: number for name, number in phi.numbers.items() if name != "scale"}
    return LearntMap(phi.base, rest) if rest else phi.base, kernel_ratio(phi)


def spec_numbers(phi: LearntMap) -> dict[str, Array]:
    """Return the arrays that stand for numbers of the spec, those of the kernel folded in."""
    given, spec = dict(phi.numbers), phi.base.spec
    assert spec is not None
    given.pop("lengthscale", None)
    given.pop("scale", None)
    ratio = kernel_ratio(phi) if kernel_folds(phi) else None
    if ratio is not None:
        for name, power in (("omega", 1), ("row_weights", 2)):
            number = given.get(name, getattr(spec, name))
            if number is not None:
                host = isinstance(number, np.ndarray)
                number = constant(namespace(ratio=ratio), number, ratio.dtype, ratio) if host else number
                given[name] = number * ratio**power
    return given


def kernel_number(phi: LearntMap) -> Array | None:
    """Return the lengthscale or the scale that was given, None where neither was."""
    return phi.numbers.get("lengthscale", phi.numbers.get("scale"))


def kernel_folds(phi: LearntMap) -> bool:
    """Whether the kernel's number can be folded into the frequencies; else rows are scaled by it."""
    return kernel_number(phi) is None or can_fold(phi.base)


@in_a_graph
def can_fold(base: FeatureMap) -> bool:
    """Whether the frequencies of a map are a matrix that takes another scale, and nothing else stands beside it."""
    spec = base.spec
    return not (spec is None or isinstance(spec.omega, Chains) or spec.row_form is not None)


def kernel_ratio(phi: LearntMap) -> Array | None:
    """Return by how much inputs (d,) are larger than the frequencies were folded for; None where they are not."""
    number = kernel_number(phi)
    if number is None:
        return None
    xp = namespace(number=number)
    base: Any = phi.base
    before = constant(xp, 1 / base.kernel.input_scale(base.dim), number.dtype, number)
    return before / number if "lengthscale" in phi.numbers else xp.sqrt(number) * before


@traceable("with_numbers")
@told_keywords
def with_numbers(
    phi: FeatureMap,
    *,
    omega: Array | None = None,
    offset: Array | None = None,
    row_weights: Array | None = None,
    lengthscale: Array | None = None,
    scale: Array | None = None,
) -> LearntMap:
    r"""Return :math:`\phi` with arrays in place of some of its numbers, through which gradients pass.

    Every function takes the map in place of `phi`. Tensors of PyTorch that require a gradient and arrays of JAX that
    are differentiated are learnt by their framework; of NumPy's arrays `kernattn.vjp` returns the cotangents. The map
    costs a pass over the numbers a call: make it anew where arrays have changed, as in every call of a module's
    `forward`.

    Parameters
    ----------
    phi : FeatureMap
        A map with one spec, whose other numbers stay.
    omega : (D, d) array, optional
        Frequencies in place of `phi.spec.omega`: the kernel's input scale is a part of them.
    offset : (M,) array, optional
        In place of `phi.spec.offset`.
    row_weights : (d,) array, optional
        In place of `phi.spec.row_weights`.
    lengthscale : () or (d,) array, optional
        In place of the kernel's, of a stationary kernel, with all that was drawn held.
    scale : () array, optional
        In place of that of the softmax kernel, likewise.

    Returns
    -------
    LearntMap
        The map.

    Raises
    ------
    ParameterError
        If no array is given, or the map has not the numbers.
    DTypeError, ShapeError, MixedLibraryError
        If what is given are not floating arrays of one library, of the numbers' shapes.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.random_features(ka.kernels.Softmax(), dim=4, num_features=8, rng=0)
    >>> learnt = ka.with_numbers(phi, omega=phi.spec.omega / 2)
    >>> out, pullback = ka.vjp(ka.linear_attention, *np.ones((3, 5, 4)), learnt)
    >>> pullback(out).phi.omega.shape
    (8, 4)
    """
    named = {"omega": omega, "offset": offset, "row_weights": row_weights, "lengthscale": lengthscale, "scale": scale}
    given = {name: _as_array(number) for name, number in named.items() if number is not None}
    _check(phi, given)
    return LearntMap(phi, given)


def _as_array(number: Array) -> Array:
    """Return a scalar of NumPy as the array () that it was: NumPy's arithmetic makes scalars of such arrays."""
    return np.asarray(number) if isinstance(number, np.generic) else number


def _check(phi: FeatureMap, given: dict[str, Array]) -> None:
    instance_of("phi", phi, FeatureMap)
    if not given:
        raise ParameterError("with_numbers needs an array: omega, offset, row_weights, lengthscale or scale")
    if isinstance(phi, LearntMap):
        raise ParameterError("phi must be a map as it was drawn; got one with numbers: give all arrays at once")
    if phi.query_spec is None or phi.key_spec is None:
        raise ParameterError(f"phi must be a map with a spec; {type(phi).__name__} has none")
    namespace(**given)
    for name, number in given.items():
        if why := what_it_lacks(phi, name):
            raise ParameterError(f"{name} needs {why}; got {shown(phi)}")
        check_floating(name, number)
        shapes = number_shapes(phi, name)
        if tuple(number.shape) not in shapes:
            raise ShapeError(f"{name} must have shape {' or '.join(map(str, shapes))}; got {tuple(number.shape)}")
        if isinstance(number, np.ndarray):
            if name not in NUMBERS and not np.all(number > 0):  # NaN included
                raise ParameterError(f"{name} must be positive; got {shown(number.tolist())}")
            if not np.all(np.isfinite(number)):
                raise ParameterError(f"{name} must hold finite numbers; it holds infinite ones, or NaN")


@in_a_graph
def number_shapes(phi: FeatureMap, name: str) -> tuple[tuple[int | None, ...], ...]:
    """Return the shapes that a number of that name may have; none where the map has no such number."""
    if what_it_lacks(phi, name):
        return ()
    if name in NUMBERS:
        return (tuple(getattr(phi.spec, name).shape),)
    return ((),) if name == "scale" else ((), (phi.dim,))


def what_it_lacks(phi: FeatureMap, name: str) -> str | None:
    """Return the property that a map lacks for its number of that name to be learnt; None if it lacks none."""
    spec, kernel = phi.spec, getattr(phi, "kernel", None)
    if name in NUMBERS:
        if spec is None or getattr(spec, name) is None:
            return f"a map with one spec that has {name}"
        return (
            "frequencies that are a matrix, not chains of Hadamard transforms" * isinstance(spec.omega, Chains) or None
        )
    wanted: type = Softmax if name == "scale" else Stationary
    if isinstance(phi, RandomFeatureMap) and isinstance(kernel, wanted):
        return None
    return f"a random feature map of {'the softmax kernel' if name == 'scale' else 'a kernel with a lengthscale'}"
