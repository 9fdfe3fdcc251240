"""Exact attention of any finite input is finite and lies among the values; where an oracle can say it, it is right."""

from threading import Thread

import numpy as np
import pytest

import kernattn as ka
import laws
from covering import turns
from kernattn._plans.plan import CAUSAL
from kernattn.ops import block_softmax
from xp import KINDS, Backend, backends, to_numpy

DIM = 5
SIZES = {
    "float16": (6e-8, 1e-4, 1, 250, 6.5e4),
    "bfloat16": (1e-40, 1e-20, 1, 1e10, 1e20, 1e30, 3e38),
    "float32": (1e-45, 1e-30, 1e-10, 1, 50, 1e10, 1e18, 1e19, 1e20, 1e30, 1e38),
    "float64": (1e-323, 1e-200, 1, 1e20, 1e100, 1e153, 1e154, 1e160, 1e200, 1e300, 1e307),
}
EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
LARGEST = {"bfloat16": 3.3895e38}
WIDE = np.finfo(np.longdouble).maxexp > 10_000  # scores of float64 may overflow float64


HOST = [each for each in backends("block_softmax") if each.name in ("cpu", "reference")]
OTHERS = [Backend("reference", kind) for kind in KINDS if kind.name in ("strict", "torch")]
JAX = [Backend("reference", kind) for kind in KINDS if kind.name == "jax"]  # compiles for seconds each call
SOME = [pytest.param(each, marks=pytest.mark.slow) for each in JAX]


@pytest.fixture(params=[*HOST, *OTHERS, *SOME], ids=lambda each: f"{each}-{each.kind}", scope="session")
def softmax_backend(request):
    """Each backend of the host, and the reference on each kind of array; JAX in whole where slow tests run."""
    with request.param.kind.wide():
        yield request.param


def numpy_dtype(name):
    return getattr(pytest.importorskip("ml_dtypes"), name) if name == "bfloat16" else np.dtype(name)


def oracle(q, k, v, scale, may):
    """-> out, lse, and the size of what is added to a score of each row."""
    q, k, v = (x.astype(np.longdouble) for x in (q, k, v))
    logits = np.where(may, np.longdouble(scale) * (q @ k.mT), -np.inf)
    sizes = np.abs(np.longdouble(scale)) * (np.abs(q) @ np.abs(k).mT).max(axis=-1)
    peak = logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits - peak)
    total = weights.sum(axis=-1, keepdims=True)
    return (weights / total) @ v, (peak + np.log(total))[..., 0], sizes


def attention(backend, *arrays, **options):
    """-> float64 numbers."""
    out, lse = ka.attention.softmax_with_lse(*map(backend.kind.asarray, arrays), backend=backend.name, **options)
    return to_numpy(out), to_numpy(lse)


@pytest.mark.parametrize(("dtype", "causal"), turns(SIZES, [False, True]))
def test_every_size(dtype, causal, softmax_backend):
    own = SIZES[dtype] if softmax_backend in HOST else (SIZES[dtype][0], 1, SIZES[dtype][-1])
    check_sizes(own, dtype, causal, softmax_backend)


@pytest.mark.parametrize("jax", JAX, ids=repr)
def test_sizes_on_jax(jax):
    check_sizes((1e-30, 1, 1e30), "float32", False, jax)


def check_sizes(own, dtype, causal, softmax_backend):
    """Finite, among the values and right where scores are told apart, for queries and keys of each pair of sizes."""
    if dtype not in softmax_backend.kind.dtypes:
        pytest.skip(f"no {dtype} there")
    kind, rng = numpy_dtype(dtype), np.random.default_rng(5)
    wide = "float64" if dtype == "float64" else "float32"
    largest = LARGEST.get(dtype) or np.finfo(kind).max
    may = np.tri(70, dtype=bool) if causal else np.ones((70, 70), bool)
    for size in own:
        for other in dict.fromkeys((size, own[0], 1)):
            for values in (1, largest):
                given = [
                    (rng.uniform(-1, 1, (70, width)) * factor).astype(kind)
                    for width, factor in ((DIM, size), (DIM, other), (3, values))
                ]
                out, lse = attention(softmax_backend, *given, causal=causal)
                if softmax_backend.kind.name == "jax":  # XLA flushes denormal numbers to zero
                    tiny = np.finfo(kind if dtype == "float64" else "f4").tiny
                    given = [np.where(np.abs(x) < tiny, 0, x).astype(kind) for x in given]
                what = f"q {size}, k {other}, v {values}"
                v = given[2].astype("f8")
                assert np.isfinite(out).all(), what
                assert (np.abs(out) <= np.abs(v).max() * (1 + 1e-6)).all(), what
                if dtype == "float64" and not WIDE:
                    continue
                wanted, wanted_lse, sizes = oracle(*given, DIM**-0.5, may)
                fine = EPS[dtype if dtype == "float64" else "float32"]
                sure = sizes * fine * 100 < 0.1  # the scores are told from each other
                wrong = np.abs(out.astype(np.longdouble) - wanted) / np.abs(v).max()
                bound = 4 * EPS[dtype] + fine * 200 * (1 + sizes)[:, None]
                assert (wrong <= bound)[sure].all(), what
                limit = np.finfo(wide).max
                held = np.clip(wanted_lse, -limit, limit)
                error = np.abs(lse.astype(np.longdouble) - held)
                assert (error <= 100 * fine * (1 + np.minimum(sizes, limit))).all(), what


