"""Weights of sketches: signs, and products of rows with them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import is_sparse
from kernattn._arrays.namespaces import Array, constant, namespace
from kernattn._runtime.checks import check_room, host_array
from kernattn.errors import ParameterError


def project(x: Any, weights: NDArray[Any]) -> Array:
    """Return x W^T (..., n, D) of rows, dense or CSR, in their dtype."""
    if is_sparse(x):
        return x @ np.ascontiguousarray(weights.T, dtype=x.dtype)
    xp = namespace(x=x)
    return xp.matmul(x, constant(xp, weights.T, x.dtype, x))


def multiply_projections(x: Any, omega: NDArray[Any]) -> Array:
    """Return M^(-1/2) times the products over i of x W_i^T (..., n, M), for weights W (p, M, d)."""
    phi = project(x, omega[0]) * omega.shape[1] ** -0.5
    for weights in omega[1:]:
        phi = phi * project(x, weights)
    return phi


def check_signs(name: str, signs: NDArray[Any], shape: tuple[int | str, ...]) -> None:
    """Raise unless `signs` are 1 and -1 in that shape."""
    host_array(name, signs, shape, ("int8",))
    if not (np.abs(signs) == 1).all():
        raise ParameterError(f"{name} must hold 1 and -1 only")


def random_signs(rng: np.random.Generator, *shape: int) -> NDArray[np.int8]:
    """Return independent fair signs, not writeable."""
    check_room("the signs", shape, 1)
    signs = 2 * rng.integers(2, size=shape, dtype=np.int8) - 1
    signs.setflags(write=False)
    return signs
