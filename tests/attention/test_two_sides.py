"""Maps of two sides: other dimensions, other specs, and what does not fit together."""

from dataclasses import dataclass

import numpy as np
import pytest

import kernattn as ka
import laws
import maps
from kernattn import errors
from kernattn.features import FeatureMap, MapSpec, QuadraticForm, ScaledFeatures
from kernattn.ops.features import scaled

RNG = np.random.default_rng(0)


@dataclass(frozen=True, eq=False)
class Sides(FeatureMap):
    """Queries of one dimension and keys of another one, each by a spec."""

    first: MapSpec
    second: MapSpec

    spec = None

    @property
    def query_spec(self):
        return self.first

    @property
    def key_spec(self):
        return self.second

    @property
    def dim(self):
        return self.query_spec.dim

    @property
    def key_dim(self):
        return self.key_spec.dim

    def num_features_of(self, dim):
        return self.key_spec.num_features_of(self.key_dim)

    def scaled_query(self, x):
        return scaled(x, self.query_spec)

    def scaled_key(self, x):
        return scaled(x, self.key_spec)

    def redraw(self, rng=None):
        return self


def spec(kind, d, frequencies=12, seed=0):
    rng = np.random.default_rng(seed)
    form = QuadraticForm(0.3 * rng.standard_normal((2, d)), rng.standard_normal(d), 0.3 * rng.standard_normal(d))
    signed = kind in ("cos", "sincos", "exp", "exp_pair")
    return MapSpec(
        kind, rng.standard_normal((frequencies, d)) / d, np.full(d, -0.2) if signed else None, amplitude=0.5,
        row_form=form if signed else None,
    )  # fmt: skip


PAIRS = [
    ("exp", "exp"),
    ("exp_pair", "exp"),
    ("relu", "elu1"),
    ("sincos", "cos"),
    ("relu", "cos"),
    ("relu", "exp"),
    ("exp_pair", "cos"),
]


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_the_laws_hold(kinds, backend):
    first, second = kinds
    phi = Sides(
        spec(first, 5, 6 if first in ("sincos", "exp_pair") else 12),
        spec(second, 3, 6 if second in ("sincos", "exp_pair") else 12, 1),
    )
    q, k, v = laws.arrays(3, (2, 2, 41, 5), (2, 1, 41, 3), (2, 1, 41, 4), dtype="float64")
    mask, ids = RNG.random(41) < 0.7, np.arange(41) // 15
    laws.oracle_agrees(phi, q, k, v, backend, key_mask=mask, segment_ids=ids)
    laws.forms_agree(phi, q, k, v, backend, cut=13, key_mask=mask)
    for x, side in ((q, "query"), (k, "key")):
        features = getattr(phi, side)
        got = features(backend.kind.asarray(x), backend=backend.name)
        np.testing.assert_allclose(np.asarray(got), laws.num_features_of(phi, x, side).values, rtol=1e-9, atol=1e-12)
    if backend.name != "gpu":
        laws.normalisers_are_true(phi, q, k, v, backend, cut=13, key_mask=mask)


def test_what_does_not_fit_is_refused():
    q, k, v = laws.arrays(3, (7, 5), (7, 3), (7, 4))
    fine = Sides(spec("exp", 5), spec("exp", 3, seed=1))
    with pytest.raises(errors.ShapeError, match="k must have d = 3"):
        ka.linear_attention(q, q, v, fine)
    with pytest.raises(errors.ShapeError, match="q must have d = 5"):
        ka.causal_linear_attention(k, k, v, fine)
    with pytest.raises(errors.ShapeError, match="k must have d = 3"):
        ka.key_state(q, v, fine)
    with pytest.raises(errors.ShapeError, match="x must have d = 3"):
        fine.key(q)
    with pytest.raises(errors.ParameterError, match="as many features; got 12 and 10"):
        ka.linear_attention(q, k, v, Sides(spec("exp", 5), spec("exp", 3, 10)))
    with pytest.raises(errors.ShapeError, match=r"last axis \(d\) must be the same"):
        ka.linear_attention(q, k, v, ka.features.elu1())