@pytest.mark.parametrize(("dtype", "big"), [("float32", 1e30), ("float64", 1e300)])
def test_the_largest_score_wins_and_ties_share(dtype, big, softmax_backend):
    """Also where no score fits the dtype, of either sign, and where ordinary ones stand beside one that does not."""
    v = np.arange(1, 5, dtype=dtype)[:, None]
    q = np.array([[big, big], [-big, big], [0, big], [1, 0], [-big, -big]], dtype)
    k = np.array([[big, 0], [0, big], [big, 0], [0, -big]], dtype)
    out, lse = attention(softmax_backend, q, k, v, scale=1.0)
    np.testing.assert_allclose(out[:, 0], [2, 2, 2, 2, 4])
    limit = np.finfo(dtype).max
    np.testing.assert_allclose(lse[[0, 1, 2, 4]], limit)
    np.testing.assert_allclose(lse[3], big)
    below, lse = attention(softmax_backend, -np.abs(q[:1]), k[:3] + k[[1, 0, 1]], v[:3], scale=1.0)
    np.testing.assert_allclose(below[:, 0], [2])
    np.testing.assert_allclose(lse, [-limit])
    mixed = np.array([[-big, 0], [0, 1 / big], [0, 2 / big]], dtype)  # scores -big^2, 1 and 2
    out, lse = attention(softmax_backend, q[:1], mixed, v[:3], scale=1.0)
    np.testing.assert_allclose(out[0, 0], 2 + 1 / (1 + np.exp(-1)), rtol=1e-5)
    np.testing.assert_allclose(lse, np.logaddexp(1, 2), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_huge_values_are_averaged(dtype, softmax_backend):
    largest = np.finfo(dtype).max
    q, k = np.zeros((2, 3, 70, 4), dtype)
    v = np.full((3, 70, 2), largest, dtype)
    v[..., ::2, 1] *= -1
    out, _ = attention(softmax_backend, q, k, v)
    np.testing.assert_allclose(out[..., 0], largest, rtol=1e-5)
    np.testing.assert_allclose(out[..., 1] / largest, 0, atol=1e-5)
    assert (np.abs(out) <= largest).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-50, 1e50, 1e300, -1e300])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_scale(dtype, scale, softmax_backend):
    q, k, v = np.random.default_rng(1).standard_normal((3, 2, 70, 4)).astype(dtype)
    out, lse = attention(softmax_backend, q, k, v, scale=scale)
    assert np.isfinite(out).all()
    assert np.isfinite(lse).all()
    if abs(scale) > 1:
        at = (np.sign(scale) * q.astype("f8") @ k.astype("f8").mT).argmax(axis=-1)
        np.testing.assert_allclose(out, np.take_along_axis(v, at[..., None], axis=-2), rtol=1e-6)
    else:
        np.testing.assert_allclose(out, np.broadcast_to(v.mean(axis=-2, keepdims=True), out.shape), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_scale_below_the_floats_may_meet_huge_inputs(dtype, softmax_backend):
    big = 1e30 if dtype == "float32" else 1e300
    q, k, v = np.random.default_rng(1).standard_normal((3, 70, 4))
    wanted, _ = attention(softmax_backend, q, k, v, scale=1.0)
    given = (q * big).astype(dtype), (k * big).astype(dtype), v.astype(dtype)
    if dtype == "float32":
        out, _ = attention(softmax_backend, *given, scale=1e-60)
        np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
    out, _ = attention(softmax_backend, given[0], given[1] / given[1].dtype.type(big), given[2], scale=1 / big)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_row_is_computed_in_another_way_because_of_another(dtype, softmax_backend):
    """Far queries leave the other rows alone, and far keys and values those that do not see them, to the bit."""
    big = 1e30 if dtype == "float32" else 1e300
    given = list(np.random.default_rng(1).standard_normal((3, 70, 4)).astype(dtype))
    for causal in (False, True):
        wanted = attention(softmax_backend, *given, causal=causal)
        q = given[0].copy()
        q[[3, 50]] *= big
        found = attention(softmax_backend, q, *given[1:], causal=causal)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(np.delete(one, [3, 50], 0), np.delete(other, [3, 50], 0))
            assert np.isfinite(one).all()
    for which, factor in ((1, big), (2, np.finfo(dtype).max / 8)):
        far = [x.copy() for x in given]
        far[which][40:] *= factor
        far[which][66] = np.nan
        for one, other in zip(attention(softmax_backend, *far, causal=True), wanted, strict=True):
            np.testing.assert_array_equal(one[:40], other[:40])
            assert np.isfinite(one[:66]).all()


def test_gradients_of_ordinary_rows_survive_a_far_one():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.tensor(x) for x in np.random.default_rng(1).standard_normal((3, 9, 4)))
    q[4] *= 1e300
    for x in (q, k, v):
        x.requires_grad_()
    ka.softmax_attention(q, k, v)[:4].sum().backward()
    wanted = [x.grad.clone() for x in (q, k, v)]
    assert all(torch.isfinite(x).all() for x in wanted)
    for x in (q, k, v):
        x.grad = None
    near = torch.where(torch.arange(9)[:, None] == 4, 0, q)
    ka.softmax_attention(near, k, v)[:4].sum().backward()
    for one, x in zip(wanted, (q, k, v), strict=True):
        torch.testing.assert_close(one, x.grad)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, 0.0, -1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.skipif(len(HOST) < 2, reason="needs numba")
