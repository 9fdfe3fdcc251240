"""What a posterior on features holds, and what its predictions, draws and gradients share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, namespace, placement
from kernattn.features import FeatureMap
from kernattn.solvers._beside import kernel_beside
from kernattn.solvers._check import widen
from kernattn.solvers._spectrum import Spectrum
from kernattn.solvers._targets import OfTargets


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(OfTargets):
    """Scales and a spectrum; `GaussianProcess` says what is asked of them."""

    phi: FeatureMap
    noise: Float64
    amplitude: Float64
    _spectrum: Spectrum
    _vector: bool

    @property
    def _penalties(self) -> Float64:
        return (self.noise / self.amplitude) ** 2

    def _kernel_beside(self) -> Any:
        """Return the kernel whose part that features lack counts, of Nystrom maps alone or within; None of others."""
        return kernel_beside(self.phi)

    @staticmethod
    def _lacking(kernel: Any, x: Array, y: Array | None, products: Array) -> Array:
        """Return k(x, y) - phi(x)^T phi(y), whose own diagonal rounding must not make negative."""
        xp, rows = namespace(products=products), widen(x)
        covariance = kernel(rows, None if y is None else widen(y)) - products
        if y is not None:
            return covariance
        n = covariance.shape[-1]
        own = xp.asarray(np.eye(n, dtype=bool), **placement(covariance))
        return xp.where(own & (covariance < 0), xp.zeros_like(covariance), covariance)
