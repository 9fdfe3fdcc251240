"""A Nystrom map from data: landmarks chosen, the rank too where an error is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import is_sparse
from kernattn._arrays.namespaces import Array, Float64, check_floating, dtype_name, frozen, namespace, to_numpy64
from kernattn._arrays.plain import on_plain
from kernattn._arrays.shapes import strips
from kernattn._runtime.checks import check_room, finite_number, instance_of, one_of, positive_integer, shown
from kernattn._runtime.deprecated import old_arguments, old_order, warn_user
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.lazy_scipy import linalg
from kernattn._runtime.random import RNG, generator
from kernattn.errors import MissingExtra, ParameterError, ShapeError
from kernattn.features._data import checked_csr, checked_data
from kernattn.features._nystrom.gram import BLOCK, Gram, prefix_residuals
from kernattn.features._nystrom.landmarks import kmeans, leverage, minibatch_kmeans, uniform
from kernattn.features._nystrom.map import Nystrom
from kernattn.features._nystrom.pivots import Pivots, greedy, rpcholesky
from kernattn.kernels import Kernel

F = TypeVar("F", bound=Callable[..., Any])

_CENTRES: dict[str, Callable[[Float64, int, np.random.Generator], Float64]] = {
    "kmeans": kmeans,
    "minibatch_kmeans": minibatch_kmeans,
}
_PIVOTED: dict[str, Callable[[Gram, int, np.random.Generator, float], Pivots]] = {
    "greedy": greedy,
    "rpcholesky": rpcholesky,
}
LANDMARKS = ("greedy", "kmeans", "leverage", "minibatch_kmeans", "rpcholesky", "uniform")
"""How landmarks can be chosen."""

LOOKED_AT = 512  # rows of a precomputed kernel whose eigenvalues are computed, beside those of the landmarks
LIKE_ROUNDING, ROUNDING = 1e-5, {"float16": 1e-3, "bfloat16": 8e-3}  # of the largest number or eigenvalue


def _takes_old_order(function: F) -> F:
    """Let `nystrom` be called as in 0.1: (kernel, data, num_features, landmarks), landmarks a method or an array."""

    @old_order((Kernel, str), "kernel")
    @old_arguments(num_features="num_landmarks")
    @wraps(function)
    def nystrom(*args: Any, **kwargs: Any) -> Nystrom:
        if len(args) == 4:
            *args, kwargs["landmarks"] = args  # type: ignore[assignment]
            warn_user("landmarks are given to nystrom by keyword now: method=, landmarks=")
        if isinstance(kwargs.get("landmarks"), str):
            kwargs["method"] = kwargs.pop("landmarks")
            warn_user("nystrom(landmarks=) of a name is now method=")
        phi: Nystrom = function(*args, **kwargs)
        return phi

    return nystrom  # type: ignore[return-value]


class _Choice(NamedTuple):
    """Landmarks in order, indices (m,) or points (m, d), and the residual's relative trace where it is known."""

    landmarks: NDArray[Any]
    residual: float | None = None


