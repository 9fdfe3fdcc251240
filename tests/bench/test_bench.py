"""Benchmarks run, and say what they measured; nothing here asserts a speed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from kernattn.bench import CASES, Options, bench, scaling
from kernattn.bench.floor import Rates, Work, measure_rates
from kernattn.bench.report import machine, scaling_table, table, write
from kernattn.bench.timing import race
from kernattn.errors import ParameterError

TINY = Options(n=128, heads=2, dim=16, features=32)


def test_contestants_take_turns() -> None:
    turns: list[str] = []
    times = race({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, rounds=4, seconds=10.0)
    assert set(times) == {"a", "b"}
    assert all(t.calls == 4 and 0 <= t.low <= t.median <= t.high for t in times.values())
    blocks = "".join(turns).replace("aa", "a")
    assert blocks.count("ab") >= 4


def test_a_floor_adds_its_parts() -> None:
    rates = Rates(flops=10.0, functions=5.0, bytes=2.0)
    assert rates.seconds(Work(flops=20.0, functions=5.0, bytes=4.0)) == pytest.approx(5.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rates_are_positive(dtype: str) -> None:
    rates = measure_rates(dtype)
    assert min(rates.flops, rates.functions, rates.bytes) > 1e6


@pytest.mark.parametrize("name", CASES)
def test_contestants_compute_the_same(name: str) -> None:
    if name in ("digits", "patches"):
        pytest.importorskip("sklearn")
        pytest.importorskip("PIL")
    entry = CASES[name](TINY)
    if not name.startswith(("causal", "full", "softmax")):
        entry.ours()
        for rival in entry.rivals.values():
            rival()
        return
    ours = entry.ours()
    expected = ours[0] if isinstance(ours, tuple) else ours
    for contestant, call in entry.rivals.items():
        found = np.asarray(call()).reshape(expected.shape)
        if "performer" not in contestant:  # performer-pytorch adds 1e-4 to its features: another answer
            np.testing.assert_allclose(found, expected, atol=2e-4, err_msg=contestant)


def test_rows_tables_and_files(tmp_path: Path) -> None:
    rows = bench(["causal-elu1", "gaussian-features"], TINY, rounds=3, seconds=0.1)
    growth = scaling([64, 128], heads=2, dim=8, features=16, seconds=1.0)
    assert {row["case"] for row in rows} == {"causal-elu1", "gaussian-features"}
    assert all(row["floor_ms"] > 0 and row["median_ms"] > 0 for row in rows)
    assert all(row["squared_error"] < 0.01 for row in rows if "squared_error" in row)
    assert table(rows).count("\n") == len(rows) + 1
    assert scaling_table(growth).count("\n") == len(growth) + 1
    write(tmp_path / "out", rows, growth, machine())
    assert json.loads((tmp_path / "out" / "bench.json").read_text())["scaling"] == growth
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "bench.json",
        "bench.md",
        "scaling.png",
        "scaling.svg",
    ]


def test_a_case_without_its_data_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    rows = bench(["digits"], TINY)
    assert rows == [{"case": "digits", "skipped": rows[0]["skipped"]}]
    assert "scikit-learn, which is not installed: pip install" in table(rows)


def test_unknown_cases_and_sizes_are_named() -> None:
    with pytest.raises(ParameterError, match="no-such-case"):
        bench(["no-such-case"], TINY)
    with pytest.raises(ParameterError, match="heads"):
        bench(["step"], Options(heads=0))
