"""Benchmarks on a GPU: each op against the traffic and the arithmetic it cannot avoid, and against its rivals there."""

from kernattn.bench.gpu.cases import CASES
from kernattn.bench.gpu.report import table, write
from kernattn.bench.gpu.run import bench
from kernattn.bench.gpu.work import Sizes

__all__ = ["CASES", "Sizes", "bench", "table", "write"]
