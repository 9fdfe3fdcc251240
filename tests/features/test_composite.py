"""Maps of sums, products and multiples: joined features, moments by independence, attention on every backend."""

import operator

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, ParameterError, ShapeError
from laws import arrays
from saved import reloaded
from xp import backends, to_numpy

K, F = ka.kernels, ka.features
D = 5
PER_ROW = lambda seed: ka.random_features(K.Softmax(), D, 4, "trigonometric", rng=seed)  # noqa: E731
PER_FEATURE = lambda seed: ka.random_features(K.Softmax(), D, 3, "positive", rng=seed)  # noqa: E731
PLAIN = lambda seed: ka.random_features(K.ArcCosine(2), D, 4, "arccosine", "iid", rng=seed)  # noqa: E731
ONE = lambda seed: ka.random_features(K.Softmax(), D, 1, "positive", rng=seed)  # noqa: E731
COMPOSITES = {
    "rows": lambda: PER_ROW(1) + PER_ROW(2) + PLAIN(3),
    "features": lambda: PER_FEATURE(1) + PER_FEATURE(2),
    "mixed": lambda: PER_FEATURE(1) + F.elu1() + PLAIN(2),
    "tensor-rows": lambda: PER_ROW(1) * PLAIN(2),
    "tensor-features": lambda: PER_FEATURE(1) * PER_FEATURE(2),
    "tensor-mixed": lambda: PER_FEATURE(1) * F.relu() * PER_FEATURE(2),
    "tensor-of-mixed": lambda: (F.elu1() + PER_FEATURE(1)) * PLAIN(2),
    "tensor-of-one": lambda: (F.elu1() + PER_FEATURE(1)) * ONE(2) * PER_ROW(3),
    "multiple-fused": lambda: 3.0 * PER_FEATURE(1),
    "multiple-plain": lambda: 3.0 * PLAIN(1),
    "nested": lambda: 0.5 * (PER_FEATURE(1) * F.relu() + 2.0 * PER_FEATURE(3)),
}
POSITIVE = ["features", "mixed", "tensor-features", "tensor-mixed", "multiple-fused", "multiple-plain", "nested"]


def joined(phi, x):
    """The features as the members' own numbers say."""
    if isinstance(phi, F.Concatenated):
        return np.concatenate([joined(member, x) for member in phi.maps], axis=-1)
    if isinstance(phi, F.TensorProduct):
        result = np.ones((*x.shape[:-1], 1))
        for member in phi.maps:
            result = (result[..., :, None] * joined(member, x)[..., None, :]).reshape(*x.shape[:-1], -1)
        return result
    return np.sqrt(phi.factor) * joined(phi.inner, x) if isinstance(phi, F.ScaledMap) else phi(x)


