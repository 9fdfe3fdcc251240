"""Do so many redraws settle an estimate? From theory, before anything is drawn."""

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._runtime.checks import instance_of, positive_integer
from kernattn.features import FeatureMap
from kernattn.features._moments.pairs import flat_pairs

SKEWNESS = 0.4  # of a mean up to which Student's 95 % interval covers nearly that (tests/metrics/test_settled.py)


def where_settled(phi: FeatureMap, x: Array, y: Array, redraws: int) -> NDArray[np.bool_]:
    r"""Return where Student's interval holds for the mean of R estimates: :math:`\gamma(t)^2 / (R D) \leq 0.4^2`.

    Hall (1988): what Student's interval covers differs from what it says by terms of which the square of the mean's
    skewness leads. An estimate is a mean of D terms t, one for each frequency, so the mean over R redraws has the
    skewness :math:`\gamma(t) / \sqrt{RD}`, and :math:`\gamma(t) = E (t - E t)^3 / \mathrm{Var}(t)^{3/2}` is closed:

    - a term of positive features is log-normal, :math:`\gamma^2 = (e^{v^2} + 2)^2 (e^{v^2} - 1)` with v = ``|x + y|``
      in the kernel's own scale. Redraws that do not settle miss the tail that carries the mean and the variance: both
      come out too small, and the interval too short;
    - hyperbolic cosines and tilted exponentials have the moments of their maps; negative tilts cut the tail;
    - a term of trigonometric features is bounded, and :math:`\gamma^2` about 8 at most for normal frequencies.
      Frequencies of heavy tails, as those of the Laplacian kernel, are seldom large enough to tell near rows apart.

    Frequencies that depend on each other count as if they did not, which is right for tails: those are of one term.
    A deterministic map is settled. Rowwise pairs x and y (..., d) give bools (...) on the host; NoClosedForm is raised
    where nothing is known of the tails.
    """
    instance_of("phi", phi, FeatureMap)
    redraws = positive_integer("redraws", redraws)
    rows, columns = flat_pairs(phi.dim, x, y)
    tails = phi._tails(rows, columns)
    shape = np.broadcast_shapes(tuple(x.shape), tuple(y.shape))[:-1]
    known = tails.squared_skewness <= SKEWNESS**2 * (redraws * tails.terms)
    return np.asarray(np.reshape(known, shape), dtype=np.bool_)
