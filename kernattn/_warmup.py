"""Compile before the first call has to."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from kernattn._check import boolean, shown
from kernattn._dispatch import missing
from kernattn._gradients import vjp
from kernattn.attention import (
    attend,
    causal_linear_attention,
    key_state,
    linear_attention_step,
    softmax_attention,
)
from kernattn.errors import BackendUnavailable, DTypeError, ParameterError
from kernattn.features import elu1

__all__ = ["warmup"]


def warmup(dtypes: Sequence[str] = ("float32",), *, gradients: bool = False) -> dict[str, float]:
    r"""Compile the CPU's loops, by calls on :math:`n = 4` tokens: within half a minute for a dtype, once for a machine.

    `kernattn bench --start` times it. One compilation of attention's loops, cached on disk, serves every map, shape and
    mask of a dtype, in this process and in later ones. float16 and bfloat16 run on the loops of float32. Kernel
    matrices, Hadamard features, sketches and Gram-Schmidt have loops of their own, which their first call compiles, and
    so have pullbacks, unless they are asked for.

    Parameters
    ----------
    dtypes : sequence of str
        "float32", "float64" or both.
    gradients : bool
        Whether to compile the pullbacks of linear attention as well, which takes longer than all the rest.

    Returns
    -------
    dict of str to float
        The seconds that each dtype took; a fraction of one where the loops were compiled before.

    Raises
    ------
    DTypeError
        If `dtypes` is no list or tuple.
    ParameterError
        If a dtype is another one, or `gradients` neither True nor False.
    BackendUnavailable
        If Numba is not installed.

    Examples
    --------
    >>> import kernattn as ka
    >>> seconds = ka.warmup()
    >>> list(seconds)
    ['float32']
    """
    wanted: object = dtypes
    if not isinstance(wanted, list | tuple | set | frozenset):
        raise DTypeError(f"dtypes must be a list or tuple of 'float32' and 'float64'; got {shown(wanted)}")
    for dtype in dtypes:
        given: object = dtype
        if not isinstance(given, str) or given not in ("float32", "float64"):
            raise ParameterError(f"dtypes must be of 'float32' and 'float64'; got {shown(dtype)}")
    boolean("gradients", gradients)
    reason = missing("cpu")
    if reason is not None:
        raise BackendUnavailable(f"there is nothing to warm up: {reason}")
    from kernattn.ops._numba.crew import ready

    ready()
    phi, seconds = elu1(), {}
    for dtype in dtypes:
        start = perf_counter()
        x = np.ones((1, 4, 4), dtype)
        state = key_state(x, x, phi, backend="cpu")
        causal_linear_attention(x, x, x, phi, state=state, backend="cpu")
        attend(state, x, phi, backend="cpu")
        linear_attention_step(state, x[:, 0], x[:, 0], x[:, 0], phi, backend="cpu")
        softmax_attention(x, x, x, backend="cpu")
        phi(x, backend="cpu")
        if gradients:
            (out, _), pullback = vjp(causal_linear_attention, x, x, x, phi, state=state, backend="cpu")
            pullback((out, None))
        seconds[dtype] = perf_counter() - start
    return seconds