@pytest.mark.parametrize("name", COMPOSITES)
def test_features_are_joined(name, xp):
    phi = COMPOSITES[name]()
    (x,) = arrays(1, (2, 6, D))
    wanted = joined(phi, x.astype(float))
    assert phi.dim == D
    assert phi.num_features == phi.num_features_of(D) == wanted.shape[-1]
    x = xp.asarray(x)
    *features, scaled = xp.whole(lambda x: (phi(x), phi.query(x), phi.key(x), phi.scaled(x)))(x)
    for got in features:
        assert xp.holds(got)
        np.testing.assert_allclose(to_numpy(got), wanted, rtol=1e-4, atol=1e-5)
    values, log_scale = (to_numpy(part) for part in scaled)
    np.testing.assert_allclose(values * np.exp(log_scale), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", backends("causal", "step", "attend", "key_state"), ids=repr)
@pytest.mark.parametrize("name", POSITIVE)
def test_attention(name, backend):
    """Batched, causal and stepwise forms agree with the features' own numbers."""
    phi = COMPOSITES[name]()
    q, k, v = (backend.kind.asarray(a) for a in arrays(2, (2, 70, D), (2, 70, D), (2, 70, 3), dtype="float64"))
    fq, fk, v64 = joined(phi, to_numpy(q)), joined(phi, to_numpy(k)), to_numpy(v)
    weights = np.tril(fq @ np.swapaxes(fk, -1, -2))
    wanted = weights @ v64 / np.maximum(weights.sum(axis=-1, keepdims=True), 1e-300)
    out, state = ka.causal_linear_attention(q[:, :69, :], k[:, :69, :], v[:, :69, :], phi, backend=backend.name)
    last, _ = ka.linear_attention_step(state, q[:, 69, :], k[:, 69, :], v[:, 69, :], phi, backend=backend.name)
    np.testing.assert_allclose(to_numpy(out), wanted[:, :69], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(to_numpy(last), wanted[:, 69], rtol=1e-7, atol=1e-9)
    whole = ka.linear_attention(q, k, v, phi, backend=backend.name)
    np.testing.assert_allclose(to_numpy(whole)[:, 69], wanted[:, 69], rtol=1e-7, atol=1e-9)


def test_norms_that_overflow_apart_from_their_scales():
    phi = COMPOSITES["features"]()
    q, k, v = (60 * a for a in arrays(3, (40, D), (40, D), (40, 2), dtype="float64"))
    out, _ = ka.causal_linear_attention(q, k, v, phi)
    assert np.isfinite(out).all()


# ---- kernels ----


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("kernel", "draws"),
    [
        (2.0 * K.Gaussian() + K.Matern(1.5), 250),
        (K.ArcCosine(1) * K.Matern(1.5) * 0.5, 1000),  # which tell the product of both variances from nothing
        (K.Gaussian(2.0) * K.Softmax(0.1), 250),
        (K.ArcCosine(0) * K.ArcCosine(1) + K.RationalQuadratic(), 250),
    ],
    ids=["sum", "product", "row-scaled", "nested"],
)
def test_mean_and_variance(kernel, draws):
    phi = ka.random_features(kernel, D, 16, projection="iid", rng=0)
    x, y = (a / 2 for a in arrays(4, (4, D), (4, D), dtype="float64"))
    mean, variance = phi.mean(x, y), phi.variance(x, y)
    np.testing.assert_allclose(mean, kernel.pairs(x, y), rtol=1e-9)
    np.testing.assert_allclose(phi.bias(x, y), 0, atol=1e-12)
    rng = np.random.default_rng(5)
    estimates = np.stack([np.sum(each(x) * each(y), axis=1) for each in (phi.redraw(rng) for _ in range(draws))])
    assert (np.abs(estimates.mean(axis=0) - mean) / (estimates.std(axis=0) / np.sqrt(draws)) < 4.5).all()
    squares = (estimates - mean) ** 2
    assert (np.abs(squares.mean(axis=0) - variance) / (squares.std(axis=0) / np.sqrt(draws)) < 4.5).all()


def test_moments_by_independence():
    a, b = (
        ka.random_features(K.Matern(), D, 8, rng=0),
        ka.random_features(K.Softmax(), D, 6, projection=ka.projections.Iid("sqrt_d"), rng=0),
    )
    x, y = (c / 2 for c in arrays(6, (4, D), (4, D), dtype="float64"))
    both, product, multiple = a + b, a * b, 3.0 * b
    np.testing.assert_allclose(both.variance(x, y), a.variance(x, y) + b.variance(x, y), rtol=1e-12)
    np.testing.assert_allclose(both.bias(x, y), a.bias(x, y) + b.bias(x, y), rtol=1e-9, atol=1e-14)
    means = a.mean(x, y), b.mean(x, y)
    variance = a.variance(x, y) * b.variance(x, y) + a.variance(x, y) * means[1] ** 2 + b.variance(x, y) * means[0] ** 2
    np.testing.assert_allclose(product.variance(x, y), variance, rtol=1e-9)
    kernel = K.Matern() * K.Softmax()
    np.testing.assert_allclose(product.bias(x, y), means[0] * means[1] - kernel.pairs(x, y), atol=1e-14)
    np.testing.assert_allclose(multiple.variance(x, y), 9 * b.variance(x, y), rtol=1e-12)
    np.testing.assert_allclose(multiple.bias(x, y), 3 * b.bias(x, y), rtol=1e-12)


def test_a_product_of_kernels_of_differences_needs_no_tensor():
    phi = ka.random_features(K.Matern() * K.Gaussian(), D, 16, rng=0)
    assert type(phi) is F.Trigonometric
    x, step = arrays(7, (6, D), (6, D), dtype="float64")
    tensor = ka.random_features(K.Matern(), D, 4, rng=0) * ka.random_features(K.Gaussian(), D, 4, rng=0)
    y = x + step / 3
    np.testing.assert_allclose(phi.mean(x, y), tensor.mean(x, y), rtol=1e-12)
    assert (phi.variance(x, y) < tensor.variance(x, y) / 2).all(), "at equal numbers of features"


def test_sizes():
    phi = ka.random_features(K.ArcCosine() * K.Softmax(), D, 24, rng=0)
    assert sorted(member.num_features for member in phi.maps) == [4, 6]
    phi = ka.random_features(K.ArcCosine() * K.Softmax() * K.Polynomial(2), D, 64, rng=0)
    assert [member.num_features for member in phi.maps] == [4, 4, 4]
    phi = ka.random_features(K.ArcCosine() + K.Gaussian() + K.Polynomial(2), D, 24, rng=0)
    assert [member.num_features for member in phi.maps] == [8, 8, 8]
    with pytest.raises(ParameterError, match="multiple of the 2 terms of the sum; got 25"):
        ka.random_features(K.ArcCosine() + K.Gaussian(), D, 25, rng=0)
    with pytest.raises(ParameterError, match=r"product of 2 numbers above 1, .*; got 7"):
        ka.random_features(K.ArcCosine() * K.Gaussian(), D, 7, rng=0)


# ---- values ----


@pytest.mark.parametrize("name", COMPOSITES)
def test_redraw_and_files(name, tmp_path):
    phi = COMPOSITES[name]()
    (x,) = arrays(8, (3, D), dtype="float64")
    a = phi.redraw(4)
    assert type(a) is type(phi)
    np.testing.assert_array_equal(a(x), phi.redraw(4)(x))
    assert len({phi.fingerprint, a.fingerprint, phi.redraw(5).fingerprint}) == 3
    reloaded(phi, tmp_path, x)


def test_members_are_drawn_apart():
    phi = ka.random_features(K.ArcCosine() + K.ArcCosine(), D, 8, rng=3)
    assert not np.allclose(phi.maps[0].omega, phi.maps[1].omega)
    again = phi.redraw(3)
    assert not np.allclose(again.maps[0].omega, again.maps[1].omega)


def test_refusals():
    for kind in (F.Concatenated, F.TensorProduct):
        with pytest.raises(ParameterError, match="at least one; got"):
            kind(())
        with pytest.raises(DTypeError, match="must be a FeatureMap; got 3"):
            kind((F.relu(), 3))
    for op in (operator.add, operator.mul):
        with pytest.raises(ShapeError, match=r"one input dimension; got \[3, 5\]"):
            op(op(PER_ROW(1), F.elu1()), ka.random_features(K.Gaussian(), 3, 4, rng=0))
    for add in (lambda: F.relu() + 3, lambda: 3 + F.relu(), lambda: F.relu() + K.Gaussian()):
        with pytest.raises(DTypeError, match="must be a FeatureMap; got"):
            add()
    for factor in (0, -1.0, np.inf, "2"):
        with pytest.raises(ParameterError, match="factor must be a"):
            factor * F.relu()
        with pytest.raises(ParameterError, match="factor must be a"):
            F.relu() * factor
    with pytest.raises(DTypeError, match="inner must be a FeatureMap; got 'relu'"):
        F.ScaledMap(2.0, "relu")


def test_operators_join_members():
    a, b, c = PER_FEATURE(1), F.relu(), PLAIN(2)
    for phi in (a + b + c, a + (b + c), sum([a, b, c])):
        assert type(phi) is F.Concatenated
        assert phi.maps == (a, b, c)
    for phi in (a * b * c, a * (b * c)):
        assert type(phi) is F.TensorProduct
        assert phi.maps == (a, b, c)
    assert (a + b * c).maps[0] is a
    for phi in (2 * a, a * 2, np.float64(2) * a):
        assert type(phi) is F.ScaledMap
        assert phi.inner is a
    x = np.ones((4, D))
    np.testing.assert_allclose((2 * a)(x) @ (2 * a)(x).T, 2 * (a(x) @ a(x).T))


def test_old_names():
    a, b = PER_FEATURE(1), F.relu()
    for name, new in (("Multiple", F.ScaledMap), ("Polynomial", F.Monomials), ("Tensor", F.TensorProduct)):
        with pytest.warns(DeprecationWarning, match=f"features.{name} is now kernattn.features.{new.__name__}"):
            assert getattr(F, name) is new
    for name in ("optimal_tilt", "optimal_tilts"):
        with pytest.warns(DeprecationWarning, match="random_features"):
            assert callable(getattr(F, name))
    for name, arguments, new in (
        ("concatenate", (a, b), a + b),
        ("tensor", (a, b), a * b),
        ("multiple", (2.0, a), 2 * a),
    ):
        with pytest.warns(DeprecationWarning, match=rf"features\.{name} is now"):
            old = getattr(F, name)
        assert old(*arguments).fingerprint == new.fingerprint


def test_maps_of_any_dimension():
    phi = F.elu1() + F.polynomial(2)
    assert phi.dim is None
    assert phi.num_features is None
    for d in (2, 3):
        assert phi(np.ones((4, d))).shape == (4, phi.num_features_of(d))
