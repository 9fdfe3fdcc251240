"""Deterministic Fourier features: the nodes and weights of a quadrature rule for normal frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, final

import numpy as np
from scipy.linalg import solve

from kernattn._array import Array, Host, accumulation_dtype, constant, frozen, like, namespace
from kernattn._check import one_of, positive_integer
from kernattn._lazy import lazy
from kernattn.errors import ParameterError
from kernattn.features.data import checked_data, sampled_pairs
from kernattn.features.exact import DeterministicMap
from kernattn.features.pairs import host_pairs
from kernattn.features.random import row_exponent
from kernattn.kernels import Gaussian, Kernel, Softmax
from kernattn.ops.features.reference import scaled
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["RULES", "Quadrature", "quadrature"]

LEVELS = 100  # Gauss-Hermite nodes of more than 100 points leave the range in which NumPy tested them
NODES, FITTED_NODES = 2**18, 2**10
ROUNDING = 1e-13  # of the largest weight: what is left of weights that cancel
RIDGE, GAIN = 1e-12, 1e-9  # of the squared length of the values to fit


class _Rule(NamedTuple):
    """A rule for N(0, I): f(nodes) @ weights is near E f, for any function f of (N, d) nodes."""

    nodes: Host  # (N, d), with each its opposite
    weights: Host  # (N,)


def _tensor_rule(level: int, d: int) -> _Rule:
    """Return all tuples of `level` Gauss-Hermite nodes: exact for polynomials of degree 2 level - 1 in each axis."""
    x, w = _gauss_hermite(level)
    digits = np.arange(level**d)[:, None] // level ** np.arange(d)[::-1] % level  # of numbers with base L
    return _Rule(x[digits], np.prod(w[digits], axis=-1))


def _smolyak_rule(level: int, d: int) -> _Rule:
    """Return Smolyak's sums of products of differences of rules: exact to the degree 2 level - 1 in total.

    Of the rules of 1, 3, 5, ... nodes, which share 0, the j-th costs 2j - 1 levels more than none: as many as the
    degrees that it adds.
    """
    rules = [_Rule(*_gauss_hermite(2 * j + 1)) for j in range(level // 2 + 1)]
    steps = {0: rules[0]}  # by cost
    for j in range(1, len(rules)):
        nodes = np.concatenate([rules[j].nodes, rules[j - 1].nodes])
        steps[2 * j - 1] = _Rule(nodes, np.concatenate([rules[j].weights, -rules[j - 1].weights]))
    parts = {0: _Rule(np.zeros((1, 0)), np.ones(1))}  # by what they cost so far
    for _ in range(d):
        grown: dict[int, list[_Rule]] = {}
        for (spent, part), (cost, step) in product(parts.items(), steps.items()):
            if spent + cost < level:
                old, new = np.repeat(part.nodes, len(step.nodes), axis=0), np.tile(step.nodes, len(part.nodes))
                weights = np.outer(part.weights, step.weights).ravel()
                grown.setdefault(spent + cost, []).append(_Rule(np.column_stack([old, new]), weights))
        parts = {spent: _merged(pieces) for spent, pieces in grown.items()}
    return _merged(list(parts.values()))


def _tensor_size(level: int, d: int) -> int:
    """Return the number of nodes of the tensor rule, or one beyond `NODES`."""
    return int(level ** min(d, NODES.bit_length()))


def _smolyak_size(level: int, d: int) -> int:
    """Return a bound of the number of nodes of Smolyak's rule, cancelled ones counted, or one beyond `NODES`."""
    counts = [1, *[0] * (level - 1)]  # of nodes, by cost
    for _ in range(d if level > 1 else 0):
        if sum(counts) > NODES:
            break
        counts = [
            counts[k] + sum(2 * j * counts[k - 2 * j + 1] for j in range(1, (k + 1) // 2 + 1)) for k in range(level)
        ]
    return sum(counts)


_RULES = {"smolyak": (_smolyak_rule, _smolyak_size), "tensor": (_tensor_rule, _tensor_size)}
RULES = tuple(_RULES)


@final
@dataclass(frozen=True, eq=False)
class Quadrature(DeterministicMap):
    r"""Weighted waves: :math:`\phi(x) = e^{c|x|^2} [\sqrt{w_i} \cos \omega_i^T x, \sqrt{w_i} \sin \omega_i^T x]`.

    Dao, De Sa and Re (2017); c is 1/2 for softmax and 0 for the Gaussian kernel. See :func:`quadrature`. Opposite nodes
    share one pair of features, and the node 0 has no sine: there are as many features as nodes. Where a weight is
    negative, :math:`\sqrt{|w_i|}` stands for its root, and keys have its sign.
    """

    kernel: Kernel
    omega: Host  # (D, d), one of each two opposite nodes; 0 comes first where it is a node
    weights: Host  # (D,)

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return int(self.omega.shape[1])

    def features_of(self, dim: int) -> int:
        """Return M, the number of features."""
        return 2 * len(self.omega) - self._zeros

    @property
    def spec(self) -> MapSpec | None:
        """None: the ops take the map as computed features."""
        return None

    @property
    def _zeros(self) -> int:
        return 1 - int(self.omega[0].any())

    @lazy
    def _waves(self) -> MapSpec:
        """The features without their weights."""
        scale, exponent = self.kernel.input_scale(self.dim), row_exponent(self.kernel)
        return MapSpec("sincos", self.omega * scale, exponent * scale**2 if exponent else None)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of queries x (..., n, d), log scale apart."""
        return self._weighted(x, np.sqrt(np.abs(self.weights)))

    def scaled_key(self, x: Array) -> ScaledFeatures:
        """Return the features of keys x (..., n, d), log scale apart."""
        return self._weighted(x, np.sign(self.weights) * np.sqrt(np.abs(self.weights)))

    def _weighted(self, x: Array, factors: Host) -> ScaledFeatures:
        xp, number = namespace(x=x), len(factors)
        values, log_scale = scaled(x, self._waves)  # (..., n, 2D)
        values = xp.concat([values[..., :number], values[..., number + self._zeros :]], axis=-1)
        factors = np.concatenate([factors, factors[self._zeros :]])
        return ScaledFeatures(values * constant(xp, factors, accumulation_dtype(xp, x), x), log_scale)

    def bias(self, x: Array, y: Array) -> Array:
        """Return phi(x).phi(y) less the kernel for rowwise pairs: (..., d), (..., d) -> (...)."""
        pair = host_pairs(self.dim, x, y)
        return like(self.mean(*pair) - self.kernel.pairs(*pair), x)


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
    given: object = kernel
    if not isinstance(given, Gaussian | Softmax):
        raise ParameterError(
            f"kernel must be Gaussian or Softmax: Gauss-Hermite rules are for normal frequencies; got {kernel!r}"
        )
    dim, level = positive_integer("dim", dim), positive_integer("level", level)
    make, size = _RULES[one_of("rule", rule, _RULES)]
    kernel.input_scale(dim)
    most = NODES if data is None else FITTED_NODES
    if level > LEVELS or size(level, dim) > most:
        raise ParameterError(
            f"level must be at most {LEVELS}, and give rule {rule!r} at most {most} nodes at dim = {dim}"
            f"{'' if data is None else ' with data'}; got {level}"
        )
    sample = None if data is None else checked_data(data, dim)
    omega, weights = _folded(make(level, dim))
    if sample is not None:
        omega, weights = _fitted(omega, sample * kernel.input_scale(dim))
    return Quadrature(kernel, frozen(omega), frozen(weights))


def _gauss_hermite(n: int) -> tuple[Host, Host]:
    x, w = np.polynomial.hermite_e.hermegauss(n)
    return x, w / np.sum(w)


def _merged(pieces: list[_Rule]) -> _Rule:
    """Return the sum of rules, a node that occurs more than once with the sum of its weights."""
    rows = np.concatenate([piece.nodes for piece in pieces])
    nodes, index = np.unique(rows, axis=0, return_inverse=True)
    weights = np.bincount(index.ravel(), np.concatenate([piece.weights for piece in pieces]))
    kept = np.abs(weights) > ROUNDING * np.max(np.abs(weights))
    return _Rule(nodes[kept], weights[kept])


def _folded(rule: _Rule) -> tuple[Host, Host]:
    """Return one of each two opposite nodes, with the weights of both; 0 comes first."""
    nodes, weights = rule
    first = nodes[np.arange(len(nodes)), np.argmax(nodes != 0, axis=-1)]  # entry that is not 0
    kept = np.flatnonzero(first >= 0)
    kept = kept[np.argsort(first[kept] > 0, kind="stable")]
    return nodes[kept], np.where(first[kept] > 0, 2.0, 1.0) * weights[kept]


def _fitted(omega: Host, data: Host) -> tuple[Host, Host]:
    """Return the nodes that get weights, and these: nonnegative, best on pairs of rows of data, each with each."""
    x, y = sampled_pairs(data)
    above = np.triu_indices(len(x), 1)
    delta = np.concatenate([np.zeros((1, data.shape[1])), (x - y)[above]])
    counts = np.sqrt(np.concatenate([[len(x)], np.full(len(above[0]), 2.0)]))
    target = np.exp(-np.sum(delta**2, axis=-1) / 2)
    weights = _nonnegative(np.cos(delta @ omega.T) * counts[:, None], target * counts)
    kept = weights > 0
    return omega[kept], weights[kept]


def _nonnegative(a: Host, b: Host) -> Host:
    """Return w >= 0 with the least |a w - b|^2, up to what is small beside |b|^2.

    Lawson and Hanson (1974), an entry at a time. It stops where no other entry helps noticeably: with columns that all
    but depend on each other, as here, SciPy's nnls goes on from there in circles, and raises.
    """
    size = b @ b
    gram, target = a.T @ a + RIDGE * size * np.eye(a.shape[1]), a.T @ b
    w, positive, refused = np.zeros(a.shape[1]), np.zeros(a.shape[1], bool), np.zeros(a.shape[1], bool)
    for _ in range(3 * len(w)):
        gradient = np.where(positive | refused, -np.inf, target - gram @ w)
        best = np.argmax(gradient)
        if gradient[best] <= GAIN * size:
            break
        positive[best] = True
        while True:
            wanted = np.zeros_like(w)
            wanted[positive] = solve(gram[np.ix_(positive, positive)], target[positive], assume_a="pos")
            falling = positive & (wanted <= 0)
            if not falling.any():
                break
            w += np.min(w[falling] / (w[falling] - wanted[falling])) * (wanted - w)
            positive &= w > ROUNDING * np.max(w)
            w[~positive] = 0.0
        w = wanted
        refused = refused & ~positive[best]
        refused[best] = not positive[best]
    return w
