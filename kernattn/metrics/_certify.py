"""Is a map unbiased for its kernel? A test on redraws, in the directions where mistakes have hidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import stdtrit

from kernattn._array import Float64, to_numpy64
from kernattn._check import finite_number, instance_of, positive_integer
from kernattn._random import RNG, generator
from kernattn.errors import ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.kernels import Kernel

__all__ = ["Certificate", "certify"]

RESOLUTION = 1e-10  # of |phi(x)| |phi(y)|: the least standard error, for estimates in which nothing is random


@final
@dataclass(frozen=True)
class Certificate:
    """What `certify` found.

    Attributes
    ----------
    passed : bool
        No z-score is beyond the threshold.
    z_scores : dict of str to float
        By direction: the z-score of largest size, bias over its standard error.
    detectable : dict of str to float
        By direction: the least bias that any of its pairs would have shown, relative to the kernel. What is smaller
        passes, and takes more redraws to be seen.
    threshold : float
        The largest size of a z-score that passes.
    redraws : int
        Number R of redraws.
    """

    passed: bool
    z_scores: dict[str, float]
    detectable: dict[str, float]
    threshold: float
    redraws: int

    def __str__(self) -> str:
        """Return the table of directions."""
        verdict = "no bias found" if self.passed else "biased"
        lines = [f"{verdict}: {self.redraws} redraws, |z| <= {self.threshold:.2f} passes"]
        for name, z in self.z_scores.items():
            lines.append(f"  {name:<9} z = {z:8.2f}   would show a relative bias of {self.detectable[name]:.1e}")
        return "\n".join(lines)


def certify(
    phi: FeatureMap,
    kernel: Kernel | None = None,
    *,
    dim: int | None = None,
    redraws: int = 400,
    significance: float = 1e-5,
    rng: RNG = 0,
) -> Certificate:
    r"""Test :math:`E\,\phi(x)^T \phi(y) = k(x, y)` by :math:`z = (\bar{K} - k) / (s / \sqrt{R})` over R redraws.

    Student (1908), with the threshold of Bonferroni (1936): an unbiased map fails with a probability of about
    `significance`, over all P pairs together, as the threshold is the quantile of order 1 - significance / 2P.
    Frequencies from a QR factor without the signs of its diagonal, a mistake in much public code, bias positive
    features along the diagonal of space and not along most other directions: hence pairs of every kind.

    - random: x and y in independent directions;
    - diagonal: both along (1, ..., 1), on one side or on two;
    - axis: both along the first, the middle or the last axis;
    - equal: y = x, and opposite: y = -x, along all of these.

    In the kernel's own scale :math:`|x + y| \le 1` and :math:`|x - y| \le 1`, about: there the tails of exponential
    features are light enough for Student's law. Outside of the kernel's domain rows are replaced by absolute values.

    Parameters
    ----------
    phi : FeatureMap
        The map, a user's own too. Its `redraw` must give independent maps from one Generator; a map that it gives
        back unchanged is tested for equality with the kernel, up to rounding.
    kernel : Kernel, optional
        The kernel; by default the map's own, its attribute `kernel`.
    dim : int, optional
        Input dimension d, for maps that take any.
    redraws : int
        Number R of redraws, at least 2.
    significance : float
        Probability that an unbiased map fails, in (0, 1).
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the directions and of the redraws.

    Returns
    -------
    Certificate
        The verdict and what it rests on.

    Raises
    ------
    ParameterError
        If phi is no feature map, there is no kernel or no dimension, or a number is out of range.
    ShapeError
        If there are fewer than two redraws.

    Examples
    --------
    >>> import kernattn as ka
    >>> phi = ka.random_features(ka.kernels.Softmax(), dim=8, num_features=32)
    >>> ka.metrics.certify(phi).passed
    True
    >>> ka.metrics.certify(phi, ka.kernels.Gaussian()).passed
    False
    """
    kernel, d = _of_map(phi, kernel, dim)
    redraws = positive_integer("redraws", redraws)
    if redraws < 2:
        raise ShapeError(f"redraws must be at least 2, to see their spread; got {redraws}")
    significance = finite_number("significance", significance)
    if not 0 < significance < 1:
        raise ParameterError(f"significance must lie strictly between 0 and 1; got {significance!r}")
    source = generator(rng)
    names, x, y = _points(kernel, d, source)
    exact = kernel.pairs(x, y)
    estimates, sizes = zip(*(_estimate(phi.redraw(source), x, y) for _ in range(redraws)), strict=True)
    error = np.std(estimates, axis=0, ddof=1) / redraws**0.5
    error = np.maximum(error, RESOLUTION * np.mean(sizes, axis=0) + np.finfo(float).tiny)
    z = (np.mean(estimates, axis=0) - exact) / error
    threshold = float(-stdtrit(redraws - 1, significance / (2 * len(z))))
    scores, detectable = {}, {}
    for name in dict.fromkeys(names):
        own = np.asarray(names) == name
        scores[name] = float(max(z[own], key=abs))
        detectable[name] = float(threshold * np.min(error[own] / np.maximum(np.abs(exact[own]), np.finfo(float).tiny)))
    return Certificate(bool((np.abs(z) <= threshold).all()), scores, detectable, threshold, redraws)


def _of_map(phi: Any, kernel: Any, dim: int | None) -> tuple[Kernel, int]:
    """Return the kernel and the dimension to test with."""
    instance_of("phi", phi, FeatureMap)
    kernel = getattr(phi, "kernel", None) if kernel is None else kernel
    if kernel is None:
        raise ParameterError(f"kernel must say what {type(phi).__name__} is to estimate; got None")
    instance_of("kernel", kernel, Kernel)
    d = phi.dim if dim is None else positive_integer("dim", dim)
    if phi.dim not in (None, d):
        raise ParameterError(f"dim must be that of the map, {phi.dim}, or left out; got {dim!r}")
    if d is None:
        raise ParameterError(f"dim must be given: {type(phi).__name__} takes rows of any dimension")
    return kernel, d


def _points(kernel: Kernel, d: int, rng: np.random.Generator) -> tuple[list[str], Float64, Float64]:
    """Return the names of the pairs' directions, and the pairs (P, d)."""
    rows = rng.standard_normal((16, d))
    u = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    diagonal, axes = np.ones(d) / d**0.5, [np.eye(d)[i] for i in (0, d // 2, d - 1)]
    pairs = [("random", 0.7 * a, 0.7 * b) for a, b in zip(u[:8], u[8:], strict=True)]
    for name, lines in (("diagonal", [diagonal]), ("axis", axes)):
        for w in lines:
            pairs += [(name, 0.6 * w, 0.4 * w), (name, -0.6 * w, -0.4 * w), (name, 0.75 * w, -0.25 * w)]
    for w in (diagonal, -diagonal, *axes, *u[:4]):
        pairs += [("equal", 0.5 * w, 0.5 * w), ("opposite", 0.5 * w, -0.5 * w)]
    c = kernel.input_scale(d)
    names, x, y = [p[0] for p in pairs], np.stack([p[1] / c for p in pairs]), np.stack([p[2] / c for p in pairs])
    try:
        kernel.check_domain("x", x)
        kernel.check_domain("y", y)
    except ParameterError:
        x, y = np.abs(x), np.abs(y)
    return names, x, y


def _estimate(phi: FeatureMap, x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """Return phi(x).phi(y) and |phi(x)| |phi(y)|, which rounding is relative to, of pairs (P, d)."""
    query, key = ([to_numpy64(a) for a in part] for part in (phi.scaled_query(x), phi.scaled_key(y)))
    q, k = query[0] * np.exp(query[1]), key[0] * np.exp(key[1])  # (P, M)
    return np.sum(q * k, axis=-1), np.linalg.norm(q, axis=-1) * np.linalg.norm(k, axis=-1)
