"""The language between feature maps and ops: what a fused op has to know of a map, and what a map's output is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import FLOATS, Array, Float64, dtype_name
from kernattn._maps.chains import Chains
from kernattn._maps.kinds import KINDS
from kernattn._runtime.checks import host_form, instance_of, one_of, positive_number, summary
from kernattn._runtime.lazy import lazy, without_lazy
from kernattn.errors import DTypeError, ParameterError, ShapeError


@dataclass(frozen=True, eq=False, repr=False)
class QuadraticForm:
    r"""A quadratic form in a row beside a linear one: :math:`l^T x - \frac12 |F (x - c)|^2`.

    Attributes
    ----------
    factor : (r, d) float64 array
        F.
    centre : (d,) float64 array
        c, which is taken off before anything is squared.
    linear : (d,) float64 array
        l.
    """

    factor: Float64
    centre: Float64
    linear: Float64

    def __post_init__(self) -> None:
        host_form("factor", self.factor, ("r", "d"))
        for name in ("centre", "linear"):
            host_form(name, getattr(self, name), self.factor.shape[1:])

    __repr__ = summary


@dataclass(frozen=True, eq=False, repr=False)
class MapSpec:
    r"""A feature map as plain numbers.

    With :math:`u = \Omega x` (or :math:`u = x` where `omega` is None) and :math:`r = \sum_i w_i x_i^2`, to which
    `row_form` is added, the features of row :math:`x` are `amplitude` times what the table says; where the map is
    `normalised`, those over their sum, in which r cancels.

    ========  =============================================  ==================
    kind      features                                       log scale
    ========  =============================================  ==================
    elu1      :math:`u + 1` for :math:`u > 0`, else e^u      none
    relu      :math:`\max(u, 0)`                             none
    cos       :math:`e^r \cos(u + offset)`                   per row, r
    sincos    :math:`e^r [\cos u, \sin u]`                   per row, r
    exp       :math:`\exp(u + offset + r)`                   per feature
    exp_pair  :math:`\exp([u, -u] + offset + r)`             per feature
    ========  =============================================  ==================

    Attributes
    ----------
    kind : str
        The nonlinearity, one of `kernattn._maps.kinds.KINDS`.
    omega : (D, d) float64 array, Chains or None
        Frequencies, the kernel's input scale folded in; Chains are the factors of such an array, and stand for it.
    row_weights : (d,) float64 array or None
        The weights :math:`w` of the row's log scale.
    offset : (M,) float64 array or None
        Phases of "cos", log offsets of "exp" and "exp_pair".
    amplitude : float
        Multiplies every feature; positive.
    row_form : QuadraticForm or None
        What else the row's log scale has, where its squares are not those of single entries.
    normalised : bool
        Whether the features of a row, of kind "exp" or "exp_pair", are divided by their sum: a softmax over features.
        There are no `row_weights` and no `row_form` then, and an `omega` of rows.
    """

    kind: str
    omega: Float64 | Chains | None = None
    row_weights: Float64 | None = None
    offset: Float64 | None = None
    amplitude: float = 1.0
    row_form: QuadraticForm | None = None
    normalised: bool = False
    _of_arrays: ClassVar[bool] = False  # True where numbers are arrays of a framework, which no loop reads

    def __post_init__(self) -> None:
        one_of("kind", self.kind, KINDS)
        positive_number("amplitude", self.amplitude)
        if self.normalised:
            self._check_normalised()
        if self.omega is None:
            self._check("d", "M")
            return
        if not isinstance(self.omega, Chains):
            host_form("omega", self.omega, ("D", "d"))
        self._check(self.omega.shape[1], self.num_features_of(self.omega.shape[1]))

    __repr__ = summary
    __getstate__ = without_lazy

    def check(self, dim: int) -> None:
        """Raise unless the parts are for rows of that dimension: loops read as far as it says."""
        if self.dim not in (None, dim):
            raise ShapeError(f"the map is for rows of d = {self.dim}; got d = {dim}")
        self._check(dim, self.num_features_of(dim))

    def check_dtype(self, name: str, x: Array) -> None:
        """Raise unless the dtype in which rows x are summed holds the map's numbers."""
        if (dtype := dtype_name(x)) != "float64" and self.largest > FLOATS["float32"]:
            raise DTypeError(
                f"{name} must be float64 for a map whose numbers, up to {self.largest:.1e}, float32 does not hold; "
                f"got {dtype}"
            )

    def _check_normalised(self) -> None:
        if not self.per_feature or not isinstance(self.omega, np.ndarray):
            raise ParameterError('a normalised map must be of kind "exp" or "exp_pair", and have an array as omega')
        if self.row_weights is not None or self.row_form is not None:
            raise ParameterError("a normalised map must have no row_weights and no row_form: they would cancel")

    def _check(self, dim: int | str, features: int | str) -> None:
        if self.row_weights is not None:
            host_form("row_weights", self.row_weights, (dim,))
        if self.offset is not None and KINDS[self.kind].offset != "none":
            host_form("offset", self.offset, (features,))
        if self.row_form is not None:
            instance_of("row_form", self.row_form, QuadraticForm)
            host_form("factor", self.row_form.factor, ("r", dim))

    @lazy
    def largest(self) -> float:
        """The largest size of the map's numbers; of chains, that of a row."""
        omega = np.sqrt(self.omega.square_norms) if isinstance(self.omega, Chains) else self.omega
        form = () if self.row_form is None else (self.row_form.factor, self.row_form.centre, self.row_form.linear)
        parts = [part for part in (omega, self.row_weights, self.offset, *form) if part is not None]
        return max([self.amplitude, *(float(np.max(np.abs(part), initial=0.0)) for part in parts)])

    @property
    def log_amplitude(self) -> Float64:
        """The logarithm of the amplitude, () float64."""
        return np.log(np.asarray(self.amplitude, dtype=np.float64))

    @lazy
    def unprojected(self) -> MapSpec:
        """The map without its frequencies, for an op that brings the projections."""
        return replace(self, omega=None, normalised=False)

    @lazy
    def nonlinear(self) -> MapSpec:
        """The map of projections whose rows' log scales come from elsewhere."""
        return replace(self, omega=None, row_weights=None, row_form=None, normalised=False)

    @lazy
    def unscaled(self) -> MapSpec:
        """The map without its rows' log scales, which cancel between the features of a query."""
        if self.row_weights is None and not self.scales_apart:
            return self
        return replace(self, row_weights=None, row_form=None, normalised=False)

    @lazy
    def direct(self) -> bool:
        """Do loops read rows as they are, and compute of them whatever else the map needs?"""
        return not self.scales_apart and not isinstance(self.omega, Chains)

    @property
    def scales_apart(self) -> bool:
        """Has the row's log scale parts that no loop computes of the rows that it reads?"""
        return self.row_form is not None or self.normalised

    @lazy
    def content(self) -> str:
        """A name by which equal maps are equal."""
        digest = blake2b(digest_size=16)
        for part in _parts(self):
            digest.update(part)
        return digest.hexdigest()

    @lazy
    def prepared(self) -> dict[Any, Any]:
        """What compiled ops have made of the map, by what they ask with: it is kept as long as the map."""
        return {}

    @property
    def dim(self) -> int | None:
        """Input dimension d; None for a map of any dimension."""
        return None if self.omega is None else self.omega.shape[1]

    def num_features_of(self, dim: int) -> int:
        """Return M, the number of features of an input of dimension `dim`."""
        frequencies = dim if self.omega is None else self.omega.shape[0]
        return KINDS[self.kind].parts * frequencies

    @property
    def per_feature(self) -> bool:
        """Is there a log scale for every feature, or one for the row?"""
        return KINDS[self.kind].per_feature


def _parts(value: Any) -> Iterator[bytes]:
    """Return a key of a value of a spec."""
    if is_dataclass(value):
        for field in fields(value):
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, np.ndarray):
        yield from (str(value.shape).encode(), value.tobytes())
    else:
        yield repr(value).encode()


class ScaledFeatures(NamedTuple):
    r"""Features as :math:`\phi = values \cdot e^{log\_scale}`, so that no norm of the input overflows or underflows.

    A log scale per row is (..., n, 1) beside values (..., n, M); one per feature is :math:`\log\phi` itself,
    (..., n, M), beside values of ones (..., n, 1).
    """

    values: Array
    log_scale: Array
