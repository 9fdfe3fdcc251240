"""Ridge regression of fewer rows than features, by products of rows, is that of the features' sums."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn.solvers._folds import leave_each_out
from kernattn.solvers._sums import check_rows, sum_rows

PHI = ka.random_features(ka.kernels.Gaussian(2.0), dim=6, num_features=96, rng=0)


def folds_of(n, targets=2, weighted=False, phi=PHI, k=5):
    """Return the moments of k folds, which hold their rows."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, 6))
    y = 1e3 + np.tanh(x @ rng.standard_normal((6, targets))) + 0.3 * rng.standard_normal((n, targets))
    w = rng.uniform(0.2, 3.0, n) if weighted else None

    def part(i):
        given = None if w is None else w[i::k]
        return sum_rows(check_rows(phi, x[i::k], y[i::k], given, "float64", None), phi(x[i::k]))

    return [part(i) for i in range(k)], x, y


def without_rows(folds):
    return [replace(fold, _held=None) for fold in folds]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "weighted"), [(12, False), (60, True), (96, False)])
def test_a_fit_by_rows_is_that_of_sums(n, weighted, intercept):
    folds, x, _ = folds_of(n, weighted=weighted)
    rows, sums = (ka.solvers.ridge(each, lowest=1e-3, intercept=intercept) for each in (folds, without_rows(folds)))
    assert type(rows._spectrum.basis) is not type(sums._spectrum.basis)
    np.testing.assert_allclose(rows.penalty, sums.penalty, rtol=1e-12)  # of one place of the grid
    np.testing.assert_allclose(rows.weights, sums.weights, atol=1e-9 * np.abs(sums.weights).max())
    far = np.concatenate([x, 5 + 3 * x[:5]])
    for ask in ("predict", "leverage"):
        np.testing.assert_allclose(getattr(rows, ask)(far), getattr(sums, ask)(far), rtol=1e-9)
    for name in ("intercept", "effective_dimension", "gcv", "log_evidence", "floor"):
        np.testing.assert_allclose(getattr(rows, name), getattr(sums, name), rtol=1e-7, err_msg=name)
    for objective in ("gcv", "evidence"):
        total, apart = (
            ka.solvers.ridge(each, objective=objective, lowest=1e-3) for each in (folds, without_rows(folds))
        )
        np.testing.assert_allclose(total.penalty, apart.penalty, rtol=1e-6)


@pytest.mark.parametrize("intercept", [True, False])
def test_errors_on_folds_are_those_of_sums(intercept):
    folds, *_ = folds_of(70, weighted=True)
    penalties = np.geomspace(1e-3, 1e3, 9)
    by = [ka.solvers.cross_validate(each, penalties, intercept=intercept).mse for each in (folds, without_rows(folds))]
    np.testing.assert_allclose(*by, rtol=1e-9)


def test_eigenvectors_of_rows_are_orthogonal_and_those_of_the_sums():
    folds, *_ = folds_of(40)
    spectrum = ka.solvers.ridge(folds, 1.0)._spectrum
    u, sums = spectrum.vectors, ka.solvers.ridge(without_rows(folds), 1.0)
    np.testing.assert_allclose(u.T @ u, np.eye(96), atol=1e-12)
    rebuilt, wanted = ((each.vectors * each.values) @ each.vectors.T for each in (spectrum, sums._spectrum))
    np.testing.assert_allclose(rebuilt, wanted, atol=1e-12 * spectrum.values[0])
    weights = u @ (spectrum.coordinates / (spectrum.values[:, None] + 1.0))
    np.testing.assert_allclose(weights, sums.weights, atol=1e-12 * np.abs(weights).max())


def test_jackknife_by_rows_is_that_of_sums():
    folds, x, y = folds_of(40)
    order = np.concatenate([np.arange(40)[i::5] for i in range(5)])
    both = [ka.solvers.ridge(each, 1.0) for each in (folds, without_rows(folds))]
    rows, sums = (ka.solvers.jackknife(fit, x[:7] + 0.1, x=x[order], y=y[order]) for fit in both)
    np.testing.assert_allclose(rows.low, sums.low, rtol=1e-12)
    np.testing.assert_allclose(rows.high, sums.high, rtol=1e-12)


def test_rows_are_held_up_to_as_many_as_features():
    folds, *_ = folds_of(100)  # of which four hold 80
    assert sum(folds[1:4], folds[0])._held.features.shape == (80, 96)
    assert sum(folds[1:], folds[0])._held is None
    assert (folds[0] + without_rows(folds)[1])._held is None


def test_a_penalty_of_many_targets_is_that_of_each_alone():
    small = ka.random_features(ka.kernels.Gaussian(2.0), dim=6, num_features=16, rng=0)
    folds, x, y = folds_of(300, targets=40, phi=small)  # so many that errors are those of eigenvectors
    many = ka.solvers.ridge(folds).penalty
    alone = [
        ka.solvers.ridge([ka.solvers.moments(x[i::5], small, y=y[i::5, j]) for i in range(5)]).penalty[0]
        for j in range(0, 40, 8)
    ]
    np.testing.assert_array_equal(many[::8], alone)


def test_errors_by_eigenvectors_are_those_of_three_diagonals():
    small = ka.random_features(ka.kernels.Gaussian(2.0), dim=6, num_features=16, rng=0)
    folds, *_ = folds_of(200, targets=5, phi=small, weighted=True)
    penalties = np.geomspace(1e-3, 1e3, 30)
    wanted = np.random.default_rng(0).random((30, 5)) < 0.5
    for fold in leave_each_out(folds, True):
        few = np.concatenate([fold.sum_errors(penalties[i : i + 1]) for i in range(30)])
        np.testing.assert_allclose(fold.sum_errors(penalties), few, rtol=1e-9)
        some = fold.sum_errors(penalties, wanted)
        np.testing.assert_allclose(some[wanted], few[wanted], rtol=1e-9)
        assert np.isinf(some[~wanted]).all()


@pytest.mark.parametrize("intercept", [True, False])
def test_rows_that_are_far_larger_hide_no_others(intercept):
    """By products of rows, errors of the others came back times a huge row: predictions were off by 0.5 and more."""
    rng = np.random.default_rng(5)
    x, k = rng.standard_normal((40, 6)), 5
    y, w = np.tanh(x @ rng.standard_normal((6, 2))), 10.0 ** rng.uniform(-11, 11, 40)
    parts = [(x[i::k], y[i::k], w[i::k]) for i in range(k)]
    folds = [sum_rows(check_rows(PHI, *part, "float64", None), PHI(part[0])) for part in parts]
    rows, sums = (ka.solvers.ridge(each, 10.0, intercept=intercept) for each in (folds, without_rows(folds)))
    np.testing.assert_allclose(rows.predict(x), sums.predict(x), atol=1e-9)
    penalties = np.geomspace(1.0, 1e3, 4)
    by = [ka.solvers.cross_validate(each, penalties, intercept=intercept).mse for each in (folds, without_rows(folds))]
    np.testing.assert_allclose(*by, rtol=1e-9)
