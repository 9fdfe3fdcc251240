"""The growth of forward and backward with n: time, and memory beyond what is given and returned."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.cpu.scaling import draw, figure_of, save
from bench.races import Row
from kernattn._arrays.namespaces import Array
from kernattn._gradients import vjp
from kernattn.attention import causal_linear_attention, softmax_attention
from kernattn.bench import HostClock
from kernattn.bench._tables import number_column, text_column
from kernattn.bench._turns import take_turns
from kernattn.features import elu1, random_features
from kernattn.kernels import Softmax
from kernattn.studies._palette import GREY

SCALING_BACKWARD = (
    text_column("method", "method"),
    text_column("n", "n", right=True),
    number_column("forward, ms", "forward_ms", ".4g"),
    number_column("backward, ms", "backward_ms", ".4g"),
    number_column("ns per token and head", "ns_per_token", ".4g"),
    number_column("bytes kept a row", "kept_bytes", ".3g"),
    number_column("MiB beyond inputs, output and gradients", "extra_mib", ".3g"),
)

_Forward = Callable[[], tuple[Array, Callable[[Array], tuple[Array, ...]]]]  # -> the output, and its pullback


def _methods(dim: int, features: int) -> dict[str, Callable[[Array, Array, Array], _Forward]]:
    """Return by name what makes of q, k and v a forward that returns the output and its pullback."""
    phi = random_features(Softmax(), dim, features, "positive", rng=0)

    def linear(phi: Any, q: Array, k: Array, v: Array) -> Any:
        (out, _), pullback = vjp(causal_linear_attention, q, k, v, phi)
        return out, lambda g: pullback((g, None))[:3]

    def exact(q: Array, k: Array, v: Array) -> Any:
        out, pullback = vjp(softmax_attention, q, k, v, causal=True)
        return out, lambda g: pullback(g)[:3]

    calls: dict[str, Callable[[Array, Array, Array], Any]] = {
        "causal elu + 1": partial(linear, elu1()),
        f"causal FAVOR+, m = {features}": partial(linear, phi),
        "exact softmax, causal": exact,
        "identity (a copy of v)": lambda q, k, v: (v.copy(), lambda g: (g.copy(),)),
    }
    return {name: partial(partial, call) for name, call in calls.items()}


def scaling_backward(
    sizes: Sequence[int], heads: int = 8, dim: int = 64, features: int = 256, seconds: float = 8.0
) -> list[Row]:
    """Time forward and backward of some heads against n, as Fig. 3 of Choromanski et al. 2021 does, and their memory.

    A method stops before the length at which both would take longer than `seconds`, as they grew last. Memory is that
    of NumPy's arrays and of the scratch of the loops: bytes kept a row of a head between the two beyond inputs and
    output, and mebibytes that both held at once beyond inputs, output and gradients.
    """
    rows: list[Row] = []
    going = {name: (make, 0.0) for name, make in _methods(dim, features).items()}
    for n in sizes:
        rng = np.random.default_rng(n)
        q, k, v, g = (rng.standard_normal((heads, n, dim), dtype=np.float32) for _ in range(4))
        for name, (make, before) in list(going.items()):
            forward = make(q, k, v)
            times, failed = take_turns({"forward": forward, "backward": partial(forward()[1], g)}, HostClock(), 5, 1.0)
            if failed:  # for want of memory
                del going[name]
                continue
            ahead, back = median(times["forward"]), median(times["backward"])
            row: Row = {"method": name, "n": n, "heads": heads, "dim": dim, "seconds": seconds}
            row |= {"forward_ms": 1e3 * ahead, "backward_ms": 1e3 * back}
            row |= {"ns_per_token": 1e9 * (ahead + back) / (n * heads)}
            kept, extra = _memory(forward, g)
            rows.append(row | {"kept_bytes": kept / (n * heads), "extra_mib": extra / 2**20})
            now = ahead + back
            going[name] = make, now
            if now * (now / before if before else 2.0) > seconds:
                del going[name]
    return rows


def _memory(forward: _Forward, g: Array) -> tuple[int, int]:
    """Return the bytes kept between the two beyond the output, and the most of both beyond output and gradients."""
    tracemalloc.start()  # which is told of NumPy's arrays, and of what compiled loops allocate
    try:
        out, pullback = forward()
        between, _ = tracemalloc.get_traced_memory()
        gradients = pullback(g)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return between - out.nbytes, peak - out.nbytes - sum(x.nbytes for x in gradients)


def slope(n: Sequence[int], y: Sequence[float]) -> float | None:
    """Return the power of n with which y grows over the longer half of the lengths; None where there are too few."""
    last = max(2, len(n) // 2 + 1)
    return float(np.polyfit(np.log(n[-last:]), np.log(y[-last:]), 1)[0]) if len(n) > 1 else None


def scaling_backward_figure(folder: Path, growth: Sequence[Mapping[str, Any]]) -> None:
    """Write scaling-backward.png and .svg: time of forward and backward, and memory, against n, with fitted slopes."""
    figure = figure_of((13, 4.2))
    longest = max(row["n"] for row in growth)

    def label(method: str, field: str, least: float) -> str:
        points = [row for row in growth if row["method"] == method and row[field] > least]
        power = slope([row["n"] for row in points], [row[field] for row in points])
        end = max(row["n"] for row in growth if row["method"] == method)
        stops = "" if end == longest else f"\n(stops: the next takes over {growth[0]['seconds']:g} s)"
        grows = ": none" if not points else "" if power is None else f": $n^{{{power:.2f}}}$"
        return method + grows + stops

    panels = figure.subplots(1, 3)
    for axis, field, least, words in (
        (panels[0], "forward_ms", 0.0, "forward, milliseconds"),
        (panels[1], "backward_ms", 0.0, "backward, milliseconds"),
        (panels[2], "extra_mib", 2.0**-10, "MiB beyond inputs, output and gradients"),
    ):
        draw(axis, growth, field, least, words, partial(label, field=field, least=least))
    lengths = sorted({row["n"] for row in growth})
    row_floats = [4 * growth[0]["heads"] * n / 2**20 for n in lengths]
    panels[2].plot(lengths, row_floats, label="one float a row", color=GREY, linestyle=":")
    panels[0].sharey(panels[1])
    panels[0].autoscale(axis="y")
    for axis in panels[1:]:
        low, high = axis.get_ylim()
        axis.set_ylim(low, high * (high / low) ** 0.6)  # room for the legend
    for axis in panels:
        axis.legend(frameon=False, loc="upper left", fontsize="small")
    figure.suptitle(
        "heads: {heads}, d = {dim}, float32: forward and backward against the number of tokens".format(**growth[0])
    )
    save(figure, folder, "scaling-backward")
