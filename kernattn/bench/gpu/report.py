"""The table of a benchmark on a GPU, from its rows alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kernattn._files import replace_text

__all__ = ["machine", "table", "write"]

PACKAGES = ("cupy-cuda12x", "cupy-cuda13x", "torch", "triton", "flash-linear-attention")
WORDS = ("case", "contestant", "dtype")
NUMBERS = ("B", "H", "n", "d", "m", "ms", "times ours", "GB", "GFLOP", "traffic, ms", "products, ms", "over the floor")


def machine() -> str:
    """Return one line about where the numbers come from."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    driver = cupy.cuda.runtime.driverGetVersion()
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return f"{properties['name'].decode()}, CUDA driver {driver // 1000}.{driver % 1000 // 10}; {', '.join(found)}"


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return the races as a Markdown table: times as median (quartiles), both floors, the binding one marked *."""
    lines = [_line((*WORDS, *NUMBERS)), _line(["---"] * len(WORDS) + ["---:"] * len(NUMBERS))]
    for row in rows:
        traffic, product = row["traffic_floor_ms"], row["product_floor_ms"]
        floors = [f"{floor:.4g}{'*' * (floor == max(traffic, product))}" for floor in (traffic, product)]
        time, ratio, over = row.get("failed", ""), "", ""
        if "median_ms" in row:
            time = f"{row['median_ms']:.4g} ({row['low_ms']:.4g}–{row['high_ms']:.4g})"
            ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
            over = f"{row['over_floor']:.2f}"
        sizes = [str(row[key]) for key in ("batch", "heads", "n", "dim", "features")]
        counts = [f"{row[key] / 1e9:.4g}" for key in ("bytes", "flops")]
        words = [row["case"], row["contestant"], row["dtype"]]
        lines.append(_line([*words, *sizes, time, ratio, *counts, *floors, over]))
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write(folder: Path, rows: Sequence[dict[str, Any]], where: str) -> None:
    """Write bench-gpu.json and bench-gpu.md."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "bench-gpu.json", json.dumps({"machine": where, "races": list(rows)}, indent=1) + "\n")
    rates = sorted({(row["dtype"], row["copy_bytes_per_second"], row["product_flops_per_second"]) for row in rows})
    measured = "; ".join(
        f"{dtype}: a copy moved {copied / 1e12:.3g} TB/s, products ran at {flops / 1e12:.4g} TFLOP/s"
        for dtype, copied, flops in rates
    )
    replace_text(folder / "bench-gpu.md", f"Measured on: {where}.\n\n{measured}.\n\n{table(rows)}\n")
