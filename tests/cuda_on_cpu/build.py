"""Builds CUDA C++ into a shared library with g++, cached under a hash of everything that went in."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

INCLUDE = Path(__file__).parent / "include"
HEADER = "cuda_on_cpu.h"
RUNTIME = Path(__file__).parent / "runtime.cc"
KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\s*\(')
FLAGS = ("-std=c++20", "-Og", "-shared", "-fPIC", "-U_FORTIFY_SOURCE", "-ffp-contract=fast")
WARNINGS = (
    "-Wall",
    "-Wno-unknown-pragmas",
    "-Wno-unused-variable",
    "-Wno-unused-function",
    "-Wno-unused-but-set-variable",
)
SANITIZE = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


class BuildError(RuntimeError):
    """g++ refused the source."""


def gxx() -> str | None:
    """The path of g++, or None where there is none."""
    return shutil.which("g++")


def sanitizing() -> dict[str, str]:
    """The variables of a process that loads sanitized libraries."""
    command = [str(gxx()), "-print-file-name=libasan.so"]
    library = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"}


def cache_folder() -> Path:
    """Where built libraries are kept between runs."""
    folder = Path(os.environ.get("CUDA_ON_CPU_CACHE", Path(tempfile.gettempdir()) / f"cuda_on_cpu-{os.getuid()}"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kernel_names(source: str) -> list[str]:
    """The extern "C" kernels of a source, in order."""
    return KERNEL.findall(source)


@functools.cache
def _headers() -> bytes:
    return b"".join(path.read_bytes() for path in (*sorted(INCLUDE.iterdir()), RUNTIME))


@functools.cache
def _shared(compiler: str, flags: tuple[str, ...]) -> Path:
    """A folder with what all builds share: the header as g++ keeps it once parsed, and what runs kernels."""
    key = hashlib.sha256(_headers() + repr([compiler, flags]).encode()).hexdigest()[:24]
    folder = cache_folder() / f"{key}.shared"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as made:
            header = ["-x", "c++-header", str(INCLUDE / HEADER), "-o", str(Path(made) / f"{HEADER}.gch")]
            runtime = ["-O2", "-fopenmp", f"-I{INCLUDE}", str(RUNTIME), "-o", str(Path(made) / "runtime.so")]
            for more in (header, runtime):
                subprocess.run([compiler, *flags, "-w", *more], check=True)
            with contextlib.suppress(OSError):  # another process was first
                Path(made).replace(folder)
                Path(made).mkdir()
    return folder


def build(source: str, defines: Sequence[str] = (), sanitize: bool = False) -> Path:
    """The shared library of a CUDA source; its kernels are launched by ``cuda_on_cpu_launch_<name>``."""
    compiler = gxx()
    if compiler is None:
        raise BuildError("g++ was not found on PATH")
    common = (*FLAGS, *WARNINGS, *(SANITIZE if sanitize else ()))
    flags = [*common, *defines]
    key = hashlib.sha256(_headers() + repr([compiler, flags]).encode() + source.encode()).hexdigest()[:24]
    library = cache_folder() / f"{key}.so"
    if library.exists():
        return library
    launchers = "\n".join(f"CUDA_ON_CPU_KERNEL({name})" for name in kernel_names(source))
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        text = Path(folder) / "kernels.cc"
        text.write_text(f'#include "{HEADER}"\n#line 1 "kernels.cu"\n{source}\n{launchers}\n')
        made = Path(folder) / "kernels.so"
        shared = _shared(compiler, common)
        command = [
            compiler,
            *flags,
            f"-I{shared}",
            f"-I{INCLUDE}",
            str(text),
            str(shared / "runtime.so"),
            "-o",
            str(made),
        ]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise BuildError(result.stderr[:8000])
        if "warning:" in result.stderr:
            raise BuildError(result.stderr[:8000])
        made.replace(library)
    return library
