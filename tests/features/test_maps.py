"""Maps are values: frozen, told apart by their draw, drawn anew into new ones."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

import kernattn as ka
import maps
import saved
from kernattn.errors import ParameterError
from laws import arrays
from seam import KINDS


@pytest.mark.parametrize("name", maps.MAPS)
def test_maps_are_frozen(name):
    phi = maps.make(name)
    with pytest.raises((FrozenInstanceError, AttributeError)):
        phi.omega = None
    assert isinstance(phi.fingerprint, int)
    assert 0 <= phi.fingerprint < 2**31
    for each in (phi, phi.redraw(3)):
        arrays = [value for value in vars(each).values() if isinstance(value, np.ndarray)]
        assert not any(array.flags.writeable for array in arrays)


@pytest.mark.parametrize("name", maps.MAPS)
def test_spec_says_the_sizes(name):
    phi = maps.make(name)
    (x,) = arrays(1, (3, maps.DIM))
    m = phi(x).shape[-1]
    assert phi.num_features_of(maps.DIM) == m
    assert phi.dim in (None, maps.DIM)
    if phi.spec is not None:
        assert phi.spec.kind in KINDS
        assert phi.spec.num_features_of(maps.DIM) == m


@pytest.mark.parametrize("name", saved.MAKERS)
def test_a_number_of_features_of_what_is_no_dimension(name):
    phi = saved.make(name)
    for wrong in (0, -1, 2.0, True, "3", None, 2**31, (3,)):
        with pytest.raises(ParameterError, match="dim must be a positive integer"):
            phi.num_features_of(wrong)


@pytest.mark.parametrize("name", saved.MAKERS)
def test_a_map_is_told_in_a_line(name):
    phi = saved.make(name)
    text = repr(phi)
    assert text.startswith(f"{type(phi).__name__}(")
    assert "array(" not in text
    assert "\n" not in text
    assert len(text) < 800
    for field in fields(phi):
        value = getattr(phi, field.name)
        if isinstance(value, np.ndarray):
            assert f"{field.name}=<{value.dtype} {value.shape}>" in text
        elif isinstance(value, ka.kernels.Kernel | ka.projections.Projection | str | float):
            assert f"{field.name}={value!r}" in text
    if phi.spec is not None:
        assert "array(" not in repr(phi.spec)


@pytest.mark.parametrize("name", [*maps.RANDOM, *maps.GENERALIZED])
def test_redraw(name):
    phi = maps.make(name)
    (x,) = arrays(1, (3, maps.DIM), dtype="float64")
    before = phi(x)
    a, b, c = phi.redraw(5), phi.redraw(5), phi.redraw(6)
    np.testing.assert_array_equal(a(x), b(x))
    assert a.fingerprint == b.fingerprint
    assert len({phi.fingerprint, a.fingerprint, c.fingerprint}) == 3
    assert not np.allclose(a(x), c(x))
    np.testing.assert_array_equal(phi(x), before)
    assert type(a) is type(phi)
    assert a(x).shape == phi(x).shape
    generator = np.random.default_rng(5)
    first, second = phi.redraw(generator), phi.redraw(generator)
    np.testing.assert_array_equal(first(x), a(x))
    assert second.fingerprint != first.fingerprint


@pytest.mark.parametrize("name", maps.MAPS)
def test_copies_leave_behind_what_was_computed_of_a_map(name):
    phi, (x,) = maps.make(name), arrays(1, (3, maps.DIM), dtype="float64")
    size, x = len(pickle.dumps(phi)), np.abs(x)
    out, fingerprint = ka.linear_attention(x, x, x, phi), phi.fingerprint
    assert len(pickle.dumps(phi)) == size
    for copied in (pickle.loads(pickle.dumps(phi)), copy.deepcopy(phi)):
        assert copied.fingerprint == fingerprint
        np.testing.assert_array_equal(ka.linear_attention(x, x, x, copied), out)


@pytest.mark.parametrize("name", ["elu1", "relu", "exp", "polynomial"])
def test_deterministic_maps_redraw_into_themselves(name):
    phi = maps.make(name)
    assert phi.redraw(3).fingerprint == phi.fingerprint


def test_draws_are_told_apart_by_content():
    kernel = ka.kernels.Softmax()

    def drawn(**changes):
        arguments = {"kernel": kernel, "dim": 5, "num_features": 8, "estimator": "positive", "rng": 0} | changes
        return ka.random_features(**arguments).fingerprint

    assert drawn() == drawn()
    different = [
        drawn(),
        drawn(rng=1),
        drawn(kernel=ka.kernels.Softmax(0.5)),
        drawn(kernel=ka.kernels.Gaussian()),
        drawn(kernel=ka.kernels.Gaussian(2.0)),
        drawn(kernel=ka.kernels.Gaussian(np.arange(1.0, 6.0))),
        drawn(kernel=ka.kernels.Gaussian(np.arange(2.0, 7.0))),
        drawn(num_features=10),
        drawn(estimator="hyperbolic"),
        drawn(estimator="optimal_positive"),
        drawn(projection="iid"),
        drawn(projection=ka.projections.Orthogonal(norms="sqrt_d")),
        ka.features.elu1().fingerprint,
        ka.features.exp().fingerprint,
        ka.features.polynomial(2).fingerprint,
        ka.features.polynomial(3).fingerprint,
        ka.features.generalized("relu", 5, 8, rng=0).fingerprint,
        ka.features.generalized("abs", 5, 8, rng=0).fingerprint,
        ka.features.generalized(np.abs, 5, 8, rng=0).fingerprint,
    ]
    assert len(set(different)) == len(different)
    phi = ka.random_features(kernel, 5, 8, "optimal_positive", rng=0)
    assert replace(phi, tilt=0.9 * phi.tilt).fingerprint != phi.fingerprint


def test_rng():
    kernel = ka.kernels.Softmax()
    seeds = [0, np.random.default_rng(0), np.random.SeedSequence(0)]
    omegas = [ka.random_features(kernel, 4, 8, rng=seed).omega for seed in seeds]
    for omega in omegas[1:]:
        np.testing.assert_array_equal(omega, omegas[0])
    fresh = [ka.random_features(kernel, 4, 8, rng=None).fingerprint for _ in range(2)]
    assert fresh[0] != fresh[1]
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    ka.random_features(kernel, 4, 8, rng=3)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_auto():
    softmax, gaussian = ka.kernels.Softmax(), ka.kernels.Gaussian()
    assert isinstance(ka.random_features(softmax, 4, 8, rng=0), ka.features.Positive)
    assert isinstance(ka.random_features(gaussian, 4, 8, rng=0), ka.features.Trigonometric)
    (x,) = arrays(1, (50, 4), dtype="float64")
    for kernel in (softmax, gaussian):
        for size in (0.1, 1.0, 3.0):
            chosen = ka.random_features(kernel, 4, 8, data=size * x, objective="kernel", rng=0)
            pairs = np.broadcast_arrays(size * x[:, None], size * x[None])
            weights = np.ones((50, 50))
            if kernel is softmax:  # whose rows attention normalises
                squares = np.exp(size**2 * x @ x.T)  # k^2, as the scale is 1/2
                weights = weights / squares.sum(axis=1, keepdims=True)
            names = set(ka.features.estimators(kernel)) - {"favor_sharp_asymmetric"}  # which is never taken
            by = dict.fromkeys(names, "orthogonal") | {"favor_sharp": "iid"}  # of these it is known
            error = {
                name: np.sum(weights * ka.random_features(kernel, 4, 8, name, p, data=size * x, rng=0).variance(*pairs))
                for name, p in by.items()
            }
            own = error[next(n for n in names if ka.features.ESTIMATORS[n].cls is type(chosen))]
            assert own <= 1.0001 * min(error.values()), (kernel, size, error)


EVALUATED = {"query", "key", "scaled", "spec", "query_spec", "key_spec", "scaled_query", "scaled_key"}
KNOWN = {"mean", "bias", "variance", "num_features_for"}
SIZES = {"dim", "query_dim", "key_dim", "num_features", "num_features_of"}
PUBLIC = EVALUATED | KNOWN | SIZES | {"fingerprint", "redraw", "save"}
MORE = {"Nystrom": {"trace_residual"}, "AsymmetricExponential": {"projection"}}  # besides their fields


@pytest.mark.parametrize("name", [*maps.MAPS, *maps.OTHERS])
def test_names_that_a_map_shows(name):
    """What one uses, and what it is made of."""
    phi = maps.make(name)
    shown = {each for each in dir(phi) if not each.startswith("_")}
    assert shown == PUBLIC | {field.name for field in fields(phi)} | MORE.get(type(phi).__name__, set())


def test_a_map_of_ones_own():
    """Any FeatureMap does, also one whose queries and keys differ."""
    from dataclasses import dataclass

    import laws

    @dataclass(frozen=True, eq=False)
    class Asymmetric(ka.features.FeatureMap):
        power: float

        dim = None
        spec = None

        def num_features_of(self, dim):
            return dim

        def scaled_query(self, x):
            return ka.features.ScaledFeatures(np.abs(x) + 0.1, np.zeros((*x.shape[:-1], 1), x.dtype))

        def scaled_key(self, x):
            return ka.features.ScaledFeatures(np.ones((*x.shape[:-1], 1), x.dtype), self.power * x)

        def redraw(self, rng=None):
            return self

    phi = Asymmetric(2.0)
    q, k, v = arrays(4, (2, 40, 3), (2, 40, 3), (2, 40, 2), dtype="float64")
    laws.forms_agree(phi, q, k, v, cut=7)
    np.testing.assert_allclose(phi.query(q), np.abs(q) + 0.1)
    np.testing.assert_allclose(phi.key(k), np.exp(2 * k))
    with pytest.raises(ka.errors.NoClosedForm):
        phi.variance(q, k)


def test_phases_are_uniform_on_a_full_turn():
    phase = ka.random_features(ka.kernels.Gaussian(), 4, 4000, "phase", rng=0).phase / (2 * np.pi)
    assert (phase >= 0).all()
    assert (phase < 1).all()
    counts, _ = np.histogram(phase, bins=20, range=(0, 1))
    assert np.sum((counts - 200) ** 2 / 200) < 19 + 4.5 * np.sqrt(2 * 19)
