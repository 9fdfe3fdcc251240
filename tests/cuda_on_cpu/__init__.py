"""Runs unchanged CUDA C++ on the CPU: no GPU, no driver, only g++."""

from __future__ import annotations

from cuda_on_cpu.build import BuildError, gxx, sanitizing
from cuda_on_cpu.module import KernelError, RawModule

__all__ = ["BuildError", "KernelError", "RawModule", "gxx", "sanitizing"]
