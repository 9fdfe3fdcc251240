"""Benchmarks: each op against its floor and against every peer that can be imported, in alternation, in one process."""

from kernattn.bench.cases import CASES, Options
from kernattn.bench.run import bench, scaling
from kernattn.bench.start import start

__all__ = ["CASES", "Options", "bench", "scaling", "start"]
