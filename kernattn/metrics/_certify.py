"""Is a map unbiased for its kernel? A test on redraws, in the directions where mistakes have hidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64, to_numpy64
from kernattn._runtime.checks import instance_of, positive_integer
from kernattn._runtime.lazy_scipy import special
from kernattn._runtime.random import RNG, generator
from kernattn.errors import NoClosedForm, ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.kernels import Kernel
from kernattn.metrics._check import check_share

RESOLUTION = 1e-10  # of |phi(x)| |phi(y)|: the least standard error, for estimates in which nothing is random
LEAST = 20  # redraws: fewer say nothing of a skewness
LEAST_UNKNOWN = 60  # where no closed form says how long the tails are
SKEWNESS = 0.05  # squared, of a mean up to which Hall's transformation frees far quantiles of it
ROUNDING = 1e-9  # of the kernel's size: below it a bias in closed form is none


@final
@dataclass(frozen=True)
class Certificate:
    """The verdict of `certify`, and what it rests on.

    Biases are relative to (k(x, x) k(y, y))^(1/2), the size of the kernel.

    Attributes
    ----------
    passed : bool, or None
        No z-score that counts is beyond the threshold, and no bias known in closed form is above rounding. None where
        nothing is known in closed form and the redraws of no pair count: unsettled.
    bias : dict of str to float, or None
        By direction: the largest bias in closed form, with its sign; None where none is known of the map.
    z_scores : dict of str to float
        By direction: the z-score of largest size of a pair.
    pooled_scores : dict of str to float
        By direction, and of "all": the z-score of the mean bias of the pairs.
    detectable : dict of str to float
        By direction: the bias of one pair that the redraws show with probability `power`, of the median pair. What is
        smaller may pass, and takes more redraws to be seen, as their square.
    detectable_common : dict of str to float
        The same of a bias that all pairs of the direction have in common.
    settled : dict of str to float
        By direction: the share of pairs whose redraws count.
    threshold : float
        The largest size of a z-score that passes.
    redraws : int
        Number R of redraws.
    power : float
        Probability with which biases of the size `detectable` are seen, about; less with few redraws.
    """

    passed: bool | None
    bias: dict[str, float] | None
    z_scores: dict[str, float]
    pooled_scores: dict[str, float]
    detectable: dict[str, float]
    detectable_common: dict[str, float]
    settled: dict[str, float]
    threshold: float
    redraws: int
    power: float

    def __str__(self) -> str:
        """Return the table of directions."""
        verdict = {True: "no bias found", False: "biased", None: "unsettled, more redraws are needed"}[self.passed]
        known = "no closed form" if self.bias is None else "closed form and redraws"
        if min(self.settled.values()) < 1:
            known += ", too few redraws for tails of " + ", ".join(n for n, part in self.settled.items() if part < 1)
        head = f"{verdict}: {known}, {self.redraws} redraws, |z| <= {self.threshold:.2f} passes"
        lines = [head, f"  {'':<9} {'bias':>9} {'z of a pair':>12} {'z pooled':>9}   seen with power {self.power:g}:"]
        for name, pooled in self.pooled_scores.items():
            bias = "" if self.bias is None or name not in self.bias else f"{self.bias[name]:.1e}"
            z = f"{self.z_scores[name]:.2f}" if name in self.z_scores else ""
            seen = f"{self.detectable[name]:.1e} of a pair, " if name in self.detectable else ""
            common = f"{self.detectable_common[name]:.1e} common to all"
            lines.append(f"  {name:<9} {bias:>9} {z:>12} {pooled:>9.2f}   {seen}{common}")
        return "\n".join(lines)


def certify(
    phi: FeatureMap,
    kernel: Kernel | None = None,
    *,
    dim: int | None = None,
    redraws: int = 400,
    significance: float = 1e-5,
    power: float = 0.9,
    rng: RNG = None,
) -> Certificate:
    r"""Test :math:`E\,\phi(x)^T \phi(y) = k(x, y)`: exactly where the mean is known, and by R redraws of the map.

    Where `phi.mean` is known, it is compared with the kernel: a bias above rounding fails at any size of the map and
    with any number of redraws. Redraws then ask whether the map is what its closed form says; where there is none, they
    are all there is. They give :math:`T = (\bar{K} - k) / (s / \sqrt{R})`, Student's (1908), freed of the skewness g
    that long tails leave by Hall's transformation (1992), :math:`T + aT^2/3 + a^2T^3/27 + a/6`, :math:`a = g/\sqrt{R}`,

    - for each of P pairs,
    - pooled over the pairs of each direction: the mean of :math:`(\hat k - k) / \sqrt{k(x, x) k(y, y)}`, whose noise is
      less than a pair's where that of its pairs differs, and whose bias is the same where that is common to them,
    - pooled over all G directions in which anything is random, each in units of its noise.

    The threshold is that of Bonferroni (1936) over all P + G + 1 together, the quantile of order
    1 - significance / 2(P + G + 1): an unbiased map fails with a probability of about `significance`, or less. A pair
    counts where its skewness is known in closed form, its mean has a squared one up to 0.05 and there are 20 redraws;
    where nothing is known of its tails, from 60 redraws on if the squared skewness that the means of all pairs show is
    up to 0.05 on average, for tails without a third moment leave most samples a mean that is too small; one without
    randomness counts always. Other pairs are shown and not judged.

    What is detectable follows from the noncentral law of T, as Johnson and Welch (1940) approximate it, at the T that
    Hall's transformation takes to the threshold on the worse of its two sides. The sample's skewness varies, which
    this leaves out: with few redraws of few frequencies the power is less than it says.

    Frequencies from a QR factor without the signs of its diagonal, a mistake in much public code, bias positive
    features along the diagonal of space and not along most other directions: hence pairs of every kind.

    - random: x and y in independent directions;
    - diagonal: both along (1, ..., 1), on one side or on two;
    - axis: both along the first, the middle or the last axis;
    - equal: y = x, and opposite: y = -x, along all of these.

    Each comes with its mirror image (-x, -y), where the odd part of the noise has the other sign. In the kernel's own
    scale :math:`|x + y| \le 1` and :math:`|x - y| \le 1`, about: there the tails of exponential features are light.
    Outside of the kernel's domain rows are replaced by absolute values.

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
    power : float
        Probability with which the biases are seen that the certificate calls detectable, in (0, 1).
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the directions and of the redraws.

    Examples
    --------
    >>> import kernattn as ka
    >>> phi = ka.random_features(ka.kernels.Softmax(), dim=8, num_features=32, rng=0)
    >>> ka.metrics.certify(phi, rng=0).passed
    True
    >>> ka.metrics.certify(phi, ka.kernels.Gaussian(), rng=0).passed
    False
    """
    kernel, d = _resolve_kernel(phi, kernel, dim)
    redraws = positive_integer("redraws", redraws)
    if redraws < 2:
        raise ShapeError(f"redraws must be at least 2, to see their spread; got {redraws}")
    check_share("significance", significance)
    check_share("power", power)
    source = generator(rng)
    names, x, y = _draw_pairs(kernel, d, source)
    exact = kernel.pairs(x, y)
    unit = np.maximum(np.abs(exact), np.sqrt(np.abs(kernel.pairs(x, x) * kernel.pairs(y, y)))) + np.finfo(float).tiny
    estimates, sizes = zip(*(_estimate(phi.redraw(source), x, y) for _ in range(redraws)), strict=True)
    errors, rounding = (np.stack(estimates) - exact) / unit, RESOLUTION * np.mean(sizes, axis=0) / unit
    groups = {name: np.asarray([each == name for each in names]) for name in dict.fromkeys(names)}
    z, noise, skewness = _score(errors, rounding)
    random = noise > 2 * rounding
    counted = _find_counted(phi, x, y, redraws, skewness[random]) | ~random
    threshold = float(-special.stdtrit(redraws - 1, significance / (2 * (len(z) + len(groups) + 1))))
    judged = [name for name, own in groups.items() if counted[own].any()]
    settling = {name: own & counted if name in judged else own for name, own in groups.items()}
    pooled, common = _pool(errors, rounding, settling, judged, (threshold, power))
    detectable = noise * _least_shift(threshold, power, redraws, skewness)
    fair = [abs(pooled[name]) <= threshold for name in (*judged, "all")] if judged else []
    bias = _closed_bias(phi, x, y, exact, unit)
    return Certificate(
        passed=None
        if bias is None and random.any() and not counted[random].any()
        else bool(
            (np.abs(z[counted]) <= threshold).all() and all(fair) and (bias is None or (np.abs(bias) <= ROUNDING).all())
        ),
        bias=None if bias is None else {name: float(max(bias[own], key=abs)) for name, own in groups.items()},
        z_scores={name: float(max(z[own], key=abs)) for name, own in groups.items()},
        pooled_scores=pooled,
        detectable={name: float(np.median(detectable[own])) for name, own in groups.items()},
        detectable_common=common,
        settled={name: float(np.mean(counted[own])) for name, own in groups.items()},
        threshold=threshold,
        redraws=redraws,
        power=float(power),
    )


def _score(errors: Float64, rounding: Float64) -> tuple[Float64, Float64, Float64]:
    """Return Student's statistics of columns of errors (R, P), freed of skewness, standard errors, and Hall's a."""
    root = len(errors) ** 0.5
    mean, sd = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1)
    noise = np.maximum(sd / root, rounding + np.finfo(float).tiny)
    t = mean / noise
    a = np.mean((errors - mean) ** 3, axis=0) / np.maximum(sd, root * noise) ** 3 / root
    return t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6, noise, a


def _find_counted(phi: FeatureMap, x: Float64, y: Float64, redraws: int, seen: Float64) -> NDArray[np.bool_]:
    """Return the pairs whose means of so many redraws are near enough to normal, (P,).

    Of unknown tails the skewness that all pairs show decides for each: a pair that missed its tail looks normal.
    """
    try:
        tails = phi._tails(x, y)
    except NoClosedForm:
        return np.full(len(x), redraws >= LEAST_UNKNOWN and np.sum(seen**2) <= SKEWNESS * len(seen))
    return np.asarray((redraws >= LEAST) & (tails.squared_skewness <= SKEWNESS * redraws * tails.terms))


def _least_shift(threshold: float, power: float, redraws: int, a: Float64) -> Float64:
    """Return the bias, in standard errors, that passes the threshold with this power on either side."""
    a = np.where(np.abs(a) < 1e-6, 1e-6, a)  # undoes ((1 + aT/3)^3 - 1) / a + a/6
    sides = [abs(3 / a * (np.cbrt(1 + a * (side - a / 6)) - 1)) for side in (-threshold, threshold)]
    t = np.maximum(*sides)  # the noncentral t as Johnson and Welch (1940) approximate it
    return np.asarray(t + special.ndtri(power) * np.sqrt(1 + t**2 / (2 * (redraws - 1))))


def _pool(
    errors: Float64,
    rounding: Float64,
    groups: dict[str, NDArray[np.bool_]],
    judged: list[str],
    detection: tuple[float, float],
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the statistics of the mean errors of each group and of all that are judged, and what they detect."""
    means = np.stack([np.mean(errors[:, own], axis=1) for own in groups.values()], axis=1)  # (R, G)
    floors = np.asarray([np.mean(rounding[own]) for own in groups.values()])
    z, noise, skewness = _score(means, floors)
    random = noise > floors + np.finfo(float).tiny  # the others would have all the weight
    own = np.asarray([name in judged or not judged for name in groups])
    weights = np.where(random & own, 1 / noise, 0.0) if (random & own).any() else np.where(own, 1.0, 0.0)
    weights /= np.sum(weights)
    total = _score((means @ weights)[:, None], np.atleast_1d(floors @ weights))
    scores, noises, a = (np.concatenate(pair) for pair in zip((z, noise, skewness), total, strict=True))
    least = noises * _least_shift(*detection, len(errors), a)
    names = [*groups, "all"]
    return dict(zip(names, map(float, scores), strict=True)), dict(zip(names, map(float, least), strict=True))


