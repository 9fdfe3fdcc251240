"""Running cases, and the growth of time and memory with n."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernattn._array import Array
from kernattn._check import positive_integer
from kernattn.attention import causal_linear_attention, softmax_attention
from kernattn.bench.cases import CASES, Options
from kernattn.bench.floor import Rates, measure_rates
from kernattn.bench.timing import race
from kernattn.errors import MissingExtra, ParameterError
from kernattn.features import elu1, random_features
from kernattn.kernels import Softmax

__all__ = ["Row", "bench", "scaling"]

Row = dict[str, Any]


def _check_cases(names: Sequence[str]) -> None:
    """Raise unless every name is a case."""
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise ParameterError(f"cases are {', '.join(CASES)}; got {', '.join(unknown)}")


def bench(names: Sequence[str], options: Options, rounds: int = 15, seconds: float = 15.0) -> list[Row]:
    r"""Race each case against its peers: one row per contestant, :math:`ratio = t_{peer} / t_{ours}`.

    Parameters
    ----------
    names : sequence of str
        Cases, names of `kernattn.bench.CASES`.
    options : Options
        Sizes and dtype.
    rounds : int
        Turns of every contestant.
    seconds : float
        Time after which a case stops early, once each contestant had three turns.

    Returns
    -------
    list of dict
        Fields case, contestant, n, heads, dtype, milliseconds (median, low and high quartile), ratio to ours, floor
        in milliseconds, ours over floor, and the squared error where the case has one. Of a case whose data need a
        package that is not installed there is one row of case and skipped, the reason.

    Raises
    ------
    ParameterError
        If a name is no case.
    """
    _check_cases(names)
    for name in ("n", "heads", "dim", "features"):
        positive_integer(name, getattr(options, name))
    rates = measure_rates(options.dtype)
    return [row for name in names for row in _case(name, options, rates, rounds, seconds)]


def _case(name: str, options: Options, rates: Rates, rounds: int, seconds: float) -> list[Row]:
    try:
        entry = CASES[name](options)
    except MissingExtra as error:
        return [{"case": name, "skipped": str(error)}]
    times = race({"ours": entry.ours, **entry.rivals}, rounds, seconds)
    floor = rates.seconds(entry.work)
    rows = []
    for contestant, time in times.items():
        row: Row = {
            "case": name,
            "contestant": contestant,
            "n": options.n,
            "heads": options.heads,
            "dtype": options.dtype,
        }
        row |= {"median_ms": 1e3 * time.median, "low_ms": 1e3 * time.low, "high_ms": 1e3 * time.high}
        row |= {"ratio": time.median / times["ours"].median, "floor_ms": 1e3 * floor, "over_floor": time.median / floor}
        if contestant in entry.errors:
            row["squared_error"] = entry.errors[contestant]()
        rows.append(row)
    return rows


def scaling(
    sizes: Sequence[int], heads: int = 8, dim: int = 64, features: int = 256, seconds: float = 6.0
) -> list[Row]:
    """Time some heads against n, with the memory beyond inputs and outputs; a method that takes too long stops growing.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of tokens, ascending.
    heads : int
        Number of heads.
    dim : int
        Dimension of queries, keys and values.
    features : int
        Features of FAVOR+.
    seconds : float
        A method whose call took longer is not run at larger sizes.

    Returns
    -------
    list of dict
        Fields method, n, heads, dim, milliseconds, nanoseconds per token and head, and mebibytes beyond inputs and
        outputs.
    """
    phi = random_features(Softmax(), dim, features, "positive", rng=0)
    methods: dict[str, Callable[[Array, Array, Array], Any]] = {
        "causal elu + 1": lambda q, k, v: causal_linear_attention(q, k, v, elu1()),
        f"causal FAVOR+, m = {features}": lambda q, k, v: causal_linear_attention(q, k, v, phi),
        "exact softmax, causal": partial(softmax_attention, causal=True),
        "identity (a copy of v)": lambda q, k, v: v.copy(),
    }
    rows: list[Row] = []
    slow: set[str] = set()
    for n in sizes:
        rng = np.random.default_rng(n)
        q, k, v = (rng.standard_normal((heads, n, dim), dtype=np.float32) for _ in range(3))
        for method, call in methods.items():
            if method in slow:
                continue
            run = partial(call, q, k, v)
            time = race({method: run}, 5, seconds)[method].median
            row: Row = {"method": method, "n": n, "heads": heads, "dim": dim}
            row |= {"milliseconds": 1e3 * time, "ns_per_token": 1e9 * time / (n * heads)}
            rows.append(row | {"extra_mib": (_peak(run) - v.nbytes) / 2**20})
            if time > seconds:
                slow.add(method)
    return rows


def _peak(run: Callable[[], Any]) -> int:
    """Return the most memory that a call held at once, its output included."""
    tracemalloc.start()
    try:
        kept = run()
        _, peak = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return peak
