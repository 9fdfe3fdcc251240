"""Kernels beside a line of many columns are judged as beside one of few, and folds by rows as by sums of features."""

from unittest import mock

import numpy as np
import pytest

pytest.importorskip("sklearn")

import kernattn as ka
from kernattn.sklearn import _on_landmarks
from kernattn.sklearn._candidates import line_of

KERNELS = ka.kernels.Gaussian(2.0), ka.kernels.Gaussian(40.0), None


def judge_of(n, d):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d))
    y = np.tanh(x[:, :3] @ rng.standard_normal((3, 2))) + 0.3 * rng.standard_normal((n, 2))
    return _on_landmarks.Judge(x, (y - y.mean(axis=0)) / y.std(axis=0), line_of(x, None)(x).T)


@pytest.mark.parametrize(("n", "d"), [(150, 30), (60, 90)])
def test_evidence_beside_a_wide_line_is_that_of_all_features(n, d):
    plain = [judge_of(n, d).log_evidence(kernel) for kernel in KERNELS]
    with mock.patch.object(_on_landmarks, "WIDE", 2):
        judge = judge_of(n, d)
        np.testing.assert_allclose([judge.log_evidence(kernel) for kernel in KERNELS], plain, rtol=1e-9)
        assert judge._wide is not None


@pytest.mark.parametrize("kernel", KERNELS)
def test_errors_of_rows_left_out_are_those_of_fits_to_the_others(kernel):
    judge = judge_of(60, 90)
    features = judge._features(kernel).T.copy()
    of, size = _on_landmarks.folds_of(judge.rows), np.sum((features - features.mean(axis=0)) ** 2) / 60
    errors = []
    for penalty in np.geomspace(_on_landmarks.LOWEST * size, 60 * size, _on_landmarks.TRIED):
        total = 0.0
        for fold in np.unique(of):
            left, y = of == fold, judge.targets
            mean, level = features[~left].mean(axis=0), y[~left].mean(axis=0)
            rows = features[~left] - mean
            w = np.linalg.solve(rows.T @ rows + penalty * np.eye(rows.shape[1]), rows.T @ (y[~left] - level))
            total = total + np.sum((y[left] - level - (features[left] - mean) @ w) ** 2, axis=0)
        errors.append(total)
    np.testing.assert_allclose(judge.left_out(kernel), np.sum(np.min(errors, axis=0)), rtol=1e-7)
