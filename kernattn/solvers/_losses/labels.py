"""Rows with labels, as an array or as blocks that are walked again and again."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import array_api_compat as compat
import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, Float64, namespace, to_numpy64
from kernattn._runtime.checks import array_of, positive_number, shown
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.solvers._check import check_beside, check_finite, check_map_takes, refuse

OF_ONE_KIND = "y must hold numbers, booleans or strings, all of one kind"

Blocks = Callable[[], Iterator[tuple[Array, NDArray[Any], Float64 | None]]]


def walk_labelled(phi: FeatureMap, x: Any, y: Any, weights: Any) -> Blocks:
    """Return a function that walks over blocks of rows, labels and weights, each checked as it comes, an array once."""
    if hasattr(x, "shape"):
        if y is None:
            raise ParameterError("y must be given: labels (n,); got None")
        block = _check_block(phi, x, y, weights)
        return lambda: iter([block])
    if y is not None or weights is not None:
        raise ParameterError("y and weights must be in the blocks, (x, y) or (x, y, weights), where x is no array")
    if not callable(x) and (not isinstance(x, Iterable) or iter(x) is x):
        raise ParameterError(
            f"x must be an array, or blocks that can be walked again, as a list or a function; got {shown(x)}"
        )

    def walk() -> Iterator[tuple[Array, NDArray[Any], Float64 | None]]:
        given = x() if callable(x) else x
        if not isinstance(given, Iterable):
            raise ParameterError(f"the function x must return an iterable of blocks; got {shown(given)}")
        for block in given:
            if not isinstance(block, tuple) or len(block) not in (2, 3):
                raise ParameterError(f"a block must be (x, y) or (x, y, weights); got {shown(block)}")
            yield _check_block(phi, *block)

    return walk


def _check_block(phi: FeatureMap, x: Any, y: Any, weights: Any = None) -> tuple[Array, NDArray[Any], Float64 | None]:
    """Return a block with labels and weights on the host."""
    check_map_takes(phi, x)
    labels = array_of(y.get() if compat.is_cupy_array(y) else y)
    if len(x.shape) != 2 or labels.shape != (x.shape[0],):
        raise ShapeError(f"x and y must be (n, d) and (n,); got {tuple(x.shape)} and {shown(y)}")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        refuse("y must be finite", np.flatnonzero(~np.isfinite(labels)), "NaN or infinity")
    check_finite("x", x)
    if weights is not None:
        namespace(weights=weights)
        check_beside("weights", weights, len(labels), columns=False)
    shares = None if weights is None else to_numpy64(weights)
    if shares is not None:
        good = np.isfinite(shares) & (shares >= 0)
        if not good.all():
            refuse("weights must be 0 or more", np.flatnonzero(~good), "another number")
    return x, labels, shares


def given_penalty(penalty: Any, x: Any) -> float | None:
    """Return the penalty of rows, or None where it is to be chosen, which blocks do not allow."""
    if penalty is None and not hasattr(x, "shape"):
        raise ParameterError("penalty must be given where x comes in blocks; got None")
    return None if penalty is None else positive_number("penalty", penalty)


def likeliest(classes: NDArray[Any], scores: Float64) -> NDArray[Any]:
    """Return the labels (...) of the largest scores (..., k); of two classes (...), the second above 0."""
    labels: NDArray[Any] = classes[(scores > 0).astype(int) if len(classes) == 2 else np.argmax(scores, axis=-1)]
    return labels


def find_classes(told: Iterable[tuple[NDArray[Any], Float64]]) -> NDArray[Any]:
    """Return the labels of rows whose weight is not 0, sorted, of which there must be two at least."""
    each = [_unique(labels[weights > 0]) for labels, weights in told]
    if len({_kind(labels[0]) for labels in each if len(labels)}) > 1:
        raise DTypeError(OF_ONE_KIND)
    classes = _unique(np.concatenate(each))
    if classes.dtype.kind == "f" and np.any(classes != np.trunc(classes)):
        raise ParameterError(
            f"y must hold labels: whole numbers, booleans or strings; got {len(classes)} numbers, as "
            f"{classes[classes != np.trunc(classes)][0]:g}: ridge, gp and linear_model fit numbers"
        )
    if not len(classes):
        raise ParameterError("weights must not be 0 in all rows")
    if len(classes) < 2:
        raise ParameterError(f"y must hold two classes or more in rows that count; got {shown(classes.tolist())}")
    return classes


def _kind(label: Any) -> type:
    """Return str, bytes, or float for all numbers."""
    return next((kind for kind in (str, bytes) if isinstance(label, kind)), float)


def _unique(labels: NDArray[Any]) -> NDArray[Any]:
    """Return the labels, sorted, each once."""
    try:
        return np.unique(labels)
    except TypeError as error:
        raise DTypeError(OF_ONE_KIND) from error


def columns_of(labels: NDArray[Any], classes: NDArray[Any]) -> list[Float64]:
    """Return 1 for a class and -1 for the others: of two, the second alone."""
    return [np.where(labels == each, 1.0, -1.0) for each in (classes[1:] if len(classes) == 2 else classes)]
