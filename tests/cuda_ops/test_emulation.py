"""The emulation itself: right kernels give right answers, wrong ones are caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cuda_on_cpu import KernelError, RawModule, gxx, sanitizing
from cuda_on_cpu.mutate import without_one_barrier
from kernattn.ops._cuda import sources

pytestmark = pytest.mark.skipif(gxx() is None, reason="the emulation builds with g++, which is not on PATH")
SOURCE = (Path(__file__).parents[1] / "cuda_on_cpu" / "examples.cu").read_text()
SEEDS = (0, 1, 2, 3)


def matmul_error(module: RawModule) -> float:
    rng = np.random.default_rng(0)
    m, n, k = 19, 21, 37
    a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    c = np.full((m, n), np.nan, np.float32)
    sizes = (np.int32(m), np.int32(n), np.int32(k))
    module.get_function("matmul")((-(-n // 8), -(-m // 8)), (8, 8), (a, b, c, *sizes))
    return float(np.max(np.abs(c - a.astype(np.float64) @ b)))


def row_sum_error(module: RawModule) -> float:
    x = np.random.default_rng(1).normal(size=(5, 300)).astype(np.float32)
    out = np.full(5, np.nan, np.float32)
    module.get_function("row_sum")((5,), (128,), (x, out, np.int32(300)), shared_mem=16)
    return float(np.max(np.abs(out - x.sum(axis=1, dtype=np.float64))))


def reverse_error(module: RawModule) -> float:
    x = np.random.default_rng(2).normal(size=(3, 4, 32)).astype(np.float32)
    out = np.full_like(x, np.nan)
    module.get_function("reverse")((3,), (128,), (x, out), shared_mem=512)
    return float(np.max(np.abs(out - 2 * x[..., ::-1])))


CASES = (matmul_error, row_sum_error, reverse_error)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("error", CASES)
def test_right_kernels(error, seed, monkeypatch):
    monkeypatch.setattr(RawModule, "seed", seed)
    assert error(RawModule(code=SOURCE)) < 1e-4


def test_atomics():
    x = np.random.default_rng(3).integers(0, 7, size=5000, dtype=np.int32)
    count, total = np.zeros(7, np.int32), np.zeros(1, np.float32)
    RawModule(code=SOURCE).get_function("histogram")((20,), (256,), (x, count, total, np.int32(5000)))
    np.testing.assert_array_equal(count, np.bincount(x, minlength=7))
    assert total[0] == x.sum()


def test_each_barrier_is_needed(monkeypatch):
    mutants = list(without_one_barrier(SOURCE))
    caught = []
    for line, source in mutants:
        module = RawModule(code=source)
        for seed in SEEDS:
            monkeypatch.setattr(RawModule, "seed", seed)
            try:
                wrong = [not error(module) < 1e-4 for error in CASES]
            except KernelError:
                wrong = [True]
            if any(wrong):
                caught.append(line)
                break
    survivors = {line for line, _ in mutants} - set(caught)
    lines = SOURCE.splitlines()
    assert all("divergent" in "".join(lines[max(0, line - 5) : line]) for line in survivors)
    assert len(caught) == 4


COPIES = """
extern "C" __global__ void turns(const float* x, float* out, int count) {
    float* const rooms = reinterpret_cast<float*>(shared_bytes);
    const int own = threadIdx.x * 4;
    const auto request = [&](int i) { copy_async(rooms + i % 2 * 256 + own, x + i * 256 + own, true); };
    float sum = 0.0f;
    request(0);
    for (int i = 0; i < count; ++i) {
        wait_for_copies();
        __syncthreads();
        if (i + 1 < count) request(i + 1);
        for (int j = 0; j < 256; ++j) sum += (threadIdx.x + 1) * rooms[i % 2 * 256 + (threadIdx.x + j) % 256];
    }
    out[threadIdx.x] = sum;
}
"""


def test_copies_that_arrive_too_late_and_too_soon(monkeypatch):
    device = sources.source("countsketch").split('#line 1 "_cuda/tile.cuh"')[0]
    x = np.random.default_rng(4).integers(0, 9, size=(5, 256)).astype(np.float32)
    wanted = x.sum() * np.arange(1, 65)

    def right(source):
        for seed in SEEDS:
            monkeypatch.setattr(RawModule, "seed", seed)
            out = np.zeros(64, np.float32)
            RawModule(code=device + source).get_function("turns")((1,), (64,), (x, out, np.int32(5)), shared_mem=2048)
            if not np.array_equal(out, wanted):
                return False
        return True

    assert right(COPIES)
    assert not any(right(source) for _, source in without_one_barrier(COPIES))
    assert not right(COPIES.replace("i % 2", "i % 1"))  # into the room that others still read


@pytest.mark.parametrize(("kernel", "message"), [("divergent", "divergent barrier"), ("missing_lane", "deadlock")])
def test_broken_barriers_are_reported(kernel, message):
    out = np.zeros(64, np.float32)
    function = RawModule(code=SOURCE).get_function(kernel)
    with pytest.raises(KernelError, match=message):
        function((2,), (64,), (out,))
    assert row_sum_error(RawModule(code=SOURCE)) < 1e-4  # the runner is usable after an error


def test_shared_memory_starts_as_nan():
    out = np.zeros(32, np.float32)
    RawModule(code=SOURCE).get_function("reads_unwritten")((1,), (32,), (out,), shared_mem=128)
    assert np.isnan(out).all()


def test_launches_a_gpu_would_refuse():
    x = np.zeros((4, 64), np.float32)
    function = RawModule(code=SOURCE).get_function("row_sum")
    with pytest.raises(KernelError, match="arguments of"):
        function((4,), (64,), (x, x, 64), shared_mem=16)
    with pytest.raises(KernelError, match="not contiguous"):
        function((4,), (64,), (x[:, ::2], x, np.int32(64)), shared_mem=16)
    with pytest.raises(KernelError, match="shared memory"):
        function((4,), (64,), (x, x, np.int32(64)), shared_mem=50_000)
    with pytest.raises(KernelError, match="cannot be launched"):
        function((4,), (2048,), (x, x, np.int32(64)), shared_mem=16)


SANITIZED = """
import numpy as np
from cuda_on_cpu import RawModule
from cuda_ops.test_emulation import CASES, SOURCE
module = RawModule(code=SOURCE, sanitize=True)
assert all(case(module) < 1e-4 for case in CASES)
print("clean", flush=True)
x, out = np.zeros(64, np.float32), np.zeros(32, np.float32)
for n in (32, 33):
    module.get_function("out_of_bounds")((1,), (32,), (x, out, np.int32(n)))
    print(n, flush=True)
"""


@pytest.mark.slow
def test_address_sanitizer_sees_a_bad_access():
    command, tests = [sys.executable, "-c", SANITIZED], Path(__file__).parents[1]
    environment = os.environ | sanitizing()
    result = subprocess.run(command, env=environment, cwd=tests, capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["clean", "32"], result.stderr[-2000:]
    assert "heap-buffer-overflow" in result.stderr
