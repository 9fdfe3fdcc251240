"""Linear models of other losses against the conditions of their least points, and against scikit-learn's objectives."""

from fractions import Fraction

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, EmptyInputError, ParameterError
from kernattn.solvers._losses import quasi_newton, sweeps
from kernattn.solvers._losses.labels import walk_labelled
from xp import KINDS, to_numpy

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((400, 3)), RNG.standard_normal((20, 3))
LATENT = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
REAL = LATENT + 0.3 * RNG.standard_t(2, 400)
COUNTS = RNG.poisson(np.exp(LATENT)).astype(float)
SIGNS = np.where(LATENT + 0.7 * RNG.standard_normal(400) > 0, 1.0, -1.0)
Y = {"huber": REAL, "poisson": COUNTS, "quantile": REAL, "squared_hinge": SIGNS}
W = RNG.integers(0, 3, 400).astype(float)
PHI = ka.random_features(ka.kernels.Gaussian(1.5), dim=3, num_features=24, rng=0)
EPSILON, Q = 1.2, 0.8


def objective(loss, fit, w, penalty):
    """The sum, as scikit-learn's manual writes the losses."""
    y, f = Y[loss], PHI(X) @ fit.weights + fit.intercept
    if loss == "huber":
        z = np.abs(y - f) / fit.scale
        losses = fit.scale * (1 + np.where(z < EPSILON, z**2, 2 * EPSILON * z - EPSILON**2))
    elif loss == "poisson":
        losses = np.exp(f) - y * f
    elif loss == "quantile":
        losses = Q * np.maximum(y - f, 0) + (1 - Q) * np.maximum(f - y, 0)
    else:
        losses = np.maximum(1 - y * f, 0) ** 2
    return w @ losses + penalty / 2 * np.sum(fit.weights**2)


def solve(loss, x=X, **options):
    given = {"y": Y[loss], "loss": loss, "quantile": Q, "epsilon": EPSILON, "tolerance": 1e-11} | options
    return ka.solvers.linear_model(x, PHI, **given)


class Moved:
    """A fit whose numbers are near those of another."""

    def __init__(self, fit, rng):
        step = 1e-3 * rng.standard_normal(len(fit.weights) + 2)
        self.weights, self.scale = fit.weights + step[:-2], fit.scale * np.exp(step[-1])
        self.intercept = fit.intercept + (step[-2] if fit.intercept else 0.0)


@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("penalty", [1e-3, 20.0])
@pytest.mark.parametrize("loss", Y)
def test_no_point_nearby_is_lower(loss, penalty, intercept, weights):
    fit = solve(loss, penalty=penalty, weights=weights, intercept=intercept)
    w = np.ones(400) if weights is None else weights
    least, rng = objective(loss, fit, w, penalty), np.random.default_rng(1)
    assert fit.converged
    assert intercept or fit.intercept == 0
    assert all(objective(loss, Moved(fit, rng), w, penalty) > least - 1e-10 * abs(least) for _ in range(30))


