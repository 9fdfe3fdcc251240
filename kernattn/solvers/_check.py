"""Checks of rows, which name those that do not fit."""

import numpy as np

from kernattn._arrays.csr import check_csr, is_sparse, numbers_of
from kernattn._arrays.namespaces import (
    Array,
    Float64,
    check_computed,
    check_floating,
    dtype_name,
    namespace,
    on_host,
    to_numpy64,
    widest,
)
from kernattn._arrays.shapes import strips
from kernattn._runtime.checks import shown
from kernattn._runtime.deprecated import warn_user
from kernattn.errors import EmptyInputError, ParameterError, ShapeError
from kernattn.features import FeatureMap

EQUAL, FEW = 128.0, 64  # times the number of features, 64 at least, and the epsilon: 8,192 equal rows left up to 75


def check_beside(name: str, array: Array, n: int, columns: bool) -> None:
    """Raise unless the array has a number for each of n rows, or several where `columns`."""
    namespace(**{name: array})
    check_floating(name, array)
    if array.ndim not in ((1, 2) if columns else (1,)) or array.shape[0] != n:
        wanted = f"({n},) or ({n}, c)" if columns else f"({n},)"
        raise ShapeError(f"{name} must be {wanted}, as x has {n} rows; got shape {tuple(array.shape)}")
    if 0 in tuple(array.shape):
        raise EmptyInputError(f"{name} must not be empty; got shape {tuple(array.shape)}")


def check_map_takes(phi: FeatureMap, x: Array, name: str = "x") -> None:
    """Raise unless x is rows (..., n, d) of the map's dimension, or CSR that the map takes; `name`: what errors say."""
    if is_sparse(x):
        check_csr(name, x, phi.query_dim)
    else:
        phi._check(x, name)


def check_finite(name: str, rows: Array) -> None:
    """Raise where rows, dense or CSR, hold NaN or infinity, and name them."""
    array = numbers_of(rows)
    check_computed(name, array)
    xp, bad = namespace(array=array), []
    for here in strips(array.shape[0]):
        if _sums_finitely(array[here, ...]):
            continue
        good = xp.isfinite(array[here, ...])
        whole = xp.all(good)
        if not (whole if isinstance(whole, np.bool_) else on_host(name, whole)):
            least = to_numpy64(xp.astype(good, xp.float32)).reshape(good.shape[0], -1).min(axis=1)
            bad += (here.start + np.flatnonzero(least == 0)).tolist()
    if bad and is_sparse(rows):
        bad = np.unique(np.searchsorted(rows.indptr, bad, side="right") - 1).tolist()
    if bad:
        refuse(f"{name} must be finite", bad, "NaN or infinity")


def _sums_finitely(part: Array) -> bool:
    """Tell whether numbers of NumPy have a finite sum, as none has that holds NaN or infinity: half the time of a look.

    Finite numbers may have none.
    """
    if not isinstance(part, np.ndarray):
        return False
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(part)))


def widen(x: Array) -> Array:
    """Return rows in float64: weights may be so large that rounding of float32 times them hides the answer.

    Where the library of x has no float64 they are on the host; those that JAX traces stay, with a warning.
    """
    if is_sparse(x):
        return x.astype(np.float64, copy=False)
    xp = namespace(x=x)
    dtype = widest(xp, x)
    if dtype == xp.float64:
        return xp.astype(x, dtype, copy=False)
    try:
        return to_numpy64(x)
    except ParameterError:  # the numbers of an array that JAX traces are not known
        warn_user("JAX traces rows in float32, which may be too few digits: switch on jax_enable_x64", UserWarning)
        return xp.astype(x, dtype, copy=False)


def features_of(phi: FeatureMap, x: Array, backend: str | None) -> Array:
    """Return the features (n, M) of rows, in the dtype of `widen`, the sum of whose squares must be finite."""
    features = phi(widen(x), backend=backend)
    xp = namespace(features=features)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        flat = xp.reshape(features, (-1,))
        total = flat @ flat
    check_products(np.isfinite(float(total)), dtype_name(features))
    return features


def check_products(finite: bool | np.bool_, products: str) -> None:
    """Raise unless products of features are finite."""
    if not finite:
        wider = "" if products == "float64" else "as float64, or "
        raise ParameterError(
            f"features of x must be finite; products of some are beyond {shown(products)}: give x {wider}smaller in "
            "the kernel's scale"
        )


def check_varies(name: str, largest: float, squares: Float64, products: str) -> None:
    """Raise unless the largest eigenvalue (about the mean) is more than rounding leaves of sums of equal squares."""
    if not largest > EQUAL * max(len(squares), FEW) * float(np.finfo(products).eps) * float(np.max(squares)):
        other = "products='float64'" if products == "float32" else "rows less their mean"
        raise ParameterError(
            f"{name} must not be the same in all rows; they vary by no more than products in {products} round: "
            f"try {other}"
        )


def refuse(wanted: str, rows: Array, given: str) -> None:
    """Raise a ParameterError that names the rows and what they hold."""
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    raise ParameterError(f"{wanted}; {given} in row{'s' * (len(rows) > 1)} {', '.join(map(str, rows[:5]))}{more}")
