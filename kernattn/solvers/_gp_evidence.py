r"""What the log evidence at given scales is made of: by a Cholesky factor of A, or by eigenvectors of G.

With :math:`A = G + \lambda = L L^T` the quadratic is :math:`y^T y - |L^{-1} B|^2`, and a factor and its inverse take
M^3 products, where eigenvectors take several times that. Targets of several penalties share eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import linalg
from kernattn.solvers._gp import EvidenceGradient, check_scale, gp
from kernattn.solvers._moments import Moments
from kernattn.solvers._spectrum import Spectrum

RESOLVED = 2.0**-40  # of the trace of G: a penalty from there on leaves a factor digits
USUAL = 1e-200, 1e200  # sums of squares of which a factor is made


class Evidence(NamedTuple):
    """The log evidence of c targets, and what its derivatives are made of."""

    values: Float64  # (c,)
    noise: Float64  # (c,)
    amplitude: Float64  # (c,)
    weights: Float64  # w (M, c)
    slopes: Callable[[], EvidenceGradient]  # (c,) each
    sum_inverses: Callable[[Float64], Float64]  # of g (c,): sum_i g_i (G + lambda_i)^-1


def evidence(m: Moments, noise: Float64, amplitude: Float64) -> Evidence:
    """Return the log evidence at these scales, which `gp` refuses where it would."""
    c = len(m._raw.total)
    sigma, a = check_scale("noise", noise, c), check_scale("amplitude", amplitude, c)
    penalties, energy = (sigma / a) ** 2, np.diagonal(m._raw.gram)
    low, high = USUAL
    if np.ptp(penalties) == 0 and np.all((low < energy) & (energy < high)):
        lower = factor(m.gram, float(penalties[0]))
        if lower is not None:
            return _by_factor(m, lower, sigma, a)
    return _by_eigenvectors(m, sigma, a)


def factor(gram: Float64, penalty: float) -> Float64 | None:
    r"""Return L of :math:`G + \lambda = L L^T`; None where rounding would take its digits."""
    trace, (low, high) = float(np.trace(gram)), USUAL
    if not (low < trace < high and RESOLVED * trace <= penalty < high):
        return None
    matrix = gram + penalty * np.eye(len(gram))
    lower, failed = linalg.lapack.dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
    return None if failed else lower


def invert(lower: Float64) -> Float64:
    """Return :math:`(L L^T)^{-1}`."""
    half, _ = linalg.lapack.dpotri(lower, lower=1)  # its lower triangle; above it stay zeros
    inverse: Float64 = half + half.T
    inverse[np.diag_indices(len(inverse))] /= 2
    return inverse


def sum_inverses(gram: Float64, spectrum: Spectrum, penalties: Float64, g: Float64) -> Float64:
    r"""Return :math:`\sum_i g_i (G + \lambda_i)^{-1}`."""
    if np.ptp(penalties) == 0 and (lower := factor(gram, float(penalties[0]))) is not None:
        return float(np.sum(g)) * invert(lower)
    shrunk = 1 / (spectrum.values[:, None] + penalties)
    sums: Float64 = (spectrum.vectors * (shrunk @ g)) @ spectrum.vectors.T
    return sums


def _by_factor(m: Moments, lower: Float64, sigma: Float64, a: Float64) -> Evidence:
    targets, variance, at = m._raw, sigma**2, (sigma / a) ** 2
    half, _ = linalg.lapack.dtrtrs(lower, targets.cross, lower=1)
    weights, _ = linalg.lapack.dtrtrs(lower, half, lower=1, trans=1)
    energy = np.diagonal(targets.gram)
    quadratic = np.maximum(energy - np.sum(half**2, axis=0), np.finfo(float).eps * energy)
    determinant = 2 * np.sum(np.log(np.diagonal(lower))) - len(lower) * np.log(at)
    values = -(m.n * np.log(2 * np.pi * variance) + determinant + quadratic / variance) / 2
    held: list[Float64] = []

    def inverse() -> Float64:
        if not held:
            held.append(invert(lower))
        return held[0]

    def slopes() -> EvidenceGradient:
        size = np.sum(weights**2, axis=0) / a**2
        dimensions = len(lower) - at * np.trace(inverse())
        return EvidenceGradient(quadratic / variance - size + dimensions - m.n, size - dimensions)

    return Evidence(values, sigma, a, weights, slopes, lambda g: float(np.sum(g)) * inverse())


def _by_eigenvectors(m: Moments, sigma: Float64, a: Float64) -> Evidence:
    process = gp(m, noise=sigma, amplitude=a)
    spectrum, at = process._spectrum, process._penalties
    values = np.reshape(process.log_evidence, (-1,))

    def slopes() -> EvidenceGradient:
        return EvidenceGradient(*(np.reshape(slope, (-1,)) for slope in process.gradient))

    sums = lambda g: sum_inverses(m.gram, spectrum, at, g)  # noqa: E731
    return Evidence(values, sigma, a, spectrum.weights(at), slopes, sums)