@told_keywords
@_takes_old_order
@on_plain
def nystrom(
    data: Array,
    kernel: Kernel | Literal["precomputed"],
    num_landmarks: int | None = None,
    *,
    method: str = "uniform",
    landmarks: Array | None = None,
    target: float | None = None,
    cutoff: float = 0.0,
    rng: RNG = None,
) -> Nystrom:
    r"""Return the map :math:`\phi(x) = K_{LL}^{-1/2} k(L, x)` of m landmarks L, chosen from data or given.

    Its kernel :math:`K' = K_{XL} K_{LL}^{+} K_{LX}` is the Nystrom approximation (Williams and Seeger 2001), exact at
    the landmarks, and never above K on the diagonal. The method says what landmarks are:

    ================  =============================================================================================
    uniform           rows, all sets of them alike
    kmeans            centres of clusters by Lloyd's algorithm (Zhang, Tsang and Kwok 2008)
    minibatch_kmeans  centres of clusters by scikit-learn's MiniBatchKMeans (Sculley 2010), for many rows: it reads
                      them three times, not twenty
    leverage          rows drawn by recursive ridge leverage scores (Musco and Musco 2017)
    rpcholesky        rows by randomly pivoted Cholesky (Chen, Epperly, Tropp and Webber 2025): in expectation near the
                      best trace error of a rank somewhat below m, after reading n m entries of K
    greedy            rows by pivoted Cholesky, the largest residual first (Fine and Scheinberg 2001): nothing random,
                      and outliers come first
    ================  =============================================================================================

    Time is of order n m (m + d) at most and memory n m: no n x n matrix is made.

    Parameters
    ----------
    data : (n, d) array, or (n, n) where precomputed
        Rows from which landmarks are chosen; also a CSR matrix of SciPy, for all methods but "kmeans", of which blocks
        of 2^21 numbers, and the landmarks, are made dense.
    kernel : Kernel or "precomputed"
        The kernel, or the word "precomputed": data is then the kernel matrix, and x holds rows of kernel values with
        all rows of the data; phi(x) also takes those with the landmarks alone.
    num_landmarks : int, optional
        The number m of landmarks, at most n; it may be left out where landmarks are given. "greedy" and "rpcholesky"
        stop before at the numerical rank of K.
    method : str
        How landmarks are chosen, a name in `kernattn.features.LANDMARKS`; to be left out where they are given.
    landmarks : (m, d) or (m,) array, optional
        Landmarks of your own: points, or indices of rows of data.
    target : float, optional
        Take only the first landmarks that bring the relative trace error tr(K - K') / tr K down to this; all of them
        where none does. In (0, 1).
    cutoff : float
        Eigenvalues of :math:`K_{LL}` below this part of the largest count as 0, as those below ten times the epsilon
        of kernel values do in any case; see `Nystrom`. In [0, 1).
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the choice.

    Returns
    -------
    Nystrom
        The frozen map: (..., n, d) -> (..., n, m).

    Raises
    ------
    ParameterError
        If an argument is outside of what is allowed, before anything is drawn; or if a precomputed kernel is not
        positive semidefinite, by its eigenvalues on 512 rows and on the landmarks, or by features that are too long.
    ShapeError
        If data or landmarks have a wrong shape.
    DTypeError
        If data or landmarks are no arrays of a floating dtype (integer for indices).
    MissingExtra
        If the method is "minibatch_kmeans" and scikit-learn is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((200, 2))
    >>> kernel = ka.kernels.Gaussian(lengthscale=2.0)
    >>> phi = ka.features.nystrom(x, kernel, 40, method="rpcholesky", rng=0)
    >>> phi(x).shape, bool(np.max(np.abs(phi(x) @ phi(x).T - kernel(x))) < 1e-3)
    ((200, 40), True)
    >>> ka.features.nystrom(x, kernel, 40, method="rpcholesky", target=0.05, rng=0).num_features < 10
    True
    """
    function = kernel if isinstance(kernel, Kernel) else None
    if function is None and not (isinstance(kernel, str) and kernel == "precomputed"):
        instance_of("kernel", kernel, Kernel, "or 'precomputed'")
    one_of("method", method, LANDMARKS)
    if landmarks is not None and method != "uniform":
        raise ParameterError(f"method must be left out where landmarks are given; got {method!r}")
    if function is None and method in _CENTRES:
        raise ParameterError(f"method {method!r} takes means of inputs, which a precomputed kernel does not show")
    if method == "minibatch_kmeans" and find_spec("sklearn") is None:
        raise MissingExtra(
            "method 'minibatch_kmeans' needs scikit-learn, which is not installed: pip install scikit-learn"
        )
    m = None if num_landmarks is None else positive_integer("num_landmarks", num_landmarks)
    if target is not None and not 0 < finite_number("target", target) < 1:
        raise ParameterError(f"target must lie strictly between 0 and 1; got {target!r}")
    if not 0 <= finite_number("cutoff", cutoff) < 1:
        raise ParameterError(f"cutoff must lie in [0, 1); got {cutoff!r}")
    if is_sparse(data) and (function is None or method == "kmeans"):
        what = "a precomputed kernel" if function is None else "method 'kmeans'"
        raise ParameterError(f"{what} takes dense data; got a sparse {type(data).__name__}")
    gram = Gram(function, checked_csr(data) if is_sparse(data) else checked_data(data))
    given = dtype_name(data)
    rounding = ROUNDING.get(given, LIKE_ROUNDING)
    if function is None:
        _check_matrix(gram.data, rounding)
    choice = _choose_or_take(gram, m, method, landmarks, target, rng)
    phi = _make_map(gram, choice, float(cutoff))
    if function is None:
        _check_features(phi, gram.data, "float64" if given == "float64" else "float32", rounding)
    return phi


