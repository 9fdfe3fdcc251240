"""Sums over rows of features and their products, which is all that the solvers need of data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
from scipy import sparse

from kernattn._array import (
    Array,
    Float64,
    constant,
    dtype_name,
    frozen,
    namespace,
    on_host,
    to_numpy64,
)
from kernattn._check import check_room, instance_of, one_of, positive_integer, shown, whole_number
from kernattn.errors import ParameterError, ShapeError, StateMismatchError
from kernattn.features import FeatureMap
from kernattn.ops.gram import OP as GRAM
from kernattn.solvers._check import check_beside, check_finite, check_map_takes, refuse, strips

__all__ = ["PRODUCTS", "Moments", "Rows", "add_to", "checked_rows", "initial_moments", "merge", "moments", "sums_of"]

PRODUCTS = "float64", "float32"


@final
@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    r"""Sums over rows, :math:`G = \sum_i w_i \phi(x_i) \phi(x_i)^T` and those beside it, with which solvers work.

    They are values in float64 on the host: sums of disjoint rows add up, in any order, by ``a + b`` or `merge`.

    Attributes
    ----------
    phi : FeatureMap
        The map, of M features.
    n : int
        Number of rows; of those whose weight is not 0, where there are weights.
    weight : float
        Sum of the weights: n where there are none.
    weighted : bool
        Whether a weight was neither 0 nor 1.
    s : (M,) numpy.ndarray
        Sum of the features.
    gram : (M, M) numpy.ndarray
        Sum of their outer products, G.
    cross : (M, c) numpy.ndarray
        Sum of outer products of features and targets, B; c is 0 where there are no targets.
    y_sum : (c,) numpy.ndarray
        Sum of the targets.
    y_gram : (c, c) numpy.ndarray
        Sum of their outer products.
    vector : bool
        Whether targets came as (n,).
    products : {"float64", "float32"}
        In which dtype rows were multiplied.
    """

    phi: FeatureMap
    n: int
    weight: float
    weighted: bool
    s: Float64
    gram: Float64
    cross: Float64
    y_sum: Float64
    y_gram: Float64
    vector: bool
    products: str

    def __repr__(self) -> str:
        """Return the sizes."""
        return f"Moments(n={self.n}, num_features={len(self.s)}, targets={len(self.y_sum)}, phi={self.phi!r})"

    @property
    def fingerprint(self) -> int:
        """Fingerprint of the map."""
        return self.phi.fingerprint

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the rows of both."""
        return merge(self, other)


def moments(
    phi: FeatureMap,
    x: Array,
    y: Array | None = None,
    *,
    weights: Array | None = None,
    products: str = "float64",
    backend: str | None = None,
) -> Moments:
    r"""Return the sums that solvers need of rows: :math:`\sum \phi`, :math:`\Phi^T \Phi`, :math:`\Phi^T Y` and more.

    With weights, each row counts that many times. Features are made a block of rows at a time, in the dtype of x at
    least, and never held at once: memory is O(M^2) beside the data. `accumulate` takes rows that come in blocks.

    Parameters
    ----------
    phi : FeatureMap
        The map; of an asymmetric one, the queries' features.
    x : (n, d) array
        Rows; for sketches of polynomials also a CSR matrix of SciPy, which is never made dense.
    y : (n,) or (n, c) array, optional
        Targets, of a real floating dtype.
    weights : (n,) array, optional
        Weights of the rows, 0 or more: how often each counts, or one over the variance of its noise.
    products : {"float64", "float32"}
        In which dtype rows are multiplied. With float32, up to 8,192 rows are summed in it, and these sums in float64:
        faster, and of G only eigenvalues well above 1e-7 of the largest mean anything.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.

    Returns
    -------
    Moments
        The sums, float64 on the host.

    Raises
    ------
    DTypeError, ShapeError, EmptyInputError, MixedLibraryError, BackendUnavailable
        Before any work, if an argument does not fit.
    ParameterError
        Before any work, if rows hold NaN or infinity, or a weight is negative; or if features are beyond their dtype.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((1000, 3))
    >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=3, num_features=64, rng=0)
    >>> whole = ka.solvers.moments(phi, x, x[:, 0])
    >>> halves = ka.solvers.moments(phi, x[:300], x[:300, 0]) + ka.solvers.moments(phi, x[300:], x[300:, 0])
    >>> np.allclose(whole.gram, halves.gram), halves.n
    (True, 1000)
    """
    return sums_of(checked_rows(phi, x, y, weights, products, backend))


