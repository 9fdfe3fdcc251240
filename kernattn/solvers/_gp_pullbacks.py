r"""How cotangents flow back through a Gaussian process: to rows, to features, to its sums over rows and to its scales.

With :math:`A = G + \lambda`, :math:`\lambda = \sigma^2 / a^2` and :math:`w = A^{-1} B`, the mean :math:`\phi^T w` has
:math:`dB = V` and :math:`dG = -V w^T`, :math:`V = A^{-1} \Phi^T g`; the variance
:math:`\sigma^2 \phi^T A^{-1} \phi + a^2 (k - \phi^T \phi)` has :math:`dG = -\sigma^2 A^{-1} \Phi^T g \Phi A^{-1}`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, to_numpy64, without_flags
from kernattn._gradients import vjp
from kernattn._gradients.recorded import like
from kernattn.solvers._beside import pull_own
from kernattn.solvers._posterior import Posterior
from kernattn.solvers._spectrum import cast_as


class PredictionGradients(NamedTuple):
    """Of the mean or the variance of a process, whose sums over rows are held."""

    x: Array
    noise: Float64  # (c,)
    amplitude: Float64  # (c,)


class Slopes(NamedTuple):
    """Cotangents of what a prediction is made of."""

    features: Float64  # of phi at the new rows (n, M)
    gram: Float64  # of G (M, M), symmetric
    cross: Float64  # of B (M, c)
    noise: Float64  # (c,)
    amplitude: Float64  # (c,)
    own: Float64  # of k(x, x) at the new rows (n,)


def of_mean(process: Posterior, features: Float64, g: Float64) -> Slopes:
    """Return the slopes of sum g m, where m is the mean at rows with these features, (n, c)."""
    weights = process._spectrum.weights(process._penalties)
    turned = process._spectrum.vectors.T @ (features.T @ g)
    solved = process._spectrum.vectors @ (turned / (process._spectrum.values[:, None] + process._penalties))
    gram = -(solved @ weights.T + weights @ solved.T) / 2
    noise, amplitude = _of_penalty(process, -np.sum(solved * weights, axis=0))
    return Slopes(g @ weights.T, gram, solved, noise, amplitude, np.zeros(len(g)))


def of_variance(process: Posterior, features: Float64, g: Float64, lacking: Float64 | None) -> Slopes:
    """Return the slopes of sum g v, where v is the variance at rows with these features, (n, c).

    `lacking` says which rows have the part that features lack, (n,); None of a map that has none.
    """
    spectrum, at, variance = process._spectrum, process._penalties, process.noise**2
    shrunk = 1 / (spectrum.values[:, None] + at)  # (M, c)
    turned = features @ spectrum.vectors  # (n, M)
    gram, of_turned, of_penalty = np.zeros((features.shape[1],) * 2), np.zeros_like(turned), np.zeros(len(at))
    for i in range(len(at)):
        scaled = turned * shrunk[:, i]
        inner = (scaled * g[:, i, None]).T @ scaled
        gram -= variance[i] * inner
        of_turned += 2 * variance[i] * g[:, i, None] * scaled
        of_penalty[i] = -variance[i] * np.trace(inner)
    noise, amplitude = _of_penalty(process, of_penalty)
    noise = noise + 2 * process.noise * np.sum(g * (turned**2 @ shrunk), axis=0)
    own = np.zeros(len(g))
    if lacking is not None:
        own = np.where(lacking > 0, g @ process.amplitude**2, 0.0)
        of_turned -= 2 * own[:, None] * turned
        amplitude = amplitude + 2 * process.amplitude * (np.maximum(lacking, 0.0) @ g)
    gram = spectrum.vectors @ gram @ spectrum.vectors.T
    cross = np.zeros((features.shape[1], len(at)))
    return Slopes(of_turned @ spectrum.vectors.T, gram, cross, noise, amplitude, own)


def _of_penalty(process: Posterior, slope: Float64) -> tuple[Float64, Float64]:
    """Return the cotangents of noise and amplitude from those of the penalties, (c,) each."""
    noise, amplitude = process.noise, process.amplitude
    return slope * 2 * noise / amplitude**2, -slope * 2 * noise**2 / amplitude**3


def lacking_of(process: Posterior, x: Float64, features: Float64) -> Float64 | None:
    """Return k(x, x) - phi(x)^T phi(x) of rows (n, d), (n,); None where no variance has that part."""
    kernel = process._kernel_beside()
    return None if kernel is None else kernel.diag(x) - np.sum(features**2, axis=1)


def _rule(process: Posterior, name: str) -> Callable[..., Any]:
    """Return the rule of the mean or of the variance."""

    @without_flags
    def rule(x: Array, backend: str | None) -> tuple[Array, Callable[[Any], PredictionGradients]]:
        out = getattr(process, name)(x, backend=backend)

        @without_flags
        def pullback(cotangent: Any) -> PredictionGradients:
            g = to_numpy64(like("the cotangent", cotangent, out)).reshape(-1, len(process.noise))
            rows = to_numpy64(x).reshape(-1, x.shape[-1])
            features, pulled = vjp(process.phi, rows)
            if name == "mean":
                slopes = of_mean(process, features, g)
            else:
                slopes = of_variance(process, features, g, lacking_of(process, rows, features))
            dx = pulled(slopes.features).x
            kernel = process._kernel_beside() if name == "variance" else None
            if kernel is not None:
                dx = dx + pull_own(kernel, rows, slopes.own)
            return PredictionGradients(cast_as(dx.reshape(x.shape), x), slopes.noise, slopes.amplitude)

        return out, pullback

    return rule


METHODS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "mean": lambda process: _rule(process, "mean"),
    "variance": lambda process: _rule(process, "variance"),
}
