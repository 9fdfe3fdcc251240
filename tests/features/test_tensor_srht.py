"""TensorSRHT by fast transforms: the same features as by products with its weights, from every kind of rows."""

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import hadamard as sylvester

import kernattn as ka
from kernattn.features._polynomial.sketches import tensor_srht
from kernattn.ops.dispatch import Op, missing
from laws import arrays
from saved import reloaded
from xp import dtype_name, to_numpy

FASTER_ABOVE = tensor_srht.FASTER_ABOVE
BACKENDS = [name for name in ("reference", "cpu") if missing(name) is None]
SIZES = [(1, 3), (5, 20), (8, 8), (33, 20), (64, 300), (100, 128)]  # d, M: blocks cut short, whole, and several


def make(d, m, degree=3, coef0=0.5, rng=0):
    return ka.random_features(ka.kernels.Polynomial(degree, 0.7, coef0), d, m, "tensor_srht", rng=rng)


def by_weights(phi, x):
    """M^(-1/2) prod_i (H Delta_i x~)_(r_i) with SciPy's H."""
    constant = np.full((*x.shape[:-1], int(phi.kernel.coef0 > 0)), phi.kernel.coef0**0.5)
    rows = np.concatenate([x * phi.kernel.gamma**0.5, constant], axis=-1)
    (degree, m), width = phi.rows.shape, rows.shape[-1]
    n = 1 << (width - 1).bit_length()
    out = np.full((*x.shape[:-1], m), m**-0.5)
    for i in range(degree):
        for a in range(m):
            weights = sylvester(n)[phi.rows[i, a], :width] * phi.signs[i, a // n]
            out[..., a] *= rows @ weights
    return out


@pytest.fixture
def always(monkeypatch):
    """Transforms on every backend from the shortest row on."""
    monkeypatch.setattr(tensor_srht, "FASTER_ABOVE", dict.fromkeys(FASTER_ABOVE, 0))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_transforms_are_the_weights(always, backend, degree):
    for coef0 in (0.0, 0.5):
        for d, m in SIZES:
            phi, (x,) = make(d, m, degree, coef0), arrays(1, (2, 150, d), dtype="float64")
            got, wanted = phi(x, backend=backend), by_weights(phi, x)
            assert "omega" not in vars(phi)
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())


@pytest.mark.parametrize(("d", "m"), SIZES)
def test_weights(d, m):
    phi, (x,) = make(d, m), arrays(1, (4, d), dtype="float64")
    assert phi.omega.shape == (3, m, phi._width)
    wanted = by_weights(phi, x)
    np.testing.assert_allclose(phi(x), wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())


def test_no_row_is_read_twice_in_a_block():
    phi = make(7, 19)  # two whole blocks of 8, and 3 features of a third
    for rows in phi.rows:
        for block in (rows[:8], rows[8:16], rows[16:]):
            assert len(set(block)) == len(block)
        assert set(rows[:8]) == set(rows[8:16]) == set(range(8))
    assert phi.signs.shape == (3, 3, 8)


def test_kinds_and_dtypes(always, xp):
    phi, (x,) = make(20, 50), arrays(2, (2, 3, 20))
    for dtype in xp.dtypes:
        with xp.wide():
            rows = xp.asarray(x, dtype)
            wanted = by_weights(phi, to_numpy(rows).astype("f8"))
            got, scaled = xp.whole(lambda x: (phi(x), phi.scaled(x)))(rows)
            assert xp.holds(got)
            assert dtype_name(got) == dtype
            tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6, "float64": 1e-13}[dtype]
            np.testing.assert_allclose(to_numpy(got), wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())
            values = to_numpy(scaled.values) * np.exp(to_numpy(scaled.log_scale))
            np.testing.assert_allclose(values, wanted, rtol=0, atol=max(tolerance, 1e-5) * np.abs(wanted).max())


@pytest.mark.parametrize("backend", BACKENDS)
def test_csr_rows_are_dense_a_block_at_a_time(backend, monkeypatch):
    most = []
    toarray = sparse.csr_array.toarray

    def counted(self, *args, **kwargs):
        most.append(self.shape[0])
        return toarray(self, *args, **kwargs)

    x = sparse.random_array((300, 150), density=0.05, format="csr", rng=np.random.default_rng(0))
    wanted = make(150, 200)(x.toarray(), backend="reference")
    monkeypatch.setattr(sparse.csr_array, "toarray", counted)
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-13)):
        got = make(150, 200)(x.astype(dtype), backend=backend)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())
    assert max(most) <= 128 < len(got)
    most.clear()
    monkeypatch.setattr(tensor_srht, "ROOM", 20 * 256)
    np.testing.assert_allclose(make(150, 200)(x, backend=backend), wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())
    assert max(most) == 20


def test_the_faster_way_is_taken(monkeypatch):
    taken = []
    implementation = Op.implementation
    monkeypatch.setattr(Op, "implementation", lambda op, *given: taken.append(op.name) or implementation(op, *given))
    for backend in BACKENDS:
        for d in (FASTER_ABOVE[backend], FASTER_ABOVE[backend] + 1):
            taken.clear()
            make(d, 20, coef0=0.0)(np.ones((2, d)), backend=backend)
            assert ("hadamard" in taken) == (d > FASTER_ABOVE[backend])


def test_a_map_is_small_and_comes_back(tmp_path):
    phi = make(1000, 4096)
    assert reloaded(phi, tmp_path, *arrays(3, (5, 1000))).fingerprint != phi.redraw(1).fingerprint
    assert (tmp_path / "map.npz").stat().st_size < 200_000  # the weights would have 12 MB
