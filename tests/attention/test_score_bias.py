"""What is added to the scores of pairs: against dense matrices, and what -inf hides."""

import numpy as np
import pytest

import kernattn as ka
import laws
from kernattn.errors import DTypeError, MixedLibraryError, ShapeError
from xp import backends, to_numpy

P, N = ka.patterns, 140
PATTERNS = {
    "all": None,
    "near": P.local(20, 5),
    "merged": P.bigbird(16, 1, rng=0),
    "heads": P.per_head([P.local(9), P.strided(7, 7), P.documents(np.arange(N) // 30 % 3)]),
}


@pytest.fixture(params=backends("block_softmax"), ids=repr, scope="module")
def backend(request):
    return request.param


def problem(dtype="float64", lead=(3,), n=N):
    """-> q, k, v of two sequences of three heads on one of keys, and a bias that hides some keys, and a row all."""
    q, k, v, bias = laws.arrays(5, (2, 3, n, 6), (2, 1, N, 6), (2, 1, N, 4), (*lead, n, N), dtype=dtype)
    bias[np.random.default_rng(1).random(bias.shape) < 0.3] = -np.inf
    bias[..., n // 2, :] = -np.inf
    return q, k, v, bias


def weights_of(q, k, bias, sees=True):
    """The weights (..., n, l), by one matrix."""
    seen = sees & (bias != -np.inf)
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]) + np.where(seen, bias, 0)
    weights = np.exp(np.where(seen, scores, -np.inf) - np.max(scores, axis=-1, keepdims=True))
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize(("causal", "lead", "dtype"), [(False, (3,), "float64"), (True, (2, 1), "float32")])
def test_against_matrices(name, causal, lead, dtype, backend):
    """Also where what nobody sees is NaN, and in rows that see nothing."""
    q, k, v, bias = problem(dtype, lead)
    sees = np.tri(N, dtype=bool) if causal else np.ones((N, N), bool)
    if PATTERNS[name] is not None:
        plan = PATTERNS[name].plan(N)
        sees = sees & np.stack([plan.mask(head) for head in range(len(plan.heads))])
    bias[..., 40] = -np.inf
    wanted = weights_of(q, k, bias, sees) @ v
    k[..., 40, :], v[..., 40, :] = np.nan, np.inf
    bias = np.where(sees, bias, np.nan) if bias.shape[:-2] == sees.shape[:-2] else bias
    a = backend.kind.asarray
    with np.errstate(invalid="ignore"):
        out = ka.softmax_attention(
            a(q), a(k), a(v), score_bias=a(bias), pattern=PATTERNS[name], causal=causal, backend=backend.name
        )
    assert (to_numpy(out)[..., N // 2, :] == 0).all()
    np.testing.assert_allclose(to_numpy(out), wanted, **dict.fromkeys(("rtol", "atol"), 20 * laws.EPS[dtype]))


def test_masks_and_biases_of_keys_said_of_pairs(backend):
    q, k, v, _ = problem(n=70)
    rng, a = np.random.default_rng(2), backend.kind.asarray
    seen, of_keys = rng.random((70, N)) < 0.4, rng.standard_normal(N)

    def run(**options):
        return to_numpy(ka.softmax_attention(a(q), a(k), a(v), **options, backend=backend.name))

    by_mask = run(pattern=P.from_mask(seen))
    np.testing.assert_allclose(run(score_bias=a(np.where(seen, 0, -np.inf))), by_mask, rtol=1e-12, atol=1e-14)
    of_pairs = np.broadcast_to(of_keys, (70, N)).copy()
    np.testing.assert_allclose(run(score_bias=a(of_pairs)), run(key_bias=a(of_keys)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("lead", [(), (3,), (2, 1), (2, 3)])
def test_cotangents(lead, backend):
    q, k, v, bias = problem(lead=lead)
    mask, g = np.random.default_rng(3).random((2, 1, N)) < 0.8, laws.arrays(6, (2, 3, N, 4), dtype="float64")[0]
    bias[..., 40] = -np.inf
    options = {"causal": True, "key_mask": mask, "backend": backend.name}
    p = weights_of(q, k, bias, np.tri(N, dtype=bool) & mask[..., None, :])
    slopes = p * (g @ np.swapaxes(v, -1, -2) - np.sum(g * (p @ v), axis=-1, keepdims=True))
    k[..., 40, :], v[..., 40, :] = np.nan, np.inf
    if backend.kind.name != "numpy":
        pytest.skip("ka.vjp takes plain arrays")
    with np.errstate(invalid="ignore"):
        found = ka.vjp(ka.softmax_attention, q, k, v, score_bias=bias, **options)[1](g)
    for axis, size in enumerate((2, 3)[2 - len(lead) :], start=2 - len(lead)):
        if (*(1, 1), *lead)[len(lead) + axis] < size:
            slopes = slopes.sum(axis=axis, keepdims=True)
    slopes = slopes.sum(axis=tuple(range(2 - len(lead))))
    np.testing.assert_allclose(found.score_bias, slopes, rtol=1e-11, atol=1e-13)
    assert np.isfinite(found.q).all()


def test_threads_change_nothing(on_threads):
    pytest.importorskip("numba")
    q, k, v, bias = problem("float32", ())
    q[0, 0, 5] *= 1e13
    found = []
    for threads in (1, 3):
        on_threads(threads)
        out, back = ka.vjp(ka.softmax_attention, q, k, v, score_bias=bias, causal=True)
        found.append((out, *back(np.ones_like(out))))
    for one, three in zip(*found, strict=True):
        np.testing.assert_array_equal(one, three)


def test_later_keys_change_no_bit(backend):
    q, k, v, bias = problem("float32", ())
    a, other = backend.kind.asarray, bias.copy()
    other[:, 90:] = np.where(np.arange(90, N) % 2, 5.0, -np.inf)
    out, same = (
        to_numpy(ka.softmax_attention(a(q), a(k), a(v), score_bias=a(x), causal=True, backend=backend.name))
        for x in (bias, other)
    )
    np.testing.assert_array_equal(same[..., :90, :], out[..., :90, :])


def test_lowest_numbers_hide_too_but_not_all_of_a_row():
    """The lowest float in place of -inf, as some models write: of a row of nothing else it is uniform."""
    q, k, v, bias = problem("float32")
    seen = bias != -np.inf
    out = ka.softmax_attention(q, k, v, score_bias=np.where(seen, bias, np.finfo("f4").min))
    rows = seen.any(axis=-1).all(axis=0)
    wanted = ka.softmax_attention(q, k, v, score_bias=bias)
    np.testing.assert_allclose(out[..., rows, :], wanted[..., rows, :], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out[..., N // 2, :], v.mean(axis=-2) + 0 * out[..., 0, :], rtol=1e-4, atol=1e-5)


def test_narrow_dtypes():
    pytest.importorskip("numba")
    given = [x.astype("float16") for x in problem("float64")]
    out, back = ka.vjp(ka.softmax_attention, *given[:3], score_bias=given[3])
    wide, wide_back = ka.vjp(
        ka.softmax_attention, *(x.astype("f4") for x in given[:3]), score_bias=given[3].astype("f4")
    )
    np.testing.assert_allclose(out, wide, atol=2e-3)
    found = back(out).score_bias
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, wide_back(out.astype("f4")).score_bias, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("bias", "error", "match"),
    [
        (np.zeros((5, 6), "f8"), DTypeError, "score_bias must have the dtype of q, float32; got float64"),
        (np.zeros(6, "f4"), ShapeError, r"score_bias must be \(5, 6\), of each query and key.*is key_bias"),
        (np.zeros((1, 6), "f4"), ShapeError, "score_bias must be"),
        (np.zeros((3, 5, 6), "f4"), ShapeError, r"broadcast to \(2,\); got shape \(3, 5, 6\)"),
        (np.zeros((2, 2, 5, 6), "f4"), ShapeError, "score_bias must be"),
        ([[0.0] * 6] * 5, (TypeError, DTypeError, MixedLibraryError), "score_bias"),
    ],
)
def test_bad_biases_are_refused(bias, error, match):
    q, k, v = laws.arrays(1, (2, 5, 4), (2, 6, 4), (2, 6, 3))
    with pytest.raises(error, match=match):
        ka.softmax_attention(q, k, v, score_bias=bias)