def choose_points(
    rows: Float64, kernel: Kernel, num_landmarks: int | None, method: str, landmarks: Array | None, rng: RNG
) -> tuple[Float64, Float64]:
    """Return the landmarks (m, d) that `nystrom` takes, and their matrix, without its eigenvalues."""
    gram = Gram(kernel, rows)
    chosen = _choose_or_take(gram, num_landmarks, method, landmarks, None, rng).landmarks
    return (_dense(rows[chosen]) if chosen.ndim == 1 else chosen), _matrix_of(gram, chosen)


def _choose_or_take(
    gram: Gram, m: int | None, method: str, landmarks: Array | None, target: float | None, rng: RNG
) -> _Choice:
    with np.errstate(over="ignore", under="ignore"):
        trace = np.sum(gram.diagonal())
    if not 0 < trace < np.inf:
        raise ParameterError(f"the trace of the kernel matrix must be positive and finite; on the data it is {trace}")
    source = generator(rng)
    if landmarks is not None:
        return _take(gram, landmarks, m, target)
    if m is None:
        raise ParameterError("num_landmarks must be given, or landmarks; got neither")
    if m > len(gram):
        raise ParameterError(f"num_landmarks must be at most the {len(gram)} rows of data; got {m}")
    return _choose(method, gram, m, source, target)


def _choose(name: str, gram: Gram, m: int, rng: np.random.Generator, target: float | None) -> _Choice:
    if name in _PIVOTED:
        pivots = _PIVOTED[name](gram, m, rng, target or 0.0)
        return _Choice(pivots.indices, float(pivots.residuals[-1]))
    if name in _CENTRES:
        return _shorten(gram, _CENTRES[name](gram.data, m, rng), target)
    return _shorten(gram, uniform(gram, m, rng) if name == "uniform" else leverage(gram, m, rng), target)


def _take(gram: Gram, landmarks: Array, m: int | None, target: float | None) -> _Choice:
    namespace(landmarks=landmarks)
    if m not in (None, landmarks.shape[0] if landmarks.ndim else 0):
        raise ParameterError(
            f"num_landmarks must be left out or be the number of landmarks; got {m} for shape {tuple(landmarks.shape)}"
        )
    if landmarks.ndim == 1 and "int" in dtype_name(landmarks):
        indices = to_numpy64(landmarks).astype(np.int64)
        if len(indices) == 0 or indices.min() < 0 or indices.max() >= len(gram):
            raise ParameterError(f"landmarks must be indices of the {len(gram)} rows of data; got {shown(landmarks)}")
        return _shorten(gram, indices, target)
    check_floating("landmarks", landmarks)
    if gram.kernel is None:
        raise ParameterError("landmarks of a precomputed kernel must be indices of its rows; got points")
    return _shorten(gram, checked_data(landmarks, gram.data.shape[1], "landmarks"), target)


