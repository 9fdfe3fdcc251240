"""Whether this process may use the matrix unit: asked of Numba's target and of the kernel, never of the CPU itself.

LLVM stops the process where it is told to emit instructions that its target lacks, so what Numba compiles for decides
first. The kernel gives tiles to a process that asks, and to its forks; code that runs without its leave is killed.
Pairs by vectors are free to all.
"""

import ctypes
import errno
import os
import sys
from functools import lru_cache

from llvmlite.binding import get_host_cpu_features

from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError
from kernattn.ops._numba.codegen.registers import PAIRS, TILES

VARIABLE = "KERNATTN_MATRIX_UNIT"
OFF, ON, EMULATED = "0", "1", "emulated"

ARCH_PRCTL, SUPPORTED, ASK, TILE_DATA = 158, 0x1021, 0x1023, 18
"""A system call of Linux on x86-64, two of its questions, and the state that holds tiles."""

_answer: list[str | None] = []  # of the kernel, once it was asked


def why_not() -> str | None:
    """Return why loops of the matrix unit do not run here, or None where they do; a process is told once."""
    asked = os.environ.get(VARIABLE, ON) or ON
    if asked not in (OFF, ON, EMULATED):
        raise ParameterError(f"{VARIABLE} must be 0, 1 or emulated; got {shown(asked)}")
    if asked == OFF:
        return f"{VARIABLE} is 0"
    if PAIRS:
        return None
    if not TILES:
        return None if asked == EMULATED else _lacking()
    if not _answer:
        _answer.append(_refusal())
    return _answer[0]


def describe() -> str:
    """Return the line of `kernattn info` on the unit."""
    reason = why_not()
    if reason is not None:
        return f"not used: {reason}"
    if PAIRS:
        return "AVX512_BF16, for exact attention of bfloat16 arrays"
    return "AMX, for arrays of 16 bits" if TILES else "emulated, for tests"


@lru_cache(maxsize=1)
def _lacking() -> str:
    """Return why Numba compiles for no unit: for want of one, or as it was told."""
    host = get_host_cpu_features()
    tiles, pairs = (all(map(host.get, names)) for names in (("amx-tile", "amx-bf16"), ("avx512bf16", "sse4a")))
    if not (tiles or pairs):
        return "this CPU has none"
    return "it is used on Linux alone" if tiles and sys.platform != "linux" else "Numba compiles for a CPU without one"


def _refusal() -> str | None:
    """Ask the kernel for the unit; return why it refuses."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    supported = ctypes.c_uint64(0)
    if call(ctypes.c_long(ARCH_PRCTL), ctypes.c_long(SUPPORTED), ctypes.byref(supported)) != 0:
        return f"the kernel knows no unit ({os.strerror(ctypes.get_errno())})"
    if not supported.value >> TILE_DATA & 1:
        return "the kernel offers none"
    if call(ctypes.c_long(ARCH_PRCTL), ctypes.c_long(ASK), ctypes.c_long(TILE_DATA)) == 0:
        return None
    number = ctypes.get_errno()
    if number == errno.ENOSPC:
        return "a thread's stack for signals is too small for its state"
    return f"the kernel refuses it ({os.strerror(number)})"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_answer.clear)
