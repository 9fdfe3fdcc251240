"""Maps of Hadamard chains: evaluated by the chains, and the same maps as those of the matrix that these make up."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
import laws
from kernattn.ops import OPS
from kernattn.ops.dispatch import missing
from kernattn.ops.features.crossover import FASTER_ABOVE
from saved import reloaded
from seam import Chains, PeakedSum
from xp import to_numpy

ESTIMATORS = ("trigonometric", "phase", "positive", "hyperbolic", "optimal_positive")
if missing("cpu") is None:
    from kernattn.ops.features import sides
BACKENDS = [name for name in ("reference", "cpu") if missing(name) is None]
SIZES = [(33, 20), (64, 64), (100, 300)]  # d, M: blocks cut short, whole, and several
RNG = np.random.default_rng(0)


def kernel_of(name, d):
    return {"softmax": ka.kernels.Softmax(), "ard": ka.kernels.Gaussian(lengthscale=np.linspace(3.0, 9.0, d))}[name]


def make(d, m, estimator="phase", kernel="ard", norms="chi"):
    return ka.random_features(kernel_of(kernel, d), d, m, estimator, ka.projections.Hadamard(norms=norms), rng=3)


def dense(phi):
    """The same map by its matrix."""
    return replace(phi, omega=np.asarray(phi.omega))


def rows(d, dtype="float64", n=21):
    return (np.random.default_rng(d).standard_normal((2, n, d)) / d**0.5).astype(dtype)


def is_made(omega):
    """Has the matrix been written down?"""
    return "dense" in vars(omega)


@pytest.fixture
def always(monkeypatch):
    """Chains on every backend from the first dimension on."""
    for backend in FASTER_ABOVE:
        monkeypatch.setitem(FASTER_ABOVE, backend, 0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("norms", ["chi", "sqrt_d"])
@pytest.mark.parametrize("kernel", ["softmax", "ard"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_chains_are_the_matrix(always, estimator, kernel, norms, backend):
    for d, m in SIZES:
        phi = make(d, m, estimator, kernel, norms)
        x = rows(d)
        got = phi(x, backend=backend)
        assert not is_made(phi.omega)
        assert not is_made(phi.spec.omega)
        np.testing.assert_allclose(got, dense(phi)(x, backend="reference"), rtol=1e-11, atol=1e-13)
        assert got.shape == (*x.shape[:-1], m)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_dtypes(always, estimator, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    phi = make(100, 300, estimator, "softmax")
    x = rows(100, dtype)
    wanted = dense(phi)(x.astype("f8"), backend="reference")
    eps = {"float16": 2e-3, "float32": 1e-5}.get(np.dtype(dtype).name, 1e-2)
    for backend in BACKENDS:
        got = phi(x, backend=backend)
        assert got.dtype == x.dtype
        np.testing.assert_allclose(got.astype("f8"), wanted, rtol=eps, atol=eps * np.abs(wanted).max())


def test_libraries(always, xp):
    phi = make(40, 70, "positive", "softmax")
    with xp.wide():
        x = xp.asarray(rows(40))
        got, (values, log_scale) = xp.whole(lambda x: (phi(x), phi.scaled(x)))(x)
        assert xp.holds(got)
    np.testing.assert_allclose(to_numpy(got), dense(phi)(rows(40)), rtol=1e-11)
    np.testing.assert_allclose(to_numpy(values) * np.exp(to_numpy(log_scale)), to_numpy(got), rtol=1e-11)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_log_scales(always, estimator):
    phi = make(100, 300, estimator, "softmax")
    for dtype in ("float16", "float64"):
        x = rows(100, dtype) * dtype_safe(dtype)
        got, wanted = phi.scaled(x), dense(phi).scaled(x)
        assert not is_made(phi.spec.omega)
        for one, other in zip(got, wanted, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-4 if dtype == "float16" else 1e-9, atol=1e-3)


def dtype_safe(dtype):
    """A factor: float64 rows whose features have no exponent in range."""
    return 1.0 if dtype == "float16" else 300.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_faster_way_is_taken(backend):
    for d in (FASTER_ABOVE[backend], FASTER_ABOVE[backend] + 1):
        phi = make(d, 20)
        phi(rows(d, n=2), backend=backend)
        assert is_made(phi.spec.omega) == (d <= FASTER_ABOVE[backend])


@pytest.mark.skipif("cpu" not in BACKENDS, reason="no numba")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_attention_without_the_matrix(monkeypatch, estimator):
    """Every form, with masked keys and normalisers."""
    monkeypatch.setattr(sides, "FUSED_ABOVE", 0)
    phi = make(40, 60, estimator, "softmax")
    q, k = rows(40, "float32"), rows(40, "float32")[:, ::-1].copy()
    v, mask = rows(40, "float32")[..., :3].copy(), np.arange(21) % 4 != 1
    k[:, 1] = np.inf

    def forms(phi):
        out, state = ka.causal_linear_attention(q, k, v, phi, key_mask=mask)
        token, after = ka.linear_attention_step(state, q[:, 0], k[:, 0], v[:, 0], phi)
        sums = PeakedSum(*state[:3])
        attended, normaliser = OPS["attend"].implementation(v)(sums, q, phi.spec, q.dtype, True)
        causal = OPS["causal"].implementation(v)(q, k, v, phi.spec, phi.spec, None, mask, None, True)[1]
        return (
            out,
            token,
            ka.attend(after, q, phi),
            attended,
            *normaliser,
            *causal,
            *OPS["gram"].implementation(q)(q, v, phi.spec, False),
        )

    for got, wanted in zip(forms(phi), forms(dense(phi)), strict=True):
        np.testing.assert_allclose(
            got, wanted, rtol=2e-4, atol=2e-5 * np.abs(wanted).max(where=np.isfinite(wanted), initial=0)
        )
    assert not is_made(phi.spec.omega)


@pytest.mark.skipif("cpu" not in BACKENDS, reason="no numba")
def test_attention_takes_the_faster_way():
    for d in (sides.FUSED_ABOVE, sides.FUSED_ABOVE + 1):
        phi, x = make(d, 20, "positive", "softmax"), rows(d, n=3)
        ka.linear_attention(x, x, x, phi)
        assert is_made(phi.spec.omega) == (d <= sides.FUSED_ABOVE)


def test_a_draw_does_not_write_the_matrix():
    phi = make(300, 700, "positive", "softmax")
    again = phi.redraw(4)
    for each in (phi, again):
        assert isinstance(each.omega, Chains)
        assert each.num_features == 700
        assert each.dim == 300
        assert isinstance(each.fingerprint, int)
        each(rows(300, n=1))
        each.scaled(rows(300, n=1))
        assert not is_made(each.omega)
    assert phi.fingerprint == make(300, 700, "positive", "softmax").fingerprint != again.fingerprint
    np.testing.assert_array_equal(np.asarray(phi.omega), ka.projections.Hadamard().draw(700, 300, 3))


@pytest.mark.parametrize("estimator", ["trigonometric", "optimal_positive"])
def test_files(estimator, tmp_path):
    phi = make(100, 300, estimator)
    assert isinstance(reloaded(phi, tmp_path, rows(100)).omega, Chains)
    assert not is_made(phi.omega)
    assert (tmp_path / "map.npz").stat().st_size < np.asarray(phi.omega).nbytes / 4
    dense(phi).save(tmp_path / "dense.npz")  # as maps were written before there were chains
    np.testing.assert_allclose(ka.load(tmp_path / "dense.npz")(rows(100)), phi(rows(100)), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("estimator", ["trigonometric", "positive", "hyperbolic"])
def test_attention_takes_the_matrix(estimator):
    phi = make(40, 128, estimator, "softmax")
    q, k, v = laws.arrays(1, (9, 40), (9, 40), (9, 3), dtype="float64", scale=0.3)
    for backend in BACKENDS:
        for run in (ka.linear_attention, lambda *a, **b: ka.causal_linear_attention(*a, **b)[0]):
            got = run(q, k, v, phi, backend=backend)
            np.testing.assert_allclose(got, run(q, k, v, dense(phi), backend=backend), rtol=1e-8)


def test_what_is_known_of_the_map():
    phi = make(40, 128)
    with pytest.raises(ka.errors.NoClosedForm):
        phi.mean(rows(40)[0], rows(40)[0])
    with pytest.raises(ka.errors.NoClosedForm):
        phi.variance(rows(40)[0], rows(40)[0])


def test_composites_and_sharp_ones():
    x = rows(40)
    kernel = 2 * ka.kernels.Gaussian() + ka.kernels.Matern(1.5) * ka.kernels.Gaussian(3.0)
    phi = ka.random_features(kernel, 40, 4000, projection="hadamard", rng=1)
    np.testing.assert_allclose(phi(x[0]) @ phi(x[0]).T, kernel(x[0]), atol=0.25)
    sharp = ka.random_features(ka.kernels.Gaussian(4.0), 40, 256, "favor_sharp", "hadamard", data=x[0], rng=0)
    np.testing.assert_allclose(sharp(x), dense(sharp)(x), rtol=1e-12)


NEURONS = {f"order {order}": order for order in (0, 1, 2)}
FUNCTIONS = ("relu", "elu1", "exp", "cos", "tanh")


def neurons(name, d=100, m=300):
    """Arc-cosine and generalized maps."""
    if name in NEURONS:
        return ka.random_features(ka.kernels.ArcCosine(NEURONS[name]), d, m, projection="hadamard", rng=3)
    return ka.features.generalized(name, d, m, scale=0.5, projection="hadamard", rng=3)


@pytest.mark.parametrize("name", [*NEURONS, *FUNCTIONS])
def test_neurons_by_chains(always, name, tmp_path):
    phi, x = neurons(name), rows(100)
    wanted = dense(neurons(name))(x, backend="reference")
    for backend in BACKENDS:
        np.testing.assert_allclose(phi(x, backend=backend), wanted, rtol=1e-9, atol=1e-13)
    values, log_scale = phi.scaled(x)
    np.testing.assert_allclose(values * np.exp(log_scale), wanted, rtol=1e-9, atol=1e-13)
    assert not is_made(phi.omega)
    again = phi.redraw(4)
    assert isinstance(again.omega, Chains)
    assert again.fingerprint != phi.fingerprint
    reloaded(phi, tmp_path, x)


def test_neurons_have_the_frequencies_that_they_had():
    omega = ka.projections.Hadamard().draw(300, 100, 3)
    np.testing.assert_array_equal(np.asarray(neurons("order 1").omega), omega)
    np.testing.assert_allclose(np.asarray(neurons("tanh").omega), 0.5 * omega, rtol=1e-14)


@pytest.mark.parametrize("name", ["order 1", "order 2", "elu1"])
def test_neurons_in_attention_and_libraries(xp, name):
    phi = neurons(name)
    q, k, v = laws.arrays(1, (9, 100), (9, 100), (9, 3), dtype="float64", scale=0.3)
    with xp.wide():
        got = to_numpy(ka.linear_attention(*map(xp.asarray, (q, k, v)), phi))
    np.testing.assert_allclose(got, ka.linear_attention(q, k, v, dense(phi)), rtol=1e-7)


@pytest.mark.statistical
def test_neurons_are_far_off_along_axes():
    """A figure of ArcCosineFeatures: zeros of transforms of few signs keep neurons off."""
    d = 16
    phi = ka.random_features(ka.kernels.ArcCosine(0), d, 1250 * d, projection="hadamard", rng=7)
    off = (phi(np.eye(d)[:1]) @ phi(np.eye(d)[1:2]).T).item() / 0.5 - 1
    assert -0.30 < off < -0.17


# ---- the factors ----


def chains():
    return ka.projections.Hadamard().factors(20, 5, 1)


def test_chains_stand_for_their_matrix():
    omega, x = chains(), RNG.standard_normal((4, 5))
    matrix = ka.projections.Hadamard().draw(20, 5, 1)
    for got, wanted in [
        (np.asarray(omega), matrix),
        (np.asarray(omega, dtype="f4"), matrix.astype("f4")),
        (x @ omega.T, x @ matrix.T),
        (omega @ x.T, matrix @ x.T),
        (2 * omega, 2 * matrix),
        (omega**2, matrix**2),
        (omega[3:5], matrix[3:5]),
        (np.einsum("md,md->m", omega, omega), np.sum(matrix**2, axis=1)),
        (np.add.reduce(omega), matrix.sum(axis=0)),
    ]:
        np.testing.assert_allclose(got, wanted, rtol=1e-13)
    assert (omega.shape, omega.ndim, len(omega)) == ((20, 5), 2, 20)
    assert not omega.dense.flags.writeable
    assert omega == omega
    assert omega != chains()
    assert len({omega, chains()}) == 2


@pytest.mark.parametrize(("m", "d"), [(20, 5), (20, 8), (3, 1)])
def test_scales_go_into_the_factors(m, d):
    omega = ka.projections.Hadamard().factors(m, d, 1)
    scale = RNG.uniform(0.5, 2.0, d)
    scaled = omega.scale(scale, 3.0)
    np.testing.assert_allclose(scaled.dense, 3 * omega.dense * scale, rtol=1e-12, atol=1e-14)
    for each in (omega, scaled):
        np.testing.assert_allclose(each.square_norms, np.sum(each.dense**2, axis=1), rtol=1e-12)
        assert not each.diagonals.flags.writeable
        assert not each.norms.flags.writeable


def test_factors_are_checked_as_draws_are():
    for m, d, rng in [(0, 3, 0), (3, 0, 0), (3, 2.5, 0), (3, 3, "seed")]:
        with pytest.raises(ka.errors.ParameterError):
            ka.projections.Hadamard().factors(m, d, rng)
    omega = ka.projections.Orthogonal().factors(4, 3, 0)
    np.testing.assert_array_equal(omega, ka.projections.Orthogonal().draw(4, 3, 0))
