"""Every family of kernels against its formula in float64, over kinds of array and dtypes, and against its peers."""

import mpmath
import numpy as np
import pytest
from scipy import integrate, special

import kernattn as ka
from xp import KINDS, NUMPY, dtype_name, to_numpy

K = ka.kernels
ELL = np.array([0.7, 1.0, 1.5, 3.0])


def matern(nu, s):
    return 1.0 if s == 0 else 2 ** (1 - nu) / special.gamma(nu) * s**nu * special.kv(nu, s)


def arccosine(x, y, order):
    r = np.linalg.norm(x) * np.linalg.norm(y)
    t = np.arccos(np.clip(x @ y / r, -1, 1))
    j = [
        np.pi - t,
        np.sin(t) + (np.pi - t) * np.cos(t),
        3 * np.sin(t) * np.cos(t) + (np.pi - t) * (1 + 2 * np.cos(t) ** 2),
    ]
    return r**order * j[order] / np.pi


def distance(x, y):
    return np.linalg.norm((x - y) / ELL)


FAMILIES = {
    "laplacian": (K.Laplacian(2.0), lambda x, y: np.exp(-np.abs(x - y).sum() / 2)),
    "laplacian-ard": (K.Laplacian(ELL), lambda x, y: np.exp(-np.abs((x - y) / ELL).sum())),
    "cauchy": (K.Cauchy(1.5), lambda x, y: np.prod(1 / (1 + (x - y) ** 2 / 2.25))),
    "cauchy-ard": (K.Cauchy(ELL), lambda x, y: np.prod(1 / (1 + (x - y) ** 2 / ELL**2))),
    "matern-1/2": (K.Matern(0.5, ELL), lambda x, y: np.exp(-distance(x, y))),
    "matern-3/2": (K.Matern(1.5, ELL), lambda x, y: matern(1.5, np.sqrt(3) * distance(x, y))),
    "matern-5/2": (K.Matern(2.5, ELL), lambda x, y: matern(2.5, np.sqrt(5) * distance(x, y))),
    "matern-0.8": (K.Matern(0.8, ELL), lambda x, y: matern(0.8, np.sqrt(1.6) * distance(x, y))),
    "matern-4": (K.Matern(4, ELL), lambda x, y: matern(4.0, np.sqrt(8) * distance(x, y))),
    "rational_quadratic": (K.RationalQuadratic(0.6, ELL), lambda x, y: (1 + distance(x, y) ** 2 / 1.2) ** -0.6),
    "polynomial": (K.Polynomial(3, 0.5, 1.0), lambda x, y: (0.5 * x @ y + 1) ** 3),
    "polynomial-homogeneous": (K.Polynomial(2), lambda x, y: (x @ y) ** 2),
    "arccosine-0": (K.ArcCosine(0), lambda x, y: arccosine(x, y, 0)),
    "arccosine-1": (K.ArcCosine(1), lambda x, y: arccosine(x, y, 1)),
    "arccosine-2": (K.ArcCosine(2), lambda x, y: arccosine(x, y, 2)),
    "additive_chi2": (K.AdditiveChi2(), lambda x, y: np.sum(2 * x * y / (x + y))),
    "skewed_chi2": (K.SkewedChi2(0.3), lambda x, y: np.prod(2 * np.sqrt((x + 0.3) * (y + 0.3)) / (x + y + 0.6))),
    "sech": (K.Sech(ELL), lambda x, y: np.prod(1 / np.cosh((x - y) / (2 * ELL)))),
    "tanimoto": (K.Tanimoto(), lambda x, y: np.sum(np.minimum(x, y)) / np.sum(np.maximum(x, y))),
    "tanimoto-dot": (K.Tanimoto("dot"), lambda x, y: x @ y / (x @ x + y @ y - x @ y)),
    "periodic": (
        K.Periodic(ELL, 0.8),
        lambda x, y: np.exp(-2 * np.sum(np.sin(np.pi * (x - y) / ELL) ** 2) / 0.64),
    ),
    "sum": (
        2.0 * K.Gaussian(ELL) + K.Polynomial(2),
        lambda x, y: 2 * np.exp(-(distance(x, y) ** 2) / 2) + (x @ y) ** 2,
    ),
    "product": (
        K.Laplacian(2.0) * K.Matern(0.5, ELL) * 3,
        lambda x, y: 3 * np.exp(-np.abs(x - y).sum() / 2 - distance(x, y)),
    ),
}
RTOL = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-12}


