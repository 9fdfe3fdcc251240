"""Layers that can be run backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernattn._arrays.namespaces import Array, check_floating, namespace
from kernattn._runtime.checks import shown
from kernattn.errors import DTypeError, ShapeError

Rows = Callable[[Array], Array]


def reversible(f: Rows, g: Rows, x1: Array, x2: Array) -> tuple[Array, Array]:
    r"""Return :math:`y_1 = x_1 + F(x_2)`, :math:`y_2 = x_2 + G(y_1)`: a layer whose inputs follow from its outputs.

    Gomez, Ren, Urtasun and Grosse (2017); Kitaev, Kaiser and Levskaya (2020), with F attention and G the feed-forward
    part. `kernattn.torch.reversible` trains such layers in memory that does not grow with their number.

    Parameters
    ----------
    f, g : callable
        Functions of rows (..., n, dim) that return as many.
    x1, x2 : (..., n, dim) array
        The two halves of the input.

    Returns
    -------
    y1, y2 : (..., n, dim) array
        The two halves of the output.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.transformer import reversible, reversible_inverse
    >>> x1, x2 = np.ones((3, 2)), np.arange(6.0).reshape(3, 2)
    >>> y1, y2 = reversible(np.sin, np.cos, x1, x2)
    >>> back1, back2 = reversible_inverse(np.sin, np.cos, y1, y2)
    >>> np.allclose(back1, x1), np.allclose(back2, x2)
    (True, True)
    """
    _check(f, g, x1=x1, x2=x2)
    y1 = x1 + f(x2)
    return y1, x2 + g(y1)


def reversible_inverse(f: Rows, g: Rows, y1: Array, y2: Array) -> tuple[Array, Array]:
    r"""Return the inputs of `reversible`: :math:`x_2 = y_2 - G(y_1)`, :math:`x_1 = y_1 - F(x_2)`, to rounding.

    Parameters
    ----------
    f, g : callable
        The same functions.
    y1, y2 : (..., n, dim) array
        The two halves of the output.

    Returns
    -------
    x1, x2 : (..., n, dim) array
        The two halves of the input.

    Examples
    --------
    See `reversible`.
    """
    _check(f, g, y1=y1, y2=y2)
    x2 = y2 - g(y1)
    return y1 - f(x2), x2


def _check(f: Any, g: Any, **halves: Array) -> None:
    for name, function in (("f", f), ("g", g)):
        if not callable(function):
            raise DTypeError(f"{name} must be a function of rows; got {shown(function)}")
    namespace(**halves)
    for name, half in halves.items():
        check_floating(name, half)
    (first, a), (second, b) = halves.items()
    if tuple(a.shape) != tuple(b.shape):
        raise ShapeError(f"{first} and {second} must be of one shape; got {tuple(a.shape)} and {tuple(b.shape)}")
