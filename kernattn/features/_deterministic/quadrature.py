"""Deterministic Fourier features: the nodes and weights of a quadrature rule for normal frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, accumulation_dtype, constant, frozen, namespace
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.checks import host_array, instance_of, one_of, positive_integer, shown
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.lazy import lazy
from kernattn.errors import ParameterError
from kernattn.features._base.deterministic import DeterministicMap
from kernattn.features._data import check_size, checked_data
from kernattn.features._deterministic.fit import fit_weights
from kernattn.features._deterministic.rules import BY_NAME, NODES, fold_opposites
from kernattn.features._moments.pairs import bias_of
from kernattn.features._spectral.spectra import has_normal_frequencies
from kernattn.kernels import Kernel
from kernattn.ops.features.reference import scaled

LEVELS = 100  # Gauss-Hermite nodes of more than 100 points leave the range in which NumPy tested them
FITTED_NODES = 2**10  # the most that are made where weights are fitted
RULES = tuple(BY_NAME)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Quadrature(DeterministicMap):
    r"""Weighted waves: :math:`\phi(x) = e^{c|x|^2} [\sqrt{w_i} \cos \omega_i^T x, \sqrt{w_i} \sin \omega_i^T x]`.

    Dao, De Sa and Re (2017); c is 1/2 for softmax and 0 for the Gaussian kernel. See :func:`quadrature`. Opposite nodes
    share one pair of features, and the node 0 has no sine: there are as many features as nodes. Where a weight is
    negative, :math:`\sqrt{|w_i|}` stands for its root, and keys have its sign.
    """

    kernel: Kernel
    omega: Float64  # (D, d), one of each two opposite nodes; 0 comes first where it is a node
    weights: Float64  # (D,)

    def __post_init__(self) -> None:
        _check_kernel(self.kernel)
        host_array("omega", self.omega, ("D", "d"))
        host_array("weights", self.weights, (len(self.omega),))
        self.kernel.input_scale(self.omega.shape[1])

    @property
    def dim(self) -> int:
        return int(self.omega.shape[1])

    def num_features_of(self, dim: int) -> int:
        positive_integer("dim", dim)
        return 2 * len(self.omega) - self._zeros

    @property
    def _zeros(self) -> int:
        return 1 - int(self.omega[0].any())

    @lazy
    def _waves(self) -> MapSpec:
        """The features without their weights."""
        scale, exponent = self.kernel.input_scale(self.dim), self.kernel.row_exponent
        return MapSpec("sincos", self.omega * scale, exponent * scale**2 if exponent else None)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        return self._weigh(x, np.sqrt(np.abs(self.weights)))

    def scaled_key(self, x: Array) -> ScaledFeatures:
        return self._weigh(x, np.sign(self.weights) * np.sqrt(np.abs(self.weights)))

    def _weigh(self, x: Array, factors: Float64) -> ScaledFeatures:
        xp, number = namespace(x=x), len(factors)
        values, log_scale = scaled(x, self._waves)  # (..., n, 2D)
        values = xp.concat([values[..., :number], values[..., number + self._zeros :]], axis=-1)
        factors = np.concatenate([factors, factors[self._zeros :]])
        return ScaledFeatures(values * constant(xp, factors, accumulation_dtype(xp, x), x), log_scale)

    def _bias(self, x: Float64, y: Float64) -> Float64:
        return bias_of(self.mean(x, y), self.kernel.pairs(x, y))


@told_keywords
def quadrature(kernel: Kernel, dim: int, level: int, rule: str = "tensor", data: Array | None = None) -> Quadrature:
    r"""Return features of :math:`\phi(x)^T \phi(y) = \sum_i w_i \cos \omega_i^T (x - y)`, a rule near k(x, y).

    Dao, De Sa and Re (2017): instead of drawing frequencies, take the nodes and weights of a rule that integrates
    polynomials against N(0, I) exactly. At level L both rules are exact up to the degree 2L - 1, so the error, which
    `bias` tells, is of order :math:`|x - y|^{2L}` in the kernel's own scale: tiny for near points in few dimensions,
    and large for points farther apart than the rule's degree reaches, where the cosines come back and the kernel does
    not.

    - ``"tensor"``, every tuple of L Gauss-Hermite nodes: :math:`M = L^d` features, the degree in each axis.
    - ``"smolyak"``, a sparse grid of the rules of 1, 3, 5, ... nodes: the degree in total. It has at most 2d + 1
      features at level 2, :math:`2d^2 + 1` at level 3, and :math:`O(d^{L - 1})` further on. Weights become negative as
      d grows (the one of 0 is 1 - d/3 at level 2), and no real :math:`\phi` makes a sum with negative weights of
      itself: there the signs go to the keys. ``phi.query(x) @ phi.key(y).T`` is the rule, as in attention;
      ``phi(x) @ phi(x).T``, of queries alone, is not, and the matrix may have negative eigenvalues.

    With `data` the weights are nonnegative under either rule, queries and keys equal: those that fit the kernel best,
    in least squares, on the pairs of up to 64 rows. Most nodes then get none and are dropped. This is exact for no
    polynomial, but made for the distances that the data have, and usually better there.

    Parameters
    ----------
    kernel : Gaussian or Softmax
        The kernel: those whose frequencies are normal. The softmax kernel is the Gaussian one times a factor per row.
    dim : int
        Input dimension d.
    level : int
        The level L, from 1 to 100. M = ``phi.num_features`` follows from it; rules of more than 262144 nodes are
        refused, and of more than 1024 with data.
    rule : str
        "tensor" or "smolyak".
    data : (n, d) array, optional
        Inputs as they will come, to whose pairs the weights are fitted.

    Returns
    -------
    Quadrature
        The map: no draw, no variance, and a redraw is the map itself.

    Raises
    ------
    ParameterError
        If the kernel is another, the rule none of these, or the level out of range or too large for the dimension.
    ShapeError
        If data is not (n, d).

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((6, 3))
    >>> kernel = ka.kernels.Gaussian(lengthscale=2.0)
    >>> phi = ka.features.quadrature(kernel, dim=3, level=6)
    >>> phi.num_features, bool(np.max(np.abs(phi(x) @ phi(x).T - kernel(x))) < 1e-3)
    (216, True)
    >>> ka.features.quadrature(kernel, dim=3, level=6, rule="smolyak").num_features
    153
    """
    _check_kernel(kernel)
    dim, level = positive_integer("dim", dim), positive_integer("level", level)
    make, size = BY_NAME[one_of("rule", rule, BY_NAME)]
    most = NODES if data is None else FITTED_NODES
    if level > LEVELS or size(level, dim) > most:
        raise ParameterError(
            f"level must be at most {LEVELS}, and give rule {rule!r} at most {most} nodes at dim = {dim}"
            f"{'' if data is None else ' with data'}; got {level}"
        )
    sample, scale = None if data is None else checked_data(data, dim), kernel.input_scale(dim)
    if sample is not None:
        check_size(sample, scale)
    omega, weights = fold_opposites(make(level, dim))
    if sample is not None:
        omega, weights = fit_weights(omega, sample * scale)
    return Quadrature(kernel, frozen(omega), frozen(weights))


def _check_kernel(kernel: Kernel) -> None:
    instance_of("kernel", kernel, Kernel)
    if not has_normal_frequencies(kernel):
        raise ParameterError(
            f"kernel must be Gaussian or Softmax: Gauss-Hermite rules are for normal frequencies; got {shown(kernel)}"
        )
