"""What is raced on the CPU, and how."""

from __future__ import annotations

from pathlib import Path
from platform import python_version

from bench.cpu.cases import CASES
from bench.races import Device, Row
from bench.report import machine
from bench.sizes import Sizes
from kernattn._runtime.parallel import threads
from kernattn.bench import Clock, HostClock
from kernattn.bench._gauges import core_gauges
from kernattn.bench._tables import Column, milliseconds, number_column, ratio_column, text_column
from kernattn.ops._numba.codegen.registers import VECTOR


def _facts(clock: Clock) -> Row:
    """Return what else times hang on, for every row."""
    begins = "awake" if clock.turn else "asleep"
    return {"threads": threads(), "vector_bits": 8 * VECTOR, "clock": HostClock().name, "begins": begins}


def _machine() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    where = f"{names[0] if names else 'unknown processor'}, vectors of {8 * VECTOR} bits, threads: {threads()}"
    where += f" ({HostClock().name}), Python {python_version()}"
    return machine(
        where,
        ("numpy", "numba", "torch", "jax", "scikit-learn", "onnxruntime", "performer-pytorch", "reformer-pytorch"),
    )


DEVICE = Device(
    name="cpu",
    cases=CASES,
    sizes=Sizes(),
    lengths=(4096,),
    dtypes=("float32", "float64"),
    clock=HostClock,
    gauges=lambda sizes, work: core_gauges(work, sizes.dtype),
    machine=_machine,
    facts=_facts,
    columns=(
        text_column("case", "case"),
        Column("contestant", lambda row: row.get("contestant", f"skipped: {row.get('skipped')}"), False),
        number_column("times ours", "ratio", ".2f"),
        Column("ms", milliseconds),
        ratio_column("over the floor", "over_floor"),
        number_column("over its parts in turn", "over_parts", ".2f"),
        number_column("squared error", "squared_error", ".2e"),
        number_column("median error", "median_error", ".2e"),
        text_column("n", "n", right=True),
        text_column("heads", "heads", right=True),
        text_column("dtype", "dtype", right=True),
    ),
)
