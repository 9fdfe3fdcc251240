"""Sums of outer products of features in array-API."""

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, widest
from kernattn._maps.spec import MapSpec
from kernattn.ops.features.reference import features


def gram(x: Array, y: Array, spec: MapSpec | None, wide: bool) -> tuple[Array, Array]:
    """Return phi^T phi (..., M, M) and phi^T y (..., M, c)."""
    xp = namespace(x=x, y=y)
    dtype = accumulation_dtype(xp, x)
    phi = xp.astype(x, dtype, copy=False)
    phi = phi if spec is None else features(phi, spec)
    phi, y = (xp.astype(a, widest(xp, x) if wide else dtype, copy=False) for a in (phi, y))
    across = xp.matrix_transpose(phi)  # (..., M, n)
    return xp.matmul(across, phi), xp.matmul(across, y)
