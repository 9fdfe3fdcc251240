"""Each recipe of docs/adding.md, followed: a class, a row of a table, and everything that the page promises of it."""

from dataclasses import dataclass
from math import prod
from warnings import catch_warnings, filterwarnings

import numpy as np
import pytest

import kernattn as ka
import laws
from covering import turns
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap
from kernattn.features._base.deterministic import ExactMap
from kernattn.features._choose import fit, table
from kernattn.features._choose.families import FAMILIES, Family, by_rows
from kernattn.features._exponential import positive
from kernattn.features._fitted import learn
from kernattn.features._spectral.spectra import ISOTROPIC, PRODUCT, has_normal_frequencies
from kernattn.kernels import KERNELS, Stationary
from kernattn.ops.features import scaled
from kernattn.projections import NORM_LAWS, PROJECTIONS, DirectionalProjection, Pair
from laws import arrays
from seam import MapSpec, ScaledFeatures

K, D = ka.kernels, 4
ROWS = arrays(1, (30, D), dtype="float64", scale=0.3)[0]
REDRAWS = 200


@dataclass(frozen=True, eq=False)
class Mirrored(positive.Exponential):
    r""":math:`m^{-1/2} \exp(-\Omega x - (1 - c)|x|^2)`: positive features of the opposite frequencies."""

    @property
    def spec(self):
        return MapSpec("exp", omega=self._fold_scale(-1.0), **self._row_logs(), amplitude=len(self.omega) ** -0.5)


class Computed(Mirrored):
    """The same, of which ops know the features alone."""

    spec = None

    def scaled_query(self, x):
        return scaled(x, Mirrored.spec.fget(self))


@dataclass(frozen=True)
class Sinc(Stationary):
    r""":math:`\prod_i \sin(x_i - y_i) / (x_i - y_i)`: frequencies uniform on [-1, 1], an axis each."""

    lengthscale: float = 1.0

    def _evaluate(self, rows):
        def sinc(x, y):
            delta = rows.xp.where(x == y, 1e-9, x - y)
            return rows.xp.sin(delta) / delta

        return rows.prod(sinc)


@dataclass(frozen=True)
class Exponential(Stationary):
    r""":math:`e^{-|x - y|}`: the Matern kernel of order 1/2."""

    lengthscale: float = 1.0

    def _evaluate(self, rows):
        return rows.xp.exp(-rows.xp.sqrt(rows.squared_distance()))


@dataclass(frozen=True)
class Weights(K.Kernel):
    r""":math:`e^{2 x^T y}`: weights of attention."""

    row_exponent = 0.5
    attention_weights = True

    def input_scale(self, d):
        return np.full(d, 2**0.5)

    def _evaluate(self, rows):
        return rows.xp.exp(rows.dot())


@dataclass(frozen=True)
class Dot(K.Kernel):
    r""":math:`x^T y`."""

    def _evaluate(self, rows):
        return rows.dot()


@dataclass(frozen=True, eq=False)
class Itself(ExactMap):
    r""":math:`\phi(x) = x`."""

    kernel: Dot

    dim = None
    spec = None

    @classmethod
    def _sample(cls, kernel, number, dim, rng):
        if number != dim:
            raise ParameterError(f"num_features must be dim; got {number}")
        return cls(kernel)

    def num_features_of(self, dim):
        return dim

    def scaled_query(self, x):
        return ScaledFeatures(x, np.zeros_like(x[..., :1]))

    scaled_key = scaled_query


@dataclass(frozen=True, eq=False)
class Negated(Itself):
    r""":math:`\phi(x) = -x`."""

    def scaled_query(self, x):
        return ScaledFeatures(-x, np.zeros_like(x[..., :1]))

    scaled_key = scaled_query


