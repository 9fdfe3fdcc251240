"""From what scikit-learn's estimators are given to what kernattn takes: one kind of array, float32 or float64."""

from numbers import Real
from typing import Any

import array_api_compat as compat
import numpy as np
from sklearn import get_config
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from kernattn._arrays.csr import is_sparse, numbers_of
from kernattn._arrays.namespaces import Array, Float64, constant, dtype_name, indices, namespace, to_numpy64, widest
from kernattn._runtime.checks import as_numbers, shown, whole_number
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.solvers import Moments
from kernattn.solvers._losses.labels import columns_of

LOWEST = 1e-5  # of the features' mean squared norm: where less noise than that is told from none, rounding tells


def check_rows(estimator: Any, x: Any, *y: Any, **options: Any) -> Any:
    """Check rows, and targets if given, as scikit-learn does; return float32 and float64 rows as they are, others as
    float64, and so targets in bfloat16.

    They come row by row: sums over columns in another order differ in their last digits, by which landmarks of turned
    rows are chosen.
    """
    sparse = "csr" if estimator._takes_sparse else False
    if is_sparse(x) and not sparse:
        raise TypeError(
            "Sparse rows are not for learned metrics, landmarks by 'kmeans', precomputed kernels or kernels that are "
            "functions of your own. For these make them dense: X.toarray(), or fewer columns by scikit-learn's "
            "TruncatedSVD"
        )
    given = map(_widened, (x, *y))
    return validate_data(estimator, *given, dtype=_floats(x), order="C", accept_sparse=sparse, **options)


def is_named(value: Any, *names: str) -> bool:
    """Say whether a parameter is one of these names: scikit-learn asks before anything is judged, of any value."""
    return isinstance(value, str) and value in names


def check_floats(x: Any) -> Array:
    """Return numbers (n, k) that are no rows of a fit, of float32 and float64 as they are, others as float64."""
    return check_array(x, dtype=_floats(x))


def check_targets(
    estimator: Any, x: Any, y: Any, sample_weight: Any, **options: Any
) -> tuple[Array, Float64, Float64 | None]:
    """Return rows, and their targets and weights on the host."""
    if is_sparse(y):
        raise DTypeError(f"y must be dense targets; got {shown(y)}")
    x, y = check_rows(estimator, x, y, multi_output=True, y_numeric=True, **options)
    return x, targets_of(y), check_weights(sample_weight, x, **options)


def targets_of(y: Any) -> Float64:
    """Return numbers on the host; refuse all else, and those whose sums are beyond float64."""
    if isinstance(y, np.ndarray) and y.dtype.kind not in "biuf":
        raise DTypeError(f"y must hold real numbers; got {shown(y)}")
    numbers = to_numpy64(y)
    largest = max(float(np.max(numbers)), -float(np.min(numbers)))
    if largest > np.finfo(np.float64).max / (8 * len(numbers)):
        raise ParameterError(f"y must be smaller: sums of its numbers are beyond float64; got {largest:.3g}")
    return numbers


def check_labels(
    estimator: Any, x: Any, y: Any, sample_weight: Any, **options: Any
) -> tuple[Array, Any, Float64 | None]:
    """Return rows, and their labels and weights on the host."""
    x, y = check_rows(estimator, x, y, **options)
    labels, weights = _on_host(y), check_weights(sample_weight, x, **options)
    try:
        check_classification_targets(labels)
    except ValueError as error:
        raise ParameterError(f"{error} FeatureRidge and FeatureRegressor predict numbers.") from None
    except TypeError:
        raise DTypeError(f"y must hold labels of one kind, all strings or all numbers; got {shown(y)}") from None
    return x, labels, weights


