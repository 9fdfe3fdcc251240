"""Compiles CUDA C++ for any architecture with NVRTC: no GPU, no driver, no nvcc."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec


@dataclass(frozen=True)
class Kernel:
    """What ptxas says of one kernel."""

    registers: int
    spill_stores: int  # bytes
    spill_loads: int  # bytes
    stack: int  # bytes
    shared: int  # bytes, static


@dataclass(frozen=True)
class Compiled:
    ptx: str
    cubin: bytes
    kernels: dict[str, Kernel]


class CompileError(RuntimeError):
    """NVRTC refused the source."""


def available() -> str | None:
    """Why NVRTC cannot be used here, or None."""
    try:
        if find_spec("cuda.bindings.nvrtc") is None:
            return "cuda-bindings is not installed"
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, ModuleNotFoundError, RuntimeError) as error:
        return f"NVRTC cannot be loaded: {error}"
    return None


def _checked(result):
    code, *values = result
    if int(code) != 0:
        raise CompileError(f"NVRTC returned {code}")
    return values[0] if len(values) == 1 else values


FUNCTION = re.compile(r"Compiling entry function '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def parse_log(log: str) -> dict[str, Kernel]:
    """Reads the report of --ptxas-options=-v."""
    found = {}
    for part in re.split(r"(?=Compiling entry function)", log)[1:]:
        stack, stores, loads = (int(x) for x in SPILLS.search(part).groups())
        shared = SHARED.search(part)
        found[FUNCTION.search(part).group(1)] = Kernel(
            int(USED.search(part).group(1)), stores, loads, stack, int(shared.group(1)) if shared else 0
        )
    return found


@cache
def compile_source(source: str, options: tuple[str, ...], arch: int) -> Compiled:
    """Compiles to a cubin for sm_<arch>."""
    from cuda.bindings import nvrtc

    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], []))
    flags = [f"--gpu-architecture=sm_{arch}", "-ftz=true", "--ptxas-options=-v", *options]
    encoded = [flag.encode() for flag in flags]
    status = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    size = _checked(nvrtc.nvrtcGetProgramLogSize(program))
    buffer = b" " * size
    _checked(nvrtc.nvrtcGetProgramLog(program, buffer))
    log = buffer.decode(errors="replace").strip("\0 ")
    if int(status[0]) != 0:
        raise CompileError(log)
    ptx = b" " * _checked(nvrtc.nvrtcGetPTXSize(program))
    _checked(nvrtc.nvrtcGetPTX(program, ptx))
    cubin = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
    _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    _checked(nvrtc.nvrtcDestroyProgram(program))
    return Compiled(ptx.decode(errors="replace"), cubin, parse_log(log))
