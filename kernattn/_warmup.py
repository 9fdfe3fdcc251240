"""Compile before the first call has to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from kernattn._arrays.precision import precision
from kernattn._gradients import vjp
from kernattn._runtime.checks import boolean, shown
from kernattn._runtime.compiling import teller
from kernattn._runtime.fork import import_whole
from kernattn.attention import (
    LinearState,
    attend,
    causal_linear_attention,
    gated_linear_attention,
    gated_linear_attention_step,
    key_state,
    linear_attention_step,
    softmax_attention,
)
from kernattn.errors import BackendUnavailable, DTypeError, ParameterError
from kernattn.features import FeatureMap, elu1, random_features
from kernattn.kernels import Gaussian, Softmax
from kernattn.ops.dispatch import missing


def warmup(
    dtypes: Sequence[str] = ("float32",),
    *,
    gates: bool = False,
    gradients: bool = False,
    progress: bool | None = None,
) -> dict[str, float]:
    r"""Compile the CPU's loops, by calls on :math:`n = 4` tokens: within a minute for a dtype, once for a machine.

    `kernattn bench --start` times it. One compilation of attention's loops, cached on disk, serves every map, shape and
    mask of a dtype, in this process and in later ones. float16 and bfloat16 run on the loops of float32; those of the
    matrix unit are compiled with these where there is one, unless `KERNATTN_MATRIX_UNIT=0` turns it off. Kernel
    matrices, Hadamard features, sketches, Gram-Schmidt and short convolutions have loops of their own, which their
    first call compiles, and so have gates and pullbacks, unless they are asked for. `kernattn warmup` is the same on
    the command line.

    Parameters
    ----------
    dtypes : sequence of str
        "float32", "float64" or both.
    gates : bool
        Whether to compile gated linear attention, its step and decays of weighted means as well.
    gradients : bool
        Whether to compile the pullbacks of what is compiled as well: those of linear attention, and of gates.
    progress : bool or None
        Show on stderr what is being compiled: a line for every loop, or nothing. None shows one line that a terminal
        overwrites, and elsewhere says once that loops are compiled.

    Returns
    -------
    dict of str to float
        The seconds that each dtype took; a fraction of one where the loops were compiled before.

    Raises
    ------
    DTypeError
        If `dtypes` is no list or tuple.
    ParameterError
        If a dtype is another one, `gates` or `gradients` neither True nor False, or `progress` none of the three.
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
    boolean("gates", gates)
    boolean("gradients", gradients)
    asked: object = progress
    if asked is not None and not isinstance(asked, bool):
        raise ParameterError(f"progress must be True, False or None; got {shown(asked)}")
    reason = missing("cpu")
    if reason is not None:
        raise BackendUnavailable(f"there is nothing to warm up: {reason}")
    names = [*FORWARDS, *(GATES if gates else ())]
    if gradients:
        names += ["pullback", *(GATED_PULLBACKS if gates else ())]
    unit = import_whole("kernattn.ops._numba.matrix.unit").why_not() is None
    own = {"float32": names + ["matrix"] * unit, "float64": names}
    return {dtype: _compile_calls(dtype, own[dtype], progress) for dtype in dict.fromkeys(dtypes)}


def preparation(**calls: Sequence[str]) -> Callable[[], None]:
    """Return a function that compiles, where it can be, what these calls with arrays of each dtype need."""

    def prepare() -> None:
        if missing("cpu") is None:
            for dtype, names in calls.items():
                _compile_calls(dtype, names)

    return prepare


def _compile_calls(dtype: str, names: Sequence[str], progress: bool | None = None) -> float:
    """Compile what calls of these names need, or load it from disk; return the seconds that it took."""
    start = perf_counter()
    x = np.ones((1, 4, 4), dtype)
    with teller.showing(progress):
        for i, name in enumerate(names):
            teller.place = f"[{'#' * i}{'.' * (len(names) - i)}] "
            CALLS[name](x)
    return perf_counter() - start


def _helpers(_: Any) -> None:
    import_whole("kernattn.ops._numba.helper_threads").ready()


def _state(x: Any) -> LinearState:
    return key_state(x, x, PHI, backend="cpu")


def _pull(x: Any) -> None:
    (out, _), pullback = vjp(causal_linear_attention, x, x, x, PHI, state=_state(x), backend="cpu")
    pullback((out, None))


def _gates(x: Any) -> dict[str, Any]:
    return {"g": -x[..., 0], "beta": x[..., 0]}


def _gated_step(x: Any) -> None:
    g, row = -x[:, 0, 0], x[:, 0]
    gated_linear_attention_step(None, row, row, row, g=g, backend="cpu")
    linear_attention_step(_state(x), row, row, row, PHI, g=g, backend="cpu")


def _pull_gates(x: Any, **options: Any) -> None:
    (out, _), pullback = vjp(gated_linear_attention, x, x, x, **options, backend="cpu")
    pullback((out, None))


def _on_unit(_: Any) -> None:
    rows = np.ones((1, 32, 128), np.float32)  # whole tiles, and as many features as the unit serves
    with precision("tf32"):
        _, state = causal_linear_attention(rows, rows, rows, PHI, backend="cpu")
        attend(state, rows, PHI, backend="cpu")
        softmax_attention(np.ones((1, 256, 128), np.float32), rows, rows, backend="cpu")
    random_features(Softmax(), 32, 32, rng=0)(np.ones((256, 32), np.float16), backend="cpu")


def _asymmetric() -> FeatureMap:
    rows = np.random.default_rng(0).standard_normal((2, 8, 4))
    return random_features(Softmax(), 4, 4, "favor_sharp_asymmetric", data=(rows[0], rows[1]), rng=0)


PHI = elu1()
CALLS: dict[str, Callable[[Any], object]] = {
    "crew": _helpers,
    "key_state": _state,
    "causal": lambda x: causal_linear_attention(x, x, x, PHI, state=_state(x), backend="cpu"),
    "attend": lambda x: attend(_state(x), x, PHI, backend="cpu"),
    "step": lambda x: linear_attention_step(_state(x), x[:, 0], x[:, 0], x[:, 0], PHI, backend="cpu"),
    "softmax": lambda x: softmax_attention(x, x, x, backend="cpu"),
    "features": lambda x: PHI(x, backend="cpu"),
    "matrix": _on_unit,
    "scales": lambda x: _asymmetric().query(x, backend="cpu"),
    "kernel": lambda x: Gaussian()(x[0], x[0]),
    "pullback": _pull,
    "gated": lambda x: gated_linear_attention(x, x, x, **_gates(x), l2_normalise=True, backend="cpu"),
    "gated_step": _gated_step,
    "decays": lambda x: causal_linear_attention(x, x, x, PHI, g=-x[..., 0], backend="cpu"),
    "gated_pullback": lambda x: _pull_gates(x, **_gates(x), l2_normalise=True),
    "plain_pullback": lambda x: _pull_gates(x, g=-x[..., 0]),
    "general_pullback": lambda x: _pull_gates(x, gk=-x, erase=(x / 4, x / 4)),
}
FORWARDS = ("crew", "key_state", "causal", "attend", "step", "softmax", "features")
GATES = ("gated", "gated_step", "decays")
GATED_PULLBACKS = ("gated_pullback", "plain_pullback", "general_pullback")
