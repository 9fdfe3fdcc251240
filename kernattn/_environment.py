"""What runs here: versions, threads, and the backend each op would choose."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from kernattn._runtime.parallel import VARIABLE, threads
from kernattn._version import __version__
from kernattn.ops import OPS
from kernattn.ops.dispatch import BACKENDS, Op, missing

PACKAGES = {
    "numpy": ("numpy",),
    "scipy": ("scipy",),
    "array-api-compat": ("array-api-compat",),
    "numba": ("numba",),
    "cupy": ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x"),
    "torch": ("torch",),
    "jax": ("jax",),
    "transformers": ("transformers",),
    "dask": ("dask",),
    "scikit-learn": ("scikit-learn",),
    "matplotlib": ("matplotlib",),
    "tqdm": ("tqdm",),
}
THREAD_VARIABLES = (VARIABLE, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of the packages that matter, read from their metadata; None where absent."""
    numbers: dict[str, str | None] = {"python": platform.python_version(), "platform": platform.platform()}
    numbers["kernattn"] = __version__
    return numbers | {package: version_of(*names) for package, names in PACKAGES.items()}


def version_of(*names: str) -> str | None:
    """Return the version of the first of these distributions that is installed, None where none is."""
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _choices(op: Op) -> tuple[str, str]:
    """The backend of an op on arrays in host memory and in a GPU's."""
    return op.choose(np.empty(0)), "—" if missing("gpu") else "gpu" if "gpu" in op.backends else "reference"


def _vectors() -> str:
    """How wide the vectors of the compiled loops are."""
    if missing("cpu") is not None:
        return "none: numba is not installed"
    from kernattn.ops._numba.codegen.registers import VECTOR

    return f"{8 * VECTOR} bits"


def _matrix_unit() -> str:
    """Whether a matrix unit is used, and why not."""
    if missing("cpu") is not None:
        return "not used: numba is not installed"
    from kernattn.ops._numba.matrix.unit import describe

    return describe()


def describe() -> str:
    """Return the text of `kernattn info`."""
    lines = ["Versions"]
    lines += [f"  {name:<18}{found or 'not installed'}" for name, found in versions().items()]
    lines += ["", "Threads", f"  {'compiled loops':<22}{threads()}", f"  {'their vectors':<22}{_vectors()}"]
    lines += [f"  {'matrix unit':<22}{_matrix_unit()}"]
    lines += [f"  {name:<22}{os.environ.get(name, 'not set')}" for name in THREAD_VARIABLES]
    lines += ["", "Backends"]
    lines += [f"  {name:<18}{_state(name)}" for name in BACKENDS]
    lines += ["", "Ops", f"  {'op':<18}{'host memory':<16}{'CUDA memory':<16}otherwise"]
    for op in OPS.values():
        on_host, on_cuda = _choices(op)
        lines.append(f"  {op.name:<18}{on_host:<16}{on_cuda:<16}reference")
    lines += [
        "",
        "Host memory is NumPy's, and that of PyTorch's CPU tensors and JAX's CPU arrays; CUDA memory is that of",
        "CuPy's arrays and PyTorch's CUDA tensors. What PyTorch or JAX differentiates or traces runs there, too.",
    ]
    return "\n".join(lines)


def _state(backend: str) -> str:
    reason = missing(backend)
    if reason is not None:
        return f"unavailable: {reason}"
    having = [op.name for op in OPS.values() if backend in op.backends]
    return f"available, for {', '.join(having)}" if having else "available, but no op has it yet"
