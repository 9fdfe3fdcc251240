"""Orthonormal rows of blocks given by the caller, in any array library."""

from __future__ import annotations

from kernattn._arrays.namespaces import Array, check_floating, namespace
from kernattn._runtime.checks import one_of
from kernattn.errors import EmptyInputError, ShapeError
from kernattn.ops.orthogonalize import OP

METHODS = ("gram_schmidt", "qr")


def orthogonalize(blocks: Array, method: str = "qr", *, backend: str | None = None) -> Array:
    r"""Make the rows of every block orthonormal: the rows of Q in :math:`A = L Q`, L of positive diagonal.

    .. math:: q_i = \frac{a_i - \sum_{j<i} (a_i^T q_j) q_j}{|a_i - \sum_{j<i} (a_i^T q_j) q_j|}

    L is lower triangular, so the first rows of a block and of its result span the same space, and the result is
    unique; of a block of independent normals it is Haar distributed. "gram_schmidt" subtracts every projection twice,
    which is enough for orthogonality to rounding however ill-conditioned the block is (Giraud, Langou and Rozloznik
    2005); "qr" is the library's own factorisation with the signs of R undone. Gram-Schmidt in Numba is faster than
    NumPy's QR (`kernattn bench --cases orthogonalize --dtype float64`); elsewhere than on NumPy and CuPy arrays it is a
    loop over rows in Python.

    Parameters
    ----------
    blocks : (..., r, d) array
        Blocks of r <= d linearly independent rows.
    method : str
        "qr" or "gram_schmidt"; they give the same rows up to rounding.
    backend : None, "reference", "cpu" or "gpu"
        Which implementation runs; None takes the fastest that there is for these arrays.

    Returns
    -------
    (..., r, d) array
        Orthonormal rows, of the kind, dtype and device of blocks. float16 and bfloat16 are computed in float32. No
        error is raised for rows that depend on those before them, as a GPU would have to be waited for: where such a
        row leaves nothing, as a row of zeros does, it and all the rows after it are NaN. Where rounding leaves a
        little, that decides its direction, orthonormal to the others if it is not NaN. A block with a NaN or an
        infinity has NaN in its result, and other blocks are not touched by it.

    Raises
    ------
    DTypeError
        If blocks is no array, or not of a real floating dtype.
    ShapeError
        If blocks has fewer than two axes, or more rows than columns.
    EmptyInputError
        If an axis of blocks has length 0.
    ParameterError
        If method or backend is no such name.
    BackendUnavailable
        If the backend cannot run here, or not on such an array.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.projections.orthogonalize(np.array([[3.0, 4.0], [2.0, 0.0]])).round(6)
    array([[ 0.6,  0.8],
           [ 0.8, -0.6]])
    """
    namespace(blocks=blocks)
    check_floating("blocks", blocks)
    one_of("method", method, METHODS)
    shape = tuple(blocks.shape)
    if len(shape) < 2:
        raise ShapeError(f"blocks must be (..., r, d); got shape {shape}")
    if 0 in shape:
        raise EmptyInputError(f"blocks must not be empty; got shape {shape}")
    if shape[-2] > shape[-1]:
        raise ShapeError(f"blocks must have r <= d, no more rows than columns; got shape {shape}")
    return OP.implementation(blocks, backend)(blocks, method)
