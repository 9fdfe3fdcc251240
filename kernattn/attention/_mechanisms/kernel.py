"""Exact attention whose weights are a kernel."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from types import ModuleType

import numpy as np

from kernattn._arrays.autocast import cast_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import (
    Array,
    accumulation_dtype,
    anywhere,
    constant,
    dtype_name,
    namespace,
    placement,
    without_flags,
    zero_masked,
)
from kernattn._plans.plan import ALL, CAUSAL
from kernattn._runtime.checks import boolean, instance_of
from kernattn._runtime.elsewhere import told_keywords
from kernattn._sums.peaked import PeakedSum, empty, finite, lowered_values, merge, quotient
from kernattn.attention._check import check_arrays
from kernattn.attention._mechanisms.widened import attend_to, is_narrow
from kernattn.attention._shapes import leading
from kernattn.attention._softmax import softmax_attention
from kernattn.errors import ParameterError
from kernattn.kernels import Gaussian, Kernel, Rows, Scaled, Softmax
from kernattn.kernels._rows import check_rows
from kernattn.ops.block_softmax.reference import cut_product
from kernattn.ops.pairwise.forms import SQUARED
from kernattn.ops.pairwise.reference import prepare_rows

KEYS = 512  # keys of a block
ENTRIES = 1 << 20  # weights of a block of queries and keys
ORDINARY = 2.0**-40, 2.0**10  # the largest weight of a row, between which its weights are taken as they are
SPREAD = {"float32": 2.0**10, "float64": 2.0**20}  # squared norms whose products round too much for distances


@traceable("kernel_attention")
@told_keywords
@cast_once
@without_flags
def kernel_attention(
    q: Array, k: Array, v: Array, kernel: Kernel, *, causal: bool = False, key_mask: Array | None = None
) -> Array:
    r"""Return exact attention by a kernel, :math:`o_i = \sum_j k(q_i, k_j) v_j / \sum_j k(q_i, k_j)`.

    Katharopoulos, Vyas, Pappas and Fleuret (2020), equation 3, for any kernel that is never negative: what linear
    attention by features of that kernel estimates. Blocks of queries meet blocks of keys: O(n) memory. Softmax is
    :func:`softmax_attention`. Gaussian is too, with a bias of keys, as :math:`e^{-|q - k|^2/2}` is
    :math:`e^{q^T k - |k|^2/2}` but for a factor of the row; rows whose norms would round that are taken by distances.
    A row whose kernel underflows with all keys is taken by logarithms, as far as the kernel has some:
    :class:`~kernattn.kernels.AdditiveChi2`, and a Matern kernel without a closed form, have those of their values.

    Parameters
    ----------
    q, k, v : (..., n, d), (..., l, d) and (..., l, e) arrays
        Queries, keys and values, of dtype float16, bfloat16, float32 or float64. Leading axes broadcast.
    kernel : Kernel
        One of `kernattn.kernels`, or made of them. A factor changes nothing.
    causal : bool
        Whether a query sees only what stands at or before it. The queries are the last n of the l positions: row i
        sees the keys :math:`j \le i + l - n`.
    key_mask : (..., l) bool array, optional
        True where there is a key.

    Returns
    -------
    (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs. A row that sees no key, or whose weights are all 0, is 0.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError
        Before any work, if an argument does not fit, or the kernel can be negative.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.zeros((1, 1)), np.array([[0.0], [1.0], [3.0]]), np.array([[1.0], [2.0], [3.0]])
    >>> ka.kernel_attention(q, k, v, ka.kernels.Laplacian()).round(4)
    array([[1.3297]])
    """
    instance_of("kernel", kernel, Kernel)
    check_arrays("qkv", q, k, v, key_mask=key_mask)
    causal = boolean("causal", causal)
    if kernel.signed:
        raise ParameterError(
            f"kernel must never be negative, as weights of attention are; {kernel} can be: a Polynomial kernel is not "
            "where its degree is even, nor one of from_function with signed=False"
        )
    while isinstance(kernel, Scaled):
        kernel = kernel.kernel
    if isinstance(kernel, Softmax):
        return softmax_attention(q, k, v, scale=kernel.scale, causal=causal, key_mask=key_mask)
    xp = namespace(q=q)
    k, v = zero_masked(k, key_mask), zero_masked(v, key_mask)  # what is hidden may lie outside of the kernel's domain
    if isinstance(kernel, Gaussian):
        out = _attend_by_softmax(xp, q, k, v, kernel, causal, key_mask)
        if out is not None:
            return out
    return _attend_by_blocks(xp, q, k, v, kernel, causal, key_mask)


def _attend_by_softmax(
    xp: ModuleType, q: Array, k: Array, v: Array, kernel: Gaussian, causal: bool, mask: Array | None
) -> Array | None:
    """Return attention by the Gaussian kernel; None where norms about the middle of the keys are large."""
    dtype, given = accumulation_dtype(xp, q), v.dtype
    scale = constant(xp, kernel.input_scale(q.shape[-1]), dtype, q)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        centre = prepare_rows(xp, xp.astype(k, dtype, copy=False), SQUARED)[0]
        if isinstance(q, np.ndarray):  # one array each
            q, k = q - centre, k - centre
            q *= scale
            k *= scale
        else:
            q, k = ((xp.astype(x, dtype, copy=False) - centre) * scale for x in (q, k))
        norms = xp.sum(k * k, axis=-1)
        most = xp.maximum(xp.max(xp.sum(q * q, axis=-1)), xp.max(norms))
    if anywhere(~(most <= SPREAD[dtype_name(q)])):
        return None
    plan = CAUSAL if causal else ALL
    out = attend_to(q, k, v, scale=1.0, key_mask=mask, key_bias=-0.5 * norms, plan=plan)
    del q, k, v  # room for what is rounded
    return xp.astype(out, given, copy=False)


def _attend_by_blocks(
    xp: ModuleType, q: Array, k: Array, v: Array, kernel: Kernel, causal: bool, mask: Array | None
) -> Array:
    """Return attention by any kernel, blocks of queries one after the other; NumPy's 16 bits are widened by blocks."""
    given, n, length, dtype, narrow = v.dtype, q.shape[-2], k.shape[-2], accumulation_dtype(xp, q), is_narrow(q)
    lead, ends = leading(2, q=q, k=k, v=v), [(low, min(low + KEYS, length)) for low in range(0, length, KEYS)]
    if narrow:
        kernel._rows(q[..., :1, :], k[..., :1, :], cross=True)
        kernel.check_domain("x", q)
        kernel.check_domain("y", k)
        rows = Rows(xp, q, k, True)
        factors = [lowered_values(xp, v[..., low:high, :].astype(dtype), (-2, -1))[1] for low, high in ends]
        factor = np.min(factors, axis=0)
    else:
        rows = kernel._rows(q, k, cross=True)
        v, factor, _ = lowered_values(xp, xp.astype(v, dtype, copy=False), (-2, -1))
    keys = [(replace(rows, y=rows.y[..., low:high, :], kept={}), low, high) for low, high in ends]
    step, outs = max(1, ENTRIES // (prod(lead) * min(KEYS, length))), []
    for begin in range(0, n, step):
        end = min(begin + step, n)
        total = empty(xp, lead, end - begin, end - begin, v.shape[-1], dtype, v)
        position = begin + length - n if causal else None
        for block, low, high in keys:
            if position is None or low < position + end - begin:
                own, values = block.block(slice(begin, end)), v[..., low:high, :]
                if narrow:
                    own, values = check_rows(own.x, own.y, True), values.astype(dtype) * factor
                hides = None if mask is None else mask[..., low:high]
                total = merge(xp, total, _sum_block(xp, own, values, kernel, position, low, hides))
        outs.append(quotient(xp, PeakedSum(total.s, total.z * factor[..., 0], total.peak), given))
    return xp.concat(outs, axis=-2)


def _sum_block(
    xp: ModuleType, rows: Rows, v: Array, kernel: Kernel, position: int | None, low: int, mask: Array | None
) -> PeakedSum:
    """Return the sums of a block of queries, the first of which stands at `position`, over keys from `low` on."""
    n, count = rows.x.shape[-2], rows.y.shape[-2]
    last = position - low if position is not None and position < low + count - 1 else None  # that row 0 sees
    sees = None if mask is None else mask[..., None, :]
    if last is not None:
        i, j = xp.arange(n, **placement(v)), xp.arange(count, **placement(v))
        upto = j <= i[:, None] + last
        sees = upto if sees is None else sees & upto
    values = kernel._of(rows)
    values = values if sees is None else xp.where(sees, values, xp.zeros_like(values))
    top = xp.max(values, axis=-1, keepdims=True)
    ordinary = (top > ORDINARY[0]) & (top < ORDINARY[1])
    if sees is not None:
        ordinary = ordinary | ~xp.any(sees, axis=-1, keepdims=True)
    unit = xp.zeros_like(top)
    if anywhere(~ordinary) or not anywhere(ordinary):
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            logs = kernel._logs(rows)
            logs = logs if sees is None else xp.where(sees, logs, -xp.inf)
            unit = xp.where(ordinary, unit, finite(xp, xp.max(logs, axis=-1, keepdims=True)))
            values = xp.where(ordinary, values, xp.exp(logs - unit))
    s = xp.matmul(values, v) if last is None else cut_product(xp, values, v, last)
    z = xp.sum(values, axis=-1)
    lead = tuple(s.shape[:-1])
    peak = xp.where(z == 0, -xp.inf, unit[..., 0])
    return PeakedSum(s, xp.broadcast_to(z, lead), xp.broadcast_to(peak, lead))
