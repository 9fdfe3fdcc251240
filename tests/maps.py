"""The maps that the laws are tried on, drawn once, and the draws of hypothesis."""

from functools import cache

import kernattn as ka
import numpy as np
from hypothesis import strategies as st

DIM = 5
FEATURES = 12  # 2.4 blocks of orthogonal rows
ESTIMATORS = ["trigonometric", "phase", "positive", "hyperbolic", "optimal_positive"]
KERNELS = {
    "softmax": lambda: ka.kernels.Softmax(),
    "ard": lambda: ka.kernels.Gaussian(lengthscale=np.array([0.7, 1.0, 1.5, 2.0, 3.0])),
}
EXPONENTIAL = ["exp", *(f"{e}-{k}" for e in ("positive", "hyperbolic", "optimal_positive") for k in KERNELS)]
NONNEGATIVE = ["elu1", *EXPONENTIAL]  # and never 0
RANDOM = [f"{e}-{k}" for e in ESTIMATORS for k in KERNELS]
GENERALIZED = ["generalized-relu", "generalized-exp", "generalized-sigmoid", "generalized-own"]
MAPS = ["elu1", "relu", "exp", "polynomial", *GENERALIZED, *RANDOM]


def cube(u):
    """A user's own elementwise function, of any array."""
    return u * u * u + 0.1


@cache
def make(name):
    """The map of that name: inputs of dimension DIM."""
    head, _, tail = name.partition("-")
    if head == "polynomial":
        return ka.features.polynomial(2)
    if head == "generalized":
        return ka.features.generalized(cube if tail == "own" else tail, DIM, FEATURES, rng=1)
    if tail:
        return ka.random_features(KERNELS[tail](), dim=DIM, num_features=FEATURES, estimator=head, rng=2)
    return getattr(ka.features, head)()


LENGTHS = st.one_of(st.integers(1, 70), st.sampled_from([31, 32, 33, 63, 64, 65, 127, 128, 129, 130]))
LEADS = st.sampled_from(  # leading axes of q, of k and v; the last ones are grouped queries
    [((), ()), ((2,), (2,)), ((2, 3), (2, 3)), ((2, 3), (2, 1)), ((2, 1, 2), (1, 2, 1)), ((3,), ())]
)
DTYPES = st.sampled_from(["float32", "float64"])


@st.composite
def cases(draw, lengths=LENGTHS, dtypes=DTYPES, masks=True, leads=LEADS, scale=1.0):
    """-> q, k, v, key_mask | None, as NumPy arrays of one dtype."""
    from laws import arrays

    n, dtype, (q_lead, k_lead) = draw(lengths), draw(dtypes), draw(leads)
    seed, e = draw(st.integers(0, 2**16)), draw(st.sampled_from([1, 3, 8]))
    q, k, v = arrays(seed, (*q_lead, n, DIM), (*k_lead, n, DIM), (*k_lead, n, e), dtype=dtype, scale=scale)
    mask = None
    if masks:
        kind = draw(st.sampled_from(["none", "shared", "each", "early", "nothing"]))
        rng = np.random.default_rng(seed + 1)
        if kind == "shared":
            mask = rng.random(n) < 0.7
        elif kind == "each":
            mask = rng.random((*k_lead, n)) < 0.5
        elif kind == "early":  # the first keys are missing: the first rows see nothing
            mask = np.arange(n) >= n // 2
        elif kind == "nothing":
            mask = np.zeros(n, bool)
    return q, k, v, mask
