"""Performer's equation 5 whole, and any function of rows as a map."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, NoClosedForm, ParameterError, ShapeError
from kernattn.features import from_function, generalized
from saved import reloaded

K = ka.kernels
D, M = 5, 12
X = np.random.default_rng(3).standard_normal((2, 7, D))


def half_square(x):
    return np.sum(x**2, axis=-1) / 2


EQUAL = {
    "trigonometric": ((np.cos, np.sin), lambda x: np.exp(half_square(x))),
    "hyperbolic": ((np.exp, lambda u: np.exp(-u)), lambda x: np.exp(-half_square(x))[..., None] / np.sqrt(2)),
    "positive": (np.exp, lambda x: np.exp(-half_square(x))),
}
NAMED = {
    "trigonometric": (("cos", "sin"), "inverse_gaussian", 1.0),
    "hyperbolic": (("exp", "exp_minus"), "gaussian", 0.5**0.5),
    "positive": ("exp", "gaussian", 1.0),
}


@pytest.mark.parametrize("projection", ["iid", "orthogonal", "hadamard"])
@pytest.mark.parametrize("estimator", EQUAL)
def test_equation_5_is_the_estimators(estimator, projection):
    """With the same draw, to rounding: one's own functions, and the named ones, which the ops fuse."""
    wanted = ka.random_features(K.Softmax(scale=0.49), D, M, estimator, projection, rng=5)
    scale = 0.7  # x' = x scale^(1/2)
    functions, h = EQUAL[estimator]
    own = generalized(functions, D, M, h, scale=scale, projection=projection, rng=5)
    np.testing.assert_allclose(own(X), wanted(X), rtol=1e-12, atol=1e-14)
    assert own.num_features == wanted.num_features == M
    assert own.spec is None
    functions, h, factor = NAMED[estimator]
    named = generalized(functions, D, M, h, scale=scale, projection=projection, rng=5)
    np.testing.assert_allclose(factor * named(X), wanted(X), rtol=1e-12, atol=1e-14)
    assert named.spec.kind == wanted.spec.kind
    far = 300.0 * X
    np.testing.assert_allclose(
        ka.linear_attention(far, far, far, named), ka.linear_attention(far, far, far, wanted), rtol=1e-9
    )
    again, other = named.redraw(8), wanted.redraw(8)
    np.testing.assert_allclose(factor * again(X), other(X), rtol=1e-12, atol=1e-14)


def test_functions_stand_side_by_side_on_one_draw():
    names = ("relu", "tanh", "abs")
    phi = generalized(names, D, 3 * M, "gaussian", scale=0.5, rng=2)
    parts = [generalized(name, D, M, scale=0.5, rng=2)(X) for name in names]
    factors = np.exp(-half_square(0.5 * X))[..., None]
    np.testing.assert_allclose(phi(X), np.concatenate(parts, axis=-1) * factors, rtol=1e-12)


def test_saved_where_all_is_named(tmp_path):
    phi = generalized(("sin", "exp_minus"), D, M, "inverse_gaussian", scale=0.5, rng=0)
    reloaded(phi, tmp_path, X)
    for mine in (replace(phi, h=half_square), replace(phi, function=("sin", np.cos)), from_function(np.abs)):
        with pytest.raises(ParameterError, match="cannot be saved: files hold"):
            mine.save(tmp_path / "mine.npz")


def test_generalized_refuses():
    with pytest.raises(ParameterError, match="multiple of 2, the number of functions; got 7"):
        generalized(("cos", "sin"), D, 7, rng=0)
    with pytest.raises(ParameterError, match="f must be callable or one of abs"):
        generalized(("cos", "sine"), D, 8, rng=0)
    with pytest.raises(ParameterError, match="f must be callable"):
        generalized((), D, 8, rng=0)
    with pytest.raises(ParameterError, match="h must be callable, None or one of gaussian"):
        generalized("cos", D, 8, "normal", rng=0)
    with pytest.raises(ShapeError, match="h must give a number for each row"):
        generalized("cos", D, 8, lambda x: x, rng=0)(X)
    with pytest.raises(ParameterError, match="h must give finite numbers"):
        generalized("cos", D, 8, lambda x: 1 / (0 * np.sum(x, axis=-1)), rng=0)(X)


def positive(rng):
    omega = ka.projections.Iid().draw(16, D, rng)
    return lambda x: np.exp(x @ omega.T - np.sum(x**2, axis=-1, keepdims=True) / 2) / 4


def test_a_function_goes_wherever_a_map_goes():
    phi = from_function(dim=D, factory=positive, kernel=K.Softmax(scale=1.0), rng=1)
    mine = ka.random_features(phi.kernel, D, 16, "positive", "iid", rng=1)
    q, k, v = 0.5 * X[0], 0.5 * X[1], X[1]
    np.testing.assert_allclose(ka.linear_attention(q, k, v, phi), ka.linear_attention(q, k, v, mine), rtol=1e-12)
    out, state = ka.causal_linear_attention(q, k, v, phi)
    np.testing.assert_allclose(out, ka.causal_linear_attention(q, k, v, mine)[0], rtol=1e-12)
    ka.linear_attention_step(state, q[0], k[0], v[0], phi)
    assert phi.num_features == 16
    assert ka.metrics.certify(phi, redraws=100, rng=0).passed
    assert not ka.metrics.certify(phi, K.Gaussian(), redraws=100, rng=0).passed
    np.testing.assert_allclose(phi.redraw(4)(q), mine.redraw(4)(q), rtol=1e-12)
    with pytest.raises(NoClosedForm, match="FromFunction"):
        phi.variance(q, k)


def test_a_function_without_random_numbers():
    phi = from_function(lambda x: x**2)
    assert phi.redraw(3) is phi
    assert phi.num_features is None
    assert phi.num_features_of(3) == 3
    np.testing.assert_array_equal(phi(X.astype(np.float16)), (X.astype(np.float16) ** 2))


def test_from_function_refuses():
    with pytest.raises(ParameterError, match="exactly one of function and factory"):
        from_function()
    with pytest.raises(ParameterError, match="exactly one"):
        from_function(np.abs, factory=positive, rng=0)
    with pytest.raises(ParameterError, match="function must be callable; got 3"):
        from_function(3)
    with pytest.raises(ParameterError, match="factory must return a function"):
        from_function(factory=lambda rng: 3, rng=0)
    with pytest.raises(DTypeError, match="kernel must be a Kernel"):
        from_function(np.abs, kernel="softmax")
    with pytest.raises(ShapeError, match="features of the shape"):
        from_function(lambda x: np.sum(x, axis=-1), num_features=1)(X)
    with pytest.raises(ShapeError, match=r"\(2, 7, 4\)"):
        from_function(np.abs, num_features=4)(X)
    with pytest.raises(ParameterError, match="finite features of finite rows"):
        from_function(lambda x: np.log(-np.abs(x)))(X)
    with pytest.raises(DTypeError, match="features"):
        from_function(lambda x: x > 0)(X)
    with pytest.raises(ParameterError, match="num_features must be given"):
        from_function(lambda x: x.no_such()).num_features_of(3)


def test_a_function_that_is_gone_lends_its_fingerprint_to_no_other():
    """Functions made one after the other often have the same address."""
    seen = {ka.features.generalized(lambda x: x, 3, 4, rng=0).fingerprint for _ in range(100)}
    assert len(seen) == 100