@dataclass(frozen=True, eq=False)
class Computed(FeatureMap):
    """Queries and keys as somebody computes them."""

    query_columns: tuple[int, int]  # of values and of log scales
    key_columns: tuple[int, int]

    spec = None
    dim = 5

    def num_features_of(self, dim):
        return 6

    def scaled_query(self, x):
        return ScaledFeatures(*(np.ones((*x.shape[:-1], count), x.dtype) for count in self.query_columns))

    def scaled_key(self, x):
        return ScaledFeatures(*(np.ones((*x.shape[:-1], count), x.dtype) for count in self.key_columns))

    def redraw(self, rng=None):
        return self


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_computed_features_must_be_what_the_map_says(name):
    """A loop that believed them would read beyond their end."""
    if name == "cpu":
        pytest.importorskip("numba")
    q, k, v = laws.arrays(3, (7, 5), (7, 5), (7, 4))
    for phi, match in (
        (Computed((5, 1), (6, 1)), r"scaled_query of Computed must return values \(.*6\) .*; got shapes \(.*5\) and"),
        (Computed((6, 1), (7, 1)), "scaled_key of Computed must return"),
        (Computed((1, 1), (6, 1)), "scaled_query of Computed must return"),
    ):
        calls = [
            lambda phi=phi: ka.linear_attention(q, k, v, phi, backend=name),
            lambda phi=phi: ka.causal_linear_attention(q, k, v, phi, backend=name),
            lambda phi=phi: ka.attend(ka.key_state(k, v, phi, backend=name), q, phi, backend=name),
            lambda phi=phi: ka.linear_attention_step(
                ka.initial_state(phi, (), 4, like=q[0]), q[0], k[0], v[0], phi, backend=name
            ),
        ]
        for call in calls:
            with pytest.raises(errors.ShapeError, match=match):
                call()


@pytest.mark.parametrize("columns", [((6, 1), (1, 6)), ((1, 6), (6, 1)), ((6, 6), (1, 6)), ((6, 6), (6, 1))])
def test_computed_sides_of_either_form_go_together(columns, backend):
    """A log scale for a row meets one for every feature, whichever side has it."""

    @dataclass(frozen=True, eq=False)
    class Mixed(Computed):
        def scaled_query(self, x):
            return self._made(x, self.query_columns)

        def scaled_key(self, x):
            return self._made(x + 0.3, self.key_columns)

        def _made(self, x, count):
            values = abs(x[..., :1] * backend.kind.asarray(np.arange(1.0, 7.0))) + 0.1
            log = x[..., :1] * backend.kind.asarray(np.arange(6.0)) - 2.0
            return ScaledFeatures(values if count[0] > 1 else values[..., :1] * 0 + 1, log[..., : count[1]])

    q, k, v = laws.arrays(3, (2, 20, 5), (2, 20, 5), (2, 20, 4), dtype="float64")
    phi = Mixed(*columns)
    laws.oracle_agrees(phi, q, k, v, backend)
    laws.forms_agree(phi, q, k, v, backend, cut=7)


@pytest.mark.parametrize("size", [1, 1e6, 1e12])
def test_positive_queries_over_signed_keys_have_any_normaliser(backend, size):
    """Only where all keys are positive is a small one that of a query which meets little."""
    phi = Sides(spec("relu", 4), spec("cos", 4, seed=1))
    q, k, v = laws.arrays(4, (64, 4), (64, 4), (64, 3))
    out = laws.linear(phi, 3 * q, 3 * k, np.float32(size) * v, backend)
    wanted = laws.linear(phi, *(x.astype("f8") for x in (3 * q, 3 * k, v)))
    np.testing.assert_allclose(out / np.float32(size), wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float64", "float32")])
def test_one_map_in_two_dtypes(dtypes):
    """The packed parts of a row's log scale belong to a dtype."""
    pytest.importorskip("numba")
    phi, x = maps.make("favor_sharp_asymmetric"), np.random.default_rng(4).standard_normal((9, maps.DIM))
    for dtype in dtypes:
        found = ka.linear_attention(*[x.astype(dtype)] * 3, phi, backend="cpu")
        wanted = ka.linear_attention(*[x.astype(dtype)] * 3, phi, backend="reference")
        np.testing.assert_allclose(found, wanted, rtol=1e-9 if dtype == "float64" else 1e-4)


def test_features_of_one_side_are_asked_for_by_name():
    """phi(q) @ phi(k).T would be wrong without a word; of sums, products and multiples too."""
    phi, x = maps.make("favor_sharp_asymmetric"), RNG.standard_normal((5, maps.DIM))
    other = ka.random_features(ka.kernels.Softmax(), maps.DIM, 8, "positive", rng=0)
    for each in (phi, 2.0 * phi, phi + other, other * phi):
        with pytest.raises(errors.ParameterError, match=r"call phi.query\(x\) or phi.key\(x\)"):
            each(x)
        assert each.query(x).shape == each.key(x).shape
    assert (other + other)(x).shape == (other + other).query(x).shape
