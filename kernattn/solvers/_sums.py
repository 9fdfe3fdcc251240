"""Moments of rows: blocks of features go through `gram`, weights and targets beside them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernattn._arrays.csr import is_sparse, numbers_of
from kernattn._arrays.namespaces import (
    Array,
    Float64,
    constant,
    dtype_name,
    frozen,
    namespace,
    on_host,
    to_numpy64,
    without_flags,
)
from kernattn._arrays.shapes import strips
from kernattn._arrays.units import in_units, unit_of
from kernattn._runtime.checks import check_room, instance_of, one_of
from kernattn._runtime.deprecated import old_order, old_positions
from kernattn._runtime.elsewhere import told_keywords
from kernattn.errors import ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.ops.gram import OP as GRAM
from kernattn.solvers._check import check_beside, check_finite, check_map_takes, check_products, refuse, widen
from kernattn.solvers._held import hold
from kernattn.solvers._moments import Moments, Targets

PRODUCTS = "float64", "float32"
FAR = 16.0  # standard deviations from 0, beyond which targets are summed less their mean


@told_keywords
@old_order(FeatureMap, "phi")
@old_positions("y")
def moments(
    x: Array,
    phi: FeatureMap,
    *,
    y: Array | None = None,
    weights: Array | None = None,
    products: str = "float64",
    backend: str | None = None,
) -> Moments:
    r"""Return the sums that solvers need of rows: :math:`\sum \phi`, :math:`\Phi^T \Phi`, :math:`\Phi^T Y` and more.

    With weights, each row counts that many times. Features are made a block of rows at a time, in the dtype of
    products, and never held at once: memory is O(M^2) beside the data. `accumulate` takes rows that come in blocks.

    Parameters
    ----------
    x : (n, d) array
        Rows, or a CSR matrix of SciPy, of which maps make a block at a time dense; sketches of polynomials make none.
    phi : FeatureMap
        The map; of an asymmetric one, the queries' features.
    y : (n,) or (n, c) array, optional
        Targets, of a real floating dtype.
    weights : (n,) array, optional
        Weights of the rows, 0 or more: how often each counts, or one over the variance of its noise.
    products : {"float64", "float32"}
        In which dtype rows are multiplied, unless they are in float64. With float32, up to 8,192 rows are summed in it,
        and these sums in float64: faster, and of G only eigenvalues well above 1e-7 of the largest mean anything.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((1000, 3))
    >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=3, num_features=64, rng=0)
    >>> whole = ka.solvers.moments(x, phi, y=x[:, 0])
    >>> first, rest = (ka.solvers.moments(rows, phi, y=rows[:, 0]) for rows in (x[:300], x[300:]))
    >>> np.allclose(whole.gram, (first + rest).gram), (first + rest).n
    (True, 1000)
    """
    return sum_rows(check_rows(phi, x, y, weights, products, backend))


class Rows(NamedTuple):
    """Rows that were checked."""

    phi: FeatureMap
    x: Array  # (n, d)
    y: Float64  # (n, c), on the host
    weights: Float64 | None  # (n,), on the host
    vector: bool
    products: str
    backend: str | None


def check_rows(
    phi: FeatureMap, x: Array, y: Array | None, weights: Array | None, products: str, backend: str | None
) -> Rows:
    """Return rows as `sum_rows` takes them, which must be finite numbers of sizes that fit."""
    instance_of("phi", phi, FeatureMap)
    one_of("products", products, PRODUCTS)
    check_map_takes(phi, x)
    if x.ndim != 2:
        raise ShapeError(f"x must be (n, d); got shape {tuple(x.shape)}")
    n = x.shape[0]
    check_room("the moments", (phi.num_features_of(x.shape[1]),) * 2)
    given = {name: array for name, array in (("y", y), ("weights", weights)) if array is not None}
    numbers = numbers_of(x)
    namespace(x=numbers, **given)
    for name, array in given.items():
        check_beside(name, array, n, name == "y")
    if GRAM.choose(numbers, backend) != "gpu":
        on_host("x", numbers[:1, ...])
    check_finite("x", x)
    for name, array in given.items():
        check_finite(name, array)
    targets = np.zeros((n, 0)) if y is None else to_numpy64(y).reshape(n, -1)
    shares = None if weights is None else to_numpy64(weights)
    if shares is not None and np.min(shares) < 0:
        refuse("weights must be 0 or more", np.flatnonzero(shares < 0), "below 0")
    return Rows(phi, x, targets, shares, y is not None and y.ndim == 1, products, backend)


@without_flags
def sum_rows(rows: Rows, features: Float64 | None = None) -> Moments:
    """Return the moments of rows that were checked, whose features (n, M) may be known: no more rows are then held."""
    phi, x, y, weights, vector, products, backend = rows
    wide = "float64" in (products, dtype_name(x))
    csr = is_sparse(x)
    keep = csr or GRAM.choose(x, backend) == "gpu"
    totals: list[Float64] = []
    shift = _choose_shift(y, weights)
    for here in strips(x.shape[0]):
        spec = None if csr or weights is not None or features is not None else phi.query_spec
        if features is not None:
            block = features[here]
        else:
            block = x[here] if keep else on_host("x", x[here, ...])
            block = widen(block) if wide else block
            block = phi(block, backend=backend) if spec is None else block
        xp = namespace(x=block)
        values = np.column_stack([np.ones(len(y[here])), y[here] - shift])
        unit = 1.0
        if weights is not None:
            roots = np.sqrt(weights[here])[:, None]
            unit = float(np.ldexp(1.0, np.frexp(np.max(roots))[1] - 1))  # the dtype of x may hold no such root
            roots = roots / unit
            values = values * roots
            block = block * constant(xp, roots, block.dtype, block)
        sizes = np.ldexp(1.0, np.frexp(np.max(np.abs(values), axis=0))[1] - 1)  # nor may it hold the targets
        beside = constant(xp, values / sizes, xp.float64 if wide else block.dtype, block)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            part, sums = GRAM.implementation(block, backend)(block, beside, spec, wide)
            more = [to_numpy64(part), sizes * to_numpy64(sums), values.T @ values]
            more = [unit**2 * each for each in more] if unit != 1 else more
            for total, each in zip(totals, more, strict=False):
                total += each
            totals = totals or more
    gram, cross, y_sums = totals
    check_products(bool(np.isfinite(cross[:, 0]).all() and np.isfinite(gram).all()), "float64" if wide else products)
    counted = x.shape[0] if weights is None else int(np.count_nonzero(weights))
    beside_y = (frozen(part.copy()) for part in (cross[:, 1:], y_sums[0, 1:], y_sums[1:, 1:], shift))
    made = Moments(
        phi,
        counted,
        float(y_sums[0, 0]),
        weights is not None and bool(np.any((weights != 0) & (weights != 1))),
        frozen(cross[:, 0].copy()),
        frozen(gram),
        Targets(*beside_y),
        vector,
        "float64" if wide else "float32",
        None if features is None else hold(features, y - shift, weights),
    )
    if not (np.isfinite(cross).all() and np.isfinite(y_sums).all() and np.isfinite(made.y_gram).all()):
        raise ParameterError("y must be smaller: sums of its squares are beyond float64")
    return made


def average(y: Float64, weights: Float64 | None) -> Float64:
    """Return the mean of targets over rows; of equal targets, these to the bit."""
    shares = None if weights is None else in_units(weights, unit_of(weights))  # products with them may be no floats
    mean: Float64 = y[0] + np.average(y - y[0], axis=0, weights=shares)
    return mean


def _choose_shift(y: Float64, weights: Float64 | None) -> Float64:
    """Return the shift (c,) that targets (n, c) are less before they are summed: their mean, where it is far from 0."""
    if not y.size:
        return np.zeros(y.shape[1])
    shares = None if weights is None or not weights.any() else weights
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        mean = average(y, shares)
        spread = np.sqrt(average((y - mean) ** 2, shares))
        return np.where(np.abs(mean) > FAR * spread, mean, 0.0)
