"""Seconds of whole generations, from steps that are timed at a few positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.cpu import peers
from bench.cpu.generate import in_onnx, ours
from bench.cpu.generate.counts import Setting, cached, linear, prefixes, whole
from bench.cpu.generate.in_torch import InTorch
from bench.races import Row
from kernattn._runtime.checks import positive_integer
from kernattn._runtime.parallel import threads
from kernattn.bench import HostClock
from kernattn.bench._clock import Call
from kernattn.bench._tables import Column, number_column, text_column
from kernattn.bench._turns import take_turns
from kernattn.features import elu1
from kernattn.ops._numba.codegen.registers import VECTOR
from kernattn.transformer import Config, initial_params
from kernattn.transformer._parts import Params

SHORT = 784
"""Steps up to which there are 8 layers, as Katharopoulos et al. (2020) have for MNIST, and else 16, as for CIFAR-10."""

ALONE = 4096
"""Steps beyond which the recurrence runs alone."""

POSITIONS = 3
VOCAB = 256

WHOLE, PREFIX, CACHE = "(a) all tokens, every step", "(b) the prefix, every step", "(c) keys and values kept"
RECURRENT, HASHED = "ours, linear, recurrent", "LSH, all tokens, every step"
COUNTS = {RECURRENT: linear, WHOLE: whole, PREFIX: prefixes, CACHE: cached, HASHED: None}


def _bound(row: Any) -> str:
    return "" if "bound" not in row else f"{row['bound']:.4g}" + (f" ({row['masked']:.4g})" if "masked" in row else "")


GENERATION = (
    text_column("contestant", "contestant"),
    text_column("batch", "batch", right=True),
    number_column("times ours", "ratio", ".4g"),
    Column("at equal rates", _bound),
    number_column("ms a step", "ms_per_step", ".4g"),
    number_column("sequences a second", "sequences_per_second", ".3g"),
    number_column("GFLOP/s", "gflops", ".3g"),
    text_column("steps", "n", right=True),
    text_column("layers", "layers", right=True),
    text_column("bits", "vector_bits", right=True),
    text_column("threads", "threads", right=True),
)


def generation(
    steps: Sequence[int],
    batches: Sequence[int] = (1, 32),
    rounds: int = 5,
    seconds: float = 15.0,
    heads: int = 8,
    dim: int = 32,
    report: Callable[[list[Row]], None] = lambda rows: None,
) -> list[Row]:
    r"""Race generations, :math:`t = \sum_{i=1}^n t_i`: linear attention as a recurrence against what has no state.

    Weights are random, attention is elu + 1 or exact; there are 8 layers up to 784 steps, else 16, and beyond 4096 the
    recurrence runs alone. Steps whose cost grows are timed at the three positions of Gauss's rule, which integrates
    polynomials of t up to degree five without error; that of a prefix is one of degree two. Passes over prefixes and
    whole sequences are timed on one sequence and taken as many times as there are in the batch. Contestants of a
    position are timed in alternation. `bound` is what the ratio would be at equal rates of products, by their counts
    alone, and `masked` what it would be with masked scores computed, too; `gflops` is the rate of each. `report` is
    told all rows so far after each number of steps.
    """
    rows: list[Row] = []
    peers.limit_blas()
    for name, sizes in {"steps": steps, "batch": batches, "heads": [heads], "dim": [dim], "rounds": [rounds]}.items():
        for size in sizes:
            positive_integer(name, size)
    for n in steps:
        setting = Setting(n, 8 if n <= SHORT else 16, heads, dim)
        means = _means(setting, batches, partial(_raced, rounds=rounds, seconds=seconds))
        for batch in batches:
            rows += _told(setting, batch, means)
        report(rows)
    return rows


class _Key(NamedTuple):
    """Who takes steps how, of how many sequences; 0 where one stands for each."""

    name: str
    batch: int = 0


def _raced(calls: Mapping[_Key, Call], rounds: int, seconds: float) -> dict[_Key, float]:
    """Return the median seconds of those that could run."""
    named = {str(key): call for key, call in calls.items()}
    rivals = [str(key) for key in calls if key.name != RECURRENT]
    times, _ = take_turns(named, HostClock(), rounds, seconds, rivals)
    return {key: median(times[str(key)]) for key in calls if str(key) in times}


def _means(
    s: Setting, batches: Sequence[int], raced: Callable[[Mapping[_Key, Call]], dict[_Key, float]]
) -> dict[_Key, float]:
    """Return the mean seconds of a step."""
    config = Config(dim=s.dim, layers=s.layers, heads=s.heads, vocab=VOCAB, length=s.steps + 1)
    params, rng = initial_params(config, rng=0), np.random.default_rng(0)
    tokens = rng.integers(VOCAB, size=max(s.steps, *batches))
    linears = {_Key(RECURRENT, batch): ours.recurrent(params, config, tokens[:batch], elu1()) for batch in batches}
    if s.steps > ALONE:
        return raced(linears)
    torch = InTorch(params, config) if peers.have("torch") else None
    tokens = tokens[: s.steps]
    calls = {_Key(f"{WHOLE}: ours"): ours.whole(params, config, tokens)}
    calls[_Key(f"{HASHED}: ours")] = ours.hashed(params, config, tokens)
    if torch is not None:
        calls[_Key(f"{WHOLE}: torch")] = torch.whole(tokens)
    races = [raced({**linears, **calls})]
    nodes, weights = np.polynomial.legendre.leggauss(POSITIONS)
    for node in nodes:
        t = max(1, round(s.steps * (node + 1) / 2))
        races.append(raced({**linears, **_growing(s, params, config, torch, tokens[:t], batches)}))
    means = races[0] | {key: median(times[key] for times in races) for key in linears}
    for key in races[1]:
        if key not in linears and all(key in times for times in races[1:]):
            means[key] = sum(float(w) / 2 * times[key] for w, times in zip(weights, races[1:], strict=True))
    return means


def _growing(
    s: Setting, params: Params, config: Config, torch: InTorch | None, tokens: NDArray[Any], batches: Sequence[int]
) -> dict[_Key, Call]:
    """Return the steps after tokens (t,) whose cost hangs on t."""
    calls = {_Key(f"{PREFIX}: ours"): ours.prefix(params, config, tokens)}
    if torch is not None:
        calls[_Key(f"{PREFIX}: torch")] = torch.prefix(tokens)
    for batch in batches:
        rng = np.random.default_rng(batch)
        last = rng.integers(VOCAB, size=batch)
        k, v = (rng.standard_normal((batch, s.heads, len(tokens), s.d), dtype=np.float32) for _ in range(2))
        calls[_Key(f"{CACHE}: ours", batch)] = ours.cached(params, config, last, k, v)
        if torch is not None:
            for way, call in torch.cached(last, k, v, s.steps + 1).items():
                calls[_Key(f"{CACHE}: torch, {way}", batch)] = call
        if in_onnx.is_installed():
            calls[_Key(f"{CACHE}: ONNX Runtime", batch)] = in_onnx.cached(params, config, last, k, v, s.steps + 1)
    return calls


def _told(s: Setting, batch: int, means: Mapping[_Key, float]) -> Iterator[Row]:
    """Yield the rows of a batch."""
    reference = means[_Key(RECURRENT, batch)]
    fixed: Row = {"case": "generate", "n": s.steps, "layers": s.layers, "batch": batch, "dtype": "float32"}
    fixed |= {"threads": threads(), "vector_bits": 8 * VECTOR, "begins": "awake"}
    for name, count in COUNTS.items():
        for key, taken in means.items():
            if not key.name.startswith(name) or key.batch not in (0, batch):
                continue
            mean = taken if key.batch else taken * batch
            row: Row = {**fixed, "contestant": key.name, "ms_per_step": 1e3 * mean, "ratio": mean / reference}
            row["sequences_per_second"] = batch / (mean * s.steps)
            if count is not None:
                row |= {"bound": count(s) / linear(s), "gflops": 1e-9 * batch * count(s) / mean}
            if name == WHOLE:
                row["masked"] = whole(s, masked=True) / linear(s)
            yield row
