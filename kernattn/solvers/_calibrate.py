"""Widths of a Gaussian process from the residuals of rows that are left out, without a refit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernattn._arrays.csr import numbers_of
from kernattn._arrays.namespaces import Array, check_floating, namespace, to_numpy64, without_flags
from kernattn._runtime.checks import finite_number, instance_of, shown
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import ParameterError, ShapeError
from kernattn.solvers._check import check_beside, check_finite, widen
from kernattn.solvers._gp import GaussianProcess
from kernattn.solvers._jackknife import EPS, are_of, rank_of
from kernattn.solvers._spectrum import project


@told_keywords
@without_flags
def calibrate(process: GaussianProcess, *, x: Array, y: Array, coverage: float = 0.9) -> GaussianProcess:
    r"""Return the process with noise and amplitude times s, at which intervals hold rows that are left out.

    A process without row i misses its target by :math:`R_i = (y_i - m(x_i)) / (1 - h_i)`, where it says a variance of
    :math:`v_i = \sigma^2 / (1 - h_i)`, and what a Nystrom map lacks of :math:`a^2 k(x_i, x_i)` more. s is the quantile
    of :math:`|R_i| / \sqrt{v_i}` over that of a normal number's size, so that the part `coverage` of rows lies in its
    interval. The leverages h are those of the fit: nothing is fitted again, and the mean stays. It costs O(n M^2).

    Errors with heavy tails make intervals by the evidence too wide at 90 %, and too narrow far out: s is for one level.
    The scales and the lengthscale were chosen with row i, so that s is a little too small for many parameters.

    Parameters
    ----------
    process : GaussianProcess
        The process, of rows without weights.
    x : (n, d) array
        The rows that made its moments, or a CSR matrix of SciPy.
    y : (n,) or (n, c) array
        Their targets.
    coverage : float
        The part of targets that central intervals of the normal law are to hold, between 0 and 1.

    Returns
    -------
    GaussianProcess
        The process with the same mean, whose `noise` and `amplitude` are s times as large, by target.

    Raises
    ------
    ParameterError
        If x and y are not the rows of the process, or are fewer than coverage / (1 - coverage).
    ShapeError, DTypeError, EmptyInputError
        If arrays do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (2000, 1))
    >>> y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_t(3, 2000)
    >>> phi = ka.features.nystrom(x, ka.kernels.Gaussian(0.7), 30, rng=0)
    >>> process = ka.solvers.gp(ka.solvers.moments(x[:1000], phi, y=y[:1000]))
    >>> narrower = ka.solvers.calibrate(process, x=x[:1000], y=y[:1000])
    >>> width = 1.645 * np.sqrt(narrower.variance(x[1000:]) + narrower.noise**2)
    >>> covered = np.mean(np.abs(y[1000:] - narrower.mean(x[1000:])) < width)
    >>> bool(narrower.noise[0] < process.noise[0]), bool(0.87 < covered < 0.93)
    (True, True)
    """
    instance_of("process", process, GaussianProcess)
    if not 0 < (part := finite_number("coverage", coverage)) < 1:
        raise ParameterError(f"coverage must be between 0 and 1; got {shown(coverage)}")
    spectrum = process._spectrum
    rank = rank_of(part, spectrum.count)
    numbers = numbers_of(x)
    namespace(x=numbers, y=y)
    check_floating("x", numbers)
    if x.ndim != 2:
        raise ShapeError(f"x must be (n, d); got shape {tuple(x.shape)}")
    check_finite("x", x)
    n = x.shape[0]
    check_beside("y", y, n, columns=True)
    check_finite("y", y)
    targets = to_numpy64(y).reshape(n, -1)
    turned = to_numpy64(project(process.phi, x, spectrum.vectors, np.zeros(len(spectrum.values)), None))
    if n != spectrum.count or not are_of(spectrum.coordinates, turned, targets, spectrum.y_mean):
        raise ParameterError("x and y must be the rows that made the moments, all of them, and without weights")
    shrunk = 1 / (spectrum.values[:, None] + process._penalties)
    leverage = turned**2 @ shrunk
    left = np.maximum(1 - leverage, EPS)
    of_rows = to_numpy64(process.variance(widen(x))).reshape(n, -1)
    variance = process.noise**2 / left + np.maximum(of_rows - process.noise**2 * leverage, 0.0)
    sizes = np.abs(targets - turned @ (shrunk * spectrum.coordinates)) / left / np.sqrt(variance)
    scale = np.partition(sizes, rank - 1, axis=0)[rank - 1] / special.ndtri((1 + part) / 2)
    if not np.all(scale > 0):
        raise ParameterError("y must not be what the process says without noise, to the last bit, at so many rows")
    return replace(process, noise=process.noise * scale, amplitude=process.amplitude * scale)
