"""Half the root mean square distance of two rows."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import kernattn as ka
from kernattn.errors import EmptyInputError, ParameterError, ShapeError

X = np.random.default_rng(0).standard_normal((50, 3)) * [1.0, 2.0, 0.1] + 7


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_of_distances(xp, dtype, monkeypatch):
    rows = X.astype(dtype).astype(np.float64)
    wanted = np.sqrt(np.mean(cdist(rows, rows) ** 2)) / 2
    with xp.wide():
        assert ka.kernels.usual_lengthscale(xp.asarray(X, dtype)) == pytest.approx(wanted, rel=1e-12)
        monkeypatch.setattr("kernattn._arrays.shapes.STRIP", 7)
        assert ka.kernels.usual_lengthscale(xp.asarray(X, dtype)) == pytest.approx(wanted, rel=1e-12)


def test_weights_count():
    weights = np.random.default_rng(1).integers(0, 4, 50)
    repeated = ka.kernels.usual_lengthscale(X.repeat(weights, axis=0))
    assert ka.kernels.usual_lengthscale(X, weights.astype(float)) == pytest.approx(repeated, rel=1e-12)


@pytest.mark.parametrize("unit", [1e-250, 1e180])
def test_weights_of_every_size(unit):
    weights = np.random.default_rng(1).random(50)
    wanted = 1e80 * ka.kernels.usual_lengthscale(X, weights)
    assert ka.kernels.usual_lengthscale(1e80 * X, unit * weights) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_far_off_count_as_four_times_as_far_as_nine_of_ten(weighted):
    far = np.concatenate([X, [[7.0, 1e9, 7.0], [7.0, -3e5, 7.0]]])
    weights = np.ones(52) if weighted else None
    centre = np.median(far, axis=0)
    most = 4 * np.sort(np.linalg.norm(far - centre, axis=1))[46]
    steps = np.array([[0.0, most, 0.0], [0.0, -most, 0.0]])
    near = np.concatenate([X, centre + steps])
    wanted = np.sqrt(np.mean(cdist(near, near) ** 2)) / 2
    assert ka.kernels.usual_lengthscale(far, weights) == pytest.approx(wanted, rel=1e-6)
    cauchy = np.random.default_rng(0).standard_cauchy((3000, 1))
    assert 1 < ka.kernels.usual_lengthscale(cauchy) < 4  # half the median distance is 1


def test_a_second_cluster_is_not_far_off():
    rows = 0.01 * np.random.default_rng(0).standard_normal((100, 3)) + 5.0 * (np.arange(100) < 40)[:, None]
    assert ka.kernels.usual_lengthscale(rows) == pytest.approx(np.sqrt(rows.var(axis=0).sum() / 2), rel=1e-9)


@pytest.mark.parametrize("unit", [2.0**-1000, 2.0**-540, 2.0**500])
def test_rows_of_every_size(unit):
    rows = X - 7
    assert ka.kernels.usual_lengthscale(unit * rows) == pytest.approx(unit * ka.kernels.usual_lengthscale(rows))


def test_equal_rows():
    assert ka.kernels.usual_lengthscale(np.full((5, 2), 0.1)) == 1.0


def test_refusals():
    with pytest.raises(ShapeError, match=r"\(n, d\)"):
        ka.kernels.usual_lengthscale(X[0])
    with pytest.raises(ShapeError, match=r"weights \(n,\)"):
        ka.kernels.usual_lengthscale(X, np.ones(3))
    with pytest.raises(EmptyInputError):
        ka.kernels.usual_lengthscale(X[:0])
    for weights in (np.zeros(50), -np.ones(50), np.full(50, np.nan)):
        with pytest.raises(ParameterError, match="weights must be 0 or more"):
            ka.kernels.usual_lengthscale(X, weights)
    for rows in (np.full((3, 2), np.nan), np.array([[1e200], [-1e200]])):
        with pytest.raises(ParameterError, match="x must be finite"):
            ka.kernels.usual_lengthscale(rows)
