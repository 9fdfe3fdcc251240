"""Gaussian processes on features: Bayesian regression, its variance and its evidence from one eigendecomposition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from kernattn._arrays.graphs import outside_graphs
from kernattn._arrays.namespaces import Array, Float64, constant, namespace, without_flags
from kernattn._arrays.plain import quiet
from kernattn._runtime.checks import as_numbers, instance_of, shown
from kernattn._runtime.deprecated import old_arguments, old_positions
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.random import RNG
from kernattn.errors import EmptyInputError, ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.solvers._check import check_map_takes, widen
from kernattn.solvers._draws import Draws, draw, sample
from kernattn.solvers._gp_pullbacks import METHODS
from kernattn.solvers._moments import Moments
from kernattn.solvers._posterior import Posterior
from kernattn.solvers._spectrum import Spectrum, cast_as, check_lowest, decompose, minimise_on_grid, project

SCALES = 1e-70, 1e70  # squares of them and of their ratios are numbers of float64


class EvidenceGradient(NamedTuple):
    """Derivatives of the log evidence by the logarithms of the noise and of the amplitude, () or (c,)."""

    log_noise: Float64
    log_amplitude: Float64


@final
@quiet
@dataclass(frozen=True, eq=False, repr=False)
class GaussianProcess(Posterior):
    """The posterior of a Gaussian process; targets (n, c) are c processes, each with its own scales.

    Its methods take rows x (..., n, d), and `backend` as `moments` does.

    Attributes
    ----------
    phi : FeatureMap
        The map.
    noise : (c,) numpy.ndarray
        Standard deviation of the noise.
    amplitude : (c,) numpy.ndarray
        Standard deviation of the function, where k(x, x) = 1.
    """

    def __repr__(self) -> str:
        """Return the scales and the map."""
        return f"GaussianProcess(noise={self.noise}, amplitude={self.amplitude}, phi={self.phi!r})"

    @outside_graphs
    def mean(self, x: Array, *, backend: str | None = None) -> Array:
        r"""Return the posterior mean :math:`\phi(x)^T (G + \lambda)^{-1} B`, (..., n) or (..., n, c)."""
        weights = self._spectrum.weights(self._penalties)
        return self._shape(cast_as(project(self.phi, x, weights, np.zeros(weights.shape[1]), backend), x))

    @outside_graphs
    def variance(self, x: Array, *, backend: str | None = None) -> Array:
        r"""Return the posterior variance of the function, :math:`\sigma^2 \phi(x)^T (G + \lambda)^{-1} \phi(x)`.

        A new target's variance is that plus noise^2. Far from all rows it should come back to the prior's. A Nystrom
        map's features vanish there, and what they lack, a^2 (k(x, x) - phi(x)^T phi(x)), is added: the deterministic
        training conditional (Quinonero-Candela & Rasmussen 2005). So it is of one beside other maps, in a sum, or of
        rows that are `Transformed`. Random features do not vanish, and M of them are M
        directions, which rows narrow down wherever they are: their variance is too small, far away and near the rows.

        Raises
        ------
        NoClosedForm
            If the map is a Nystrom map of a precomputed kernel, which does not know k(x, x).
        """
        spectrum, kernel = self._spectrum, self._kernel_beside()
        turned = project(self.phi, x, spectrum.vectors, np.zeros(len(spectrum.values)), backend) ** 2
        xp = namespace(turned=turned)
        shrunk = self.noise**2 / (spectrum.values[:, None] + self._penalties)
        values = xp.matmul(turned, constant(xp, shrunk, turned.dtype, turned))
        if kernel is not None:
            lacking = kernel.diag(widen(x)) - xp.sum(turned, axis=-1)
            lacking = xp.where(lacking > 0, lacking, xp.zeros_like(lacking))
            values = values + lacking[..., None] * constant(xp, self.amplitude**2, turned.dtype, turned)
        return self._shape(cast_as(values, x))

    @outside_graphs
    def covariance(self, x: Array, y: Array | None = None, *, backend: str | None = None) -> Array:
        r"""Return the posterior covariance of the function at rows x and at rows y, (..., n, k) or (..., n, k, c).

        :math:`\sigma^2 \phi(x)^T (G + \lambda)^{-1} \phi(y)`, and :math:`a^2 (k(x, y) - \phi(x)^T \phi(y))` more of a
        Nystrom map: its diagonal is `variance`.

        Parameters
        ----------
        x : (..., n, d) array
            Rows.
        y : (..., k, d) array, optional
            Other rows, of the library and dtype of x; None takes those of x.
        backend : {None, "reference", "cpu", "gpu"}
            Which implementation runs.

        Raises
        ------
        NoClosedForm
            If the map is a Nystrom map of a precomputed kernel, which does not know k(x, y).
        """
        kernel = self._kernel_beside()
        if y is not None:
            check_map_takes(self.phi, y, "y")
        nothing = np.zeros(len(self._spectrum.values))
        left = project(self.phi, x, self._spectrum.vectors, nothing, backend)
        right = left if y is None else project(self.phi, y, self._spectrum.vectors, nothing, backend)
        xp = namespace(x=left, y=right)
        shrunk = constant(xp, self.noise**2 / (self._spectrum.values[:, None] + self._penalties), left.dtype, left)
        turned = xp.matrix_transpose(right)
        values = xp.stack([xp.matmul(left * shrunk[:, i], turned) for i in range(len(self.noise))], axis=-1)
        if kernel is not None:
            lacking = self._lacking(kernel, x, y, xp.matmul(left, turned))
            values = values + lacking[..., None] * constant(xp, self.amplitude**2, left.dtype, left)
        return self._shape(cast_as(values, x))

    @outside_graphs
    def sample(self, x: Array, count: int, *, rng: RNG = None, backend: str | None = None) -> Array:
        r"""Return values of `count` functions of the posterior at rows x, (..., n, count) or (..., n, c, count).

        They are normal with the mean `mean` and the covariance `covariance`, exactly: of M features in O(n M count), of
        a Nystrom map in O(n^3) beside that. `draw` gives functions that can be asked anywhere.

        Parameters
        ----------
        x : (..., n, d) array
            Rows, the same functions at all of them.
        count : int
            Number of functions.
        rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
            Source of the functions.
        backend : {None, "reference", "cpu", "gpu"}
            Which implementation runs.

        Examples
        --------
        >>> import numpy as np
        >>> import kernattn as ka
        >>> x = np.linspace(-2, 2, 50)[:, None]
        >>> phi = ka.features.nystrom(x, ka.kernels.Gaussian(), 20, rng=0)
        >>> process = ka.solvers.gp(ka.solvers.moments(x, phi, y=np.sin(x[:, 0])), noise=0.1, amplitude=1.0)
        >>> process.sample(np.array([[0.0], [5.0]]), 3, rng=0).shape
        (2, 3)
        """
        return sample(self, x, count, rng, backend)

    def draw(
        self,
        count: int,
        *,
        prior: FeatureMap | None = None,
        data: tuple[Array, Array] | None = None,
        rng: RNG = None,
    ) -> Draws:
        r"""Return `count` functions of the posterior, which can be called on any rows: pathwise draws.

        Matheron's rule (Wilson et al. 2020): a function of the prior, :math:`f = \psi(\cdot)^T v` by P features of the
        kernel, and what data make of it. On landmarks that is
        :math:`\phi(x)^T (w - K_{LL}^{-1/2} f(L))`, w the features' weights from their posterior, so that functions vary
        as `covariance` says wherever psi is right: far from the landmarks, between them, and among the rows. Of another
        map, whose features are its prior, functions are :math:`\phi(x)^T w`; like its variance they vary too little
        among the rows. With `data` functions are those of the exact process instead,
        :math:`f(x) + a^2 k(x, X) (a^2 K + \sigma^2)^{-1} (y - f(X) - \epsilon)`: of some thousand rows by a factor of
        the n x n matrix, which is held up to 1 GiB, in O(n^3 + n^2 count); of more by conjugate gradients, O(n^2 count)
        a step.

        Parameters
        ----------
        count : int
            Number of functions, for each target.
        prior : FeatureMap, optional
            Features psi of the kernel. None draws 2,048 random ones, of Sobol points where the kernel's frequencies
            have directions: these put the right share of frequencies where landmarks resolve nothing.
        data : tuple of (n, d) and (n,) or (n, c) arrays, optional
            The rows and targets that made the moments, for an update by all of them; without weights.
        rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
            Source of the functions, and of the features.

        Returns
        -------
        Draws
            The functions: (..., n, d) -> (..., n, count) or (..., n, c, count).

        Raises
        ------
        ParameterError
            If the map has no kernel that a prior or an update needs, or a prior is given where none is used.
        NoClosedForm
            If the map is a Nystrom map of a precomputed kernel.
        ShapeError
            If the data are not those of the moments.

        Warns
        -----
        UserWarning
            If conjugate gradients do not come to an end, of data with little noise.

        Examples
        --------
        >>> import numpy as np
        >>> import kernattn as ka
        >>> x = np.linspace(-2, 2, 50)[:, None]
        >>> phi = ka.features.nystrom(x, ka.kernels.Gaussian(), 20, rng=0)
        >>> process = ka.solvers.gp(ka.solvers.moments(x, phi, y=np.sin(x[:, 0])), noise=0.1, amplitude=1.0)
        >>> f = process.draw(1000, rng=0)
        >>> f(x).shape, bool(np.std(f(np.array([[0.0]]))) < 0.1), bool(np.std(f(np.array([[9.0]]))) > 0.9)
        ((50, 1000), True, True)
        """
        return draw(self, count, prior, data, rng)

    def _vjp_of(self, name: str) -> Callable[..., Any] | None:
        """Return how cotangents of a method flow back."""
        return METHODS[name](self) if name in METHODS else None

    @property
    @without_flags
    def log_evidence(self) -> Float64:
        r"""Log density of the targets, :math:`\log N(y; 0, a^2 \Phi \Phi^T + \sigma^2 I)`, () or (c,)."""
        spectrum = self._spectrum
        values = np.diagonal(spectrum.log_evidence(self._penalties, self.noise**2, spectrum.count))
        return self._shape(values)  # type: ignore[no-any-return]

    @property
    def gradient(self) -> EvidenceGradient:
        """Derivatives of the log evidence by the logarithms of noise and amplitude."""
        spectrum, at = self._spectrum, self._penalties
        size = np.sum((spectrum.coordinates / (spectrum.values[:, None] + at) / self.amplitude) ** 2, axis=0)
        dimensions = spectrum.dimensions(at)
        left = np.diagonal(spectrum.quadratic(at)) / self.noise**2
        slopes = left - size + dimensions - spectrum.count, size - dimensions
        return EvidenceGradient(*map(self._shape, slopes))


@told_keywords
@old_arguments(m="moments")
@old_positions("noise", "amplitude")
@without_flags
def gp(
    moments: Moments,
    *,
    noise: float | Array | None = None,
    amplitude: float | Array | None = None,
    lowest: float = 0.0,
) -> GaussianProcess:
    r"""Return the posterior of :math:`y = f(x) + \epsilon`, f of covariance :math:`a^2 \phi(x)^T \phi(y)`.

    One eigendecomposition, O(M^3), gives the posterior at every noise :math:`\sigma` and amplitude a in O(M) (Rasmussen
    & Williams 2006, section 2.1.2), as `ridge` with :math:`\lambda = \sigma^2 / a^2`. The prior's mean is 0: subtract
    one of your own. The noise of a row of weight w has the variance :math:`\sigma^2 / w`; the evidence then lacks
    :math:`\frac{1}{2} \sum \log w_i`.

    Parameters
    ----------
    moments : Moments
        Sums over the rows, with targets.
    noise : float or (c,) array, optional
        Standard deviation of the noise, in units of y. None takes what makes the evidence largest. Given both scales,
        noise^2 / amplitude^2 must not be below the floor of a penalty in `ridge`.
    amplitude : float or (c,) array, optional
        Standard deviation of f, in units of y, where k(x, x) = 1. None takes what makes the evidence largest.
    lowest : float
        The least noise^2 / amplitude^2 that None may take, 0 or more; none is taken below the rounding of eigenvalues.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (500, 1))
    >>> y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(500)
    >>> phi = ka.random_features(ka.kernels.Gaussian(lengthscale=0.7), dim=1, num_features=64, rng=0)
    >>> process = ka.solvers.gp(ka.solvers.moments(x, phi, y=y))
    >>> bool(abs(process.noise[0] - 0.1) < 0.01)
    True
    """
    low = check_lowest(lowest)
    instance_of("moments", moments, Moments, "as kernattn.solvers.moments(x, phi, y=y)")
    c = len(moments._targets.total)
    if not c:
        raise EmptyInputError("moments must hold targets; they were made without y")
    sigma = None if noise is None else check_scale("noise", noise, c)
    a = None if amplitude is None else check_scale("amplitude", amplitude, c)
    spectrum = decompose(moments, False)
    if sigma is None or a is None:
        if not np.all(spectrum.energy > 0):
            raise ParameterError("targets must not be 0 in all rows for the evidence to choose scales: give both")

        def cost(penalties: Float64) -> Float64:
            return -spectrum.log_evidence(penalties, _variances(spectrum, penalties, sigma, a), spectrum.count)

        penalties = minimise_on_grid(cost, max(spectrum.lowest, low), max(spectrum.ceiling, low))
        sigma = np.sqrt(np.diagonal(_variances(spectrum, penalties, sigma, a)))
        a = sigma / np.sqrt(penalties) if a is None else a
    elif not np.min((sigma / a) ** 2) >= spectrum.floor:
        raise ParameterError(
            f"noise must be {spectrum.floor**0.5:.3g} times the amplitude or more, below which the answer is noise of "
            f"rounding; got noise {shown(noise)} and amplitude {shown(amplitude)}"
        )
    return GaussianProcess(moments.phi, sigma, a, spectrum, moments.vector)


def check_scale(name: str, value: float | Array, c: int) -> Float64:
    """Return a scale for each of c targets, (c,)."""
    scales = as_numbers(name, value)
    if scales.shape not in ((), (c,)):
        raise ShapeError(f"{name} must be one number or one for each of {c} targets; got shape {scales.shape}")
    low, high = SCALES
    if not (low <= np.min(scales) and np.max(scales) <= high):  # NaN too
        raise ParameterError(f"{name} must be positive, from {low:g} to {high:g}; got {shown(value)}")
    return np.array(np.broadcast_to(scales, (c,)))


def _variances(spectrum: Spectrum, penalties: Float64, noise: Float64 | None, amplitude: Float64 | None) -> Float64:
    """Return the variance of the noise (L, c) that goes with penalties: what is given, or the most likely."""
    if noise is not None:
        return np.broadcast_to(noise**2, (len(penalties), len(noise)))
    return spectrum.quadratic(penalties) / spectrum.count if amplitude is None else penalties[:, None] * amplitude**2