def _shorten(gram: Gram, landmarks: NDArray[Any], target: float | None) -> _Choice:
    """Choose the first landmarks that reach the target, or all of them."""
    if target is None:
        return _Choice(landmarks)
    residuals = prefix_residuals(gram, landmarks, _matrix_of(gram, landmarks))
    enough = np.flatnonzero(residuals <= target)
    count = int(enough[0]) + 1 if len(enough) else len(landmarks)
    return _Choice(landmarks[:count], float(residuals[count - 1]))


def _matrix_of(gram: Gram, landmarks: NDArray[Any]) -> Float64:
    """Return the landmarks' own matrix, (m, m)."""
    check_room("the matrix of landmarks, its eigenvectors and LAPACK's work", (4, len(landmarks), len(landmarks)))
    if landmarks.ndim == 1:
        return gram.entries(landmarks, landmarks)
    assert gram.kernel is not None
    matrix: Float64 = gram.kernel(landmarks)
    if not np.isfinite(matrix).all():
        raise ParameterError("landmarks must have a kernel matrix that float64 holds; it has infinite entries, or NaN")
    return matrix


def _make_map(gram: Gram, choice: _Choice, cutoff: float) -> Nystrom:
    landmarks, indices, points = choice.landmarks, None, None
    if gram.kernel is None and len(landmarks) == len(gram):
        landmarks = np.arange(len(gram))  # rows with the landmarks are rows with all of the data
    values, vectors = linalg.eigh(_matrix_of(gram, landmarks), driver="evd", check_finite=False)
    if landmarks.ndim == 1:
        indices = landmarks
        indices.setflags(write=False)
    if gram.kernel is not None:
        points = frozen(landmarks if indices is None else _dense(gram.data[indices]))
    return Nystrom(gram.kernel, points, indices, len(gram), frozen(values), frozen(vectors), cutoff, choice.residual)


def _dense(rows: Any) -> Float64:
    """Return landmarks, which a map holds dense."""
    if is_sparse(rows):
        check_room("dense landmarks", rows.shape)
        rows = rows.toarray()
    points: Float64 = rows
    return points


def _check_matrix(matrix: Float64, rounding: float) -> None:
    """Raise unless the matrix is square and symmetric, and positive semidefinite on the rows that are looked at."""
    if matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(f"a precomputed kernel must be (n, n); got shape {matrix.shape}")
    size = float(np.max(np.abs(matrix)))
    for i in range(len(matrix)):
        if np.max(np.abs(matrix[i] - matrix[:, i])) > rounding * size:
            raise ParameterError("a precomputed kernel must be symmetric; data differs from its transpose")
    if np.min(matrix.diagonal()) < 0:
        raise ParameterError(f"a precomputed kernel must have k(x, x) >= 0; got {np.min(matrix.diagonal())}")
    some = np.linspace(0, len(matrix) - 1, min(len(matrix), LOOKED_AT)).astype(np.int64)
    _check_eigenvalues(np.linalg.eigvalsh(matrix[np.ix_(some, some)]), rounding)


def _check_eigenvalues(values: NDArray[Any], rounding: float) -> None:
    if values[0] < -rounding * values[-1]:
        raise ParameterError(
            f"a precomputed kernel must be positive semidefinite; eigenvalues on {len(values)} of its rows go from "
            f"{values[0]:.3g} to {values[-1]:.3g}"
        )


def _check_features(phi: Nystrom, matrix: Float64, dtype: str, rounding: float) -> None:
    """Raise where |phi(x)|^2 is above k(x, x): no landmarks of a positive semidefinite matrix give that."""
    _check_eigenvalues(phi.eigenvalues, rounding)
    own = matrix.diagonal()
    excess = max(
        float(np.max(np.sum(np.square(phi(matrix[here].astype(dtype)), dtype=float), axis=1) - own[here]))
        for here in strips(len(matrix), BLOCK)
    )
    if excess > 3 * rounding**0.5 * float(np.max(own)):  # features make rounding larger
        raise ParameterError(
            f"a precomputed kernel must be positive semidefinite; |phi(x)|^2 is above k(x, x) by {excess:.3g} (where "
            "that is rounding, a larger cutoff helps)"
        )
