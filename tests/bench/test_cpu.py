"""Benchmarks of the CPU run, and say what they measured; nothing here asserts a speed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from kernattn.bench import Sizes, bench, table, write
from kernattn.bench._rates import Rates
from kernattn.bench.cpu import DEVICE, SCALING, START, scaling, scaling_figure, start
from kernattn.bench.cpu._clock import HostClock
from kernattn.cli import main
from kernattn.errors import ParameterError

TINY = Sizes(n=128, heads=2, dim=16, features=32)
RATES = Rates(bytes=1e10, flops=1e11, functions=1e9)


def test_a_turn_begins_awake() -> None:
    calls: list[int] = []
    clock = HostClock()
    begin = clock.mark()
    clock.settle(lambda: calls.append(1))
    assert len(calls) > 1
    assert clock.seconds(begin, clock.mark()) > 0.05


def test_rates_are_positive() -> None:
    rates = DEVICE.rates(TINY, HostClock())
    assert min(rates.flops, rates.functions, rates.bytes) > 1e6


@pytest.mark.parametrize("name", DEVICE.cases)
def test_contestants_compute_the_same(name: str) -> None:
    if name in ("digits", "patches"):
        pytest.importorskip("sklearn")
        pytest.importorskip("PIL")
    calls = dict(DEVICE.cases[name].make(TINY).calls)
    ours = calls.pop("ours")()
    for contestant, call in calls.items():
        found = call()
        if not name.startswith(("causal", "full", "softmax", "libraries")):
            continue
        expected, found = (x[0] if isinstance(x, tuple) else x for x in (ours, found))
        if "performer" not in contestant:  # performer-pytorch adds 1e-4 to its features: another answer
            found = np.asarray(found).reshape(expected.shape)
            np.testing.assert_allclose(found, expected, atol=2e-4, err_msg=contestant)


@pytest.mark.parametrize("name", ["causal-elu1", "causal-favor"])
def test_torch_in_chunks_takes_whole_chunks(name: str) -> None:
    race = DEVICE.cases[name].make(replace(TINY, n=100))
    assert [contestant for contestant in race.calls if "torch" in contestant] == []


def test_rows_tables_and_files(tmp_path: Path) -> None:
    rows = bench(DEVICE, ["causal-elu1", "gaussian-features"], TINY, [64], rounds=1, rates=RATES)
    growth = scaling([64, 128], heads=2, dim=8, features=16, seconds=0.0)
    assert {(row["case"], row["n"]) for row in rows} == {("causal-elu1", 64), ("gaussian-features", 5000)}
    assert all(row["floor_ms"] > 0 and row["median_ms"] > 0 for row in rows)
    assert sum("squared_error" in row for row in rows) >= 1
    assert all(row["squared_error"] < 0.01 for row in rows if "squared_error" in row)
    text = table(rows, DEVICE.columns)
    assert text.splitlines()[1].count("|") == text.splitlines()[2].count("|")
    assert text.count("\n") == len(rows) + 1
    assert table(growth, SCALING).count("\n") == len(growth) + 1
    assert [row["n"] for row in growth] == [64] * 4  # all took longer than no time, and stopped growing
    write(tmp_path / "out", "bench", DEVICE.machine(), rows, [text], scaling=growth)
    scaling_figure(tmp_path / "out", growth)
    assert json.loads((tmp_path / "out" / "bench.json").read_text())["scaling"] == growth
    assert "float32: a copy moved 10 GB/s, products ran at 100 GFLOP/s" in (tmp_path / "out" / "bench.md").read_text()
    files = ["bench.json", "bench.md", "scaling.png", "scaling.svg"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == files


def test_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernattn.bench.cpu._start._seconds", lambda code, environment: float(len(environment)))
    rows = start(rounds=1)
    assert rows[0]["what"] == "import kernattn"
    assert table(rows, START).count("\n") == len(rows) + 1


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def growth(sizes: list[int], heads: int, dim: int, features: int) -> list[dict[str, object]]:
        fixed = {"method": f"m = {features}", "milliseconds": 1.0, "ns_per_token": 1.0, "extra_mib": 1.0}
        return [{"n": n, "heads": heads, "dim": dim, **fixed} for n in sizes]

    monkeypatch.setattr("kernattn.bench.cpu.DEVICE", replace(DEVICE, rates=lambda sizes, clock: RATES))
    monkeypatch.setattr("kernattn.bench.cpu.start", lambda: [{"what": "import kernattn", "seconds": 0.04}])
    monkeypatch.setattr("kernattn.bench.cpu.scaling", growth)
    words = "bench --cases step --rounds 1 --heads 1 --dim 8 --scaling --start"
    assert main([*words.split(), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "| step | ours | 1 | 1 | float32 |" in printed
    assert "| m = 256 | 1048576 | 1 | 1 | 1 |" in printed
    assert "| import kernattn | 0.04 |" in printed
    stored = json.loads((tmp_path / "bench.json").read_text())
    assert {"machine", "races", "scaling", "start"} == stored.keys()
    assert (tmp_path / "scaling.svg").exists()


def test_a_case_without_its_data_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    rows = bench(DEVICE, ["digits"], TINY, rates=RATES)
    assert rows == [{"case": "digits", "skipped": rows[0]["skipped"]}]
    assert "scikit-learn, which is not installed: pip install" in table(rows, DEVICE.columns)


def test_unknown_cases_and_sizes_are_named() -> None:
    with pytest.raises(ParameterError, match="no-such-case"):
        bench(DEVICE, ["no-such-case"], TINY)
    with pytest.raises(ParameterError, match="heads"):
        bench(DEVICE, ["step"], Sizes(heads=0))