@pytest.mark.parametrize("loss", Y)
def test_scikit_learn(loss):
    linear, svm = pytest.importorskip("sklearn.linear_model"), pytest.importorskip("sklearn.svm")
    features, penalty = PHI(X), {"quantile": 1e-9}.get(loss, 0.5)  # whose penalty is another one there
    theirs = {
        "huber": lambda: linear.HuberRegressor(epsilon=EPSILON, alpha=penalty / 2, max_iter=5000, tol=1e-9),
        "poisson": lambda: linear.PoissonRegressor(alpha=penalty / 400, solver="newton-cholesky", tol=1e-12),
        "quantile": lambda: linear.QuantileRegressor(quantile=Q, alpha=0.0),
        "squared_hinge": lambda: svm.LinearSVC(
            C=1 / penalty, fit_intercept=False, dual=False, tol=1e-10, max_iter=9999
        ),
    }[loss]().fit(features, Y[loss])
    fit = solve(loss, penalty=penalty, intercept=loss != "squared_hinge", tolerance=1e-6)
    theirs.weights, theirs.intercept = theirs.coef_.ravel(), np.ravel(theirs.intercept_)[0]
    theirs.scale = getattr(theirs, "scale_", np.nan)
    got, wanted = (objective(loss, each, np.ones(400), penalty) for each in (fit, theirs))
    assert got <= wanted + 1e-6 * abs(wanted)
    found = np.sign(fit.scores(X)) if loss == "squared_hinge" else fit.predict(X)
    np.testing.assert_allclose(found, theirs.predict(features), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("loss", Y)
def test_parts_and_sweeps_change_nothing(loss, monkeypatch):
    """Rows in blocks; features made anew by each sweep; Hessians of some of the rows; rows of weight 0 are no rows."""
    wanted = solve(loss, penalty=0.1, weights=W)
    kept = W > 0
    cuts = [slice(0, 150), slice(150, 151), slice(151, 400)]
    blocks = [(X[cut], Y[loss][cut], W[cut]) for cut in cuts]
    same = [
        solve(loss, blocks, y=None, penalty=0.1),
        solve(loss, X[kept], y=Y[loss][kept], weights=W[kept], penalty=0.1),
    ]
    monkeypatch.setattr(sweeps, "KEPT", 0)
    monkeypatch.setattr(quasi_newton, "ROWS", 100)
    monkeypatch.setattr(quasi_newton, "MANY", 4)
    monkeypatch.setattr("kernattn.solvers._losses.interior_point.FEW", 30)
    monkeypatch.setattr("kernattn.solvers._losses.interior_point.MANY", 2)
    same.append(solve(loss, lambda: iter(blocks), y=None, penalty=0.1))
    for fit in same:
        assert fit.converged
        np.testing.assert_allclose(fit.scores(NEW), wanted.scores(NEW), rtol=1e-4, atol=1e-4)


def test_features_that_are_given_are_neither_copied_nor_written():
    """Rows of `linear` with units of 1 are read where they are; any order, stride and dtype gives the same fit."""
    features, units = PHI(X), np.ones(24)
    given, other = ka.features.linear(units), ka.features.linear(2 * units)
    narrow = features.astype("f4")
    for x in (features, narrow):
        rows = sweeps.Sweeps(given, walk_labelled(given, x, REAL, None), None)
        assert [part.features.dtype for part in rows.parts()] == [np.float64]  # weights may be large
        assert np.shares_memory(rows._kept[0].features, x)
    options = {"y": COUNTS, "loss": "poisson", "penalty": 0.1, "tolerance": 1e-12}
    wanted = ka.solvers.linear_model(2 * features, other, **options)
    features.flags.writeable = False
    for x in (features, np.asfortranarray(features), np.repeat(features, 2, axis=1)[:, ::2], narrow):
        fit = ka.solvers.linear_model(x, given, **options)
        np.testing.assert_allclose(fit.weights, wanted.weights, rtol=1e-4 if x.dtype == "f4" else 1e-8)


def test_quantiles_have_their_share_of_rows_below():
    for q in (0.1, 0.5, 0.95):
        below = np.mean(
            ka.solvers.linear_model(X, PHI, y=REAL, loss="quantile", quantile=q, penalty=1e-2).predict(X) > REAL
        )
        assert abs(below - q) <= 25 / 400  # at most as many rows lie on the fit as it has numbers


def test_quantiles_of_targets_that_come_again():
    counts = np.random.default_rng(0).poisson(1.0, 400).astype(float)
    for penalty in (1e-6, 1.0, 1e4):
        fit = solve("quantile", y=counts, penalty=penalty, tolerance=1e-6)
        assert fit.converged
        assert np.mean(counts <= fit.predict(X) + 1e-6) >= Q - 25 / 400


def test_separable_classes_converge_where_little_is_left():
    """A Hessian of rows that have come beyond the hinge since makes too little of what is left."""
    x, y = X[:80], np.where(np.sin(3 * X[:80, 0]) + X[:80, 1] > 0, 1.0, -1.0)
    sums = []
    for tolerance in (1e-6, 1e-13):
        fit = solve("squared_hinge", x, y=y, penalty=1e-8, tolerance=tolerance)
        assert fit.converged
        short = np.maximum(1 - y * (PHI(x) @ fit.weights + fit.intercept), 0)
        sums.append(short @ short + 5e-9 * np.sum(fit.weights**2))
    assert sums[0] <= sums[1] * (1 + 1e-6)


@pytest.mark.parametrize("alike", [240, 399])
def test_the_scale_of_rows_most_of_which_are_alike_falls_as_far_as_the_sum_does(alike):
    """The curvature of a direction that no row tells, in units of the steepest, held it up."""
    y = np.where(np.arange(400) < alike, 5.0, REAL + 5.0)
    sums = []
    for tolerance in (1e-6, 1e-11):
        fit = solve("huber", y=y, penalty=1e-3, tolerance=tolerance)
        z = np.abs(y - PHI(X) @ fit.weights - fit.intercept) / fit.scale
        losses = 1 + np.where(z < EPSILON, z**2, 2 * EPSILON * z - EPSILON**2)
        sums.append(fit.scale * losses.sum() + 5e-4 * np.sum(fit.weights**2))
        assert fit.converged
    assert sums[0] <= sums[1] * (1 + 1e-6)


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e45], ids=str)
def test_counts_of_many_rows_have_the_least_sum_to_the_tolerance(unit):
    """Of more rows than a Hessian has; features beyond float32 are as good as others."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((6000, 6)) * unit
    y, weights = rng.poisson(np.exp(x[:, 0] / unit + 2)).astype(float), rng.exponential(size=6000) ** 3
    own = {"y": y, "weights": weights, "loss": "poisson", "penalty": unit**2}
    sums = []
    for tolerance in (1e-6, 1e-12):
        fit = ka.solvers.linear_model(x, ka.features.linear(np.ones(6)), tolerance=tolerance, **own)
        scores = x @ fit.weights + fit.intercept
        sums.append(weights @ (np.exp(scores) - y * scores) + np.sum((unit * fit.weights) ** 2) / 2)
        assert fit.converged
    assert abs(sums[0] - sums[1]) <= 1e-6 * weights.sum()


def test_the_scale_of_rows_that_are_fitted_exactly_is_that_of_the_sum():
    y = PHI(X[:20]).sum(axis=1)
    fit = solve("huber", X[:20], y=y, penalty=1e-6)
    np.testing.assert_allclose(fit.scale, 1e-6 * np.mean(np.abs(y - np.median(y))), rtol=0.1)


def test_units_and_means_of_targets():
    for loss, moved in (("huber", 1e9 + 1e3 * REAL), ("quantile", 1e9 + 1e3 * REAL)):
        plain, far = solve(loss, penalty=0.1), solve(loss, y=moved, penalty=1e-4)
        np.testing.assert_allclose((far.predict(NEW) - 1e9) / 1e3, plain.predict(NEW), atol=1e-4)
        constant = solve(loss, y=np.full(400, 3.0), penalty=0.1)
        np.testing.assert_array_equal(constant.predict(NEW), np.full(20, 3.0))


def test_several_classes_are_each_against_the_others():
    three = np.array(["low", "middle", "top"])[np.digitize(LATENT, [-0.5, 0.7])]
    fit = solve("squared_hinge", y=three, penalty=0.1)
    assert fit.classes.tolist() == ["low", "middle", "top"]
    for column, label in enumerate(fit.classes):
        one = solve("squared_hinge", y=three == label, penalty=0.1)
        np.testing.assert_allclose(fit.scores(NEW)[:, column], one.scores(NEW), atol=1e-6)
    np.testing.assert_array_equal(fit.predict(NEW), fit.classes[np.argmax(fit.scores(NEW), axis=1)])


@pytest.mark.parametrize("loss", Y)
def test_a_penalty_by_rows_left_out(loss):
    chosen = solve(loss, tolerance=1e-6)
    turned = solve(loss, x=X[::-1], y=Y[loss][::-1], tolerance=1e-6)
    np.testing.assert_allclose(turned.penalty, chosen.penalty, rtol=1e-9)
    truth = {"poisson": np.exp(LATENT), "squared_hinge": None}.get(loss, LATENT)
    if truth is not None and loss != "quantile":
        worst = max(np.mean((solve(loss, penalty=p, tolerance=1e-6).predict(X) - truth) ** 2) for p in (1e-6, 1e5))
        assert np.mean((chosen.predict(X) - truth) ** 2) < worst / 2


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_every_kind_of_array(kind):
    wanted = solve("poisson", penalty=0.1)
    with kind.wide():
        fit = solve("poisson", kind.asarray(X), penalty=0.1)
        found = fit.predict(kind.asarray(NEW))
    assert kind.holds(found)
    np.testing.assert_allclose(to_numpy(found), wanted.predict(NEW), rtol=1e-5)


def test_settings_are_any_real_number():
    fits = [solve("huber", epsilon=c, penalty=0.1) for c in (Fraction(3, 2), 1.5)]
    np.testing.assert_array_equal(fits[0].weights, fits[1].weights)


def test_too_few_steps_are_said():
    for loss in Y:
        fit = solve(loss, penalty=1e-3, max_iterations=1)
        assert not fit.converged
        assert "NOT converged" in repr(fit)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"loss": "hinge"}, ParameterError, "loss must be"),
        ({"quantile": 1.0}, ParameterError, "quantile must be between 0 and 1; got 1"),
        ({"epsilon": 1.0}, ParameterError, "epsilon must be more than 1; got 1"),
        ({"penalty": 0.0}, ParameterError, "penalty must be a positive number"),
        ({"y": SIGNS, "loss": "poisson"}, ParameterError, "y must be 0 or more for loss='poisson'; less in rows"),
        ({"y": np.zeros(400), "loss": "poisson"}, ParameterError, "y must not be 0 in all rows for loss='poisson'"),
        ({"y": np.full(400, "a")}, DTypeError, "y must hold numbers for loss='huber'"),
        ({"y": SIGNS > 0}, DTypeError, "y must hold numbers for loss='huber'"),
        ({"weights": np.zeros(400)}, ParameterError, "weights must not be 0 in all rows"),
        ({"y": REAL, "loss": "squared_hinge"}, ParameterError, "y must hold labels: .* got 400 numbers"),
        ({"y": None}, ParameterError, "y must be given"),
    ],
)
def test_errors(options, error, words):
    with pytest.raises(error, match=words):
        ka.solvers.linear_model(X, PHI, **({"loss": "huber", "y": REAL, "penalty": 1.0} | options))


def test_blocks():
    with pytest.raises(EmptyInputError, match="blocks must hold rows; there was no block"):
        ka.solvers.linear_model([], PHI, loss="huber", penalty=1.0)
    with pytest.raises(ParameterError, match="penalty must be given where x comes in blocks; got None"):
        ka.solvers.linear_model([(X, REAL)], PHI, loss="huber")


@pytest.mark.parametrize("level", [1.0, 3.0])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("penalty", [0.1, None])
def test_counts_that_are_all_alike_are_fitted(level, intercept, penalty):
    """The sum is 0 at the mean: it was divided by."""
    fit = solve("poisson", y=np.full(400, level), penalty=penalty, intercept=intercept)
    assert fit.converged
    if intercept or level == 1:
        np.testing.assert_allclose(fit.predict(X), level, rtol=1e-12)


FAR_UNITS = 2.0**-900, 2.0**900  # whose squares are beyond float64


@pytest.mark.parametrize("unit", FAR_UNITS)
@pytest.mark.parametrize("penalty", [0.1, None])
@pytest.mark.parametrize("loss", Y)
def test_units_of_weights_do_not_matter(loss, penalty, unit):
    x, options = X[:60], {"y": Y[loss][:60], "weights": 1 + W[:60], "tolerance": 1e-6}
    wanted = solve(loss, x, penalty=penalty, **options)
    options["weights"] = options["weights"] * unit
    with np.errstate(all="raise", under="ignore"):
        got = solve(loss, x, penalty=None if penalty is None else penalty * unit, **options)
    np.testing.assert_allclose(got.penalty / unit, wanted.penalty, rtol=1e-12)
    np.testing.assert_allclose(got.scores(x), wanted.scores(x), rtol=1e-8, atol=1e-9)
    assert got.converged


@pytest.mark.parametrize("unit", FAR_UNITS)
@pytest.mark.parametrize("penalty", [0.1, None])
@pytest.mark.parametrize("loss", ["huber", "quantile", "poisson"])
def test_units_of_targets_do_not_matter(loss, penalty, unit):
    """Those of counts are an intercept, and weights."""
    x, y, counts = X[:60], Y[loss][:60], loss == "poisson"
    wanted = solve(loss, x, y=y, penalty=penalty)
    given = None if penalty is None else penalty * unit if counts else penalty / unit
    with np.errstate(all="raise", under="ignore"):
        got = solve(loss, x, y=y * unit, penalty=given)
    scores = got.scores(x) - np.log(unit) if counts else got.scores(x) / unit
    np.testing.assert_allclose(scores, wanted.scores(x), rtol=1e-8, atol=1e-7 if counts else 1e-9)
    np.testing.assert_allclose(got.scale / unit, wanted.scale, rtol=1e-8)


def test_a_fit_beyond_float64_is_refused():
    small = ka.features.linear(np.full(3, 20.0), np.zeros(3))
    with pytest.raises(ParameterError, match="y must be smaller"):
        ka.solvers.linear_model(X, small, y=2e307 * X[:, 0], loss="huber", penalty=1e-307, weights=np.full(400, 1e3))


@pytest.mark.parametrize("loss", ["huber", "poisson"])  # others turn corners by the last digits
def test_a_weight_is_as_many_copies(loss):
    times = W.astype(int)
    options = {"y": Y[loss], "penalty": 0.1, "tolerance": 1e-6}
    wanted = solve(loss, np.repeat(X, times, axis=0), **options | {"y": np.repeat(Y[loss], times)})
    got = solve(loss, weights=W, **options)
    np.testing.assert_allclose(got.scores(X), wanted.scores(X), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_a_far_target_that_its_row_explains_is_reached(loss):
    """Of rows with a feature each, nothing speaks against the farthest target."""
    y = np.random.default_rng(0).standard_normal(40)
    y[3] = 1e4
    fit = ka.solvers.linear_model(np.eye(40), ka.features.linear(np.ones(40)), y=y, loss=loss, penalty=1e-7)
    np.testing.assert_allclose(fit.predict(np.eye(40))[3], 1e4, rtol=1e-2)


@pytest.mark.parametrize("loss", [*Y, "logistic"])
def test_few_rows_of_huge_weights_have_a_penalty_that_is_not_lost(loss):
    """It stayed 1: fits were refused for a penalty that nobody gave, or were noise."""
    rows = slice(None, None, 50)
    y = {**Y, "logistic": COUNTS > 1}[loss][rows]
    options = {"quantile": Q, "loss": loss} if loss in Y else {}
    fit = ka.solvers.linear_model if loss in Y else ka.solvers.logistic
    found = [fit(X[rows], PHI, y=y, weights=np.full(8, by), **options).scores(NEW) for by in (1e13, 1e19, 1e200)]
    for scores in found[1:]:
        np.testing.assert_allclose(scores, found[0], atol=2e-3 * np.ptp(found[0]))


@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_the_penalty_of_few_rows_is_in_the_unit_of_targets(loss):
    """It was 1 of any: targets of 1e6 were fitted by their mean."""
    rows = slice(0, 20)
    one, other = (solve(loss, X[rows], y=by * REAL[rows]) for by in (1.0, 1e6))
    np.testing.assert_allclose(other.predict(NEW) / 1e6, one.predict(NEW), atol=1e-4)
