"""Do so many redraws settle an estimate? From theory, before anything is drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._runtime.checks import instance_of, positive_integer
from kernattn.features import FeatureMap
from kernattn.features._moments.pairs import flat_pairs

SKEWNESS = 0.4  # of a mean up to which Student's 95 % interval covers nearly that (tests/metrics/test_settled.py)


def settled(phi: FeatureMap, x: Array, y: Array, redraws: int) -> NDArray[np.bool_]:
    r"""Does Student's interval hold for the mean of R estimates? Where :math:`\gamma(t)^2 / (R D) \leq 0.4^2`.

    Hall (1988): what Student's interval covers differs from what it says by terms of which the square of the mean's
    skewness leads. An estimate is a mean of D terms t, one for each frequency, so the mean over R redraws has the
    skewness :math:`\gamma(t) / \sqrt{RD}`, and :math:`\gamma(t) = E (t - E t)^3 / \mathrm{Var}(t)^{3/2}` is closed:

    - a term of positive features is log-normal, :math:`\gamma^2 = (e^{v^2} + 2)^2 (e^{v^2} - 1)` with v = ``|x + y|``
      in the kernel's own scale: the v up to which redraws settle grows slowly with R D (the example). Beyond, they do
      not reach the tail that carries the mean and the variance: both come out too small, and the interval too short;
    - of a product of two hyperbolic cosines, and of tilted exponentials, the moments are those of
      :class:`~kernattn.features.Hyperbolic` and of :class:`~kernattn.features.OptimalPositive`. Negative tilts cut the
      tail: optimal positive features settle at sums at which positive ones do not;
    - a term of trigonometric features is bounded, and :math:`\gamma^2` about 8 at most for normal frequencies.
      Frequencies of heavy tails, as those of the Laplacian kernel, are seldom large enough to tell rows that are very
      near to each other apart.

    Frequencies that depend on each other count as if they did not, which is right for tails: those are of one term.
    Moment-matched cosines keep more: their intervals of few redraws cover a little less. A deterministic map is
    settled.

    Parameters
    ----------
    phi : FeatureMap
        The map.
    x, y : array (..., d)
        Rowwise pairs, queries and keys.
    redraws : int
        Number R of redraws.

    Returns
    -------
    numpy.ndarray (...)
        Of bool, on the host.

    Raises
    ------
    NoClosedForm
        If nothing is known of the tails of such a map, as of one's own.
    ShapeError
        If the rows do not have the map's dimension, or do not broadcast.
    EmptyInputError
        An axis of length 0.
    DTypeError, MixedLibraryError
        Not arrays of real floating dtype, or not of one library; phi is no feature map.
    ParameterError
        If `redraws` is no positive integer.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.array([[0.5, 0.0], [2.0, 0.0]])
    >>> for estimator in ("positive", "optimal_positive", "trigonometric"):
    ...     phi = ka.random_features(ka.kernels.Softmax(1.0), 2, 64, estimator)
    ...     print(estimator, ka.metrics.settled(phi, x, x, redraws=32))
    positive [ True False]
    optimal_positive [ True  True]
    trigonometric [ True  True]

    Lengths :math:`v = |x + y|` on both sides of the limit, for R D = 64, 1000 and 10000:

    >>> phi = ka.random_features(ka.kernels.Softmax(1.0), 1, 1, "positive")
    >>> for redraws, v in ((64, 0.74), (1000, 1.23), (10000, 1.54)):
    ...     half = np.array([[v / 2], [v / 2 + 0.005]])
    ...     print(ka.metrics.settled(phi, half, half, redraws))
    [ True False]
    [ True False]
    [ True False]
    """
    instance_of("phi", phi, FeatureMap)
    redraws = positive_integer("redraws", redraws)
    rows, columns = flat_pairs(phi.dim, x, y)
    tails = phi._tails(rows, columns)
    shape = np.broadcast_shapes(tuple(x.shape), tuple(y.shape))[:-1]
    known = tails.squared_skewness <= SKEWNESS**2 * (redraws * tails.terms)
    return np.asarray(np.reshape(known, shape), dtype=np.bool_)
