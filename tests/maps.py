"""The maps that the laws are tried on, drawn once, and the draws of hypothesis."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

import kernattn as ka
from laws import arrays
from seam import MapSpec

DIM = 5
FEATURES = 12  # 2.4 blocks of orthogonal rows
ESTIMATORS = ["trigonometric", "phase", "positive", "hyperbolic", "optimal_positive"]
KERNELS = {
    "softmax": ka.kernels.Softmax,
    "ard": lambda: ka.kernels.Gaussian(lengthscale=np.array([0.7, 1.0, 1.5, 2.0, 3.0])),
}
EXPONENTIAL = ["exp", *(f"{e}-{k}" for e in ("positive", "hyperbolic", "optimal_positive") for k in KERNELS)]
NONNEGATIVE = ["elu1", *EXPONENTIAL]  # and never 0
RANDOM = [f"{e}-{k}" for e in ESTIMATORS for k in KERNELS]
GENERALIZED = ["generalized-relu", "generalized-exp", "generalized-sigmoid", "generalized-own"]
MAPS = ["elu1", "relu", "exp", "polynomial", *GENERALIZED, *RANDOM]
OTHERS = {  # families whose laws a few cases show
    "favor_sharp": lambda: random(ka.kernels.Softmax(), "favor_sharp", data=arrays(4, (20, DIM))[0]),
    "favor_sharp_asymmetric": lambda: random(
        ka.kernels.Softmax(), "favor_sharp_asymmetric", data=(arrays(6, (20, DIM))[0], arrays(7, (20, DIM))[0] + 0.5)
    ),
    "hedgehog": lambda: fitted("exp_pair", FEATURES // 2),
    "hedgehogs": lambda: fitted("exp", FEATURES, 2),
    "cosformer": lambda: ka.features.cosformer(8),
    "taylor2": ka.features.taylor2,
    "neurons": lambda: random(ka.kernels.ArcCosine(1)),
    "squared neurons": lambda: random(ka.kernels.ArcCosine(2)),
    "tensor_sketch": lambda: random(ka.kernels.Polynomial(3, coef0=1.0)),
    "complex_to_real": lambda: random(ka.kernels.Polynomial(2, coef0=1.0), "complex_to_real"),
    "multiple": lambda: random(2 * ka.kernels.Softmax()),
    "sum": lambda: make("positive-softmax") + make("elu1"),
    "product": lambda: make("positive-ard") * make("elu1"),
    "nystrom": lambda: ka.features.nystrom(*arrays(5, (20, DIM), dtype="float64"), ka.kernels.Gaussian(2.0), 6, rng=0),
    "transformed": lambda: ka.features.Transformed(make("positive-ard"), np.tril(np.ones((DIM, DIM))) / 2),
    "additive chi2": lambda: random(ka.kernels.AdditiveChi2(), number=3 * DIM),
    "skewed chi2": lambda: random(ka.kernels.SkewedChi2(), projection="iid"),
}


def random(kernel, estimator="auto", number=FEATURES, **options):
    """A map of that kernel."""
    return ka.random_features(kernel, DIM, number, estimator, rng=2, **options)


def fitted(kind, frequencies, sides=1):
    """A map such as a fit makes, a softmax over features: of rows, or one of queries and one of keys."""
    rng = np.random.default_rng(8)
    specs = [
        MapSpec(kind, rng.standard_normal((frequencies, DIM)), None, rng.standard_normal(FEATURES), normalised=True)
        for _ in range(sides)
    ]
    return ka.features.Fitted(ka.kernels.Softmax(), "hedgehog", *specs, *[None] * (2 - sides), 0.1, "positive", 0.2)


def cube(u):
    """A user's own elementwise function, of any array."""
    return u * u * u + 0.1


@cache
def make(name):
    """The map of that name: inputs of dimension DIM."""
    if name in OTHERS:
        return OTHERS[name]()
    head, _, tail = name.partition("-")
    if head == "polynomial":
        return ka.features.polynomial(2)
    if head == "generalized":
        return ka.features.generalized(cube if tail == "own" else tail, DIM, FEATURES, rng=1)
    if tail:
        return ka.random_features(KERNELS[tail](), dim=DIM, num_features=FEATURES, estimator=head, rng=2)
    return getattr(ka.features, head)()


def examples(count):
    """Settings of a test of every map: so few examples each, in the profile that has 20."""
    return settings(max_examples=-(-count * settings().max_examples // 20))


LENGTHS = st.one_of(st.integers(1, 70), st.sampled_from([31, 32, 33, 63, 64, 65, 127, 128, 129, 130]))
LEADS = st.sampled_from(  # leading axes of q, of k and v; the last ones are grouped queries
    [((), ()), ((2,), (2,)), ((2, 3), (2, 3)), ((2, 3), (2, 1)), ((2, 1, 2), (1, 2, 1)), ((3,), ())]
)
DTYPES = st.sampled_from(["float32", "float64"])


@dataclass(frozen=True)
class Case:
    """Inputs of one call, by the numbers that make them: a failing example prints as one line."""

    n: int
    e: int
    lead: tuple[tuple[int, ...], tuple[int, ...]]
    dtype: str
    masked: str
    seed: int

    def arrays(self):
        """-> q, k, v, key_mask | None, NumPy arrays of one dtype."""
        q_lead, k_lead = self.lead
        shapes = (*q_lead, self.n, DIM), (*k_lead, self.n, DIM), (*k_lead, self.n, self.e)
        rng = np.random.default_rng(self.seed + 1)
        mask = {
            "none": None,
            "shared": rng.random(self.n) < 0.7,
            "each": rng.random((*k_lead, self.n)) < 0.5,
            "early": np.arange(self.n) >= self.n // 2,  # the first rows see nothing
            "nothing": np.zeros(self.n, bool),
        }[self.masked]
        return *arrays(self.seed, *shapes, dtype=self.dtype), mask


def cases(lengths=LENGTHS, masks=True):
    """Draws of hypothesis."""
    kinds = ["none", "shared", "each", "early", "nothing"] if masks else ["none"]
    sizes = st.sampled_from([1, 3, 8])
    return st.builds(Case, lengths, sizes, LEADS, DTYPES, st.sampled_from(kinds), st.integers(0, 2**16))