@pytest.fixture(params=FAMILIES)
def case(request):
    return FAMILIES[request.param]


def rows(seed, *shape):
    return np.abs(np.random.default_rng(seed).standard_normal(shape)) + 0.01


def every(formula, x, y):
    return np.array([[formula(a, b) for b in y] for a in x])


KINDS_AND_DTYPES = [(kind, "float32") for kind in KINDS] + [
    (NUMPY, name) for name in ("float16", "bfloat16", "float64")
]


@pytest.mark.parametrize(("xp", "dtype"), KINDS_AND_DTYPES, ids=str)
def test_formula_kind_and_dtype(case, xp, dtype):
    if dtype not in xp.dtypes:
        pytest.skip(f"{xp} has no {dtype}")
    kernel, formula = case
    with xp.wide():
        x, y = xp.asarray(rows(0, 5, 4), dtype), xp.asarray(rows(1, 3, 4), dtype)
        matrix, pairs, own, diagonal = kernel(x, y), kernel.pairs(x[:3, :], y), kernel(x), kernel.diag(x)
    x64, y64 = to_numpy(x), to_numpy(y)
    for got, wanted in (
        (matrix, every(formula, x64, y64)),
        (pairs, np.diag(every(formula, x64[:3], y64))),
        (diagonal, np.diag(every(formula, x64, x64))),
        (own, every(formula, x64, x64)),
    ):
        assert xp.holds(got)
        assert dtype_name(got) == dtype
        np.testing.assert_allclose(to_numpy(got), wanted, rtol=RTOL[dtype], atol=1e-7 if dtype == "float64" else 0)
    np.testing.assert_array_equal(np.diagonal(to_numpy(own)), to_numpy(diagonal))


def test_leading_axes_broadcast(case):
    kernel, _ = case
    x, y = rows(2, 2, 1, 4, 4), rows(3, 3, 5, 4)
    matrix = kernel(x, y)
    assert matrix.shape == (2, 3, 4, 5)
    np.testing.assert_allclose(matrix[1, 2], kernel(x[1, 0], y[2]), rtol=1e-13)
    np.testing.assert_allclose(kernel.pairs(x[..., 0, :], y[:, 0]), matrix[..., 0, 0], rtol=1e-7)


def test_positive_definite(case):
    kernel, _ = case
    matrix = kernel(rows(4, 30, 4))
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-12, atol=1e-14)
    assert np.linalg.eigvalsh(matrix).min() > -1e-12 * np.trace(matrix)


def test_blocks_of_rows_change_nothing(case, monkeypatch):
    kernel, _ = case
    x, y = rows(5, 2, 11, 4), rows(6, 7, 4)
    whole = kernel(x, y), kernel(x)
    monkeypatch.setattr("kernattn.kernels._pairwise.BLOCK", 42)  # 3 rows; 2 of 11 are left over
    for got, wanted in zip((kernel(x, y), kernel(x)), whole, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-9)


def test_blocks_of_every_kind(xp, monkeypatch):
    kernel = K.Laplacian() + K.Gaussian()
    x, y = xp.asarray(rows(5, 11, 4), "float32"), xp.asarray(rows(6, 7, 4), "float32")
    whole = to_numpy(kernel(x, y))
    monkeypatch.setattr("kernattn.kernels._pairwise.BLOCK", 42)
    np.testing.assert_allclose(to_numpy(kernel(x, y)), whole, rtol=3e-6)


