"""Features of sets, counts and weights: every form of rows, the hash in Python's integers, and laws of the signs."""

import numpy as np
import pytest
from scipy import sparse

import kernattn as ka
from kernattn import errors
from kernattn.features._sets import minwise, rows
from kernattn.ops.consistent import OP as CONSISTENT
from kernattn.ops.dispatch import missing
from kernattn.ops.minwise import OP as MINWISE
from kernattn.ops.minwise.words import SECOND, mixed

D, M = 70, 100
KERNEL = ka.kernels.Tanimoto()
NAMES = ("minwise", "consistent")
RNG = np.random.default_rng(0)
COUNTS = np.where(RNG.random((40, D)) < 0.1, RNG.integers(1, 4, (40, D)), 0)
COUNTS[[3, 5]] = 0


def draw(name, dim=D, number=M, rng=0):
    return ka.random_features(KERNEL, dim, number, name, rng=rng)


def repeated(x):
    """CSR rows with zeros that are stored, entries that are added, and columns in no order."""
    parts = sparse.coo_array(np.where(x > 1, x - 1, 0)), sparse.coo_array((x > 0).astype(float))
    data = np.concatenate([*(part.data for part in parts), [0.0]])
    rows, columns = (np.concatenate([*(part.coords[i] for part in parts), [0]]) for i in (0, 1))
    order = np.argsort(rows, kind="stable")
    starts = np.searchsorted(rows[order], np.arange(len(x) + 1))
    return sparse.csr_array((data[order], columns[order], starts), shape=x.shape)


