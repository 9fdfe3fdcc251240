"""Random features of a kernel: estimator x projection x number of features, one function."""

from __future__ import annotations

from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import Array
from kernattn._arrays.plain import on_plain
from kernattn._runtime.checks import boolean, positive_integer, shown
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.estimator import Request
from kernattn.features._choose.families import check_kernel, make
from kernattn.features._choose.fit import LEARNED, asked_of, attempt
from kernattn.features._choose.sample import check_values
from kernattn.features._choose.spectral import objective_of
from kernattn.features._data import check_inputs
from kernattn.kernels import Kernel
from kernattn.projections import Projection, resolve


@traceable("random_features")
@told_keywords
@on_plain
def random_features(
    kernel: Kernel,
    dim: int,
    num_features: int,
    estimator: str = "auto",
    projection: str | Projection = "orthogonal",
    data: Array | tuple[Array, Array] | None = None,
    rng: RNG = None,
    *,
    objective: str | None = None,
    values: Array | None = None,
    causal: bool = False,
    learned: bool = False,
) -> FeatureMap:
    r"""Draw a feature map with :math:`E\,\phi(x)^T \phi(y) = k(x, y)`.

    Random Fourier features (Rahimi and Recht 2007), positive features (Choromanski et al. 2021), optimal positive
    features (Likhosherstov et al. 2022) and dense-exponential ones (Likhosherstov et al. 2023), with iid or orthogonal
    frequencies (Yu et al. 2016); random neurons (Cho and Saul 2009); sampled and random features of chi-squared kernels
    (Vedaldi and Zisserman 2012, Li et al. 2010).

    Parameters
    ----------
    kernel : Kernel
        The kernel to estimate. Sums, products and multiples are estimated by concatenations, tensor products and
        multiples of their members' maps, which all get the other arguments; but of a product of kernels of x - y the
        frequencies add, and it needs no tensor product.
    dim : int
        Input dimension d.
    num_features : int
        Output dimension M; a pair (cosine and sine, or the two signs of "hyperbolic") counts as two. The terms of a sum
        share it equally; for a tensor product it is the product of its factors' numbers, as equal as can be.
    estimator : str
        "auto", or a name of an estimator that the kernel has, see the notes, or "learned": the map that
        `kernattn.features.fit` learns from data, with its judge and warnings. "auto" with data is the one of least
        error, as `kernattn.features.recommend` tells, and the same map as by that name; where num_features is odd it is
        none of pairs.
    projection : str or Projection
        A name of `kernattn.projections.PROJECTIONS`, or a spec that carries method and norms; norms "chi" are those of
        the kernel's own frequencies, whatever their law. Laplacian, Cauchy, Periodic, Sech and SkewedChi2 draw theirs
        axis by axis and take "iid" only; AdditiveChi2, Polynomial and Tanimoto have none and leave it at its
        default, but for "gaussian_sketch", whose weights are "iid" or "orthogonal".
    data : (n, d) array or pair of such, optional
        Inputs as they will come, or a tuple (queries, keys) of them. The pairs of each query with each key count; of
        one array, each row with each. They decide for "auto", shape "favor_sharp" and "favor_sharp_asymmetric", which
        cannot do without, and set the parameter of "optimal_positive", which without data is the best one for standard
        normal inputs.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the draw (SPEC 7), in float64 on the host: every backend gets the same frequencies. The rows and
        redraws by which "auto" chooses follow from it too.
    objective : {"attention", "kernel"}, optional
        What "auto" chooses by on data: the error of attention, measured on redraws, or the expected one of the kernel,
        in closed form. By default attention's where the kernel serves attention, as Softmax does, and the kernel's
        elsewhere, in sums and products too.
    values : (l, e) array, optional
        Attention's values for "auto", a row for each key of data.
    causal : bool
        Whether "auto" chooses by causal attention, of as many queries as keys.
    learned : bool
        Whether "auto" fits a map to data first, which takes seconds, and returns it where it errs less than the best
        random map on rows that the fit did not see.

    Returns
    -------
    FeatureMap
        The frozen map: (..., n, d) -> (..., n, M).

    Raises
    ------
    DTypeError
        If kernel is no kernel.
    ParameterError
        If an argument is outside of what is allowed, before anything is drawn.
    ShapeError
        If data is not (n, d), or a pair of such.

    Notes
    -----
    `kernattn.features.estimators` names the estimators of a kernel; the first one is "auto" without data.

    - Softmax: positive, hyperbolic, optimal_positive, favor_sharp, favor_sharp_asymmetric, trigonometric, phase.
    - Gaussian: the same, trigonometric first. "favor_sharp_asymmetric" has maps of its own for queries and for keys,
      ``phi.query(x) @ phi.key(y).T``; "auto" takes it for attention of a pair (queries, keys) alone.
    - Matern, RationalQuadratic, Laplacian, Cauchy, Sech, products of these or Gaussian ones, and SkewedChi2:
      trigonometric, phase.
    - ArcCosine: arccosine.
    - AdditiveChi2: sampled, with num_features an odd multiple of dim.
    - Polynomial: tensor_sketch, tensor_srht, complex_to_real, complex_to_real_gaussian, rademacher_sketch,
      gaussian_sketch, and exact, with num_features the number of monomials. With data, "auto" is "exact" where that
      has so many features, else the sketch whose typical error over redraws is least.
    - Tanimoto: minwise, for bits and counts, and consistent, for all numbers that are not negative. "auto" is
      "minwise" unless data are no whole numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((6, 4))
    >>> kernel = ka.kernels.Gaussian(lengthscale=2.0)
    >>> phi = ka.random_features(kernel, dim=4, num_features=4096, rng=1)
    >>> bool(np.max(np.abs(phi(x) @ phi(x).T - kernel(x))) < 0.05)
    True
    """
    spec = resolve(projection)
    dim, num_features = positive_integer("dim", dim), positive_integer("num_features", num_features)
    check_kernel(kernel)
    given: object = estimator
    if not isinstance(given, str):
        raise ParameterError(f"estimator must be a name; got {shown(given)}")
    sample = None if data is None else check_inputs(data, dim)
    request = Request(kernel, dim, num_features, estimator, spec, sample, generator(rng))
    fits = boolean("learned", learned)
    if not boolean("causal", causal) and objective is None and values is None and not fits:
        return make(request)
    if estimator not in ("auto", *[LEARNED] * (not fits)) or sample is None:
        raise ParameterError(
            "objective, values, causal and learned are what estimator 'auto' chooses by on data: leave them at their "
            "defaults; "
            f"got estimator {shown(estimator)}{'' if sample else ' without data'}"
        )
    goal = objective_of(kernel, objective, values is not None or causal)
    rows = check_values(values, sample, causal)
    request = request._replace(objective=goal, values=rows, causal=causal)
    if fits:
        made = attempt(asked_of(request._replace(estimator=LEARNED)))
        if made.helps:
            return made.fitted
    return make(request)
