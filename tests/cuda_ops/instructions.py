"""Count what the CUDA kernels are made of, into docs/benchmarks/gpu.md.

PYTHONPATH=tests python -m cuda_ops.instructions [--print], in a clone of the repository: NVRTC compiles the kernels for
sm_90 and nvdisasm lists them (the dependency group `cuda`). No GPU is needed, and no time is told.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cuda_ops import nvrtc, sass
from cuda_ops.instances import LIMITS, map_code
from kernattn.ops._cuda import sources
from kernattn.ops._cuda.linear import linear_code
from kernattn.ops._cuda.sizes import ceil_div
from kernattn.ops.attend import gpu as attend
from kernattn.ops.causal import gpu as causal
from kernattn.ops.features import gpu as features
from kernattn.ops.key_state import gpu as key_state

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks" / "gpu.md"
MARKS = re.compile(r"(<!-- instructions -->\n).*(<!-- end -->)", re.DOTALL)
LIMIT = LIMITS[90]
ENTRIES, N, D = 64, 8192, 128  # B 4, H 16
ROW = 2 * ENTRIES * N * D  # bytes of q, of k, of v and of the outputs, in bfloat16
MAPS = {"elu1": ("elementwise", 128), "FAVOR+": ("exp", 256)}
HEAD = (
    *("kernel", "map", "warps a block", "registers", "spills, B", "shared, KB", "blocks an SM", "warps an SM"),
    *("instructions / HMMA, by loop", "bytes by plan", "over the floor"),
)


class Planned(NamedTuple):
    """A kernel as it is launched, and the bytes that the launch moves."""

    op: str
    kernel: str
    map: str
    defines: tuple[str, ...]
    threads: int
    shared_bytes: int
    moved: float
    floor: float


def planned() -> Iterator[Planned]:
    """Yield the kernels of linear attention and of features. Rows count once for every block that reads them."""
    for name, (kind, m) in MAPS.items():
        code = map_code("bfloat16", kind, D, LIMIT)
        linear = linear_code(code, "bfloat16", D, LIMIT)
        state = 4 * ENTRIES * m * (D + 2)
        walk = causal.walk_code(linear, D, m, LIMIT)
        how = causal.launch(ENTRIES, N, D, m, walk, LIMIT)
        before = key_state.launch(ENTRIES, N, D, m, linear, how.slabs, LIMIT)
        across = ceil_div(D, linear.eb)
        states = 4 * how.slabs.count - 2 if how.slabs.count > 1 else 0  # written, scanned, read
        moved = 2 * ROW * (across + 1) + states * state + summarised(before, m)
        yield planned_of("causal", "walk", name, walk.defines, walk.linear.map, how, moved + state, 4 * ROW + state)
        whole = key_state.launch(ENTRIES, N, D, m, linear, None, LIMIT)
        moved = summarised(whole, m) + 2 * whole.slabs.count * state
        yield planned_of(
            "key_state", "summarise", name, whole.code.defines, whole.code.linear.map, whole, moved, 2 * ROW + state
        )
        asked = attend.launch(ENTRIES, N, D, linear)
        moved = ROW * (ceil_div(D, linear.eb) + 1) + state
        yield planned_of("attend", "attend", name, linear.defines, linear.map, asked, moved, 2 * ROW + state)
        rows = features.launch(ENTRIES * N, D, m, code, LIMIT)
        moved = ROW * (rows.grid[1] if code.project else 1) + ROW * m / D
        yield planned_of("features", "features", name, code.defines, code, rows, moved, ROW * (1 + m / D))


def planned_of(
    op: str, kernel: str, name: str, defines: Any, code: Any, how: Any, moved: float, floor: float
) -> Planned:
    """Return a row of the table to be."""
    return Planned(op, kernel, name, defines, code.threads, how.shared_bytes, moved, floor)


def summarised(how: key_state.Launch, m: int) -> float:
    """Return the bytes of keys and values that `summarise` reads."""
    share = min(1.0, how.summarised * how.slabs.rows / N)
    linear = how.code.linear
    across, spans = ceil_div(D, linear.eb), ceil_div(linear.map.tiles(m), how.code.span)
    return share * ROW * spans * (across + 1)


def counted(x: Planned) -> list[str]:
    """Return the cells of a row."""
    compiled = nvrtc.compile_source(sources.source(x.op), x.defines, 90)
    kernel = compiled.kernels[x.kernel]
    by_shared = (LIMIT.shared_bytes + 1024) // (x.shared_bytes + 1024)
    blocks = min(by_shared, 65536 // (ceil_div(kernel.registers, 8) * 8 * x.threads), 2048 // x.threads)
    found = sass.loops(sass.listing(compiled.cubin, x.kernel))
    multiplying = "; ".join(str(loop) for loop in found if loop.own_products) or "no HMMA"
    spills = max(kernel.spill_stores, kernel.spill_loads)
    sizes = (
        x.threads // 32,
        kernel.registers,
        spills,
        f"{x.shared_bytes / 1024:.0f}",
        blocks,
        blocks * x.threads // 32,
    )
    ratios = (f"{x.moved / 1e6:.0f} MB", f"{x.moved / x.floor:.2f}")
    return [f"`{x.kernel}`", x.map, *map(str, sizes), multiplying, *ratios]


def table() -> str:
    """Return the table."""
    rows = [list(HEAD), ["---"] * len(HEAD), *map(counted, planned())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(table())
    else:
        text = MARKS.sub(lambda mark: f"{mark[1]}{table()}\n{mark[2]}", PAGE.read_text(encoding="utf-8"))
        PAGE.write_text(text, encoding="utf-8")