def _closed_bias(phi: FeatureMap, x: Float64, y: Float64, exact: Float64, unit: Float64) -> Float64 | None:
    """Return the bias in closed form in units of the kernel's size, (P,); None where it has none."""
    try:
        return np.asarray((to_numpy64(phi.mean(x, y)) - exact) / unit)
    except NoClosedForm:
        return None


def _resolve_kernel(phi: Any, kernel: Any, dim: int | None) -> tuple[Kernel, int]:
    """Return the kernel and the dimension to test with."""
    instance_of("phi", phi, FeatureMap)
    kernel = getattr(phi, "kernel", None) if kernel is None else kernel
    if kernel is None:
        raise ParameterError(f"kernel must be given, to say what {type(phi).__name__} estimates; got None")
    instance_of("kernel", kernel, Kernel)
    d = phi.dim if dim is None else positive_integer("dim", dim)
    if phi.dim not in (None, d):
        raise ParameterError(f"dim must be that of the map, {phi.dim}, or left out; got {dim!r}")
    if d is None:
        raise ParameterError(f"dim must be given: {type(phi).__name__} takes rows of any dimension")
    return kernel, d


def _draw_pairs(kernel: Kernel, d: int, rng: np.random.Generator) -> tuple[list[str], Float64, Float64]:
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
    pairs += [(name, -a, -b) for name, a, b in pairs]
    names, x, y = [p[0] for p in pairs], np.stack([p[1] / c for p in pairs]), np.stack([p[2] / c for p in pairs])
    try:
        kernel.check_domain("x", x)
        kernel.check_domain("y", y)
    except ParameterError:
        half = len(names) // 2
        names, x, y = names[:half], np.abs(x[:half]), np.abs(y[:half])
    return names, x, y


def _estimate(phi: FeatureMap, x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """Return phi(x).phi(y) and |phi(x)| |phi(y)|, which rounding is relative to, of pairs (P, d)."""
    query, key = ([to_numpy64(a) for a in part] for part in (phi.scaled_query(x), phi.scaled_key(y)))
    q, k = query[0] * np.exp(query[1]), key[0] * np.exp(key[1])  # (P, M)
    return np.sum(q * k, axis=-1), np.linalg.norm(q, axis=-1) * np.linalg.norm(k, axis=-1)
