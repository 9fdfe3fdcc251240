"""What is raced on a GPU, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.gpu.cases import CASES
from bench.gpu.clock import EventClock
from bench.gpu.products import gauges
from bench.races import Device
from bench.report import machine
from bench.sizes import DTYPES, Sizes
from kernattn.bench._tables import Column, milliseconds, number_column, ratio_column, text_column


def _machine() -> str:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    driver = cupy.cuda.runtime.driverGetVersion()
    where = f"{properties['name'].decode()}, CUDA driver {driver // 1000}.{driver % 1000 // 10}"
    return machine(where, ("cupy-cuda12x", "cupy-cuda13x", "torch", "triton", "flash-linear-attention"))


def _floor(title: str, key: str) -> Column:
    """Return the column of one floor, marked * where it binds."""

    def cell(row: Mapping[str, Any]) -> str:
        return f"{row[key]:.4g}{'*' * (row[key] == max(row['traffic_floor_ms'], row['product_floor_ms']))}"

    return Column(title, cell)


DEVICE = Device(
    name="gpu",
    cases=CASES,
    sizes=Sizes(batch=4, heads=16, n=2048, dim=128, dtype="bfloat16"),
    lengths=tuple(2**i for i in range(11, 17)),
    dtypes=tuple(DTYPES),
    clock=EventClock,
    gauges=gauges,
    machine=_machine,
    columns=(
        text_column("case", "case"),
        text_column("contestant", "contestant"),
        number_column("times ours", "ratio", ".2f"),
        Column("ms", milliseconds),
        number_column("GB", "bytes", ".4g", 1e9),
        number_column("GFLOP", "flops", ".4g", 1e9),
        _floor("traffic, ms", "traffic_floor_ms"),
        _floor("products, ms", "product_floor_ms"),
        ratio_column("over the floor", "over_floor"),
        text_column("dtype", "dtype"),
        text_column("B", "batch", right=True),
        text_column("H", "heads", right=True),
        text_column("n", "n", right=True),
        text_column("d", "dim", right=True),
        text_column("m", "features", right=True),
    ),
)