def test_no_scale_keeps_a_loop_running(scale, dtype):
    """The op takes what a tracer brings: no finite unit holds such scores."""
    q, k, v = (x.astype(dtype) for x in laws.arrays(1, (5, 4), (5, 4), (5, 3)))
    found = []

    def run():
        found.append(block_softmax.OP.function("cpu")(q, k, v, scale, CAUSAL, None))

    with np.errstate(all="ignore"):
        thread = Thread(target=run, daemon=True)
        thread.start()
        thread.join(120)
        assert found, "a loop that does not end"
        scores = np.where(np.tri(5, dtype=bool), (scale * q.astype(np.float64)) @ k.T, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights @ v / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(found[0][0], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bias", [np.nan, np.inf])
def test_rows_that_see_a_bias_that_is_not_finite_are_nan(bias):
    q, k, v = laws.arrays(1, (5, 4), (5, 4), (5, 3))
    added = np.array([0.0, 0.0, bias, 0.0, 0.0], q.dtype)
    for each in HOST:
        with np.errstate(invalid="ignore"):
            out, lse = ka.attention.softmax_with_lse(q, k, v, causal=True, key_bias=added, backend=each.name)
        assert not np.isfinite(lse[2:]).any()
        assert np.isnan(out[2:]).all()
        np.testing.assert_allclose(out[:2], ka.softmax_attention(q[:2], k[:2], v[:2], causal=True))


@pytest.mark.parametrize("kind", [each for each in KINDS if each.name in ("numpy", "strict", "torch")], ids=repr)
@pytest.mark.parametrize(("size", "of_values"), [(1e20, 1.0), (3e37, 1.0), (1.0, 3e38)])
def test_float32_rows_of_a_pattern(kind, size, of_values):
    """Their scores, or sums of their values, are beyond float32; what a row does not see changes no bit of it."""
    q, k, v = np.random.default_rng(4).uniform(-1, 1, (3, 40, DIM)).astype("f4")
    q, k, v = np.float32(size) * q, np.float32(size) * k, np.float32(of_values) * v
    bias = np.linspace(-1, 1, 40).astype("f4")
    near = ka.patterns.local(3)
    wanted, logs, _ = oracle(q, k, v, 0.5, near.plan(40).mask())
    backend, given = Backend("reference", kind), {"scale": 0.5, "pattern": near}
    out, lse = attention(backend, q, k, v, **given)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-6 * of_values)
    np.testing.assert_allclose(lse, np.clip(logs, -3.5e38, 3.4028235e38).astype(float), rtol=1e-5, atol=1e-5)
    biased, _ = attention(backend, q, k, v, key_bias=kind.asarray(bias), **given)
    assert np.isfinite(biased).all()
    k[30:], v[30:] = np.nan, np.inf
    again, _ = attention(backend, q, k, v, **given)
    np.testing.assert_array_equal(again[:27], out[:27])