def initial_moments(phi: FeatureMap, targets: int | None = None, *, dim: int | None = None) -> Moments:
    """Return the moments of no rows, every sum 0: what `merge` may begin with.

    Parameters
    ----------
    phi : FeatureMap
        The map.
    targets : int, optional
        Number c of columns of targets (n, c); 0 for targets (n,). None where there are none.
    dim : int, optional
        Columns d of the rows, for a map that takes any.

    Returns
    -------
    Moments
        The sums, all 0.

    Raises
    ------
    DTypeError, ParameterError
        If an argument does not fit.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.solvers.initial_moments(ka.features.elu1(), dim=4).gram.shape
    (4, 4)
    """
    instance_of("phi", phi, FeatureMap)
    if phi.dim is None and dim is None:
        raise ParameterError("dim must be given for a map of any dimension; got None")
    m = phi.num_features_of(positive_integer("dim", phi.dim if dim is None else dim))
    if targets is not None:
        targets = whole_number("targets", targets) and positive_integer("targets", targets)
    c = 0 if targets is None else max(targets, 1)
    check_room("the moments", (m + c, m + c))
    shapes = ((m,), (m, m), (m, c), (c,), (c, c))
    s, gram, cross, y_sum, y_gram = (frozen(np.zeros(shape)) for shape in shapes)
    return Moments(phi, 0, 0.0, False, s, gram, cross, y_sum, y_gram, targets == 0, "float64")


def merge(a: Moments, b: Moments) -> Moments:
    """Return the moments of the rows of both, sum by sum: a + b.

    Parameters
    ----------
    a, b : Moments
        Of one map and of as many targets.

    Returns
    -------
    Moments
        The sums.

    Raises
    ------
    StateMismatchError
        If they are of different draws of the map, or of different targets.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> one = ka.solvers.moments(ka.features.elu1(), np.ones((5, 2)))
    >>> ka.solvers.merge(one, one).n
    10
    """
    for name, each in (("a", a), ("b", b)):
        instance_of(name, each, Moments)
    return _added(a, b, np.add)


def add_to(total: Moments, part: Moments) -> Moments:
    """Return the moments of both in the arrays of `total`, which the caller made and nobody else holds."""

    def add(held: Float64, more: Float64) -> Float64:
        held.setflags(write=True)
        return np.add(held, more, out=held)

    return _added(total, part, add)


def _added(a: Moments, b: Moments, add: Callable[[Float64, Float64], Float64]) -> Moments:
    if a.fingerprint != b.fingerprint or a.s.shape != b.s.shape:
        raise StateMismatchError(f"moments must be of one draw of the map; got {a!r} and {b!r}")
    if (a.cross.shape, a.vector) != (b.cross.shape, b.vector):
        raise StateMismatchError(f"moments must be of the same targets; got {_targets(a)} and {_targets(b)}")
    names = "s", "gram", "cross", "y_sum", "y_gram"
    sums: dict[str, Any] = {name: frozen(add(getattr(a, name), getattr(b, name))) for name in names}
    products = "float64" if a.products == b.products == "float64" else "float32"
    weight, weighted = a.weight + b.weight, a.weighted or b.weighted
    return replace(a, n=a.n + b.n, weight=weight, weighted=weighted, products=products, **sums)


def _targets(m: Moments) -> str:
    return "y (n,)" if m.vector else f"y (n, {len(m.y_sum)})" if len(m.y_sum) else "no y"


class Rows(NamedTuple):
    """Rows that were checked."""

    phi: FeatureMap
    x: Array  # (n, d)
    y: Float64  # (n, c), on the host
    weights: Float64 | None  # (n,), on the host
    vector: bool
    products: str
    backend: str | None


