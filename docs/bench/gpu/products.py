"""cuBLAS as CuPy exposes it: batched products of any dtype, in the precision that the dtype stands for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bench.gpu.counts import gemm_work
from bench.sizes import Sizes
from kernattn._arrays.namespaces import Array
from kernattn.bench import Gauge, Work

# cudaDataType, cublasComputeType and the scalar's type
TYPES = {
    "bfloat16": (14, 68, np.float32),
    "float16": (2, 68, np.float32),
    "float32": (0, 68, np.float32),
    "tf32": (0, 77, np.float32),
    "float64": (1, 70, np.float64),
}
DEFAULT_ALGORITHM = -1
COPY = 2**30  # bytes
GEMM = 8192


def matmul(a: Array, b: Array, dtype: str, *, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """Return a b, (..., r, k) x (..., k, c), by one strided batched call; a or b may be given transposed."""
    import cupy

    lead = a.shape[:-2]
    r, k = a.shape[-2:][::-1] if transpose_a else a.shape[-2:]
    c = b.shape[-2] if transpose_b else b.shape[-1]
    out = cupy.empty((*lead, r, c), dtype=a.dtype)
    data, compute, scalar = TYPES[dtype]
    one, zero = np.ones(1, scalar), np.zeros(1, scalar)
    stride_b = 0 if b.ndim == 2 and lead else b.shape[-2] * b.shape[-1]
    # row-major c = a b is column-major c^T = b^T a^T
    cupy.cuda.cublas.gemmStridedBatchedEx(
        cupy.cuda.device.get_cublas_handle(), int(transpose_b), int(transpose_a), c, r, k,
        one.ctypes.data, b.data.ptr, data, b.shape[-1], stride_b,
        a.data.ptr, data, a.shape[-1], a.shape[-2] * a.shape[-1],
        zero.ctypes.data, out.data.ptr, data, c, r * c, math.prod(lead), compute, DEFAULT_ALGORITHM,
    )  # fmt: skip
    return out


def gauges(sizes: Sizes, work: Work, copy: int = COPY, gemm: int = GEMM) -> dict[str, Gauge]:
    """Return a copy of 1 GiB and a product of 8192 x 8192 matrices, whatever the work."""
    import cupy

    source, target = cupy.zeros(copy, dtype=cupy.uint8), cupy.empty(copy, dtype=cupy.uint8)
    values = np.random.default_rng(sizes.seed).standard_normal((gemm, gemm), dtype=np.float32)
    a = cupy.asarray(values.astype(numpy_dtype(sizes.array_dtype)))  # zeros would draw less power
    return {
        "bytes": Gauge(lambda: cupy.copyto(target, source), 2.0 * copy),
        "flops": Gauge(lambda: matmul(a, a, sizes.dtype), gemm_work(gemm, sizes.itemsize).flops),
    }


def numpy_dtype(name: str) -> Any:
    """Return a dtype of NumPy, or of ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)
