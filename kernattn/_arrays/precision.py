"""In which precision operands of products are taken: asked for around a call, read where a kernel is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from kernattn._runtime.checks import one_of

PRECISIONS = ("float32", "tf32", "bfloat16")
_products: ContextVar[str] = ContextVar("kernattn_float32_products", default="float32")


def precision(products: str) -> AbstractContextManager[None]:
    r"""Take products as :math:`\sum_i \tilde a_i \tilde b_i` of rounded operands, inside a ``with`` block.

    Sums stay in float32, and the default is "float32": nothing is rounded unless it is asked for. The choice holds for
    the calls of this thread (or asyncio task) inside the block.

    On a GPU, "tf32" and "bfloat16" round the operands of float32 arrays to ten bits of mantissa,
    :math:`|\tilde a - a| \le 2^{-11} |a|`, and tensor cores do the work; frequencies are multiplied in two parts and
    keep their precision. On a CPU whose matrix unit is used (``kernattn info`` says so), exact and linear attention
    take operands of float32 arrays as sums of two bfloat16 under both, :math:`|\tilde a - a| \le 2^{-17} |a|`. Under
    "bfloat16" weights and features of bfloat16 arrays are one in place of two, :math:`|\tilde a - a| \le 2^{-8} |a|`.
    A unit of pairs (AVX512_BF16) serves exact attention of bfloat16 arrays alone.

    It changes nothing elsewhere: on other backends, for arrays of other dtypes, and on devices older than compute
    capability 8.0, which have no tf32; `linear_attention_step` multiplies no matrices and rounds nothing.

    Parameters
    ----------
    products : {"float32", "tf32", "bfloat16"}
        The precision of the operands.

    Returns
    -------
    context manager
        Inside it the choice holds; blocks nest.

    Raises
    ------
    ParameterError
        If `products` is none of these.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.ones((4, 2), dtype=np.float32)
    >>> with ka.precision("tf32"):
    ...     out = ka.linear_attention(x, x, x, ka.features.elu1())
    >>> out.dtype
    dtype('float32')
    """
    one_of("products", products, PRECISIONS)
    return _ask_for(products)


@contextmanager
def _ask_for(products: str) -> Iterator[None]:
    token = _products.set(products)
    try:
        yield
    finally:
        _products.reset(token)


def float32_products() -> str:
    """Return the precision asked for here."""
    return _products.get()
