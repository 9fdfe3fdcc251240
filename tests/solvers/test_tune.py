"""Lengthscales: derivatives, recovery of what made the data, and that the search never ends worse than it began."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.solvers._tune import OBJECTIVES, Search

KERNELS = {
    "gaussian": ka.kernels.Gaussian(0.8),
    "matern": ka.kernels.Matern(1.5, (1.0, 0.7, 2.0)),
    "cauchy": ka.kernels.Cauchy(1.2),
    "laplacian": ka.kernels.Laplacian(1.5),
    "rational quadratic": ka.kernels.RationalQuadratic(1.0, 0.9),
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def data(rng, n=300, d=3):
    """Targets of the first axis, and of the second."""
    x = rng.uniform(-2, 2, (n, d))
    noise = rng.standard_normal((n, 2))
    return x, np.column_stack([np.sin(2 * x[:, 0]) + 0.1 * noise[:, 0] + 0.3, x[:, 1] ** 2 + 0.2 * noise[:, 1]])


def drawn(kernel, dim=3, features=32, **options):
    return ka.random_features(kernel, dim, features, **{"projection": "iid", "rng": 0} | options)


def costs_apart(problem, logs):
    """Return central differences of the cost along each axis."""
    steps = 1e-4 * np.eye(len(logs))
    return [np.diff([problem.cost_and_gradient(logs + by * step)[0] for by in (-1, 1)])[0] / 2e-4 for step in steps]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_gradient_is_that_of_differences(kernel, objective, rng):
    problem = Search(drawn(KERNELS[kernel]), *data(rng), OBJECTIVES[objective])
    for logs in (np.array([0.1]), np.array([0.1, -0.2, 0.3])):
        gradient = problem.cost_and_gradient(logs)[1]
        differences = costs_apart(problem, logs)
        assert np.allclose(gradient, differences, atol=1e-5 * np.max(np.abs(gradient)))


@pytest.mark.parametrize("name", ["positive", "phase", "nystrom", "hilbert"])
def test_the_gradient_passes_through_other_maps(name, rng):
    x, y = data(rng)
    kernel, matern = KERNELS["gaussian"], ka.kernels.Matern(1.5, (1.0, 0.8, 2.0))
    if name == "nystrom":
        phi = ka.features.nystrom(x, matern, 20, rng=0)
    elif name == "hilbert":
        phi = ka.features.hilbert(matern, np.stack([x.min(axis=0), x.max(axis=0)], axis=1), (3, 3, 3), boundary=1.2)
    else:
        phi = drawn(kernel, estimator=name)
    problem = Search(phi, x, y, OBJECTIVES["gcv"])
    logs = np.zeros(3)
    assert np.allclose(problem.cost_and_gradient(logs)[1], costs_apart(problem, logs), rtol=1e-4, atol=1e-6)


def test_blocks_of_rows_add_up(rng, monkeypatch):
    problem = Search(drawn(KERNELS["gaussian"]), *data(rng), OBJECTIVES["gcv"])
    whole = problem.cost_and_gradient(np.zeros(3))[1]
    monkeypatch.setattr("kernattn.solvers._tune.BLOCK", 32 * 70)
    assert np.allclose(problem.cost_and_gradient(np.zeros(3))[1], whole, rtol=1e-10)


@pytest.mark.statistical
def test_lengthscales_of_a_process_on_the_features_are_recovered(rng):
    x = rng.standard_normal((2000, 2))
    truth = drawn(ka.kernels.Gaussian((0.7, 1.5)), 2, 128)
    y = 2 * truth(x) @ rng.standard_normal(128) + 0.1 * rng.standard_normal(2000)
    found = ka.solvers.tune(x, y, replace(truth, kernel=ka.kernels.Gaussian(1.0)), ard=True)
    assert np.allclose(found.lengthscale, (0.7, 1.5), rtol=0.1)
    assert found.converged
    process = ka.solvers.gp(ka.solvers.moments(x, found.phi, y=y))
    assert abs(process.noise[0] - 0.1) < 0.01
    assert found.after > ka.solvers.gp(ka.solvers.moments(x, truth, y=y)).log_evidence - 1e-6


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_axis_that_tells_nothing_is_switched_off(objective, rng):
    x, y = data(rng)
    found = ka.solvers.tune(x, y[:, 0], drawn(ka.kernels.Gaussian(1.0), features=64), ard=True, objective=objective)
    assert found.lengthscale[0] < 2
    assert min(found.lengthscale[1:]) > 20


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("ard", [False, True])
@pytest.mark.filterwarnings("ignore:the penalty that gcv prefers:UserWarning")
def test_what_is_found_is_no_worse_than_the_start_and_is_what_solvers_say(objective, ard, rng):
    x, y = data(rng)
    phi = drawn(ka.kernels.Matern(1.5), features=48)
    found = ka.solvers.tune(x, y, phi, objective=objective, ard=ard)
    m = ka.solvers.moments(x, found.phi, y=y)
    if objective == "evidence":
        assert found.after >= found.before
        assert np.isclose(found.after, ka.solvers.gp(m).log_evidence.sum())
        assert found.after == found.trace.max()
    else:
        assert found.after <= found.before
        assert np.isclose(found.after, np.prod(ka.solvers.ridge(m, objective="gcv").gcv) ** 0.5)
        assert found.after == found.trace.min()
    assert found.trace[0] == found.before
    assert found.evaluations == len(found.trace)
    assert type(found.kernel) is ka.kernels.Matern
    assert found.kernel.nu == phi.kernel.nu
    assert np.ndim(found.lengthscale) == ard
    assert np.array_equal(found.phi.omega, phi.omega)
    assert "Matern" in repr(found)


def test_one_factor_keeps_the_proportions_of_lengthscales(rng):
    x, y = data(rng)
    found = ka.solvers.tune(x, y, drawn(ka.kernels.Gaussian((1.0, 2.0, 3.0))))
    assert np.allclose(np.divide(found.lengthscale, found.lengthscale[0]), (1, 2, 3))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_nystrom_map_keeps_its_landmarks(objective, rng):
    x, y = data(rng, 200, 2)
    phi = ka.features.nystrom(x, ka.kernels.Gaussian(0.5), 25, method="greedy", rng=0)
    found = ka.solvers.tune(x, y[:, 0], phi, ard=True, objective=objective)
    assert np.array_equal(found.phi.landmarks, phi.landmarks)
    assert phi.residual is not None
    assert found.phi.residual is None  # it was of the first lengthscale
    assert found.after == (found.trace.max() if objective == "evidence" else found.trace.min())
    assert found.lengthscale[1] > 5 * found.lengthscale[0]
    assert np.allclose(found.phi(phi.landmarks) @ found.phi(x).T, found.kernel(phi.landmarks, x), atol=1e-6)


def test_rows_are_those_of_the_seed(rng):
    x, y = data(rng)
    phi = drawn(ka.kernels.Gaussian(1.0))
    one, same, other = (ka.solvers.tune(x, y, phi, rows=100, rng=seed) for seed in (1, 1, 2))
    assert one.lengthscale == same.lengthscale
    assert np.array_equal(one.trace, same.trace)
    assert one.lengthscale != other.lengthscale
    assert ka.solvers.tune(x, y, phi, rows=300).lengthscale == ka.solvers.tune(x, y, phi).lengthscale


def test_a_step_to_where_features_vanish_is_taken_back(rng):
    x = rng.standard_normal((200, 5))
    y = np.sin(x[:, 0]) + 0.1 * rng.standard_normal(200)
    phi = ka.random_features(ka.kernels.Gaussian(1.0), 5, 64, "positive", rng=0)
    vanished = Search(phi, x, y[:, None], OBJECTIVES["gcv"])
    with pytest.raises(errors.ParameterError, match="must not be the same in all rows"):
        vanished.cost_and_gradient(np.full(5, -6.0))
    seen = []

    def slopes(m):
        seen.append(1)
        if len(seen) == 2:
            raise errors.ParameterError("features must not be the same in all rows")
        return OBJECTIVES["gcv"](m)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OBJECTIVES, "lost once", slopes)
        found = ka.solvers.tune(x, y, phi, ard=True, objective="lost once")
    assert found.evaluations == len(seen) - 1
    assert found.after < found.before / 2


def test_few_iterations_are_told_and_inputs_are_not_written(rng):
    x, y = data(rng)
    kept = x.copy(), y.copy()
    for array in (x, y):
        array.setflags(write=False)
    found = ka.solvers.tune(x, y, drawn(ka.kernels.Gaussian(1.0)), ard=True, max_iterations=1)
    assert not found.converged
    assert found.after > found.before
    assert np.array_equal(x, kept[0])
    assert np.array_equal(y, kept[1])


def test_progress_is_shown(rng, capsys):
    pytest.importorskip("tqdm")
    ka.solvers.tune(*data(rng), drawn(ka.kernels.Gaussian(1.0)), max_iterations=1, progress=True)
    assert "evaluation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"phi": ka.features.elu1()}, errors.ParameterError, "kernel of x - y with a lengthscale"),
        ({"phi": ka.random_features(ka.kernels.Softmax(), 3, 32, rng=0)}, errors.ParameterError, "with a lengthscale"),
        ({"phi": ka.features.nystrom(np.eye(3), ka.kernels.Periodic(), 3)}, errors.ParameterError, "compare kernattn"),
        ({"objective": "likelihood"}, errors.ParameterError, "objective must be"),
        ({"ard": 1}, errors.ParameterError, "ard"),
        ({"rows": 301}, errors.ParameterError, "rows must be 300 at most"),
        ({"rows": 0}, errors.ParameterError, "rows"),
        ({"max_iterations": 0}, errors.ParameterError, "max_iterations"),
        ({"x": np.ones((300, 2))}, errors.ShapeError, "shape"),
        ({"y": np.ones(299)}, errors.ShapeError, "y must be"),
        ({"y": np.ones(300)}, errors.ParameterError, "y must not be the same in all of 300 rows"),
        ({"y": np.stack([np.arange(300.0), np.ones(300)], axis=1)}, errors.ParameterError, "must not be the same"),
        ({"y": np.full(300, np.nan)}, errors.ParameterError, "NaN"),
    ],
)
def test_arguments_that_do_not_fit_are_named_before_any_work(change, error, match, rng, monkeypatch):
    monkeypatch.setattr("kernattn.solvers._tune.moments", None)
    x, y = data(rng)
    given = {"phi": drawn(ka.kernels.Gaussian(1.0)), "x": x, "y": y} | change
    with pytest.raises(error, match=match):
        ka.solvers.tune(**given)


def test_a_search_that_ends_at_a_bound_says_so(rng):
    x, y = data(rng)
    with pytest.warns(UserWarning, match="tune ended at a bound, a thousandth of the first lengthscale"):
        found = ka.solvers.tune(x, y[:, 0], drawn(ka.kernels.Gaussian(2000.0)))
    assert not found.converged
    assert np.isclose(found.lengthscale, 2.0)


def test_sparse_rows_are_refused():
    sparse = pytest.importorskip("scipy.sparse")
    x = np.random.default_rng(0).standard_normal((30, 2))
    phi = ka.random_features(ka.kernels.Gaussian(), 2, 8, rng=0)
    with pytest.raises(errors.DTypeError, match="x must be dense rows; got"):
        ka.solvers.tune(sparse.csr_array(x), x[:, 0], phi)