FORMS = {
    "uint8": lambda x: x.astype(np.uint8),
    "int64": lambda x: x,
    "float16": lambda x: x.astype(np.float16),
    "float32": lambda x: x.astype(np.float32),
    "columns": lambda x: np.asfortranarray(x, np.float64),
    "leading": lambda x: x.reshape(2, 20, D),
    "csr": lambda x: sparse.csr_array(x.astype(np.float64)),
    "csr uint8": lambda x: sparse.csr_matrix(x.astype(np.uint8)),
    "csr repeated": repeated,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_rows_of_every_form(name, form, monkeypatch):
    phi, x = draw(name), FORMS[form](COUNTS)
    for cls in (sparse.csr_array, sparse.csr_matrix):
        monkeypatch.setattr(cls, "toarray", lambda *args, **kwargs: pytest.fail("made dense"))
    before = None if isinstance(x, np.ndarray) else [x.data.copy(), x.indices.copy()]
    got = phi(x)
    assert got.dtype == (x.dtype if x.dtype.kind == "f" else np.float32)
    np.testing.assert_array_equal(np.sign(got).reshape(40, M), np.sign(phi(COUNTS.astype(np.float64))))
    np.testing.assert_allclose(np.abs(got), M**-0.5, rtol=1e-3)
    if before is not None:
        assert all((ours == theirs).all() for ours, theirs in zip(before, (x.data, x.indices), strict=True))
    if form == "uint8":
        bits = COUNTS > 0
        np.testing.assert_array_equal(phi(bits), phi(bits.astype(np.float32)))


@pytest.mark.parametrize("name", NAMES)
def test_other_libraries(name, xp):
    phi = draw(name)
    x, wanted = COUNTS.astype(np.float32), phi(COUNTS)
    got = phi(xp.asarray(x))
    assert xp.holds(got)
    np.testing.assert_array_equal(np.sign(wanted), np.sign(ka._arrays.namespaces.to_numpy64(got)))


@pytest.mark.parametrize("name", NAMES)
def test_graphs_and_gradients_see_steps(name):
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    phi = draw(name)
    x = COUNTS[:6].astype(np.float32)
    np.testing.assert_array_equal(jax.jit(phi)(x), phi(x))
    tensor = torch.tensor(x, requires_grad=True)
    phi(tensor).sum().backward()
    assert not tensor.grad.any()


@pytest.mark.parametrize("number", [1, 63, 64, 100])
@pytest.mark.parametrize(("name", "op"), [("minwise", MINWISE), ("consistent", CONSISTENT)])
def test_backends_agree(name, op, number):
    if missing("cpu"):
        pytest.skip(missing("cpu"))
    phi = draw(name, number=number)
    ours, theirs = (phi(COUNTS, backend=backend) for backend in ("cpu", "reference"))
    assert np.mean(ours != theirs) <= (0 if op is MINWISE else 1e-3)  # a logarithm may be rounded otherwise


def test_the_hash_in_integers():
    phi, x = draw("minwise", 5, 9), np.array([[0, 1, 1, 0, 2]])

    def mix(u):
        u = (u ^ u >> 16) * 0x7FEB352D % 2**32
        u = (u ^ u >> 15) * 0x846CA68B % 2**32
        return u ^ u >> 16

    members = [mix(1), mix(2), mix(4), mix((mix(4) + 0x9E3779B9) % 2**32)]
    for j, (add, factor) in enumerate(phi.keys.T.tolist()):
        hashes = [(b ^ add) * factor % 2**32 for b in members]
        least = min((u ^ u >> 15) * SECOND % 2**32 for u in hashes)
        assert np.sign(phi(x)[0, j]) == (1 if (least ^ least >> 16) % 2 else -1)
    assert len(np.unique(mixed(np.arange(2**16, dtype=np.uint32)))) == 2**16


def overlapping(both, one, other):
    """Two sets of so many members that both have, and one of them."""
    rows = np.zeros((2, both + one + other), np.uint8)
    rows[0, : both + one] = rows[1, :both] = rows[1, both + one :] = 1
    return rows


COMMON = RNG.exponential(size=12) * (RNG.random((2, 12)) < 0.8) * RNG.uniform(0.3, 3, (2, 12))
PAIRS = {
    "bits apart": ("minwise", overlapping(0, 3, 5)),
    "one of two": ("minwise", overlapping(1, 0, 1)),
    "fingerprints": ("minwise", overlapping(30, 20, 20)),
    "near": ("minwise", overlapping(45, 3, 2)),
    "counts": ("minwise", np.array([[3, 0, 1, 5], [1, 2, 1, 7]])),
    "one weight": ("consistent", np.array([[1.0], [3.0]])),
    "weights": ("consistent", COMMON),
    "small beside large": ("consistent", COMMON * [[1.0], [1e-3]]),
}


@pytest.mark.statistical
@pytest.mark.parametrize("case", PAIRS)
def test_mean_and_variance_are_those_of_independent_signs(case):
    """In 2^19 features |z| of the mean is below 4.5, the variance of 65,536 sums of 8 within 3 %, 3.9 deviations."""
    name, x = PAIRS[case]
    phi = draw(name, x.shape[1], 2**19, rng=1)
    products = np.prod(np.sign(phi(x)), axis=0, dtype=np.float64)
    k = KERNEL(x.astype(np.float64))[0, 1]
    assert abs(products.mean() - k) < 4.5 * np.sqrt((1 - k**2) / products.size)
    for sums in (products.reshape(-1, 8).mean(axis=1), products.reshape(8, -1).mean(axis=0)):
        assert abs(np.mean((sums - k) ** 2) / ((1 - k**2) / 8) - 1) < 0.03


def test_closed_forms():
    x, y = (part.astype(np.float64) for part in (COUNTS[:3], COUNTS[10:13]))
    for name in NAMES:
        phi, k = draw(name), KERNEL.pairs(x, y)
        np.testing.assert_allclose(phi.mean(x, y), k)
        np.testing.assert_allclose(phi.variance(x, y), (1 - k**2) / M)
        assert not phi.bias(x, y).any()
        number = phi.num_features_for(x, y, error=0.05, probability=0.99)
        spread = np.minimum(2.0, 2 * (1 - k**2) + 2 / 3 * 0.05 * (1 + k))  # Hoeffding's or Bernstein's
        below, bound = (2 * np.sum(np.exp(-(0.05**2) * m / spread)) for m in (number - 1, number))
        assert bound <= 0.01 < below


def test_empty_rows_are_alike_and_like_no_other():
    for name in NAMES:
        phi = draw(name, number=4096)(COUNTS)
        assert phi[3] @ phi[5] == pytest.approx(1)
        assert np.max(np.abs(np.delete(phi, [3, 5], axis=0) @ phi[3])) < 5 / 64


def test_blocks_change_nothing(monkeypatch):
    wanted = [draw(name)(COUNTS) for name in NAMES]
    monkeypatch.setattr(minwise, "MEMBERS", 20)
    monkeypatch.setattr(rows, "ROOM", 3 * D)
    for name, before in zip(NAMES, wanted, strict=True):
        phi = draw(name)
        monkeypatch.setattr(type(phi), "_entries", 150)
        for x in (COUNTS, sparse.csr_array(COUNTS)):
            np.testing.assert_array_equal(phi(x), before)


def test_refusals():
    for name in NAMES:
        phi = draw(name, 3)
        for bad in (-1.0, np.nan, np.inf):
            for x in (np.full((2, 3), bad), sparse.csr_array(np.full((2, 3), bad))):
                with pytest.raises(errors.ParameterError, match="x must hold finite numbers that are not negative"):
                    phi(x)
        with pytest.raises(errors.ShapeError, match="d = 3"):
            phi(np.ones((2, 4), bool))
        with pytest.raises(errors.DTypeError):
            phi([[1, 0, 1]])
        with pytest.raises(errors.DTypeError, match="complex"):
            phi(np.ones((2, 3), complex))
    for bad in (0.5, 2.0**17):
        with pytest.raises(errors.ParameterError, match=r"bits or counts up to 65536.*'consistent' takes all"):
            draw("minwise", 3)(np.full((2, 3), bad))
    with pytest.raises(errors.ParameterError, match=r"no random features: take Tanimoto\(\)"):
        ka.random_features(ka.kernels.Tanimoto("dot"), 3, 8, rng=0)
    with pytest.raises(errors.ParameterError, match="words of 32 bits"):
        ka.features.MinwiseHashing(KERNEL, 3, np.zeros((2, 4), np.int64))
    with pytest.raises(errors.ParameterError, match="form 'minmax'"):
        ka.features.MinwiseHashing(ka.kernels.Tanimoto("dot"), 3, np.ones((2, 4), np.int64))


def test_data_choose_the_estimator():
    for data, kind in ((COUNTS * 1.0, ka.features.MinwiseHashing), (COUNTS / 2, ka.features.ConsistentSampling)):
        assert type(ka.random_features(KERNEL, D, 8, data=data, rng=0)) is kind
    with pytest.raises(errors.ParameterError, match="data must hold"):
        ka.random_features(KERNEL, D, 8, data=-COUNTS * 1.0, rng=0)


def test_estimators_of_scikit_learn_take_bits_in_csr():
    pytest.importorskip("sklearn")
    from kernattn.sklearn import FeatureGP, FeatureRidge, NystromFeatures, RandomFeatures

    bits = RNG.random((100, D)) < 0.15
    y = bits[:, :5].sum(axis=1) - 1.0 * bits[:, 5] + 0.3 * RNG.standard_normal(100)
    given = {"kernel": "tanimoto", "num_features": 256, "random_state": 0}
    x = sparse.csr_array(bits)
    np.testing.assert_array_equal(RandomFeatures(**given).fit_transform(x), RandomFeatures(**given).fit_transform(bits))
    for model in (FeatureRidge(ridge=0.1, **given), FeatureGP(**given)):
        assert np.corrcoef(model.fit(x, y).predict(x), y)[0, 1] > 0.8
    landmarks = NystromFeatures(KERNEL, num_features=100, random_state=0).fit_transform(x)
    np.testing.assert_allclose(landmarks @ landmarks.T, KERNEL(bits), atol=1e-6)
    assert type(RandomFeatures(**given).fit(bits * 0.5).feature_map_) is ka.features.ConsistentSampling
