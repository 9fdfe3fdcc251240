"""The growth of forward and backward: what is timed, what memory is counted, where it stops, and its figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from bench.cpu.scaling_backward import (
    SCALING_BACKWARD,
    _memory,
    scaling_backward,
    scaling_backward_figure,
    slope,
)
from kernattn.bench import table
from kernattn.cli import main

METHODS = ["causal elu + 1", "causal FAVOR+, m = 16", "exact softmax, causal", "identity (a copy of v)"]


def test_methods_run_both_ways_and_stop(tmp_path: Path) -> None:
    growth = scaling_backward([64, 128], heads=2, dim=8, features=16, seconds=0.0)
    assert [(row["method"], row["n"]) for row in growth] == [(method, 64) for method in METHODS]
    assert all(row["forward_ms"] > 0 and row["backward_ms"] > 0 for row in growth)
    assert table(growth, SCALING_BACKWARD).count("\n") == len(growth) + 1
    identity = growth[-1]
    assert identity["extra_mib"] < 2.0**-9  # of Python's own objects


def test_a_method_stops_before_it_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds that grow with the square of n: 1, 4, and 16 would be the next."""

    def timed(calls: dict, *_: object) -> tuple[dict[str, list[float]], dict[str, str]]:
        n = calls["forward"].args[-1].shape[-2]
        return {key: [0.5 * (n / 16) ** 2] for key in calls}, {}

    monkeypatch.setattr("bench.cpu.scaling_backward.take_turns", timed)
    growth = scaling_backward([16, 32, 64], heads=1, dim=8, features=8, seconds=15.0)
    assert {row["n"] for row in growth if row["method"] == METHODS[0]} == {16, 32}
    growth = scaling_backward([16, 32, 64], heads=1, dim=8, features=8, seconds=17.0)
    assert {row["n"] for row in growth if row["method"] == METHODS[0]} == {16, 32, 64}


def test_memory_is_that_beyond_results() -> None:
    g = np.ones(250_000, np.float32)

    def forward() -> tuple[np.ndarray, object]:
        kept = np.ones(500_000, np.float32)

        def pullback(g: np.ndarray) -> tuple[np.ndarray, ...]:
            scratch = np.ones(750_000, np.float32)
            return (g * scratch[0] * kept[0],)

        return g.copy(), pullback

    kept, extra = _memory(forward, g)
    assert 2_000_000 <= kept < 2_010_000
    assert 5_000_000 <= extra < 6_010_000  # a temporary of g's size may stand beside scratch


def test_slope_is_that_of_the_longer_half() -> None:
    n = [2**i for i in range(6)]
    assert slope(n, [7.0, 5.0, *(3.0 * x**2 for x in n[2:])]) == pytest.approx(2.0)
    assert slope([2], [1.0]) is None


def test_the_figure_tells_slopes_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure
    made = []
    monkeypatch.setattr("matplotlib.figure.Figure", lambda **how: made.append(figure(**how)) or made[-1])
    fixed = {"heads": 1, "dim": 8, "seconds": 8.0}
    growth = [
        {"method": m, "n": n, "forward_ms": n**p, "backward_ms": 2.0 * n**p, "extra_mib": mib, **fixed}
        for m, p, mib, last in (("linear", 1, 1.0, 64), ("square", 2, 0.0, 16))
        for n in (4, 8, 16, 32, 64)
        if n <= last
    ]
    scaling_backward_figure(tmp_path, growth)
    ahead, back, memory = ([text.get_text() for text in axis.get_legend().get_texts()] for axis in made[0].axes)
    assert ahead == back == ["linear: $n^{1.00}$", "square: $n^{2.00}$\n(stops: the next takes over 8 s)"]
    assert memory == ["linear: $n^{0.00}$", "square: none\n(stops: the next takes over 8 s)", "one float a row"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scaling-backward.png", "scaling-backward.svg"]


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def growth(sizes: list[int], heads: int, dim: int, features: int) -> list[dict[str, object]]:
        fixed = {"forward_ms": 1.0, "backward_ms": 3.0, "ns_per_token": 1.0, "kept_bytes": 4.0, "extra_mib": 1.0}
        return [
            {"method": f"m = {features}", "n": n, "heads": heads, "dim": dim, "seconds": 8.0, **fixed} for n in sizes
        ]

    monkeypatch.setattr("bench.cpu.scaling_backward.scaling_backward", growth)
    assert main(["bench", "--scaling", "--backward", "--heads", "1", "--out", str(tmp_path)]) == 0
    assert "| m = 256 | 262144 | 1 | 3 | 1 | 4 | 1 |" in capsys.readouterr().out
    assert {"bench.json", "scaling-backward.png"} <= {path.name for path in tmp_path.iterdir()}
    assert main(["bench", "--backward"]) == 2
    assert "give both" in capsys.readouterr().err
