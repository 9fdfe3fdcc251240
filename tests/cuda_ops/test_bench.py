"""The benchmark of device "gpu" on the emulation: every case runs, and the rivals compute what ours computes."""

import ctypes
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bench import Sizes, race_cases, write
from bench.gpu import cases, peers, products
from bench.gpu.device import DEVICE
from cuda_ops.cases import to64
from kernattn.bench import Gauge, Rates, Work, table
from kernattn.cli import main

TINY = Sizes(batch=1, heads=2, n=128, dim=16, features=16, dtype="float32")
RATES = Rates(bytes=1e12, flops=1e14)


class Ticks:
    """A clock whose every mark is a millisecond after the last."""

    now = 0
    turn = 5e-3
    long = 1.0

    def settle(self, call):
        call()

    def mark(self):
        self.now += 1
        return self.now

    def seconds(self, start, stop):
        return (stop - start) * 1e-3


class Strided:
    """cublas.gemmStridedBatchedEx as its manual says, on the host: column-major matrices by address."""

    calls = 0

    def gemmStridedBatchedEx(
        self, handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, stride_a, b, type_b, ldb, stride_b, beta, c, type_c,
        ldc, stride_c, count, compute, algorithm,
    ):  # fmt: skip
        self.calls += 1
        kind = {0: np.float32, 1: np.float64}[type_a]
        size = np.dtype(kind).itemsize

        def matrix(at, rows, columns, ld, stride, i):
            pointer = ctypes.cast(at + i * stride * size, ctypes.POINTER(np.ctypeslib.as_ctypes_type(kind)))
            return np.ctypeslib.as_array(pointer, (columns, ld)).T[:rows]

        for i in range(count):
            left = matrix(a, *((k, m) if op_a else (m, k)), lda, stride_a, i)
            right = matrix(b, *((n, k) if op_b else (k, n)), ldb, stride_b, i)
            matrix(c, m, n, ldc, stride_c, i)[...] = (left.T if op_a else left) @ (right.T if op_b else right)


@pytest.fixture
def device(cupy, monkeypatch):
    """What the benchmark asks of a device beyond the stand-in."""
    cupy.cuda.cublas = Strided()
    cupy.cuda.device.get_cublas_handle = lambda: 0
    cupy.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None)
    cupy.cuda.Device.attributes["L2CacheSize"] = 1 << 10
    monkeypatch.setattr(cases, "captured", lambda work: work)
    return cupy


@pytest.fixture
def host_torch():
    """Imported before the stand-in takes the place of cupy, which torch looks for."""
    return pytest.importorskip("torch")


@pytest.fixture
def torch(host_torch, device, monkeypatch):
    """Torch on the host in place of torch on a device."""
    torch = host_torch
    monkeypatch.setattr(peers, "torch_of", lambda dtype: torch)
    monkeypatch.setattr(peers, "tensors", lambda torch, arrays: [torch.from_numpy(x.get()) for x in arrays])
    monkeypatch.setattr(cases, "_torch_graph", lambda torch, work: work)
    return torch


@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 7, 4), (2, 3, 4, 5))])
@pytest.mark.parametrize("dtype", ["float32", "tf32", "float64"])
def test_products(device, shapes, dtype):
    kind = "float64" if dtype == "float64" else "float32"
    a, b = (device.asarray(np.random.default_rng(0).standard_normal(s).astype(kind)) for s in shapes)
    turned_a, turned_b = (device.ascontiguousarray(x.transpose(*range(x.ndim - 2), -1, -2)) for x in (a, b))
    wanted = to64(a) @ to64(b)
    for left, right, how in (
        (a, b, {}),
        (turned_a, b, {"transpose_a": True}),
        (a, turned_b, {"transpose_b": True}),
        (turned_a, turned_b, {"transpose_a": True, "transpose_b": True}),
    ):
        np.testing.assert_allclose(to64(products.matmul(left, right, dtype, **how)), wanted, rtol=1e-4, atol=1e-5)


def test_gauges(device):
    found = products.gauges(TINY, Work(), copy=1 << 10, gemm=8)
    assert {name: gauge.amount for name, gauge in found.items()} == {"bytes": 2 * (1 << 10), "flops": 2 * 8**3}
    for gauge in found.values():
        gauge.call()
    assert device.cuda.cublas.calls == 1