@pytest.mark.parametrize(
    "kernel", [K.Laplacian(), K.Cauchy(), K.AdditiveChi2(), K.SkewedChi2(), K.Matern(0.5)], ids=repr
)
def test_no_temporary_of_all_axes(kernel):
    import tracemalloc

    n, k, d = 6000, 500, 60
    x, y = rows(7, n, d), rows(8, k, d)
    tracemalloc.start()
    try:
        kernel(x, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    result = 8 * n * k
    assert peak < 2 * result + 8 * 8 * 2**20, "the parts, the whole, and a few blocks"  # n k d would be 60 results


# ---- peers ----


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("lengthscale", [1e-30, 1e-20, 1e30])
def test_periodic_of_any_lengthscale(lengthscale, dtype):
    """The square of its inverse is beyond float32."""
    kernel, x = ka.kernels.Periodic(3.0, lengthscale), np.array([[0.0], [0.5]], dtype)
    np.testing.assert_array_equal(kernel(x), np.eye(2) if lengthscale < 1 else np.ones((2, 2)))
    np.testing.assert_array_equal(kernel.diag(x), 1.0)


@pytest.mark.parametrize("nu", [0.05, 0.3, 0.5, 1.0, 1.5, 2.5, 3.3, 20.0, 99.0, 101.0, 1000.0])
def test_matern_to_many_digits(nu):
    z = np.array([0.0, 1e-9, 1e-3, 0.1, 1.0, 3.0, 8.0])
    with mpmath.workdps(30):
        order = mpmath.mpf(nu)
        s = [mpmath.sqrt(2 * order) * mpmath.mpf(float(value)) for value in z[1:]]
        front = 2 ** (1 - order) / mpmath.gamma(order)
        wanted = [1.0, *(float(front * t**order * mpmath.besselk(order, t)) for t in s)]
    got = K.Matern(nu).pairs(z[:, None], np.zeros((len(z), 1)))
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("nu", [0.3, 1.0, 3.0, 50.0, 200.0])
def test_matern_at_the_ends(nu):
    z = np.array([0.0, 1e-320, 1e-14, 1e3, 1e100, np.inf, np.nan])
    got = K.Matern(nu).pairs(z[:, None], np.zeros((len(z), 1)))
    np.testing.assert_allclose(got, [1, 1, 1, 0, 0, 0, np.nan], atol=1e-8)
    assert (got[:2] == 1).all()


def test_matern_and_rational_quadratic_end_in_the_gaussian():
    x, y = rows(9, 5, 4), rows(10, 6, 4)
    for kernel in (K.Matern(1e12), K.RationalQuadratic(1e12)):
        np.testing.assert_allclose(kernel(x, y), K.Gaussian()(x, y), atol=1e-11)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("angle", [0.3, 1.5, 2.9])
def test_arccosine_is_its_integral(order, angle):
    def integrand(radius, t):
        u, v = radius * np.cos(t), radius * np.cos(t - angle)
        return 2 * (u * v) ** order * radius * np.exp(-(radius**2) / 2) / (2 * np.pi)

    integral, _ = integrate.dblquad(integrand, angle - np.pi / 2, np.pi / 2, 0, 12)
    x, y = np.array([[1.0, 0.0]]), np.array([[np.cos(angle), np.sin(angle)]])
    np.testing.assert_allclose(K.ArcCosine(order)(x, y)[0, 0], integral, rtol=1e-9)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arccosine_of_zero_rows_and_equal_rows(order):
    x = np.array([[0.0, 0.0], [3.0, -4.0], [1e-8, 0.0], [-3e-3, 4e-3]])
    kernel = K.ArcCosine(order)
    matrix = kernel(x)
    np.testing.assert_array_equal(matrix[0], 0)
    np.testing.assert_allclose(
        np.diag(matrix), [0, *(np.array([25.0, 1e-16, 25e-6]) ** order * (1, 1, 3)[order])], rtol=1e-12
    )
    np.testing.assert_allclose(matrix[1, 3], 0, atol=1e-8)


def test_scikit_learn_agrees():
    pairwise = pytest.importorskip("sklearn.metrics.pairwise")
    processes = pytest.importorskip("sklearn.gaussian_process.kernels")
    x, y = rows(11, 6, 4), rows(12, 5, 4)
    x[0, 1] = y[0, 1] = 0.0
    mass = x.sum(axis=1)[:, None] + y.sum(axis=1)
    for got, wanted in (
        (K.Gaussian(ELL), processes.RBF(ELL)(x, y)),
        (K.Laplacian(4.0), pairwise.laplacian_kernel(x, y, gamma=0.25)),
        (K.Matern(1.5, ELL), processes.Matern(ELL, nu=1.5)(x, y)),
        (K.Matern(0.7, ELL), processes.Matern(ELL, nu=0.7)(x, y)),
        (K.RationalQuadratic(0.7, 2.0), processes.RationalQuadratic(2.0, 0.7)(x, y)),
        (K.Polynomial(3, 0.25, 1.0), pairwise.polynomial_kernel(x, y)),
        (K.AdditiveChi2(), (pairwise.additive_chi2_kernel(x, y) + mass) / 2),
        (
            3 * K.Gaussian() + K.Polynomial(1) * K.Gaussian(2.0),
            3 * pairwise.rbf_kernel(x, y, 0.5) + x @ y.T * pairwise.rbf_kernel(x, y, 0.125),
        ),
    ):
        np.testing.assert_allclose(got(x, y), wanted, rtol=1e-12)


def test_scipy_agrees():
    from scipy.spatial.distance import cdist

    x, y = rows(13, 6, 4), rows(14, 5, 4)
    np.testing.assert_allclose(K.Laplacian()(x, y), np.exp(-cdist(x, y, "cityblock")), rtol=1e-13)
    np.testing.assert_allclose(K.Matern(0.5)(x, y), np.exp(-cdist(x, y)), rtol=1e-13)


def test_skewed_chi2_is_the_sech_kernel_of_logarithms():
    x, y = rows(15, 6, 4), rows(16, 5, 4)
    np.testing.assert_allclose(K.SkewedChi2(0.2)(x, y), K.Sech()(np.log(x + 0.2), np.log(y + 0.2)), rtol=1e-13)


# ---- tracing and derivatives ----

DIFFERENTIABLE = [name for name in FAMILIES if name not in ("matern-0.8", "matern-4")]


@pytest.mark.parametrize("name", ["laplacian-ard", "matern-3/2", "arccosine-1", "additive_chi2", "sum"])
def test_jax_traces(name):
    jax = pytest.importorskip("jax")
    kernel = FAMILIES[name][0]
    x = rows(17, 5, 4).astype(np.float32)
    np.testing.assert_allclose(jax.jit(kernel)(x), kernel(x), rtol=2e-5)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_torch_differentiates(name):
    torch = pytest.importorskip("torch")
    kernel = FAMILIES[name][0]
    x = torch.tensor(rows(18, 4, 4), requires_grad=True)
    y = torch.tensor(rows(19, 3, 4))
    assert torch.autograd.gradcheck(lambda x: kernel(x, y), x)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch.func.jvp's own
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_torch_transforms(name):
    """Rows to one side of 0, and a bound of distances that is not met."""
    torch = pytest.importorskip("torch")
    kernel = FAMILIES[name][0]
    x, y, u = (torch.tensor(1 + rows(seed, 4, 4) / 9) for seed in (18, 19, 20))
    out, tangent = torch.func.jvp(lambda x: kernel(x, y), (x,), (u,))
    wanted, pull_back = torch.func.vjp(lambda x: kernel(x, y), x)
    g = torch.tensor(rows(21, *out.shape))
    torch.testing.assert_close(out, kernel(x, y))
    torch.testing.assert_close(wanted, out)
    torch.testing.assert_close(torch.sum(tangent * g), torch.sum(pull_back(g)[0] * u), rtol=1e-9, atol=1e-12)
    given = x.clone().requires_grad_()
    torch.testing.assert_close(pull_back(g)[0], torch.autograd.grad(kernel(given, y), given, g)[0])
