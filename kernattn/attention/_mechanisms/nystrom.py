"""Attention by landmarks: Nystrom's approximation of the matrix of exact weights."""

from __future__ import annotations

from operator import index
from types import ModuleType

import numpy as np

from kernattn._arrays.autocast import cast_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import (
    Array,
    accumulation_dtype,
    constant,
    namespace,
    placement,
    without_flags,
    zero_masked,
)
from kernattn._runtime.checks import boolean, positive_integer
from kernattn._runtime.deprecated import old_arguments
from kernattn._runtime.elsewhere import told_keywords
from kernattn.attention._check import check_arrays
from kernattn.attention._mechanisms.widened import attend_to, mix, widened_once
from kernattn.attention._softmax import softmax_attention
from kernattn.errors import ParameterError


@old_arguments(landmarks="num_landmarks")
@traceable("nystrom_attention")
@told_keywords
@cast_once
@without_flags
def nystrom_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    num_landmarks: int,
    iterations: int = 6,
    key_mask: Array | None = None,
    causal: bool = False,
    backend: str | None = None,
) -> Array:
    r"""Return :math:`\sigma(q \tilde k^T)\, \sigma(\tilde q \tilde k^T)^+\, \sigma(\tilde q k^T)\, v`.

    :math:`\sigma` is the softmax of rows at scale :math:`d^{-1/2}`, and :math:`\tilde q, \tilde k` are landmarks: means
    of segments of nearly equal length. Nystromformer, Xiong et al. (2021), eq. 13. The pseudoinverse of
    A (Razavi et al. 2014) is :math:`Z \leftarrow \frac14 Z (13 I - A Z (15 I - A Z (7 I - A Z)))` from
    :math:`Z_0 = A^T / (|A|_1 |A|_\infty)`, for each matrix by itself. No matrix has n x l entries.

    Parameters
    ----------
    q, k, v : (..., n, d), (..., l, d) and (..., l, e) arrays
        Queries, keys and values, of dtype float16, bfloat16, float32 or float64. Leading axes broadcast.
    num_landmarks : int
        How many landmarks. Of fewer tokens, each is one.
    iterations : int
        Steps towards the pseudoinverse.
    key_mask : (..., l) bool array, optional
        True where there is a key. What is masked is in no landmark and no softmax; where n = l, queries and keys are
        of one sequence, and a masked token's query is in no landmark either.
    causal : bool
        Only False: a landmark is a mean of tokens on both sides of a query.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation of exact attention runs; None chooses the fastest for these arrays.

    Returns
    -------
    (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs; 0 where every key is masked. Rows of weights sum to 1 as
        far as the iterations have converged, and can have negative entries.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 7, 2))
    >>> out = ka.attention.nystrom_attention(q, k, v, num_landmarks=7, iterations=30)
    >>> np.allclose(out, ka.softmax_attention(q, k, v))  # every token is a landmark
    True
    """
    check_arrays("qkv", q, k, v, key_mask=key_mask)
    count, iterations = positive_integer("num_landmarks", num_landmarks), positive_integer("iterations", iterations)
    if boolean("causal", causal):
        raise ParameterError(
            "causal must be False for Nystrom attention: landmarks are means over the whole sequence, which tokens "
            "after a query are part of; got True"
        )
    xp = namespace(q=q)
    dtype, given = accumulation_dtype(xp, q), q.dtype
    q, k, v = widened_once(q, k, v)
    of_queries = key_mask if q.shape[-2] == k.shape[-2] else None
    few_q, there_q = _average_segments(xp, q, count, of_queries)
    few_k, there_k = _average_segments(xp, k, count, key_mask)
    one = constant(xp, np.eye(few_k.shape[-2]), dtype, q)
    a = softmax_attention(few_q, few_k, one, key_mask=there_k, backend=backend)
    if there_q is not None:
        a = xp.where(there_q[..., None], a, xp.zeros_like(a))
    far = attend_to(few_q, k, v, key_mask=key_mask, backend=backend)
    values = xp.matmul(_invert(xp, a, iterations), far)
    out = attend_to(q, few_k, values, key_mask=there_k, backend=backend)
    return xp.astype(out, given, copy=False)


def _average_segments(xp: ModuleType, x: Array, count: int, mask: Array | None) -> tuple[Array, Array | None]:
    """Return means of segments of the tokens that there are, (..., c, d), and which landmarks (..., c) have any."""
    n = index(x.shape[-2])
    count = min(count, n)
    if mask is None:
        segment = np.arange(n) * count // n
        weights = (segment == np.arange(count)[:, None]) / np.bincount(segment)[:, None]
        return mix(xp, constant(xp, weights, accumulation_dtype(xp, x), x), x), None
    number = xp.cumulative_sum(xp.astype(mask, xp.int64), axis=-1)
    total = number[..., -1:]
    one = xp.ones_like(total)
    segment = ((number - 1) * count) // xp.where(total > 0, total, one)
    member = (segment[..., None, :] == xp.arange(count, **placement(x))[:, None]) & mask[..., None, :]
    weights = xp.astype(member, accumulation_dtype(xp, x))
    size = xp.sum(weights, axis=-1, keepdims=True)
    sums = mix(xp, weights, zero_masked(x, mask))
    return sums / xp.where(size > 0, size, xp.ones_like(size)), size[..., 0] > 0


def _invert(xp: ModuleType, a: Array, iterations: int) -> Array:
    """Return the approximate pseudoinverse of a (..., c, c) after so many steps from its transpose."""
    size = xp.abs(a)
    norm = xp.max(xp.sum(size, axis=-2), axis=-1) * xp.max(xp.sum(size, axis=-1), axis=-1)
    z = xp.matrix_transpose(a) / xp.where(norm > 0, norm, xp.ones_like(norm))[..., None, None]
    for _ in range(iterations):
        az = xp.matmul(a, z)
        z = 0.25 * (13 * z - xp.matmul(15 * z - xp.matmul(7 * z - xp.matmul(z, az), az), az))
    return z
