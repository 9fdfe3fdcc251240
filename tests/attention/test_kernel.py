"""Attention by any kernel against dense weights, whose logarithms are written out in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import kv

import kernattn as ka
import laws
import oracles
from covering import turns
from kernattn.attention._mechanisms import kernel as _kernel
from kernattn.errors import DTypeError, ParameterError, ShapeError
from xp import dtype_name, to_numpy

K = ka.kernels
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-5, "float64": 1e-11}
SCALES = np.linspace(0.5, 2, 6)


def apart(x, y):
    return x[..., :, None, :] - y[..., None, :, :]


def distance(x, y):
    return np.linalg.norm(apart(x, y), axis=-1)


def dots(x, y):
    return np.einsum("...nd,...kd->...nk", x, y)


def logcosh(z):
    return np.logaddexp(z, -z) - np.log(2)


def angle(x, y):
    size = np.linalg.norm(x, axis=-1)[..., :, None] * np.linalg.norm(y, axis=-1)[..., None, :]
    return np.arccos(np.clip(dots(x, y) / size, -1, 1)), size


def ramp(x, y):
    theta, size = angle(x, y)
    return np.log(size * (np.sin(theta) + (np.pi - theta) * np.cos(theta)))


def shares(x, y):
    x, y = x[..., :, None, :], y[..., None, :, :]
    return np.log(np.sum(2 * x * y / (x + y), axis=-1))


FAR = {  # have logarithms however far the rows are
    "softmax": (K.Softmax(), lambda x, y: dots(x, y) / np.sqrt(6)),
    "gaussian": (K.Gaussian(1.5), lambda x, y: -0.5 * (distance(x, y) / 1.5) ** 2),
    "gaussian of axes": (K.Gaussian(SCALES), lambda x, y: -0.5 * distance(x / SCALES, y / SCALES) ** 2),
    "laplacian": (K.Laplacian(2.0), lambda x, y: -np.abs(apart(x, y)).sum(axis=-1) / 2),
    "cauchy": (K.Cauchy(2.0), lambda x, y: -np.log1p((apart(x, y) / 2) ** 2).sum(axis=-1)),
    "matern 1/2": (K.Matern(0.5), lambda x, y: -distance(x, y)),
    "matern 5/2": (
        K.Matern(2.5),
        lambda x, y: (s := np.sqrt(5) * distance(x, y)) * -1 + np.log1p(s + s**2 / 3),
    ),
    "rational quadratic": (
        K.RationalQuadratic(0.7),
        lambda x, y: -0.7 * np.log1p(distance(x, y) ** 2 / 1.4),
    ),
    "sech": (K.Sech(), lambda x, y: -logcosh(apart(x, y) / 2).sum(axis=-1)),
    "polynomial": (K.Polynomial(4, coef0=1.0), lambda x, y: 4 * np.log(np.abs(dots(x, y) + 1))),
    "a sum": (
        K.Laplacian() + 2 * K.Softmax(1.0),
        lambda x, y: np.logaddexp(-np.abs(apart(x, y)).sum(axis=-1), dots(x, y) + np.log(2)),
    ),
    "a product": (
        3 * (K.Gaussian() * K.Polynomial(2)),
        lambda x, y: -0.5 * distance(x, y) ** 2 + 2 * np.log(np.abs(dots(x, y))),
    ),
}
KERNELS = FAR | {
    "matern 1": (K.Matern(1.0), lambda x, y: np.log((s := np.sqrt(2) * distance(x, y)) * kv(1.0, s))),
    "arc-cosine": (K.ArcCosine(1), ramp),
    "additive chi2": (K.AdditiveChi2(), lambda x, y: shares(np.abs(x), np.abs(y))),
    "skewed chi2": (
        K.SkewedChi2(0.5),
        lambda x, y: -logcosh(apart(*(np.log(np.abs(z) + 0.5) for z in (x, y))) / 2).sum(axis=-1),
    ),
}


def inputs(name, seed, n, length, dtype="float64", heads=(2,)):
    q, k, v = laws.arrays(seed, (*heads, n, 6), (*heads, length, 6), (*heads, length, 3), dtype=dtype)
    return (np.abs(q), np.abs(k), v) if "chi2" in name else (q, k, v)


def wanted(name, q, k, v, *, causal=False, key_mask=None):
    """The oracle; causal queries are the last ones."""
    q, k, v = (to_numpy(x) for x in (q, k, v))
    may = np.ones((q.shape[-2], k.shape[-2]), bool)
    may = np.tri(*may.shape, k.shape[-2] - q.shape[-2], dtype=bool) if causal else may
    with np.errstate(divide="ignore"):
        return oracles.weighted_by(KERNELS[name][1](q, k), v, may if key_mask is None else may & key_mask[..., None, :])


@pytest.mark.parametrize(
    ("name", "dtype", "n", "causal", "masked"),
    turns(
        KERNELS,
        [(t, n, c, m) for n, c, m in ((61, 0, 1), (40, 1, 0), (61, 1, 1)) for t in ("float32", "float64", "float16")],
    ),
)
def test_every_kernel(name, dtype, n, causal, masked):
    q, k, v = inputs(name, 1, n, 61, dtype)
    more = {"causal": bool(causal), "key_mask": np.random.default_rng(1).random((2, 61)) < 0.7 if masked else None}
    out = ka.kernel_attention(q, k, v, KERNELS[name][0], **more)
    assert dtype_name(out) == dtype
    laws.close(out, wanted(name, q, k, v, **more), TOLERANCE[dtype], name)


@pytest.mark.parametrize("name", ["gaussian", "laplacian", "rational quadratic", "polynomial"])
def test_every_kind_of_array(name, xp):
    q, k, v = inputs(name, 2, 20, 30, "float32", heads=(2, 1))
    q = np.concatenate([q, q + 1], axis=1)  # grouped queries
    mask = np.arange(30) % 4 > 0
    out = ka.kernel_attention(*map(xp.asarray, (q, k, v)), KERNELS[name][0], causal=True, key_mask=xp.asarray(mask))
    assert xp.holds(out)
    laws.close(out, wanted(name, q, k, v, causal=True, key_mask=mask), 3e-5, name)


@pytest.mark.parametrize("name", KERNELS)
def test_blocks_are_merged(name, monkeypatch):
    """Also where no row is ordinary, and all are taken by logarithms."""
    monkeypatch.setattr(_kernel, "KEYS", 16)
    monkeypatch.setattr(_kernel, "ENTRIES", 200)
    q, k, v = inputs(name, 3, 35, 50)
    rng = np.random.default_rng(0)
    for ordinary in (_kernel.ORDINARY, (np.inf, 0.0)):
        monkeypatch.setattr(_kernel, "ORDINARY", ordinary)
        for spread in ({}, {"float64": -1.0}):
            monkeypatch.setattr(_kernel, "SPREAD", {"float64": 2.0**20} | spread)
            more = {"causal": bool(rng.integers(2)), "key_mask": rng.random(50) < 0.3}
            out = ka.kernel_attention(q, k, v, KERNELS[name][0], **more)
            laws.close(out, wanted(name, q, k, v, **more), 1e-9, name)


@given(st.integers(1, 40), st.integers(1, 40), st.booleans(), st.integers(0, 2**20))
@settings(max_examples=20)
def test_any_size(n, length, causal, seed):
    q, k, v = inputs("", seed, n, length, heads=())
    mask = np.random.default_rng(seed).random(length) < 0.6
    for name in ("gaussian", "matern 5/2"):
        out = ka.kernel_attention(q, k, v, KERNELS[name][0], causal=causal, key_mask=mask)
        laws.close(out, wanted(name, q, k, v, causal=causal, key_mask=mask), 1e-11, name)


@pytest.mark.parametrize("name", FAR)
def test_rows_far_from_all_keys(name):
    """In float32 all kernel values of these rows are 0, or too large."""
    q, k, v = inputs(name, 4, 30, 40, "float32")
    q[:, ::3] *= 300
    for causal in (False, True):
        out = ka.kernel_attention(q, k, v, KERNELS[name][0], causal=causal)
        exact = wanted(name, q, k, v, causal=causal)
        near = np.arange(30) % 3 > 0
        laws.close(out[:, near], exact[:, near], 3e-5, name)
        laws.close(out[:, ~near], exact[:, ~near], 2e-2, name)


def test_gaussian_rows_far_from_the_origin():
    """Their dot products would round what their distances are; the middle of the keys, or distances, do not."""
    q, k, v = inputs("", 5, 30, 40, "float32")
    for shift in (1e3, 1e5):
        moved = [(x.astype("f8") + shift).astype("f4") for x in (q, k)]
        out = ka.kernel_attention(*moved, v, K.Gaussian(1.5))
        laws.close(out, wanted("gaussian", *moved, v), 1e-4, "shifted")
    spread = [np.concatenate([x, x + np.float32(1e4)], axis=-2) for x in (q, k)]  # two groups
    v = np.concatenate([v, v + 1], axis=-2)
    out = ka.kernel_attention(*spread, v, K.Gaussian(2.0))  # by which nothing is rounded
    weights = -0.5 * (distance(*(x.astype("f8") for x in spread)) / 2) ** 2
    laws.close(out, oracles.weighted_by(weights, v.astype("f8"), True), 3e-5, "two groups")


@pytest.mark.parametrize("name", ["gaussian", "laplacian", "cauchy"])
def test_what_a_row_does_not_see_may_be_anything(name):
    q, k, v = inputs(name, 6, 50, 50)
    kernel = KERNELS[name][0]
    clean = ka.kernel_attention(q, k, v, kernel, causal=True)
    mask = np.arange(50) != 20
    hidden = ka.kernel_attention(q, k, v, kernel, key_mask=mask)
    for filling in (np.nan, np.inf):
        for which in (1, 2):
            spoilt = [q, k.copy(), v.copy()]
            spoilt[which][:, 20] = filling
            with np.errstate(invalid="ignore"):
                out = ka.kernel_attention(*spoilt, kernel, causal=True)
            np.testing.assert_allclose(out[:, :20], clean[:, :20], rtol=1e-11, atol=1e-13)
            np.testing.assert_allclose(ka.kernel_attention(*spoilt, kernel, key_mask=mask), hidden, rtol=1e-12)
    nothing = ka.kernel_attention(q, k, v, kernel, key_mask=np.zeros(50, bool))
    assert (nothing == 0).all()
    if name != "cauchy":
        huge = ka.kernel_attention(q, k, v * 1e307, kernel)
        np.testing.assert_allclose(huge / 1e307, ka.kernel_attention(q, k, v, kernel), rtol=1e-11)


@pytest.mark.parametrize("name", ["gaussian", "laplacian", "polynomial"])
def test_torch_differentiates(name):
    torch = pytest.importorskip("torch")
    q, k, v = inputs(name, 7, 9, 12, heads=())
    tensors = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    found = torch.autograd.grad(ka.kernel_attention(*tensors, KERNELS[name][0], causal=True).square().sum(), tensors)
    for which, gradient in enumerate(found):
        along = np.random.default_rng(which).standard_normal(gradient.shape)
        ends = [
            np.sum(
                wanted(name, *(x + step * along if at == which else x for at, x in enumerate((q, k, v))), causal=True)
                ** 2
            )
            for step in (1e-6, -1e-6)
        ]
        np.testing.assert_allclose(np.sum(gradient.numpy() * along), (ends[0] - ends[1]) / 2e-6, rtol=1e-5)


def test_features_estimate_it():
    """Linear attention by features of a kernel nears attention by the kernel."""
    q, k, v = (0.5 * x for x in inputs("", 8, 60, 60, heads=()))
    kernel = K.Gaussian(2.0)
    exact = ka.kernel_attention(q, k, v, kernel)
    phi = ka.random_features(kernel, 6, 2**14, "positive", rng=0)
    error = np.linalg.norm(ka.linear_attention(q, k, v, phi) - exact)
    assert error < 0.05 * np.linalg.norm(exact)


def test_bad_input_is_refused():
    q, k, v = inputs("", 9, 8, 8, "float32")
    for kernel in (K.Polynomial(3), K.Gaussian() + K.Polynomial(1), 2 * (K.Laplacian() * K.Polynomial(3, coef0=1.0))):
        with pytest.raises(ParameterError, match=r"kernel must never be negative.*Polynomial\(degree=[13]"):
            ka.kernel_attention(q, k, v, kernel)
    with pytest.raises(DTypeError, match="kernel must be a Kernel"):
        ka.kernel_attention(q, k, v, "gaussian")
    with pytest.raises(ParameterError, match="x must not be negative"):
        ka.kernel_attention(q, k, v, K.AdditiveChi2())
    with pytest.raises(ShapeError, match="lengthscale has 5 entries"):
        ka.kernel_attention(q, k, v, K.Gaussian(np.ones(5)))
    with pytest.raises(ShapeError, match="the last axis"):
        ka.kernel_attention(q[..., :5], k, v, K.Laplacian())
    with pytest.raises(ParameterError, match="causal"):
        ka.kernel_attention(q, k, v, K.Laplacian(), causal=1)
