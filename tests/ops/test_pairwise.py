"""Functions of measures of pairs against their formulas in float64, on every backend."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.ops.dispatch import missing
from kernattn.ops.pairwise import OP, reference
from kernattn.ops.pairwise.forms import DOT, EXPONENTIAL, MANHATTAN, MATERN, POWER, SQUARED, Form
from xp import KINDS, backends, to_numpy

FORMS = {
    "gaussian": Form(SQUARED, EXPONENTIAL, -0.5),
    "laplacian": Form(MANHATTAN, EXPONENTIAL, -1.0),
    "softmax": Form(DOT, EXPONENTIAL, 1.0),
    "squares": Form(SQUARED),
    **{f"matern {p}": Form(SQUARED, MATERN, 2.0 * p + 1, p) for p in (0, 1, 2)},
    **{f"power {p}": Form(DOT, POWER, 0.25, p) for p in (1, 2, 3, 6, 13)},
}
SHAPES = [
    ((), (), 1, 1, 1),
    ((), (), 9, 33, 7),
    ((2, 1), (3,), 67, 70, 16),
    ((), (2,), 3, 600, 17),
    ((2,), (), 5, 2, 70),
]
BACKENDS = backends("pairwise")
NUMBA = pytest.mark.skipif(missing("cpu") is not None, reason="no Numba")


def rows(seed, *shape, dtype="f8"):
    return (np.random.default_rng(seed).standard_normal(shape) * shape[-1] ** -0.5).astype(dtype)


def formula(x, y, form):
    x, y = x.astype("f8")[..., :, None, :], y.astype("f8")[..., None, :, :]
    u = {DOT: x * y, SQUARED: (x - y) ** 2, MANHATTAN: np.abs(x - y)}[form.measure].sum(-1)
    if form.function == MATERN:
        s = np.sqrt(form.number * u)
        return np.exp(-s) * (1, 1 + s, 1 + s + s**2 / 3)[form.degree]
    return np.exp(form.number * u) if form.function == EXPONENTIAL else (u + form.number) ** form.degree


@pytest.fixture(params=BACKENDS, ids=repr)
def pairwise(request):
    return lambda x, y, form: OP.implementation(x, request.param.name)(x, y, form)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_formula(name, shape, dtype, pairwise):
    lead, other, n, k, d = shape
    x, y = rows(0, *lead, n, d, dtype=dtype), rows(1, *other, k, d, dtype=dtype)
    wanted, found = formula(x, y, FORMS[name]), pairwise(x, y, FORMS[name])
    assert found.dtype == dtype
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=60 * np.finfo(dtype).eps * np.abs(wanted).max())


@NUMBA
@pytest.mark.parametrize("name", FORMS)
def test_rows_that_change_sides(name):
    x, y = rows(2, 21, 40, dtype="f4"), rows(3, 37, 40, dtype="f4")
    pairwise = OP.implementation(x, "cpu")
    np.testing.assert_array_equal(pairwise(x, y, FORMS[name]), pairwise(y, x, FORMS[name]).T)


@NUMBA
@pytest.mark.parametrize("name", FORMS)
def test_an_entry_does_not_depend_on_the_rows_beside_it(name):
    x, y = rows(4, 150, 33, dtype="f4"), rows(5, 90, 33, dtype="f4")
    pairwise, some = OP.implementation(x, "cpu"), np.array([3, 70, 149])
    whole = pairwise(x, y, FORMS[name])
    np.testing.assert_array_equal(whole[np.ix_(some, some[:1])], pairwise(x[some], y[some[:1]], FORMS[name]))
    x[5], y[8, 2] = np.nan, np.inf
    good = np.ix_(np.arange(150) != 5, np.arange(90) != 8)
    np.testing.assert_array_equal(pairwise(x, y, FORMS[name])[good], whole[good])


@NUMBA
@pytest.mark.parametrize("number", ["1", "3"])
@pytest.mark.parametrize("shape", [(700, 1600), (1600, 700)], ids=str)
def test_large_matrices_on_several_threads(shape, number, monkeypatch):
    """Written past the caches, in slabs that do not begin with a head."""
    monkeypatch.setenv("KERNATTN_NUM_THREADS", number)
    x, y = rows(6, shape[0], 3, dtype="f4"), rows(7, 2, shape[1], 3, dtype="f4")
    found = OP.implementation(x, "cpu")(x, y, FORMS["gaussian"])
    np.testing.assert_allclose(found, formula(x, y, FORMS["gaussian"]), rtol=2e-6)


@NUMBA
def test_near_rows_far_from_the_origin_keep_their_digits():
    """The reference expands the square, and loses them to rounding; the loops subtract."""
    x = 1e4 + np.arange(24, dtype="f8").reshape(8, 3) / 8
    outlier = np.vstack([x, [[-1e9, 0, 0]]])
    found = OP.implementation(x, "cpu")(outlier, outlier, FORMS["squares"])[:8, :8]
    np.testing.assert_array_equal(found, formula(x, x, FORMS["squares"]))


def test_the_reference_takes_every_kind_of_array(xp):
    x, y = rows(8, 2, 6, 4), rows(9, 5, 4)
    with xp.wide():
        for form in FORMS.values():
            found = xp.whole(lambda x, y, form=form: reference.pairwise(x, y, form))(xp.asarray(x), xp.asarray(y))
            assert xp.holds(found)
            np.testing.assert_allclose(to_numpy(found), formula(x, y, form), rtol=1e-12)


@NUMBA
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in ("torch", "jax")], ids=repr)
def test_other_libraries_lend_their_rows(kind):
    x, y = rows(10, 7, 3, dtype="f4"), rows(11, 5, 3, dtype="f4")
    kernel = ka.kernels.Gaussian(0.7)
    found = kernel(kind.asarray(x), kind.asarray(y))
    assert kind.holds(found)
    np.testing.assert_array_equal(to_numpy(found), kernel(x, y))
