"""The growth of time and memory with n."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.races import Row
from kernattn._arrays.namespaces import Array
from kernattn._runtime.extras import require
from kernattn._runtime.files import replacing
from kernattn.attention import causal_linear_attention, softmax_attention
from kernattn.bench import HostClock
from kernattn.bench._tables import number_column, text_column
from kernattn.bench._turns import take_turns
from kernattn.features import elu1, random_features
from kernattn.kernels import Softmax
from kernattn.studies._palette import series

SCALING = (
    text_column("method", "method"),
    text_column("n", "n", right=True),
    number_column("ms", "milliseconds", ".4g"),
    number_column("ns per token and head", "ns_per_token", ".4g"),
    number_column("MiB beyond inputs and output", "extra_mib", ".3g"),
)


def scaling(
    sizes: Sequence[int], heads: int = 8, dim: int = 64, features: int = 256, seconds: float = 1.0
) -> list[Row]:
    """Time some heads against n, with the mebibytes beyond inputs and outputs.

    A method whose call took longer than `seconds` is not run at larger sizes.
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
            times, failed = take_turns({method: run}, HostClock(), 5, seconds)
            if failed:  # for want of memory
                slow.add(method)
                continue
            time = median(times[method])
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


def scaling_figure(folder: Path, growth: Sequence[Mapping[str, Any]]) -> None:
    """Write scaling.png and scaling.svg: time and memory against n, from the rows of `scaling`.

    Memory of less than a kibibyte beyond inputs and outputs is not drawn.
    """
    figure = figure_of((9, 3.8))
    left, right = figure.subplots(1, 2)
    draw(left, growth, "milliseconds", 0.0, "milliseconds")
    draw(right, growth, "extra_mib", 2.0**-10, "MiB beyond inputs and output")
    left.legend(frameon=False, loc="upper left", fontsize="small")
    left.set_ylim(top=1e6)
    figure.suptitle(
        "{heads} heads, d = {dim}, float32: time and memory against the number of tokens".format(**growth[0])
    )
    save(figure, folder, "scaling")


def figure_of(size: tuple[float, float]) -> Any:
    """Return an empty figure of a size in inches."""
    return require("matplotlib.figure", "matplotlib", "the figure of a benchmark").Figure(
        figsize=size, layout="constrained"
    )


def draw(
    axis: Any,
    growth: Sequence[Mapping[str, Any]],
    field: str,
    least: float,
    words: str,
    label: Callable[[str], str] = str,
) -> None:
    """Draw a field of every method against n, where it is not below the least, each with its label."""
    for place, method in enumerate(dict.fromkeys(row["method"] for row in growth)):
        points = [row for row in growth if row["method"] == method and row[field] >= least]
        x, y = ([row[key] for row in points] for key in ("n", field))
        axis.loglog(x, y, label=label(method), **series(place))
    axis.set(xlabel="tokens n", ylabel=words)
    axis.set_xscale("log", base=2)
    axis.grid(alpha=0.3)


def save(figure: Any, folder: Path, name: str) -> None:
    """Write the figure as name.png and name.svg."""
    for form in ("png", "svg"):
        with replacing(folder / f"{name}.{form}") as file:
            figure.savefig(file, format=form, dpi=160)
