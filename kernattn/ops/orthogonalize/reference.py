"""Orthonormal rows in array-API: Gram-Schmidt row by row, or Householder reflections by the library's QR."""

from types import ModuleType

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace


def orthogonalize(blocks: Array, method: str) -> Array:
    """Return orthonormal rows, (..., r, d), in the dtype of blocks."""
    if method == "qr":
        return by_qr(blocks)
    xp = namespace(blocks=blocks)
    a = xp.astype(blocks, accumulation_dtype(xp, blocks), copy=False)
    largest = xp.max(xp.abs(a), axis=-1, keepdims=True)
    a = a / xp.where(largest == 0, xp.ones_like(largest), largest)  # squares neither overflow nor vanish
    q = a[..., :0, :]
    for i in range(a.shape[-2]):
        row = a[..., i : i + 1, :]  # (..., 1, d)
        for least in (0.0, 0.5):  # twice is enough, unless the second time takes away more than half
            row = row - (row @ xp.matrix_transpose(q)) @ q
            row = _unit(xp, row, least)
        q = xp.concat([q, row], axis=-2)
    return xp.astype(q, blocks.dtype, copy=False)


def _unit(xp: ModuleType, row: Array, least: float) -> Array:
    """Return the row at length 1, or NaN where its length is 0 or below the least."""
    length = xp.sqrt(xp.sum(row * row, axis=-1, keepdims=True))
    return row / xp.where((length > 0.0) & (length >= least), length, xp.nan * length)


def by_qr(blocks: Array) -> Array:
    """Return orthonormal rows by QR.

    LAPACK's R has a diagonal of either sign. Without the sign the frame of a Gaussian block is not Haar: positive
    features then have a wrong mean, however many there are.
    """
    xp = namespace(blocks=blocks)
    a = xp.astype(blocks, accumulation_dtype(xp, blocks), copy=False)
    q, r = xp.linalg.qr(xp.matrix_transpose(a))  # (..., d, r), (..., r, r)
    diagonal = xp.linalg.diagonal(r)
    one = xp.ones_like(diagonal)
    lost = xp.cumulative_sum(xp.astype(diagonal == 0, one.dtype), axis=-1) > 0
    sign = xp.where(lost, xp.nan * one, xp.where(diagonal < 0, -one, one))
    return xp.astype(xp.matrix_transpose(q * sign[..., None, :]), blocks.dtype, copy=False)
