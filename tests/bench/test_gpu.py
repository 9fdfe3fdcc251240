"""The benchmark of device "gpu", as far as it needs none: counts, turns, refusals."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from kernattn import _dispatch
from kernattn.bench.gpu import Sizes, table
from kernattn.bench.gpu.clock import race
from kernattn.bench.gpu.run import bench, check
from kernattn.bench.gpu.work import (
    Rates,
    Work,
    attention_work,
    causal_work,
    features_work,
    gemm_work,
    hadamard_work,
    sets_to_pass_the_cache,
    step_work,
)
from kernattn.cli import main
from kernattn.errors import BackendUnavailable, ParameterError

SMALL = Sizes(batch=2, heads=3, n=5, dim=4, features=7, dtype="bfloat16")


def test_counts_by_hand() -> None:
    """Against loops over what is read, written and multiplied."""
    tokens = 2 * 3 * 5
    state, entering, leaving = 7 * (4 + 1), 2, 2  # S and z; a multiply-add counts two
    assert causal_work(SMALL, 7, False) == Work(tokens * 4 * 4 * 2, tokens * state * (entering + leaving))
    projected = causal_work(SMALL, 7, True)
    assert projected.flops - causal_work(SMALL, 7, False).flops == tokens * 2 * (2 * 7 * 4)
    assert projected.bytes - causal_work(SMALL, 7, False).bytes == 7 * 4 * 4
    assert features_work(10, 4, 7, 2) == Work((10 * 4 + 10 * 7 + 7 * 4) * 2, 2 * 10 * 4 * 7)
    assert hadamard_work(10, 4, 7, 2) == Work((10 * 4 + 10 * 7) * 2, 0)
    one = step_work(SMALL, 7, 7)
    assert one == Work(6 * (2 * (state + 7) * 4 + (4 * 4) * 2), 6 * state * (entering + leaving))
    pairs = sum(i + 1 for i in range(5))
    assert attention_work(SMALL, True).flops == 6 * pairs * 2 * (2 * 4)
    assert attention_work(SMALL, False).flops == 6 * 25 * 2 * (2 * 4)
    assert attention_work(SMALL, True).bytes == attention_work(SMALL, False).bytes == tokens * 4 * 4 * 2
    assert gemm_work(8, 4) == Work(3 * 64 * 4, 2 * 8**3)


@pytest.mark.parametrize(
    ("dtype", "itemsize", "state"),
    [("bfloat16", 2, 4), ("float16", 2, 4), ("float32", 4, 4), ("tf32", 4, 4), ("float64", 8, 8)],
)
def test_sizes_of_numbers(dtype: str, itemsize: int, state: int) -> None:
    sizes = Sizes(dtype=dtype)
    assert (sizes.itemsize, sizes.state_itemsize) == (itemsize, state)
    if dtype not in ("bfloat16", "tf32"):
        assert np.dtype(sizes.array_dtype).itemsize == itemsize


def test_the_larger_floor_binds() -> None:
    assert Rates(bytes=10.0, flops=100.0).seconds(Work(bytes=20.0, flops=50.0)) == (2.0, 0.5)
    fixed = dict.fromkeys(("batch", "heads", "n", "dim", "features", "bytes", "flops"), 1) | {"dtype": "float32"}
    row = {"case": "c", "contestant": "x", **fixed, "traffic_floor_ms": 2.0, "product_floor_ms": 0.5}
    assert "| 2* | 0.5 |" in table([row | {"failed": "out of memory"}])


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6, 1e9])
def test_a_pass_is_larger_than_the_cache(size: float) -> None:
    sets = sets_to_pass_the_cache(size, 50_000_000)
    assert 2 <= sets <= 64
    assert sets * size >= 3 * 50_000_000 or sets == 64


class Clock:
    """Time passes only by what is run."""

    now = 0.0

    def mark(self) -> float:
        return self.now

    def seconds(self, start: float, stop: float) -> float:
        return stop - start


def test_turns_alternate_and_times_are_those_of_one_call() -> None:
    clock, order = Clock(), []

    def contestant(name: str, seconds: float) -> None:
        order.append(name)
        clock.now += seconds

    a, b = 2.0**-9, 2.0**-6
    passes = {"a": lambda: contestant("a", a), "b": lambda: contestant("b", b)}
    times, failed = race(passes, 4, clock, rounds=5, seconds=100.0)
    assert not failed
    assert times["a"].median == a / 4
    assert times["b"].low == b / 4
    assert {t.calls for t in times.values()} == {5}
    assert "".join(order) == "aabb" + "aaabb" * 5  # one pass, then two and one that fill a turn
    stopped, _ = race(passes, 4, clock, rounds=50, seconds=0.0)
    assert {t.calls for t in stopped.values()} == {3}


def test_who_runs_out_of_memory_leaves() -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    clock, settled = Clock(), []

    def greedy() -> None:
        raise OutOfMemoryError

    def modest() -> None:
        clock.now += 1.0

    times, failed = race({"g": greedy, "m": modest}, 2, clock, 3, 100.0, lambda: settled.append(1))
    assert list(times) == ["m"]
    assert failed == {"g": "out of memory"}
    assert len(settled) == 2 + 3

    def broken() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        race({"b": broken}, 2, clock, 3, 100.0)


def test_what_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernattn.bench.gpu.run.missing", lambda backend: None)
    for names, sizes, lengths, word in (
        (["one-head"], SMALL, [64], "one-head"),
        (["features"], Sizes(dtype="int8"), [64], "int8"),
        (["features"], Sizes(batch=0), [64], "batch"),
        (["features"], SMALL, [64, 0], "n must"),
    ):
        with pytest.raises(ParameterError, match=word):
            check(names, sizes, lengths)


@pytest.mark.skipif(_dispatch.missing("gpu") is None, reason="there is a device")
def test_without_a_device(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: object) -> None:
        raise AssertionError("work before the check")

    monkeypatch.setattr("kernattn.bench.gpu.run.measure_rates", work)
    with pytest.raises(BackendUnavailable, match=r"device 'gpu' needs one: cupy"):
        bench(["features"], SMALL, [64])
    assert main(["bench", "--device", "gpu"]) == 2
    assert "the benchmark of device 'gpu' cannot run here: cupy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--batch", "2"], "batch is a size"), (["--dtype", "bfloat16"], "dtype must be float32 or float64 on device")],
)
def test_what_the_cpu_does_not_take(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err


def test_it_needs_no_numba() -> None:
    """In a new process in which Numba cannot be imported, with a device: up to where the device would be asked."""
    code = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
from kernattn import _dispatch, cli
from kernattn.bench.gpu import run
import kernattn.bench.gpu.report

_dispatch.missing = run.missing = lambda backend: {"gpu": None}.get(backend, "not there")
run.measure_rates = lambda sizes, clock: print("rates of", sizes.dtype) or sys.exit(7)
cli.main(["bench", "--device", "gpu", "--cases", "features"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "rates of bfloat16\n"), done.stderr
