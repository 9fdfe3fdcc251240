"""What a feature map is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from os import PathLike
from typing import Any, ClassVar, NamedTuple, Self, final

from kernattn._arrays import graphs as _graphs
from kernattn._arrays.bridge import autocast
from kernattn._arrays.csr import by_blocks, check_csr, is_sparse
from kernattn._arrays.forms import Forms, form_of
from kernattn._arrays.graphs import in_a_graph, traced_as
from kernattn._arrays.hooks import edge
from kernattn._arrays.namespaces import (
    Array,
    Float64,
    check_floating,
    constant,
    like,
    namespace,
    without_flags,
    without_warnings,
)
from kernattn._arrays.plain import on_plain
from kernattn._maps.record import fingerprint, save
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.checks import MOST, summary
from kernattn._runtime.lazy import lazy, without_lazy
from kernattn._runtime.random import RNG
from kernattn._sums.units import multiply_out
from kernattn.errors import EmptyInputError, NoClosedForm, ParameterError, ShapeError
from kernattn.features._base.equality import ByContent
from kernattn.features._base.returned import scaled_features
from kernattn.features._moments.bounds import Terms, certified_number, check_request
from kernattn.features._moments.pairs import flat_pairs, host_pairs
from kernattn.features._moments.tails import Tails
from kernattn.ops.features import OP


class Algebra(NamedTuple):
    """What operators make of maps; `kernattn.features._composite` says it."""

    sum: Callable[..., FeatureMap]
    product: Callable[..., FeatureMap]
    scaled: Callable[[float, FeatureMap], FeatureMap]


class FeatureMap(ByContent):
    r"""A map :math:`\phi` whose inner products estimate a kernel: :math:`\phi(x)^T \phi(y) \approx k(x, y)`.

    A map is a frozen value: it is drawn once, evaluated purely, and redrawn into a new map. To bring one of your own,
    derive a frozen dataclass from this class and give it the abstract members; every form of attention then takes it.

    Maps add and multiply as their kernels do. ``phi1 + phi2`` has the features of both side by side,
    :math:`\phi_1(x)^T \phi_1(y) + \phi_2(x)^T \phi_2(y)`; ``phi1 * phi2`` all products of two,
    :math:`\phi_1(x)^T \phi_1(y)\, \phi_2(x)^T \phi_2(y)`; ``c * phi``, with a positive number c, the features
    :math:`c^{1/2} \phi(x)` of c times the kernel.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.random_features(ka.kernels.Softmax(), dim=64, num_features=256, rng=0)
    Positive(kernel=Softmax(scale=None), projection=Orthogonal(method='qr', norms='chi'), omega=<float64 (256, 64)>)
    """

    _algebra: ClassVar[Algebra]
    _takes_csr: ClassVar[bool] = False  # whether features of sparse rows need no dense ones
    __array_ufunc__ = None  # a NumPy scalar times a map is left to the map
    __getstate__ = without_lazy

    @final
    def __add__(self, other: Any) -> FeatureMap:
        return self._algebra.sum(self, other)

    @final
    def __radd__(self, other: Any) -> FeatureMap:
        return self if type(other) is int and other == 0 else self._algebra.sum(other, self)  # `sum` starts from 0

    @final
    def __mul__(self, other: Any) -> FeatureMap:
        return self._algebra.product(self, other) if isinstance(other, FeatureMap) else self.__rmul__(other)

    @final
    def __rmul__(self, other: Any) -> FeatureMap:
        return self._algebra.scaled(other, self)

    def __repr__(self) -> str:
        """Return the map in a line: its kernel and design, and the shapes of its random numbers."""
        return summary(self)

    @property
    @abstractmethod
    def dim(self) -> int | None:
        """Input dimension d; None where any is taken. Of queries, where keys have another one."""

    @property
    def query_dim(self) -> int | None:
        """Input dimension of queries."""
        return self.dim

    @property
    def key_dim(self) -> int | None:
        """Input dimension of keys."""
        return self.dim

    @abstractmethod
    def num_features_of(self, dim: int) -> int:
        """Return M, the number of features of an input of dimension `dim`."""

    @final
    @property
    def num_features(self) -> int | None:
        """Number M of features; None for a map of any dimension, whose `num_features_of` tells it."""
        return None if self.dim is None else self.num_features_of(self.dim)

    @abstractmethod
    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of queries x (..., n, d), log scale apart, in the accumulation dtype."""

    def scaled_key(self, x: Array) -> ScaledFeatures:
        """Return the features of keys x (..., n, d), log scale apart: those of queries unless a map says otherwise."""
        return self.scaled_query(x)

    @property
    def spec(self) -> MapSpec | None:
        """The map as plain numbers for the fused ops; None where there are two, or the ops take computed features."""
        return None

    @property
    def query_spec(self) -> MapSpec | None:
        """The map of queries as plain numbers; None for one that the ops take as computed features."""
        return self.spec

    @property
    def key_spec(self) -> MapSpec | None:
        """The map of keys as plain numbers; None for one that the ops take as computed features."""
        return self.spec

    @final
    @lazy
    def fingerprint(self) -> int:
        """Fingerprint of the map's content, which the states that it makes carry."""
        return fingerprint(self)

    @final
    @lazy
    def _content(self) -> tuple[str | None, ...]:
        """What a graph knows of the map: the names of its specs, None where features are computed, and of its draw."""
        names = (None if spec is None else spec.content for spec in (self.query_spec, self.key_spec))
        return (*names, f"{type(self).__name__} {self.fingerprint}")

    @final
    @in_a_graph
    def _admit_to_graphs(self) -> bool:
        """Let graphs name the map, whose content and fingerprint they may look at from now on."""
        edge("torch").keep_map(self)
        return True

    @lazy
    def _of_arrays(self) -> bool:
        """Whether functions of arrays compute the features, or what they are computed of."""
        return self.query_spec is None or self.key_spec is None

    @property
    def _is_shared(self) -> bool:
        """Whether queries and keys have the same features."""
        kind = type(self)
        one = kind.query_spec is FeatureMap.query_spec and kind.key_spec is FeatureMap.key_spec
        return one or self.query_spec is self.key_spec

    @final
    @in_a_graph
    def _check_shared(self) -> None:
        """Raise where features are those of queries or of keys, and phi(x) would be taken for both."""
        if not self._is_shared:
            raise ParameterError(
                f"{type(self).__name__} has features of queries and of keys apart: call phi.query(x) or phi.key(x)"
            )

    @final
    @lazy
    def _known_forms(self) -> Forms:
        """Forms of the arrays that this map has taken."""
        return Forms()

    @final
    def _check(self, x: Array, name: str = "x", *, key: bool = False) -> None:
        """Raise unless x is a floating (..., n, d) array of this map's dimension for queries, or for keys."""
        form = form_of(key, x)
        if form not in self._known_forms:
            self._check_rows(x, name, key)
            self._known_forms.add(form)

    @final
    def _check_rows(self, x: Array, name: str, key: bool) -> None:
        dim = self.key_dim if key else self.query_dim
        namespace(**{name: x})
        check_floating(name, x)
        if x.ndim < 2:
            raise ShapeError(f"{name} must be (..., n, d); got shape {tuple(x.shape)}")
        if 0 in x.shape:
            raise EmptyInputError(f"{name} must not be empty; got shape {tuple(x.shape)}")
        if dim is not None and x.shape[-1] != dim:
            raise ShapeError(f"{name} must have d = {dim} columns, as the map was drawn; got shape {tuple(x.shape)}")
        spec = self.key_spec if key else self.query_spec
        self._check_library(name, x)
        if spec is not None:
            spec.check_dtype(name, x)
        if dim is None:
            check_number(self, x.shape[-1])
            if spec is not None:
                spec.check(x.shape[-1])

    def _check_library(self, name: str, x: Array) -> None:
        """Raise where the map holds arrays of another library than that of rows x."""

    def _rows(self, x: Array, mask: Array | None = None) -> Array:
        """Return the rows that the specs are for: where a number that scales them is learnt, 0 behind a mask (...)."""
        return x

    @final
    @traced_as(_graphs.query)
    def query(self, x: Array, *, backend: str | None = None) -> Array:
        """Return the features of queries: (..., n, d) -> (..., n, M), in the dtype of x; x may be CSR, as of a call."""
        return self._evaluate_rows(x, False, backend)

    @final
    @traced_as(_graphs.key)
    def key(self, x: Array, *, backend: str | None = None) -> Array:
        """Return the features of keys: (..., n, d) -> (..., n, M), in the dtype of x; x may be CSR, as of a call."""
        return self._evaluate_rows(x, True, backend)

    @final
    @traced_as(_graphs.features)
    def __call__(self, x: Array, *, backend: str | None = None) -> Array:
        """Return the features of x: (..., n, d) -> (..., n, M), in the dtype of x; of a map that both sides share.

        A CSR matrix (n, d) of SciPy gives NumPy's array: blocks of 2^21 numbers are made dense, none by sketches.
        """
        self._check_shared()
        return self._evaluate_rows(x, False, backend)

    @final
    @on_plain
    def _evaluate_rows(self, x: Any, key: bool, backend: str | None) -> Array:
        """Return the features of an array, or of CSR rows, of which all but few maps see a dense block at a time."""
        if self._takes_csr or not is_sparse(x):
            return self._features(x, key, backend)
        check_csr("x", x, self.key_dim if key else self.query_dim)
        return by_blocks(lambda rows: self._features(rows, key, backend), x, self.num_features_of(x.shape[1]))

    def _project(self, x: Array, matrix: Float64, backend: str | None) -> Array:
        """Return phi(x) matrix, (..., n, k), in the dtype of x; a map may do without features."""
        features = self(x, backend=backend)
        xp = namespace(features=features)
        return xp.matmul(features, constant(xp, matrix, features.dtype, features))

    @final
    @on_plain
    def scaled(self, x: Array) -> ScaledFeatures:
        """Return the features as values and a log scale, which no norm of x overflows."""
        self._check(x)
        return self._scaled_features(x, False)

    @final
    def _scaled_features(self, x: Array, key: bool) -> ScaledFeatures:
        """Return the features of queries or keys, which are checked: anybody may have written the map."""
        return scaled_features(self, x, key)

    def _features(self, x: Array, key: bool, backend: str | None) -> Array:
        (x,) = autocast(x)
        self._check(x, key=key)
        spec = self.key_spec if key else self.query_spec
        if spec is not None:
            return OP.implementation(x, backend)(self._rows(x), spec)
        OP.choose(x, backend)
        return self._compute(x, key)

    @without_flags
    def _compute(self, x: Array, key: bool) -> Array:
        return multiply_out(self._scaled_features(x, key), x)

    def _pullback(self, x: Array) -> Callable[[Array], tuple[Array, Any]]:
        """Return the pullback from cotangents of features of x (n, d) to those of x and of the kernel's lengthscales.

        It is for maps without a spec: the ops differentiate the others. x is of the dtype in which sums over it run.
        """
        raise ParameterError(
            f"phi must be a map with a spec for vjp, or one that has a pullback of its own; {type(self).__name__} has "
            "none. PyTorch and JAX differentiate attention with any map themselves"
        )

    @without_warnings
    @_graphs.outside_graphs
    def mean(self, x: Array, y: Array) -> Array:
        """Return the expectation of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return like(self._mean(*host_pairs(self.dim, x, y)), x)

    @without_warnings
    @_graphs.outside_graphs
    def bias(self, x: Array, y: Array) -> Array:
        """Return the mean less the kernel for rowwise pairs: (..., d), (..., d) -> (...)."""
        return like(self._bias(*host_pairs(self.dim, x, y)), x)

    @without_warnings
    @_graphs.outside_graphs
    def variance(self, x: Array, y: Array) -> Array:
        """Return the variance of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return like(self._variance(*host_pairs(self.dim, x, y)), x)

    def _mean(self, x: Float64, y: Float64) -> Float64:
        """Return the mean of pairs x, y (..., d); a map overrides this and its two siblings, or the public methods."""
        raise NoClosedForm(f"no closed form is known for the mean of {type(self).__name__}")

    def _bias(self, x: Float64, y: Float64) -> Float64:
        raise NoClosedForm(f"no closed form is known for the bias of {type(self).__name__}")

    def _variance(self, x: Float64, y: Float64) -> Float64:
        raise NoClosedForm(f"no closed form is known for the variance of {type(self).__name__}")

    def _terms(self, x: Float64, y: Float64) -> Terms:
        """Return moments and bounds of the estimates of pairs x, y (P, d) at any number of features."""
        raise NoClosedForm(f"no bound on the errors of {type(self).__name__} is known")

    def _tails(self, x: Float64, y: Float64) -> Tails:
        """Return the squared skewness of a term of the estimates of pairs x, y (P, d), and the number of terms."""
        raise NoClosedForm(f"nothing is known of the tails of {type(self).__name__}")

    @final
    @without_warnings
    @_graphs.outside_graphs
    def num_features_for(self, x: Array, y: Array, *, error: float, probability: float) -> int:
        r"""Return an M for which :math:`P(|\phi(x)^T \phi(y) - k(x, y)| < \epsilon \text{ for all}) \ge p` is proven.

        It is the least at which a bound proves it, and not the least that is enough: that can be several times smaller,
        half as large in the example by the central limit theorem. The bounds are
        Hoeffding's, Bernstein's and Chebyshev's inequality over independent blocks of features, whichever is best for a
        pair; where terms are unbounded, as those of exponential features, Chebyshev's with the exact variance alone.
        Over the pairs the probabilities of failure add up. The bias is taken off the error first. Composite maps grow
        by whole multiples of their members' numbers of features.

        Parameters
        ----------
        x, y : (..., d) array
            Rowwise pairs.
        error : float
            The error allowed, absolute, positive.
        probability : float
            The probability p that a fresh draw keeps it for all of the pairs, in (0, 1).

        Returns
        -------
        int
            The number M of features, at least a pair where the map makes pairs.

        Raises
        ------
        ParameterError
            If a number is out of range, the bias alone exceeds the error, or no number of features is enough.
        NoClosedForm
            If the bias is not known, or neither is the variance nor are there bounded terms in independent blocks.

        Examples
        --------
        >>> import numpy as np
        >>> import kernattn as ka
        >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=4, num_features=2, projection="iid", rng=0)
        >>> x = np.ones((1, 4))
        >>> phi.num_features_for(x, -x, error=0.1, probability=0.99)
        1132
        """
        check_request(error, probability)
        pair = flat_pairs(self.dim, x, y)
        return certified_number(self._terms(*pair), error, probability)

    @abstractmethod
    def redraw(self, rng: RNG = None) -> Self:
        """Return a new map of the same design with fresh random numbers; a deterministic map returns itself."""

    @final
    def save(self, path: str | PathLike[str]) -> None:
        """Write the map to an .npz file (no pickle), whole or not at all; `kernattn.load` reads it.

        It is written under a temporary name beside `path` first. A process that is killed outright leaves that file,
        ``.kernattn-*.tmp``, which nothing reads. The first file that a later process writes there removes it, an hour
        after the kill.
        """
        save(self, path)


def check_number(phi: FeatureMap, dim: int) -> None:
    """Raise where a map gives more features than an axis can have."""
    if phi.num_features_of(dim) > MOST:
        raise ParameterError(f"{type(phi).__name__} must give less than 2**31 features; it gives more at d = {dim}")