@dataclass(frozen=True)
class Opposite(DirectionalProjection):
    """Rows in pairs of opposite directions, each with a norm of its own."""

    norms: str = "chi"

    def blocks(self, m, d):
        if m % 2:
            raise ParameterError(f"m must be even; got {m}")
        return (2,) * (m // 2)

    def pairs(self, m, d):
        return {Pair(-1.0): m}

    def _directions(self, m, d, generator):
        half = generator.standard_normal((m // 2, d))
        half /= np.linalg.norm(half, axis=-1, keepdims=True)
        return np.stack([half, -half], axis=1).reshape(m, d)


@pytest.fixture
def mirrored(monkeypatch):
    row = ka.features.Estimator(
        Mirrored, has_normal_frequencies, reason=lambda kernel, sums, differences: "as positive"
    )
    monkeypatch.setitem(ka.features.ESTIMATORS, "mirrored", row)


@pytest.fixture
def kernels(monkeypatch):
    for kind in (Sinc, Exponential, Weights, Dot):
        monkeypatch.setitem(KERNELS, kind.__name__.lower(), kind)
    monkeypatch.setitem(PRODUCT, Sinc, lambda kernel: lambda rng, shape: rng.uniform(-1.0, 1.0, shape))
    monkeypatch.setitem(ISOTROPIC, Exponential, lambda kernel: ISOTROPIC[K.Matern](K.Matern(0.5)))
    monkeypatch.setitem(ISOTROPIC, Weights, lambda kernel: NORM_LAWS["chi"])
    monkeypatch.setitem(FAMILIES, Dot, Family(table.rows_of, by_rows))
    for name, cls in ("itself", Itself), ("opposite", Negated):
        row = ka.features.Estimator(cls, lambda kernel: isinstance(kernel, Dot), projected=False)
        monkeypatch.setitem(table.ESTIMATORS, name, row)


@pytest.fixture
def opposite(monkeypatch):
    monkeypatch.setitem(PROJECTIONS, "opposite", Opposite)


def check_moments(phi):
    """Bias and variance in closed form are those of redraws, |z| < 4.5."""
    x, y = ROWS[:6], ROWS[6:12]
    rng = np.random.default_rng(3)
    drawn = np.stack([np.sum(each(x) * each(y), -1) for each in (phi.redraw(rng) for _ in range(REDRAWS))])
    np.testing.assert_allclose(phi.bias(x, y), phi.mean(x, y) - phi.kernel.pairs(x, y), rtol=1e-9, atol=1e-12)
    for sample, wanted in (drawn, phi.mean(x, y)), ((drawn - drawn.mean(axis=0)) ** 2, phi.variance(x, y)):
        assert (np.abs(sample.mean(axis=0) - wanted) < 4.5 * sample.std(axis=0) / REDRAWS**0.5).all()
    assert phi.num_features_for(x, y, error=1.0, probability=0.9) > 0


def check_use(phi, tmp_path):
    """It comes back from a file as it was, and every form of attention takes it."""
    path = tmp_path / "map.npz"
    phi.save(path)
    again = ka.load(path)
    assert type(again) is type(phi)
    assert again.fingerprint == phi.fingerprint
    np.testing.assert_array_equal(again(ROWS), phi(ROWS))
    laws.forms_agree(phi, *arrays(4, (2, 20, D), (2, 20, D), (2, 20, 3), dtype="float64", scale=0.2), cut=7)


@pytest.mark.statistical
@pytest.mark.parametrize("kernel", [K.Softmax(), K.Gaussian()], ids=lambda kernel: type(kernel).__name__)
def test_a_map(kernel, mirrored, tmp_path):
    phi = ka.random_features(kernel, D, 12, "mirrored", rng=1)
    assert type(phi) is Mirrored
    positive = ka.random_features(kernel, D, 12, "positive", rng=1)
    np.testing.assert_allclose(phi(ROWS), positive(-ROWS), rtol=1e-12)
    check_moments(phi)
    check_use(phi, tmp_path)


def test_a_map_is_chosen_like_others(mirrored):
    kernel = K.Softmax()
    found = ka.features.recommend(ROWS, kernel, 12, rng=0)
    rows = {choice.estimator: choice for choice in found.choices if choice.projection == ka.projections.Iid()}
    assert rows["mirrored"].predicted == rows["positive"].predicted
    assert rows["mirrored"].reason == "as positive"
    assert "mirrored" in str(found)
    best = ka.random_features(kernel, D, 12, data=ROWS, projection="iid", rng=0)
    assert ka.features.ESTIMATORS[min(rows.values(), key=lambda row: row.error).estimator].cls is type(best)


def test_a_new_map_changes_nobody_elses_draw(monkeypatch):
    def found():
        rng = np.random.default_rng(3)
        chosen = [ka.random_features(kernel, D, 12, data=ROWS, rng=rng) for kernel in (K.Gaussian(), K.Softmax())]
        table = ka.features.recommend(ROWS, K.Gaussian(), 12, rng=rng)
        return [phi(ROWS) for phi in chosen], table.choices, rng.random()

    features, choices, after = found()
    row = ka.features.Estimator(Mirrored, has_normal_frequencies, reason=lambda kernel, sums, differences: "")
    monkeypatch.setitem(ka.features.ESTIMATORS, "a name before all others", row)
    again, more, later = found()
    np.testing.assert_array_equal(again, features)
    assert later == after
    assert len(more) == len(choices) + 2  # one for each projection
    assert tuple(choice for choice in more if choice.estimator in ka.features.ESTIMATORS and choice.reason) == choices


@dataclass(frozen=True, eq=False)
class Outside(FeatureMap):
    r"""Positive features, as a class outside of the package says them: without a spec, and no closed forms."""

    omega: np.ndarray
    dim = D

    @classmethod
    def _sample(cls, kernel, frequencies, dim, rng, projection):
        return cls(projection.draw(frequencies, dim, rng))

    def num_features_of(self, dim):
        return len(self.omega)

    def scaled_query(self, x):
        x = x / D**0.25
        return ScaledFeatures(np.exp(x @ self.omega.T - np.sum(x**2, -1, keepdims=True) / 2), 0 * x[..., :1])

    def redraw(self, rng=None):
        return Outside(np.random.default_rng(rng).standard_normal(self.omega.shape))


def test_a_map_from_outside_is_compared_and_does_not_stop_a_fit(monkeypatch):
    """What compares the maps of a kernel takes one of which it knows no more than its features."""
    monkeypatch.setitem(ka.features.ESTIMATORS, "outside", ka.features.Estimator(Outside, has_normal_frequencies))
    (row,) = [
        row
        for row in ka.features.recommend(ROWS, K.Softmax(), num_features=8, projections=["iid"], rng=0).choices
        if row.estimator == "outside"
    ]
    assert np.isinf(row.predicted)
    assert 0 < row.measured < np.inf
    monkeypatch.setattr(fit, "learn", lambda task, kind, start, *_: tuple(fit.start_of(each, kind) for each in start))
    monkeypatch.setattr(fit, "pick_winner", lambda made: made.fitted)
    for objective, kind in ("attention", "hedgehog"), ("kernel", "omega"):
        assert fit.fit(K.Softmax(), ROWS, 8, kind=kind, objective=objective, rng=0).kind == kind


def test_a_map_serves_its_kernels_alone(mirrored):
    assert "mirrored" in ka.features.estimators(K.Gaussian())
    for kernel in (K.Laplacian(), K.Matern(), K.Polynomial(), K.ArcCosine(), K.Gaussian() * K.Matern()):
        assert "mirrored" not in ka.features.estimators(kernel)
        with pytest.raises(ParameterError, match="mirrored"):
            ka.random_features(kernel, D, 12, "mirrored", "iid", rng=0)
    assert {cell.estimator for cell in ka.features.combinations([K.Softmax()], ["iid"])} >= {"mirrored", "positive"}


def test_a_map_of_computed_features_is_a_rival_of_fits(monkeypatch):
    """No fit begins at it: it has no numbers to learn."""
    monkeypatch.setattr(learn, "STEPS", 3)
    monkeypatch.setitem(ka.features.ESTIMATORS, "computed", ka.features.Estimator(Computed, has_normal_frequencies))
    with catch_warnings():
        filterwarnings("ignore", message=".*the random map is returned")
        assert ka.features.fit(K.Softmax(), ROWS, 12, rng=0).num_features == 12


def test_a_map_in_pairs(monkeypatch):
    row = ka.features.Estimator(ka.features.Hyperbolic, has_normal_frequencies, paired=True)
    monkeypatch.setitem(ka.features.ESTIMATORS, "twice", row)
    phi = ka.random_features(K.Softmax(), D, 12, "twice", rng=0)
    assert phi.num_features == 12
    with pytest.raises(ParameterError, match="'twice' makes features in pairs: num_features must be even; got 13"):
        ka.random_features(K.Softmax(), D, 13, "twice", rng=0)
    odd = ka.features.recommend(ROWS, K.Softmax(), 13, ["iid"], rng=0)
    assert "twice" not in {choice.estimator for choice in odd.choices}


@pytest.mark.statistical
@pytest.mark.parametrize(("kernel", "projection"), [(Sinc(2.0), "iid"), (Exponential(), "orthogonal")], ids=repr)
def test_a_kernel_with_a_spectral_measure(kernel, projection, kernels, tmp_path):
    assert ka.features.estimators(kernel) == ("trigonometric", "phase")
    for name in ka.features.estimators(kernel):
        phi = ka.random_features(kernel, D, 12, name, projection, rng=2)
        np.testing.assert_allclose(phi.bias(ROWS, ROWS[::-1]), 0, atol=1e-7)
        check_moments(phi)
        check_use(phi, tmp_path)
    assert ka.features.recommend(ROWS, kernel, 12, [projection], rng=0).best.error > 0
    assert ka.random_features(kernel, D, 12, data=ROWS, projection=projection, rng=0).kernel == kernel
    assert ka.random_features(2 * kernel + kernel, D, 24, projection=projection, rng=0).num_features == 24


def test_a_kernel_of_attention_is_treated_as_softmax(kernels):
    same = K.Softmax(scale=2.0)
    assert ka.features.estimators(Weights()) == ka.features.estimators(same)
    for name in ka.features.estimators(same):
        phi, usual = (ka.random_features(kernel, D, 12, name, data=ROWS, rng=0) for kernel in (Weights(), same))
        np.testing.assert_allclose(phi.query(ROWS), usual.query(ROWS), rtol=1e-12, atol=1e-300)
    ours, known = (ka.features.recommend(ROWS, kernel, 12, rng=0) for kernel in (Weights(), same))
    assert ours.uniform == pytest.approx(known.uniform)
    for row, usual in zip(ours.choices, known.choices, strict=True):
        assert (row.estimator, row.reason) == (usual.estimator, usual.reason)
    with pytest.raises(ParameterError, match="spectral measure"):  # a product with it has no frequencies that add
        ka.features.recommend(ROWS, Weights() * K.Gaussian(), 12, rng=0)


def test_a_kernel_with_a_map_of_its_own(kernels, tmp_path):
    phi = ka.random_features(Dot(), D, D, rng=0)
    assert ka.features.estimators(Dot()) == ("itself", "opposite")
    np.testing.assert_array_equal(phi(ROWS), ROWS)
    np.testing.assert_array_equal(ka.random_features(Dot(), D, D, "opposite", rng=0)(ROWS), -ROWS)
    with pytest.raises(ParameterError, match="must be dim; got 5"):
        ka.random_features(Dot(), D, 5, rng=0)
    with pytest.raises(ParameterError, match="projection"):
        ka.random_features(Dot(), D, D, projection="iid", rng=0)
    x = np.abs(ROWS)
    phi.save(tmp_path / "map.npz")
    laws.forms_agree(ka.load(tmp_path / "map.npz"), x, x, x, cut=7)


def test_a_kernel_without_either():
    with pytest.raises(ParameterError, match="spectral measure, or from_function with frequencies; got Sinc"):
        ka.random_features(Sinc(), D, 12, rng=0)
    with pytest.raises(ParameterError, match="spectral measure, or from_function with frequencies; got Sinc"):
        ka.features.estimators(Sinc())


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("estimator", "norms"),
    turns(["trigonometric", "phase", "positive", "hyperbolic", "optimal_positive"], NORM_LAWS),
)
def test_a_projection(estimator, norms, opposite, tmp_path):
    phi = ka.random_features(K.Gaussian(1.3), D, 12, estimator, Opposite(norms), rng=1)
    check_moments(phi)
    check_use(phi, tmp_path)


def test_a_projection_by_name(opposite):
    omega = ka.random_features(K.Matern(), D, 8, "phase", "opposite", rng=0).omega
    first, second = omega[::2], omega[1::2]
    cosines = np.sum(first * second, axis=-1) / prod(np.linalg.norm(rows, axis=-1) for rows in (first, second))
    np.testing.assert_allclose(cosines, -1)
    table = ka.features.recommend(ROWS, K.Softmax(), 12, ["iid", "opposite"], rng=0)
    assert Opposite() in {choice.projection for choice in table.choices}
    with pytest.raises(ParameterError, match="m must be even; got 7"):
        ka.random_features(K.Gaussian(), D, 7, "positive", "opposite", rng=0)
    with pytest.raises(ParameterError, match=r"one of .*opposite.*; got 'opposed'"):
        ka.random_features(K.Gaussian(), D, 8, projection="opposed", rng=0)
