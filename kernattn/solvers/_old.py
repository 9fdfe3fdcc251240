"""A call of the version before, under its old name."""

from typing import Any

from kernattn._arrays.namespaces import Array
from kernattn.features import Nystrom
from kernattn.kernels import Kernel
from kernattn.solvers._kernel_ridge import KernelRidge, kernel_ridge


def cg(kernel: Kernel, x: Array, y: Array, landmarks: Any, ridge: float, **options: Any) -> KernelRidge:
    """Return a fit of `kernel_ridge`; landmarks are a number, points, indices or a Nystrom map, and the seed is 0."""
    points = "landmarks" if getattr(landmarks, "ndim", 0) else "num_landmarks"
    name = "phi" if isinstance(landmarks, Nystrom) else points
    return kernel_ridge(x, y, kernel, penalty=ridge, **{name: landmarks}, **{"rng": 0, **options})