def check_weights(sample_weight: Any, x: Array, reset: bool = True, **_: Any) -> Float64 | None:
    """Return weights on the host, which must be 0 or more, and of the first rows not all 0; a number is that of all."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, (Real, str)) or getattr(sample_weight, "ndim", None) == 0:
        sample_weight = np.full(x.shape[0], float(as_numbers("sample_weight", sample_weight)))
    checked = check_array(sample_weight, ensure_2d=False, dtype=_floats(sample_weight), input_name="sample_weight")
    values = to_numpy64(checked)
    if values.shape != (x.shape[0],):
        raise ShapeError(f"sample_weight must be ({x.shape[0]},), a weight for each row; got shape {values.shape}")
    if np.min(values) < 0 or (reset and not np.any(values)):
        raise ParameterError(
            f"sample_weight must be zero or more, and not zero in all rows; the least is {np.min(values):g}, "
            f"the largest {np.max(values):g}"
        )
    return values


def one_ridge(ridge: Any) -> float | None:
    """Return a ridge that is one positive number, or None."""
    if ridge is None:
        return None
    check_ridge(ridge, 1)
    return float(np.ravel(as_numbers("ridge", ridge))[0])


def check_ridge(ridge: Any, targets: int) -> None:
    """Refuse a ridge that is no positive number, nor one for each target."""
    values = as_numbers("ridge", ridge)
    if values.ndim and values.shape != (targets,):
        several = f", or one for each of {targets} targets" if targets > 1 else ""
        raise ShapeError(f"ridge must be one number{several}; got {shown(ridge)}: a search compares ridges")
    if not (np.isfinite(values).all() and np.all(values > 0)):
        raise ParameterError(f"ridge must be positive and finite; got {shown(ridge)}")


def array_beside(x: Array, values: Any) -> Any:
    """Return numbers of the host as an array of the kind of x, in its widest dtype; None stays."""
    numbers = numbers_of(x)
    xp = namespace(x=numbers)
    return None if values is None else constant(xp, values, widest(xp, numbers), numbers)


def pick_labels(classes: Any, scores: Array) -> Any:
    """Return the labels of the largest scores (n, K), of two classes (n,): numbers beside them, strings on the host."""
    host = _on_host(scores)
    labels = classes[np.argmax(host, axis=1) if host.ndim == 2 else (host > 0).astype(int)]
    return labels if labels.dtype.kind in "OSU" else indices(namespace(scores=scores), labels, scores)


def signs_of(labels: Any, classes: Any) -> Float64:
    """Return 1 for a class and -1 for the others, (n,) for the second of two classes, else (n, K)."""
    columns = columns_of(labels, classes)
    return columns[0] if len(classes) == 2 else np.stack(columns, axis=1)


def check_seed(name: str, random_state: Any) -> None:
    """Refuse a random_state that is none."""
    if isinstance(random_state, int | np.integer):
        whole_number(name, random_state)
    else:
        check_random_state(random_state)


def seed_of(random_state: Any) -> int:
    """Return the seed that a random_state stands for: an integer is its own, a RandomState draws one."""
    if isinstance(random_state, int | np.integer):
        return whole_number("random_state", int(random_state))
    return int(check_random_state(random_state).randint(2**31 - 1))


def _on_host(array: Any) -> Any:
    """Return labels as NumPy's; numbers of other libraries go through float64."""
    return array if isinstance(array, np.ndarray) else to_numpy64(array).astype(dtype_name(array), copy=False)


def _widened(given: Any) -> Any:
    """Return arrays in bfloat16, which NumPy does not take for numbers, as float64; all else as it is."""
    if not compat.is_array_api_obj(given) or dtype_name(given) != "bfloat16":
        return given
    on_host = isinstance(given, np.ndarray) or not get_config()["array_api_dispatch"]
    return to_numpy64(given) if on_host else given


def _floats(x: Any) -> list[Any]:
    if get_config()["array_api_dispatch"] and compat.is_array_api_obj(x):
        xp = compat.array_namespace(x)
        return [xp.float64, xp.float32]
    return [np.float64, np.float32]


def lowest_ridge(m: Moments) -> float:
    """Return the least ridge that data may choose."""
    return LOWEST * float(np.trace(m.gram)) / m.n
