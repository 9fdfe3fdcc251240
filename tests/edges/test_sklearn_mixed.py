"""FeatureLogistic adds up the scores of a line and of a kernel, by how much rows left out prefer the kernel."""

from unittest import mock

import numpy as np
import pytest

pytest.importorskip("sklearn")

import kernattn as ka
from kernattn.sklearn import FeatureLogistic, _drawn
from kernattn.sklearn._mixed import mix, share_of_kernel, split_map
from kernattn.solvers._losses.logistic_penalty import Choice, hold_out
from kernattn.solvers._losses.softmax import Labelled

pytestmark = pytest.mark.filterwarnings("ignore:the penalty that folds:UserWarning")

GIVEN = {"num_features": 16, "random_state": 0}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((150, 3))
NOISE = RNG.standard_normal(150)
BENT = X[:, 0] + 0.7 * X[:, 1] ** 2 + 0.7 * NOISE
STEEP = 2 * X[:, 0] + 0.7 * X[:, 1] ** 2 + NOISE  # where the line is beside the kernel
NEW = RNG.standard_normal((40, 3))


@pytest.mark.parametrize(
    ("scores", "ends", "metric"), [(STEEP, [0.5], None), (BENT, [0.0, 1.0], None), (BENT, [0.5], "learned")]
)
def test_scores_are_the_sum_of_two_fits(scores, ends, metric):
    labels, tune, found = np.digitize(scores, ends), _drawn.tune_by_log_loss, []
    with mock.patch.object(
        _drawn, "tune_by_log_loss", lambda *given, **more: found.append(tune(*given, **more)) or found[0]
    ):
        model = FeatureLogistic(metric=metric, **GIVEN).fit(X, labels)
    phi, classes = model.feature_map_, np.unique(labels)
    kernel, line = split_map(phi)
    sums = []
    for tried in (phi, kernel):  # the line is beside the kernel, or not
        choices = [hold_out(X, labels, None, each, classes, True, cautious=True) for each in (tried, line)]
        share = share_of_kernel(*choices)
        assert 0 < share < 1
        pairs = zip((tried, line), choices, strict=True)
        of_kernel, of_line = (ka.solvers.logistic(X, each, y=labels, penalty=how.penalty) for each, how in pairs)
        both = share * of_kernel.scores(NEW) + (1 - share) * of_line.scores(NEW)
        np.testing.assert_allclose(mix(phi, of_kernel, of_line, share).scores(NEW), both, rtol=1e-6, atol=1e-9)
        sums.append(both)
    assert (found[0].line is not None) == (scores is STEEP)
    wanted = sums[0 if scores is STEEP else 1]
    np.testing.assert_allclose(model.decision_function(NEW), wanted, rtol=1e-6, atol=1e-9)
    kept = phi(NEW) @ model.solution_.weights + model.solution_.intercept
    np.testing.assert_allclose(model.decision_function(NEW), kept, atol=1e-6)


def chosen(scores, rows=400):
    codes = np.arange(rows) % 2
    held = Labelled(np.asarray(scores(np.where(codes == 1, 1.0, -1.0)))[:, None], codes, np.full(rows, 1 / rows))
    return Choice(1.0, 0.0, False, rows, held)


def test_a_share_costs_the_logarithm_of_the_rows_times_its_square():
    nothing, right, wrong = (chosen(lambda sign, by=by: by * sign) for by in (0.0, 3.0, -3.0))
    assert share_of_kernel(right, right) == share_of_kernel(wrong, nothing) == 0
    assert share_of_kernel(right, nothing) == 1
    slightly = chosen(lambda sign: 0.05 * sign)
    share = share_of_kernel(slightly, nothing)
    each = np.linspace(0, 1, 21)
    cost = 400 * np.log1p(np.exp(-0.05 * each)) + np.log(400) * each**2
    assert share == each[np.argmin(cost)]
    assert 0 < share < 1
    assert share_of_kernel(right._replace(held=None), nothing) == 1


@pytest.mark.parametrize("bent", [False, True])
def test_the_sum_is_as_good_as_the_better(bent):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((500, 3))
    labels = (np.sum(x**2, axis=1) > 2.5 if bent else x @ [1.0, 2.0, -1.0] > rng.standard_normal(500)).astype(int)
    old, new = slice(200), slice(200, None)

    def loss(model):
        chances = model.fit(x[old], labels[old]).predict_proba(x[new])
        return -np.mean(np.log(chances[np.arange(300), labels[new]]))

    given = {"num_features": 32, "random_state": 0}
    alone = {"linear": False} if bent else {"lengthscale": 1e3, "linear": True}  # with a kernel that is a line, too
    assert loss(FeatureLogistic(**given)) < loss(FeatureLogistic(**given, **alone)) + 0.01


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_who_has_all_is_the_fit(share):
    labels = BENT > 0.5
    with mock.patch("kernattn.sklearn._logistic.share_of_kernel", return_value=share):
        model = FeatureLogistic(**GIVEN).fit(X, labels)
    phi = model.feature_map_
    assert isinstance(phi, ka.features.Linear) == (share == 0)
    assert model.solution_.phi is phi
    again = ka.solvers.logistic(X, phi, y=labels, penalty=model.solution_.penalty)
    np.testing.assert_allclose(model.decision_function(NEW), again.scores(NEW), rtol=1e-6, atol=1e-9)


def test_a_ridge_that_is_given_has_no_sum():
    labels = BENT > 0.5
    model = FeatureLogistic(ridge=0.1, **GIVEN).fit(X, labels)
    again = ka.solvers.logistic(X, model.feature_map_, y=labels, penalty=0.1)
    np.testing.assert_allclose(model.predict_proba(NEW)[:, 1], again.predict_proba(NEW)[:, 1])