def checked_rows(
    phi: FeatureMap, x: Array, y: Array | None, weights: Array | None, products: str, backend: str | None
) -> Rows:
    """Return rows as `sums_of` takes them, which must be finite numbers of sizes that fit."""
    instance_of("phi", phi, FeatureMap)
    one_of("products", products, PRODUCTS)
    check_map_takes(phi, x)
    if x.ndim != 2:
        raise ShapeError(f"x must be (n, d); got shape {tuple(x.shape)}")
    n = x.shape[0]
    check_room("the moments", (phi.num_features_of(x.shape[1]),) * 2)
    given = {name: array for name, array in (("y", y), ("weights", weights)) if array is not None}
    numbers = x.data if sparse.issparse(x) else x
    namespace(x=numbers, **given)
    for name, array in given.items():
        check_beside(name, array, n, name == "y")
    if GRAM.choose(numbers, backend) != "gpu":
        on_host("x", numbers[:1, ...])
    check_finite("x", numbers, x.indptr if sparse.issparse(x) else None)
    for name, array in given.items():
        check_finite(name, array)
    targets = np.zeros((n, 0)) if y is None else to_numpy64(y).reshape(n, -1)
    shares = None if weights is None else to_numpy64(weights)
    if shares is not None and np.min(shares) < 0:
        refuse("weights must be 0 or more", np.flatnonzero(shares < 0), "below 0")
    return Rows(phi, x, targets, shares, y is not None and y.ndim == 1, products, backend)


def sums_of(rows: Rows) -> Moments:
    """Return the moments of rows that were checked."""
    phi, x, y, weights, vector, products, backend = rows
    m = phi.num_features_of(x.shape[1])
    wide = "float64" in (products, dtype_name(x))
    csr = sparse.issparse(x)
    keep = csr or GRAM.choose(x, backend) == "gpu"
    gram, cross = np.zeros((m, m)), np.zeros((m, 1 + y.shape[1]))
    y_sums = np.zeros((1 + y.shape[1],) * 2)
    for here in strips(x.shape[0]):
        block = x[here] if keep else on_host("x", x[here, ...])
        spec = None if csr or weights is not None else phi.query_spec
        block = phi(block, backend=backend) if spec is None else block
        xp = namespace(x=block)
        values = np.column_stack([np.ones(len(y[here])), y[here]])
        unit = 1.0
        if weights is not None:
            roots = np.sqrt(weights[here])[:, None]
            unit = float(np.ldexp(1.0, np.frexp(np.max(roots))[1] - 1))  # the dtype of x may hold no such root
            roots = roots / unit
            values = values * roots
            block = block * constant(xp, roots, block.dtype, block)
        sizes = np.ldexp(1.0, np.frexp(np.max(np.abs(values), axis=0))[1] - 1)  # nor may it hold the targets
        beside = constant(xp, values / sizes, xp.float64 if wide else block.dtype, block)
        with np.errstate(over="ignore", invalid="ignore"):
            part, sums = GRAM.implementation(block, backend)(block, beside, spec, wide)
            for total, more in ((gram, part), (cross, sizes * to_numpy64(sums)), (y_sums, values.T @ values)):
                total += unit**2 * to_numpy64(more) if unit != 1 else to_numpy64(more)
    if not np.isfinite(cross).all() or not np.isfinite(gram).all():
        raise ParameterError(
            f"features of x must be finite; products of some are beyond {shown(products)}: give x as float64, "
            "or smaller in the kernel's scale"
        )
    if not np.isfinite(y_sums).all():
        raise ParameterError("y must be smaller: sums of its squares are beyond float64")
    counted = x.shape[0] if weights is None else int(np.count_nonzero(weights))
    return Moments(
        phi,
        counted,
        float(y_sums[0, 0]),
        weights is not None and bool(np.any((weights != 0) & (weights != 1))),
        frozen(cross[:, 0].copy()),
        frozen(gram),
        frozen(cross[:, 1:].copy()),
        frozen(y_sums[0, 1:].copy()),
        frozen(y_sums[1:, 1:].copy()),
        vector,
        "float64" if wide else "float32",
    )
