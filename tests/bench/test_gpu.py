"""The benchmark of device "gpu", as far as it needs none: counts, turns, refusals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bench
from bench import Sizes, device, race_cases
from bench.gpu.counts import (
    attention_work,
    causal_work,
    features_work,
    gated_work,
    gemm_work,
    hadamard_work,
    sets_to_pass_the_cache,
    step_work,
)
from bench.gpu.device import DEVICE
from kernattn.bench import Work, table
from kernattn.cli import main
from kernattn.errors import BackendUnavailable, ParameterError
from kernattn.ops import dispatch as _dispatch

SMALL = Sizes(batch=2, heads=3, n=5, dim=4, features=7, dtype="bfloat16")


def test_counts_by_hand() -> None:
    """Against loops over what is read, written and multiplied."""
    tokens = 2 * 3 * 5
    state, entering, leaving = 7 * (4 + 1), 2, 2  # S and z; a multiply-add counts two
    assert causal_work(SMALL, 7, False) == Work(tokens * 4 * 4 * 2, tokens * state * (entering + leaving))
    projected = causal_work(SMALL, 7, True)
    assert projected.flops - causal_work(SMALL, 7, False).flops == tokens * 2 * (2 * 7 * 4)
    assert projected.bytes - causal_work(SMALL, 7, False).bytes == 7 * 4 * 4
    assert gated_work(SMALL, True).flops == tokens * 3 * 2 * (4 * 4)  # read, renew, read
    assert gated_work(SMALL, True).bytes == tokens * (4 * 4 * 2 + (4 + 1) * 4)
    assert gated_work(SMALL, False).bytes == tokens * (4 * 4 * 2 + 2 * 4)
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


def test_the_floor_that_binds_is_marked() -> None:
    fixed = dict.fromkeys(("batch", "heads", "n", "dim", "features", "bytes", "flops"), 1) | {"dtype": "float32"}
    row = {"case": "c", "contestant": "x", **fixed, "traffic_floor_ms": 2.0, "product_floor_ms": 0.5}
    assert "| 2* | 0.5 |" in table([row | {"failed": "out of memory"}], DEVICE.columns)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6, 1e9])
def test_a_pass_is_larger_than_the_cache(size: float) -> None:
    sets = sets_to_pass_the_cache(size, 50_000_000)
    assert 2 <= sets <= 64
    assert sets * size >= 3 * 50_000_000 or sets == 64


@pytest.mark.parametrize(
    ("names", "sizes", "lengths", "word"),
    [
        (["one-head"], SMALL, [64], "one-head"),
        (["features"], Sizes(dtype="int8"), [64], "int8"),
        (["features"], Sizes(batch=0), [64], "batch"),
        (["features"], SMALL, [64, 0], "n must"),
    ],
)
def test_what_is_refused_before_any_work(names: list[str], sizes: Sizes, lengths: list[int], word: str) -> None:
    with pytest.raises(ParameterError, match=word):
        race_cases(DEVICE, names, sizes, lengths)


@pytest.mark.skipif(_dispatch.missing("gpu") is None, reason="there is a device")
def test_without_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BackendUnavailable, match=r"device 'gpu' cannot run here: cupy"):
        device("gpu")
    assert main(["bench", "--device", "gpu"]) == 2
    assert "the benchmark of device 'gpu' cannot run here: cupy" in capsys.readouterr().err


def test_devices_are_named() -> None:
    with pytest.raises(ParameterError, match="device must be one of cpu, gpu; got 'tpu'"):
        device("tpu")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch", "2"], "batch is a size"),
        (["--dtype", "bfloat16"], "dtype must be one of float32, float64 on device"),
    ],
)
def test_what_the_cpu_does_not_take(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err


def test_it_needs_no_numba() -> None:
    """In a new process in which Numba cannot be imported, with a device: up to where inputs would be made there."""
    code = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
from dataclasses import replace
from pathlib import Path
from kernattn.ops import dispatch as _dispatch
from kernattn import cli
from kernattn.cli._bench import load

bench = load(Path(sys.argv[1]))
from bench.gpu import device

_dispatch.missing = lambda backend: {"gpu": None}.get(backend, "not there")
make = lambda sizes: print("inputs of", sizes.dtype) or sys.exit(7)
device.DEVICE = replace(device.DEVICE, clock=lambda: None, cases={"features": bench.Case(make)})
cli.main(["bench", "--from", sys.argv[1], "--device", "gpu", "--cases", "features"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(bench.__file__).parent)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (7, "inputs of bfloat16\n"), done.stderr
