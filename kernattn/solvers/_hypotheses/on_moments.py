"""Tests on sums of features: are two samples of one law, are two variables independent?"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64, without_flags
from kernattn._runtime.checks import instance_of
from kernattn._runtime.deprecated import old_arguments
from kernattn.errors import EmptyInputError, ParameterError
from kernattn.solvers._check import check_varies
from kernattn.solvers._hypotheses.tail import upper_tail
from kernattn.solvers._moments import Moments, check_one_draw

ROUNDING = 1e-12  # of the largest eigenvalue: the others are none


class SampleTest(NamedTuple):
    """The estimate, of mean 0 where there is nothing to find, and the probability of one as large in that case.

    A probability below the least number of float64 is 0.
    """

    statistic: float
    p_value: float


@old_arguments(mx="a", my="b")
@without_flags
def mmd(a: Moments, b: Moments) -> SampleTest:
    r"""Test whether two samples are of one law, by :math:`MMD^2 = |E \phi(X) - E \phi(Y)|^2` (Gretton et al. 2012).

    The statistic is the unbiased estimate for the map's kernel. Where the laws are equal, the difference of the means
    is normal of covariance :math:`C (1 / n_x + 1 / n_y)`, C that of both samples together, and its square a sum of
    squares weighted by the eigenvalues: the p-value is the tail of that, without permutations. Its variance is the
    unbiased estimate for normal features (Bai & Saranadasa 1996), as eigenvalues of a sample's covariance are more
    spread than the law's: fifty rows will do, and there may be more features than rows. What it takes for granted is
    that rows are independent draws and that the means are nearly normal: copies of rows, and rows that follow each
    other in time, make it reject far too often; a rare value should be in three rows of each sample or more.

    Parameters
    ----------
    a, b : Moments
        Of the two samples, two rows or more each, by one draw of a map, without weights. Targets play no part.

    Raises
    ------
    EmptyInputError, ParameterError, StateMismatchError
        If moments are of fewer rows, have weights, vary by no more than rounding, or are of two draws.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.standard_normal((500, 2)), 1.3 * rng.standard_normal((500, 2))
    >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=2, num_features=64, rng=0)
    >>> bool(ka.solvers.mmd(ka.solvers.moments(x, phi), ka.solvers.moments(y, phi)).p_value < 1e-4)
    True
    """
    for name, m in (("a", a), ("b", b)):
        _check_sample(name, m)
    check_one_draw(a, b)
    n, total = a.n + b.n, a.s + b.s
    pooled = _covariance(a.gram + b.gram, total, n)
    products = "float32" if "float32" in (a.products, b.products) else "float64"
    weights = _eigenvalues(pooled, "features", np.diagonal(a.gram + b.gram) / n, products)
    difference = a.s / a.n - b.s / b.n
    square = float(difference @ difference)
    noise = sum(float(np.trace(_covariance(m.gram, m.s, m.n))) / m.n for m in (a, b))
    return SampleTest(square - noise, _shrunk_tail(square / (1 / a.n + 1 / b.n), weights, _law_share(weights, n)))


@old_arguments(m="moments")
@without_flags
def hsic(moments: Moments) -> SampleTest:
    r"""Test whether two variables are independent, by :math:`HSIC = |Cov(\phi(X), \psi(Z))|_F^2` (Gretton et al. 2005).

    Moments of features of one variable with features of the other as targets, ``moments(x, phi, y=psi(z))``, hold the
    covariance. The statistic is its square less what that is on average over permutations. Where the variables are
    independent, (n - 1) times the square is a sum of squares weighted by the products of the eigenvalues of both
    covariances (Zhang et al. 2011): the p-value is the tail of that, with the variance as in `mmd`. Rare values
    of both should meet in three rows or more: with fewer, of independent variables, `hsic` rejects far too often. So it
    does where rows are no independent draws: copies, or rows that follow each other in time.

    Parameters
    ----------
    moments : Moments
        Of features phi(x), with psi(z) as targets, of two rows or more, without weights.

    Raises
    ------
    EmptyInputError, ParameterError
        If moments are of fewer rows or without targets, have weights, or vary by no more than rounding.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((500, 1))
    >>> z = x**2 + rng.standard_normal((500, 1))
    >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=1, num_features=32, rng=0)
    >>> bool(ka.solvers.hsic(ka.solvers.moments(x, phi, y=phi(z))).p_value < 1e-4)
    True
    """
    _check_sample("moments", moments)
    m = moments
    if not len(m._targets.total):
        raise EmptyInputError("moments must hold features of the other variable as targets; they were made without y")
    targets = m._targets  # a shift of all targets changes no covariance
    left, right = _covariance(m.gram, m.s, m.n), _covariance(targets.gram, targets.total, m.n)
    across = (targets.cross - np.outer(m.s, targets.total / m.n)) / (m.n - 1)
    of_left = _eigenvalues(left, "features", np.diagonal(m.gram) / m.n, m.products)
    of_right = _eigenvalues(right, "targets", np.diagonal(targets.gram) / m.n, m.products)
    weights = np.outer(of_left, of_right).ravel()
    share = _law_share(of_left, m.n) * _law_share(of_right, m.n)
    square = float(np.sum(across**2))
    mean = float(np.trace(left) * np.trace(right)) / (m.n - 1)
    return SampleTest(square - mean, _shrunk_tail((m.n - 1) * square, weights, share))


def _law_share(weights: Float64, n: int) -> float:
    """Return how much of the sum of squared eigenvalues is the law's, where (tr C)^2 / (n - 1) is the sample's own."""
    shares = weights / np.sum(weights)
    return max(1 - 1 / ((n - 1) * float(np.sum(shares**2))), 0.0)


def _shrunk_tail(value: float, weights: Float64, share: float) -> float:
    """Return the tail of the weighted sum of squares, with that share of its variance."""
    if not share > ROUNDING:  # features of all rows are orthogonal: no permutation changes the statistic
        return 1.0
    mean = float(np.sum(weights))
    return upper_tail(mean + (value - mean) / sqrt(share), weights)


def _check_sample(name: str, m: Moments) -> None:
    """Raise unless the moments are of 2 rows at least, without weights."""
    instance_of(name, m, Moments)
    if m.n < 2:
        raise EmptyInputError(f"{name} must hold 2 rows at least; got {m.n}")
    if m.weighted:
        raise ParameterError(f"{name} must be of rows without weights; got {m.n} rows of weight {m.weight:g}")


def _covariance(gram: Float64, s: Float64, n: int) -> Float64:
    """Return the unbiased covariance (M, M) of n rows, by their sums."""
    return (gram - np.outer(s, s / n)) / (n - 1)


def _eigenvalues(covariance: Float64, name: str, squares: Float64, products: str) -> Float64:
    """Return the eigenvalues above rounding, which is that of the mean squares that the covariance was taken from."""
    values = np.linalg.eigvalsh(covariance)
    check_varies(name, float(values[-1]), squares, products)
    kept: Float64 = values[values > ROUNDING * values[-1]].astype(np.float64, copy=False)
    return kept