@pytest.mark.parametrize("name", DEVICE.cases)
def test_contestants_compute_the_same(torch, name):
    race = DEVICE.cases[name].make(TINY)
    assert race.sets >= 2
    assert next(iter(race.calls)) == "ours"  # to which ratios are
    ours = race.calls["ours"]()
    assert len(ours) == race.sets
    for contestant, work in race.calls.items():
        if contestant == "ours" or "one by one" in contestant:
            continue
        if name == "hadamard" or "exact" in contestant or "graph" in contestant:
            assert len(work()) == race.sets  # other features, exact attention, a second token
            continue
        for got, wanted in zip(work(), ours, strict=True):
            wanted = wanted[0] if isinstance(wanted, tuple) else wanted
            got = got.numpy() if isinstance(got, torch.Tensor) else to64(got)
            np.testing.assert_allclose(got, to64(wanted), atol=1e-4, rtol=1e-4, err_msg=contestant)


def test_rows_and_files(torch, tmp_path, monkeypatch):
    rows = race_cases(DEVICE, ["causal-elu1", "step-elu1"], TINY, [64, 128], rounds=3, clock=Ticks(), rates=RATES)
    assert {(row["case"], row["n"]) for row in rows} == {("causal-elu1", 64), ("causal-elu1", 128), ("step-elu1", 1)}
    assert all(row["median_ms"] == pytest.approx(1 / (row["sets"] * 5)) for row in rows)
    assert all(row["ratio"] == pytest.approx(1) and row["turns"] == 3 for row in rows)
    text = table(rows, DEVICE.columns)
    assert text.count("\n") == len(rows) + 1
    assert text.count("*") == len(rows)
    write(tmp_path, "bench-gpu", "an emulation", rows, [text])
    assert json.loads((tmp_path / "bench-gpu.json").read_text())["races"] == rows
    assert (
        "float32: traffic ran at 1 TB/s to 1 TB/s, as the arrays lie; products at 100 TFLOP/s"
        in (tmp_path / "bench-gpu.md").read_text()
    )


def test_other_dtypes_run(device):
    for dtype in ("bfloat16", "tf32"):
        sizes = Sizes(1, 1, 64, 16, 16, dtype)
        race = DEVICE.cases["causal-favor"].make(sizes)
        assert race.calls["ours"]()[0][0].dtype.name == sizes.array_dtype


def test_the_command(torch, tmp_path, capsys, monkeypatch):
    def gauges(sizes, work):
        return {"bytes": Gauge(lambda: None, 1e12), "flops": Gauge(lambda: None, 1e14)}

    here = replace(DEVICE, clock=Ticks, gauges=gauges, machine=lambda: "an emulation")
    monkeypatch.setattr("bench.gpu.device.DEVICE", here)
    words = "bench --device gpu --cases features --batch 1 --heads 1 --n 64 --dim 8 --features 16 --dtype float32"
    assert main([*words.split(), "--rounds", "3", "--out", str(tmp_path)]) == 0
    assert "| features | ours | 1.00 | 0.1" in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bench-gpu.json", "bench-gpu.md"]


def test_rows_of_rivals_that_fail(torch, tmp_path, capsys, monkeypatch):
    """Whatever a rival does, the other rows are printed and written, and so is why it has no time."""

    def unbuilt(*arguments):
        raise ImportError("no such kernel")

    def broken(*arguments):
        raise RuntimeError("an illegal memory access")

    monkeypatch.setattr(peers, "torch_features", unbuilt)
    monkeypatch.setattr(peers, "cupy_features", lambda *arguments: broken)
    monkeypatch.setattr(peers, "has_fla", lambda features: True)
    monkeypatch.setattr(peers, "fla_chunk", unbuilt)
    gauges = {"bytes": Gauge(lambda: None, 1e12), "flops": Gauge(lambda: None, 1e14)}
    here = replace(DEVICE, clock=Ticks, gauges=lambda sizes, work: gauges, machine=lambda: "an emulation")
    monkeypatch.setattr("bench.gpu.device.DEVICE", here)
    words = "bench --device gpu --cases features causal-elu1 --batch 1 --heads 1 --n 64 --dim 8 --features 16"
    assert main([*words.split(), "--dtype", "float32", "--rounds", "3", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    rows = json.loads((tmp_path / "bench-gpu.json").read_text())["races"]
    assert len(printed) == len(rows) + 2
    cells = {(row["case"], row["contestant"]): line for row, line in zip(rows, printed[2:], strict=True)}
    failed = {key: row["failed"] for key, row in zip(cells, rows, strict=True) if "failed" in row}
    assert failed == {
        ("features", "torch"): "ImportError: no such kernel",
        ("features", "cuBLAS and CuPy"): "RuntimeError: an illegal memory access",
        ("causal-elu1", "flash-linear-attention, no map, no normaliser"): "ImportError: no such kernel",
    }
    assert all(f"| {why} |" in cells[key] for key, why in failed.items())
    measured = {row["contestant"]: row["median_ms"] for row in rows if "failed" not in row}
    assert measured.keys() == {"ours", "cuBLAS and CuPy, chunked", "torch, chunked", "torch's exact attention"}
