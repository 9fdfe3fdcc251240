"""Rows whose products vanish raise no flag, whatever the caller asks of NumPy; what is no array is named."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import solvers

TINY = 1e-160 * np.random.default_rng(0).standard_normal((12, 2))
PHI = ka.features.linear([1.0, 1.0], [0.0, 0.0])
KERNEL = ka.kernels.Gaussian()


def summed(x=TINY, y=None):
    return solvers.moments(x, PHI, y=y, backend="reference")


NEAR = 1e160 * TINY
FAR = NEAR + 20  # features are about e^-400 there: their squares vanish


def process(y):
    """A process of few rows, on landmarks."""
    phi = ka.features.nystrom(NEAR, KERNEL, landmarks=np.arange(6))
    return solvers.gp(solvers.moments(NEAR, phi, y=1e160 * y), noise=0.1, amplitude=1.0)


GIVEN = {"noise": 0.1, "amplitude": 1.0}
MAP = ka.features.nystrom(NEAR, KERNEL, landmarks=np.arange(6))
SINGLE, HALVES = FAR.astype("float32"), (1e-6 * NEAR).astype("float16")
Y = 1e160 * TINY[:, 0]
LITTLE = np.float32(1e-38) * Y.astype("float32")
BOX = ka.features.hilbert(ka.kernels.Matern(1.5, 1e-4), [[-4, 4]] * 2, 300)


def pulled(function, *args, **options):
    """The pullback of ones."""
    out, pull = ka.vjp(function, *args, **options)
    return pull(tuple(map(np.ones_like, out)) if isinstance(out, tuple) else np.ones_like(out))


CALLS = {
    "log_evidence": lambda x, y: solvers.log_evidence(FAR, Y, MAP, **GIVEN),
    "predict": lambda x, y: solvers.predict(SINGLE, LITTLE, SINGLE, MAP, **GIVEN),
    "slopes of evidence": lambda x, y: pulled(solvers.log_evidence, SINGLE, LITTLE, MAP, **GIVEN),
    "slopes of predictions": lambda x, y: pulled(solvers.predict, SINGLE, LITTLE, SINGLE, MAP, **GIVEN),
    "trace_residual": lambda x, y: MAP.trace_residual(np.concatenate([NEAR, FAR])),
    "a basis": lambda x, y: BOX.basis(HALVES),
    "a mean": lambda x, y: BOX.mean(HALVES, HALVES[::-1]),
    "pca": lambda x, y: solvers.pca(summed(x), 1),
    "whiten": lambda x, y: solvers.whiten(summed(x), 1),
    "mmd": lambda x, y: solvers.mmd(summed(x), summed(-x)),
    "hsic": lambda x, y: solvers.hsic(summed(x, x)),
    "conditional_hsic": lambda x, y: solvers.conditional_hsic(x, y[:, None], x, num_features=4, rng=0),
    "ridge": lambda x, y: solvers.ridge(summed(x, y), objective="gcv"),
    "gp": lambda x, y: solvers.gp(summed(x, y), noise=0.1, amplitude=1.0).variance(x, backend="reference"),
    "variance": lambda x, y: process(y).variance(FAR),
    "mean": lambda x, y: process(y).mean(FAR),
    "draws": lambda x, y: process(y).draw(2, rng=0)(FAR),
    "sample": lambda x, y: process(y).sample(FAR, 2, rng=0),
    "covariance": lambda x, y: process(y).covariance(FAR),
    "cross_validate": lambda x, y: solvers.cross_validate([summed(x, y), summed(-x, y)], [0.1]),
    "jackknife": lambda x, y: solvers.jackknife(solvers.ridge(summed(x, y), 0.1), x, x=x, y=y, backend="reference"),
    "logistic": lambda x, y: solvers.logistic(x, PHI, y=y > 0, penalty=0.1, backend="reference"),
    "linear_model": lambda x, y: solvers.linear_model(x, PHI, y=y, loss="huber", penalty=0.1, backend="reference"),
    "usual_lengthscale": lambda x, y: ka.kernels.usual_lengthscale(np.where(np.arange(12)[:, None] < 9, x, 0) + 0 * x),
}


@pytest.mark.parametrize("name", CALLS)
def test_underflow_raises_nothing(name):
    y = TINY[:, 0].copy()
    try:
        wanted = CALLS[name](TINY, y)
    except ka.errors.KernattnError as error:
        wanted = str(error)
    with np.errstate(all="raise"):
        try:
            found = CALLS[name](TINY, y)
        except ka.errors.KernattnError as error:
            found = str(error)
    assert repr(found) == repr(wanted)


def on_landmarks(solve, **options):
    phi = ka.features.nystrom(NEAR, KERNEL, landmarks=np.arange(6))
    return solve(solvers.moments(NEAR, phi, y=NEAR[:, 0]), **options)


FITS = {
    "ridge": lambda: on_landmarks(solvers.ridge, penalty=0.1, intercept=False),
    "gp": lambda: on_landmarks(solvers.gp, noise=0.1, amplitude=1.0),
    "pca": lambda: on_landmarks(solvers.pca, num_components=2),
    "kernel_ridge": lambda: solvers.kernel_ridge(NEAR, NEAR[:, 0], KERNEL, penalty=0.1, num_landmarks=6, rng=0),
    "logistic": lambda: solvers.logistic(NEAR, PHI, y=np.arange(12) % 3, penalty=0.1, backend="reference"),
    "linear_model": lambda: solvers.linear_model(NEAR, PHI, y=NEAR[:, 0], loss="huber", penalty=0.1),
}
OF_ROWS = {"predict", "predict_proba", "scores", "leverage", "mean", "variance", "covariance", "transform"}


@pytest.mark.parametrize("name", FITS)
def test_no_answer_of_a_fit_raises_a_flag(name):
    """By every method that takes rows, of some that are far from all others, and every property."""
    fit = FITS[name]()
    with np.errstate(all="raise"):
        for member in (each for each in dir(fit) if not each.startswith("_") and each != "ridge"):  # an old name
            value = getattr(fit, member)
            if member in OF_ROWS and callable(value):
                value(FAR)
                value(-1e3 * np.abs(NEAR))


@pytest.mark.parametrize("wrong", [3.5, "x", (), None])
def test_what_is_no_array_is_named(wrong):
    x, y = np.random.default_rng(0).standard_normal((12, 2)), np.arange(12.0)
    fit = solvers.ridge(solvers.moments(x, PHI, y=y, backend="reference"), 0.1)
    for call in (
        lambda: solvers.predict(x, wrong, x, PHI, noise=0.1, amplitude=1.0),
        lambda: solvers.predict(x, y, wrong, PHI, noise=0.1, amplitude=1.0),
        lambda: ka.vjp(solvers.predict, x, y, wrong, PHI, noise=0.1, amplitude=1.0),
        lambda: solvers.log_evidence(x, wrong, PHI, noise=0.1, amplitude=1.0),
        lambda: solvers.jackknife(fit, x, x=x, y=wrong),
        lambda: solvers.jackknife(fit, wrong, x=x, y=y),
    ):
        with pytest.raises(ka.errors.KernattnError, match=r"^(y|new) "):
            call()
