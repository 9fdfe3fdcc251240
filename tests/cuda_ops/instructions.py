"""Count what the CUDA kernels are made of, into docs/benchmarks/gpu.md.

PYTHONPATH=tests python -m cuda_ops.instructions [--print], in a clone of the repository: NVRTC compiles the kernels and
nvdisasm lists them (the dependency group `cuda`). No GPU is needed, and no time is told.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cuda_ops import nvrtc, sass
from cuda_ops.instances import LIMITS, map_code
from kernattn.ops._cuda import sources
from kernattn.ops._cuda.linear import linear_code
from kernattn.ops._cuda.sizes import BYTES, ceil_div
from kernattn.ops.attend import gpu as attend
from kernattn.ops.causal import gpu as causal
from kernattn.ops.features import gpu as features
from kernattn.ops.key_state import gpu as key_state

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks" / "gpu.md"
ENTRIES, N, D = 64, 8192, 128  # B 4, H 16
MAPS = {"elu1": ("elementwise", 128), "FAVOR+": ("exp", 256)}
HOPPER = (90, "bfloat16")
OTHERS = [(75, "bfloat16"), (80, "bfloat16"), (89, "bfloat16"), (100, "bfloat16"), (120, "bfloat16")]
OTHERS += [(90, "float16"), (90, "float32"), (90, "float64")]
THREADS = {75: 1024, 89: 1536, 120: 1536}  # that a multiprocessor holds, where that is not 2048
OF_BLOCKS = ("warps a block", "registers", "spills, B", "shared, KB", "blocks an SM", "warps an SM")
LOOPS = "instructions / HMMA, by loop"
HEAD = ("kernel", "map", *OF_BLOCKS, LOOPS, "bytes by plan", "over the floor")
OTHER_HEAD = ("sm", "dtype", "kernel", "map", *OF_BLOCKS, LOOPS)


class Planned(NamedTuple):
    """A kernel as it is launched, and the bytes that the launch moves."""

    arch: int
    map: str
    op: str
    kernel: str
    code: Any  # of the map
    defines: tuple[str, ...]
    shared_bytes: int
    moved: float
    floor: float


def planned(arch: int, dtype: str) -> Iterator[Planned]:
    """Yield the kernels of linear attention and of features. Rows count once for every block that reads them."""
    limits = LIMITS[arch]
    for name, (kind, m) in MAPS.items():
        plan = partial(Planned, arch, name)
        code = map_code(dtype, kind, D, limits)
        linear = linear_code(code, dtype, D, limits)
        row, word = BYTES[code.input] * ENTRIES * N * D, BYTES[code.accumulator]  # of q, of k, of v and of the outputs
        state = word * ENTRIES * m * (D + 2)

        walk = causal.walk_code(linear, D, m, limits)
        how = causal.launch(ENTRIES, N, D, m, walk, limits)
        fine = key_state.finer(how.slabs, ENTRIES, D, m, linear, limits)
        before = key_state.launch(ENTRIES, N, D, m, linear, fine, limits)
        across = ceil_div(D, walk.linear.eb)
        states = 4 * fine.count - 2 if how.slabs.count > 1 else 0  # written, scanned, read
        moved = 2 * row * (across + 1) + (states + 1) * state + summarised(before, row, m)
        yield plan("causal", "walk", walk.linear.map, walk.defines, how.shared_bytes, moved, 4 * row + state)
        whole = key_state.launch(ENTRIES, N, D, m, linear, None, limits)
        of = whole.code
        moved = summarised(whole, row, m) + 2 * whole.slabs.count * state
        yield plan("key_state", "summarise", of.linear.map, of.defines, whole.shared_bytes, moved, 2 * row + state)
        asked = attend.launch(ENTRIES, N, D, linear)
        moved = row * (ceil_div(D, linear.eb) + 1) + state
        yield plan("attend", "attend", linear.map, linear.defines, asked.shared_bytes, moved, 2 * row + state)
        rows = features.launch(ENTRIES * N, m, code, limits)
        moved = row * (rows.grid[1] if code.project else 1) + row * m / D
        yield plan("features", "features", code, code.defines, rows.shared_bytes, moved, row * (1 + m / D))


def summarised(how: key_state.SummaryLaunch, row: int, m: int) -> float:
    """Return the bytes of keys and values that `summarise` reads."""
    share = min(1.0, how.summarised * how.slabs.rows / N)
    linear = how.code.linear
    across, spans = ceil_div(D, linear.eb), ceil_div(linear.map.tiles(m), how.code.span)
    return share * row * spans * (across + 1)


def counted(x: Planned) -> list[str]:
    """Return the cells of a row, from warps a block on."""
    compiled = nvrtc.compile_source(sources.source(x.op), x.defines, x.arch)
    kernel = compiled.kernels[x.kernel]
    by_shared = (LIMITS[x.arch].shared_bytes + 1024) // (x.shared_bytes + 1024)
    by_registers = 65536 // (ceil_div(kernel.registers, 8) * 8 * x.code.threads)
    blocks = min(by_shared, by_registers, THREADS.get(x.arch, 2048) // x.code.threads)
    found = sass.loops(sass.listing(compiled.cubin, x.kernel))
    multiplying = "; ".join(str(loop) for loop in found if loop.own_products) or "no HMMA"
    spills = max(kernel.spill_stores, kernel.spill_loads)
    sizes = (x.code.threads // 32, kernel.registers, spills, f"{x.shared_bytes / 1024:.0f}", blocks)
    return [*map(str, sizes), str(blocks * x.code.threads // 32), multiplying]


def table() -> str:
    """Return the table of Hopper."""
    rows = [
        [f"`{x.kernel}`", x.map, *counted(x), f"{x.moved / 1e6:.0f} MB", f"{x.moved / x.floor:.2f}"]
        for x in planned(*HOPPER)
    ]
    return markdown(HEAD, rows)


def others() -> str:
    """Return that of `walk` and `summarise` on other devices and of other dtypes."""
    rows = [
        [str(arch), dtype, f"`{x.kernel}`", x.map, *counted(x)]
        for arch, dtype in OTHERS
        for x in planned(arch, dtype)
        if x.kernel in ("walk", "summarise")
    ]
    return markdown(OTHER_HEAD, rows)


def markdown(head: tuple[str, ...], rows: list[list[str]]) -> str:
    """Return a table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(head), ["---"] * len(head), *rows])


def between(text: str, mark: str, new: str) -> str:
    """Return the text with what stands between a mark and the next end replaced."""
    head, tail = text.split(f"<!-- {mark} -->\n")
    return f"{head}<!-- {mark} -->\n{new}\n<!-- end -->{tail.partition('<!-- end -->')[2]}"


if __name__ == "__main__":
    tables = {"instructions": table(), "other devices": others()}
    if "--print" in sys.argv:
        print(*tables.values(), sep="\n\n")
    else:
        page = PAGE.read_text(encoding="utf-8")
        for mark, made in tables.items():
            page = between(page, mark, made)
        PAGE.write_text(page, encoding="utf-8")
