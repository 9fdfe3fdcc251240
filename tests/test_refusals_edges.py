"""What the edges are given by mistake: one line of kernattn says so, before any work."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from refusals import DRAWN, refused, x

ROWS = x(5, 4)


@pytest.fixture(scope="module")
def moments():
    rows = np.random.default_rng(0).standard_normal((9, 2))
    return ka.solvers.moments(rows, ka.features.elu1(), y=rows[:, 0], backend="reference")


@pytest.mark.parametrize("given", [{"requires_grad": True}, {"device": "meta"}], ids=["of a gradient", "of no numbers"])
def test_tensors_in_place_of_numbers(given, moments):
    torch = pytest.importorskip("torch")
    tensor, labels = torch.ones((), **given), torch.ones(5, **given)
    for words, call in {
        "penalty must be numbers": lambda: ka.solvers.ridge(moments, tensor),
        "noise must be numbers": lambda: ka.solvers.gp(moments, noise=tensor),
        "lengthscale must be": lambda: ka.kernels.Gaussian(tensor),
        "hits must be integers": lambda: ka.metrics.proportion_and_ci(tensor, 3),
        "ids must be": lambda: ka.patterns.documents(labels),
        "x and y must be": lambda: ka.solvers.logistic(ROWS, DRAWN, y=labels, penalty=1.0),
    }.items():
        with refused(errors.KernattnError, words, "tensor("):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda rows: ka.random_features(ka.kernels.Gaussian(), 4, 8, data=rows, rng=0),
        lambda rows: ka.solvers.moments(rows, DRAWN),
        lambda rows: ka.solvers.kernel_ridge(rows, rows[:, 0], ka.kernels.Gaussian(), penalty=1.0, num_landmarks=2),
        lambda rows: ka.solvers.logistic(rows, DRAWN, y=np.arange(5) > 2, penalty=1.0),
        lambda rows: ka.solvers.spectral_clustering(rows, DRAWN, 2),
    ],
)
def test_dask_arrays_go_through_their_own_door(call):
    rows = pytest.importorskip("dask.array").from_array(ROWS)
    with refused(errors.DTypeError, "compute()", "a Dask array", "kernattn.dask"):
        call(rows)


def test_dask_checks_what_workers_would_refuse():
    rows, kd = pytest.importorskip("dask.array").from_array(ROWS), pytest.importorskip("kernattn.dask")
    for call in (
        lambda: kd.features(rows, DRAWN, backend="fast"),
        lambda: kd.moments(rows, DRAWN, backend="fast"),
        lambda: kd.linear_attention(rows, rows, rows, DRAWN, backend="fast"),
        lambda: kd.causal_linear_attention(rows, rows, rows, DRAWN, backend="fast"),
    ):
        with refused(errors.ParameterError, "backend must be None or one of", "'fast'"):
            call()
    with refused(errors.ShapeError, "weights must be (5,)"):
        kd.moments(rows, DRAWN, weights=rows.sum())
    for given in ({"estimator": ["positive"]}, {"estimator": "negative"}, {"projection": {}}, {"projection": "p"}):
        with refused(errors.KernattnError, f"{next(iter(given))} must be"):
            kd.Recipe(ka.kernels.Gaussian(), 4, 8, **given)


def test_modules_of_torch():
    torch, kt = pytest.importorskip("torch"), pytest.importorskip("kernattn.torch")
    heads = {h: torch.ones(1, h, 3, 4) for h in (0, 2)}
    attention, same = kt.LinearAttention(), torch.nn.Identity()
    layers = kt.reversible(same, same)
    for error, words, call in (
        (errors.DTypeError, "q must be a tensor", lambda: attention(ROWS, ROWS, ROWS)),
        (errors.ShapeError, "got 2 for q, 0 for k", lambda: attention(heads[2], heads[0], heads[0])),
        (errors.ShapeError, "key_mask must be (batch, l)", lambda: attention(*[heads[2]] * 3, key_mask="all")),
        (errors.DTypeError, "f must be modules", lambda: kt.reversible(3, same)),
        (errors.DTypeError, "g must be modules", lambda: kt.Reversible([same], None)),
        (errors.DTypeError, "x1 must be a dense tensor", lambda: layers(torch.ones(3, dtype=int), torch.ones(3))),
        (errors.ShapeError, "must be of one shape", lambda: layers(torch.ones(3), torch.ones(()))),
        (errors.ParameterError, "backend must be", lambda: DRAWN(torch.ones(5, 4), backend=ROWS)),
        (errors.ParameterError, "backend must be", lambda: ka.softmax_attention(*[torch.ones(5, 4)] * 3, backend=ROWS)),
    ):
        with refused(error, words):
            call()


def test_old_doors_of_torch_check_the_map():
    torch, kt = pytest.importorskip("torch"), pytest.importorskip("kernattn.torch")
    with pytest.warns(DeprecationWarning, match="features is now"):
        features = kt.features
    np.testing.assert_array_equal(features(torch.ones(5, 4), DRAWN, keys=True), DRAWN.key(torch.ones(5, 4)))
    with refused(errors.DTypeError, "phi must be a FeatureMap"):
        features(torch.ones(5, 4), "elu1")
    with refused(errors.ParameterError, "keys must be"):
        features(torch.ones(5, 4), DRAWN, keys="x")


def test_whitening_is_yes_or_no():
    estimators = pytest.importorskip("kernattn.sklearn")
    with refused(errors.ParameterError, "whiten must be True or False"):
        estimators.FeaturePCA(1, num_features=4, whiten="x").fit(np.eye(5))
