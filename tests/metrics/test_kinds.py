"""Metrics of every kind of array, and what they refuse."""

import numpy as np
import pytest

from kernattn.errors import DTypeError, EmptyInputError, MixedLibraryError, ParameterError, ShapeError
from kernattn.metrics import (
    attention_kl,
    attention_mse,
    bias_and_ci,
    effective_dimension,
    empirical_variance,
    gram_errors,
    mean_and_ci,
    median_and_ci,
    proportion_and_ci,
    quantile_and_ci,
    ratio_delta_method,
    spectral_delta,
    variance_ratio,
)
from xp import to_numpy


def test_every_kind_of_array(xp):
    rng = np.random.default_rng(11)
    draws, variances = rng.standard_normal((8, 4, 3)), rng.uniform(1, 2, (4, 3))
    weights = rng.dirichlet(np.ones(3), size=(2, 4))
    with xp.wide():
        given = [xp.asarray(x) for x in (draws, variances, *weights)]
        calls = {
            mean_and_ci: (0,),
            median_and_ci: (0,),
            lambda samples: quantile_and_ci(samples, 0.3, confidence=0.8): (0,),
            bias_and_ci: (0, 1),
            empirical_variance: (0,),
            variance_ratio: (0, 1),
            attention_mse: (0, 1),
            attention_kl: (2, 3),
        }
        for function, places in calls.items():
            found = function(*(given[i] for i in places))
            expected = function(*((draws, variances, *weights)[i] for i in places))
            for a, b in zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]:
                assert xp.holds(a)
                np.testing.assert_allclose(to_numpy(a), b, rtol=1e-12)
        found = ratio_delta_method(given[0], xp.asarray(draws[..., 0] + 5))
        for a, b in zip(found, ratio_delta_method(draws, draws[..., 0] + 5), strict=True):
            np.testing.assert_allclose(to_numpy(a), b, rtol=1e-10)
        assert gram_errors(given[2], given[3]) == pytest.approx(gram_errors(*weights))
        grams = [w @ w.T for w in weights]
        mine = [xp.asarray(k) for k in grams]
        assert spectral_delta(*mine, 0.1) == pytest.approx(spectral_delta(*grams, 0.1))
        assert effective_dimension(mine[0], 0.1) == pytest.approx(effective_dimension(grams[0], 0.1))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mean_and_ci(np.ones((1, 3))), ShapeError, "R >= 2"),
        (lambda: mean_and_ci(np.ones((4, 0))), EmptyInputError, r"\(4, 0\)"),
        (lambda: mean_and_ci(np.ones(4, dtype=int)), DTypeError, "int64"),
        (lambda: mean_and_ci([1.0, 2.0]), DTypeError, "list"),
        (lambda: mean_and_ci(np.ones(4), confidence=1.0), ParameterError, "1.0"),
        (lambda: bias_and_ci(np.ones((4, 3)), np.ones(2)), ShapeError, r"\(2,\)"),
        (lambda: variance_ratio(np.ones((4, 3)), np.ones((1, 3))), ShapeError, r"\(1, 3\)"),
        (lambda: variance_ratio(np.ones((4, 3)), np.asarray([1.0, 0.0, 1.0])), ParameterError, "above 0"),
        (lambda: gram_errors(np.ones((2, 3)), np.ones((3, 2))), ShapeError, r"\(3, 2\)"),
        (lambda: gram_errors(np.ones((2, 2)), np.zeros((2, 2))), ParameterError, "zero"),
        (lambda: effective_dimension(np.ones((2, 3)), 1.0), ShapeError, r"\(2, 3\)"),
        (lambda: effective_dimension(np.ones((0, 0)), 1.0), EmptyInputError, r"\(0, 0\)"),
        (lambda: effective_dimension(np.eye(2), 0.0), ParameterError, "penalty"),
        (lambda: effective_dimension(np.diag([1.0, -1.0]), 1.0), ParameterError, "semidefinite"),
        (lambda: effective_dimension(np.array([[1.0, 0.5], [0.0, 1.0]]), 1.0), ParameterError, "symmetric"),
        (lambda: spectral_delta(np.eye(2), np.eye(3), 1.0), ShapeError, r"\(2, 2\) and \(3, 3\)"),
        (lambda: spectral_delta(np.diag([np.nan, 1.0]), np.eye(2), 1.0), ParameterError, "estimate must be finite"),
        (lambda: quantile_and_ci(np.ones(35), 0.9), ShapeError, "35 samples give the 0.9 quantile no interval"),
        (lambda: quantile_and_ci(np.ones(35), 1.0), ParameterError, "probability .* 1.0"),
        (lambda: proportion_and_ci(3, 2), ParameterError, "0 to trials = 2; got 3"),
        (lambda: proportion_and_ci(0.5, 2), ParameterError, "integers"),
        (lambda: attention_mse(np.ones(3), np.ones(3)), ShapeError, r"\(3,\)"),
        (lambda: attention_kl(np.ones((2, 3)), np.ones(3)), ShapeError, r"\(2, 3\)"),
        (lambda: ratio_delta_method(np.ones((4, 3)), np.ones((4, 3))), ShapeError, r"\(4, 3\)"),
    ],
)
def test_errors_name_what_was_given(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_libraries_do_not_mix():
    strict = pytest.importorskip("array_api_strict")
    with pytest.raises(MixedLibraryError, match="exact"):
        bias_and_ci(np.ones((3, 2)), strict.ones(2))
