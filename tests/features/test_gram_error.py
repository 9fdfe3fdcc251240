"""Squared errors of Gram matrices of real data, beside scikit-learn's RBFSampler at equal output dimension."""

from functools import cache

import numpy as np
import pytest

import kernattn as ka

pytest.importorskip("sklearn")
pytest.importorskip("PIL")

from scipy.spatial.distance import pdist
from sklearn.kernel_approximation import RBFSampler

from kernattn.studies import real_rows

D, M, ROWS, SEEDS = 64, 256, 200, 20


@cache
def data(name):
    """Digits as they are; grey patches of 8 x 8, each of mean 0 and variance 1, or each pixel."""
    return real_rows(name, 5 * ROWS, np.random.default_rng(1))


def gaussian(name, times=1.0):
    return ka.kernels.Gaussian(lengthscale=float(times * np.median(pdist(data(name)[:ROWS]))))


def squared_errors(kernel, name, make):
    """One for each seed; the map sees other rows than those whose matrix it estimates."""
    rows, others = data(name)[:ROWS], data(name)[ROWS:]
    exact = np.exp(-0.5 * np.sum((rows[:, None] - rows) ** 2, axis=-1) / kernel.lengthscale**2)
    maps = (make(others, seed) for seed in range(SEEDS))
    return np.array([np.mean((phi(rows) @ phi(rows).T - exact) ** 2) for phi in maps])


@cache
def of_sampler(name, times=1.0):
    kernel = gaussian(name, times)

    def make(others, seed):
        return RBFSampler(gamma=0.5 / kernel.lengthscale**2, n_components=M, random_state=seed).fit(others).transform

    return squared_errors(kernel, name, make)


def of_projection(name, projection):
    kernel = gaussian(name)
    return squared_errors(
        kernel, name, lambda _, seed: ka.random_features(kernel, D, M, "trigonometric", projection, rng=seed)
    )


def lower_end(theirs, ours):
    """Of an interval for the ratio of the means: 3.5 standard errors below, of its logarithm by the delta method."""
    spread = sum(np.var(errors, ddof=1) / np.mean(errors) ** 2 for errors in (theirs, ours)) / SEEDS
    return np.mean(theirs) / np.mean(ours) * np.exp(-3.5 * spread**0.5)


@pytest.mark.statistical
@pytest.mark.parametrize("projection", ["orthogonal", "hadamard", "moment_matched"])
@pytest.mark.parametrize("name", ["digits", "patches"])
def test_a_third_of_the_samplers_error(name, projection):
    """At M = 4 d and the median distance as lengthscale."""
    assert lower_end(of_sampler(name), of_projection(name, projection)) > 3


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "times"), [("digits", 0.5), ("patches", 1.0), ("pixels", 0.5)])
def test_nystrom(name, times):
    """Also at half the median, where no random frequencies do; but it takes longer than the sampler."""
    kernel = gaussian(name, times)
    ours = squared_errors(kernel, name, lambda others, seed: ka.features.nystrom(others, kernel, M, rng=seed))
    assert lower_end(of_sampler(name, times), ours) > 3


def predicted(name, times, estimator, projection):
    """The closed form, over pairs of rows."""
    x, kernel = data(name)[: ROWS // 2], gaussian(name, times)
    phi = ka.random_features(kernel, D, M, estimator, projection, rng=0)
    return np.mean(phi.variance(x[:, None], x) + phi.bias(x[:, None], x) ** 2)


@pytest.mark.parametrize(
    ("name", "ratios"),
    [("digits", (1.4, 12.0, 150.0)), ("patches", (1.4, 8.0, 120.0)), ("pixels", (1.4, 2.5, 20.0))],
)
def test_what_the_closed_forms_say_of_bandwidths(name, ratios):
    """At 0.5, 1 and 2 times the median; RBFSampler is our phase estimator with iid rows."""
    for times, least in zip((0.5, 1.0, 2.0), ratios, strict=True):
        ratio = predicted(name, times, "phase", "iid") / predicted(name, times, "trigonometric", "orthogonal")
        assert least < ratio < 2 * least


@pytest.mark.statistical
def test_the_sampler_is_the_phase_estimator():
    measured = of_sampler("digits")
    spread = np.std(measured, ddof=1) / SEEDS**0.5
    x, kernel = data("digits")[:ROWS], gaussian("digits")
    expected = np.mean(ka.random_features(kernel, D, M, "phase", "iid", rng=0).variance(x[:, None], x))
    assert abs(np.mean(measured) - expected) / spread < 4.5
