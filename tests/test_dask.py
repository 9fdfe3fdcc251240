"""Dask arrays: what travels to workers, sums in an order of their own, and workers that are lost."""

import os
import pickle
import signal
from operator import add
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dask.array")

import dask
import dask.array as da

import kernattn as ka
import kernattn.dask
from chunks import chunked, unknown
from gated import draw
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError, StateMismatchError
from solvers.test_moments import assert_same
from test_dask_attention import FAVOR, assert_causal, attended

GAUSSIAN = ka.kernels.Gaussian(lengthscale=np.array([1.0, 2.0, 0.5]))
RECIPE = ka.dask.Recipe(GAUSSIAN, 3, 16, rng=3)
PHI = ka.random_features(GAUSSIAN, 3, 16, rng=3)
RNG = np.random.default_rng(0)
X, Y, W = RNG.standard_normal((100, 3)), RNG.standard_normal((100, 2)), RNG.uniform(size=100)


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def tasks(collection):
    """Bytes of each task, as a scheduler would send them."""
    return {key: len(pickle.dumps(task)) for key, task in dict(collection.__dask_graph__()).items()}


# features


@pytest.mark.parametrize("phi", [PHI, RECIPE], ids=["map", "recipe"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_features_are_those_of_the_chunks(phi, dtype):
    x = X.astype(dtype).reshape(4, 25, 3)
    found = ka.dask.features(chunked(x, 2, 10, -1), phi)
    assert (found.shape, found.dtype, found.chunks) == ((4, 25, 16), dtype, ((2, 2), (10, 10, 5), (16,)))
    np.testing.assert_array_equal(found.compute(), PHI(x))


def test_chunks_along_the_features_are_put_together():
    np.testing.assert_array_equal(ka.dask.features(chunked(X, 30, 2), PHI).compute(), PHI(X))


def test_rows_of_unknown_number():
    x = unknown(X, 30)
    some = x[x[:, 0] > 1.5]
    np.testing.assert_array_equal(ka.dask.features(some, RECIPE).compute(), PHI(X[X[:, 0] > 1.5]))
    np.testing.assert_array_equal(ka.dask.features(x[x[:, 0] > 9], RECIPE).compute(), np.empty((0, 16)))


def test_asymmetric_and_deterministic_maps():
    data = RNG.standard_normal((20, 3))
    phi = ka.features.elu1()
    np.testing.assert_array_equal(ka.dask.features(chunked(X, 30, -1), phi).compute(), phi(X))
    phi = ka.random_features(GAUSSIAN, 3, 8, "favor_sharp_asymmetric", data=data, rng=0)
    with pytest.raises(ParameterError, match="features of queries and of keys apart"):
        ka.dask.features(chunked(X, 30, -1), phi)


def test_the_old_order_warns():
    x, y = chunked(X, 30, -1), chunked(Y, 30, -1)
    for phi in (PHI, RECIPE):
        with pytest.warns(DeprecationWarning, match=r"is now features\(x, phi, \.\.\.\)"):
            old = ka.dask.features(phi, x)
        np.testing.assert_array_equal(old.compute(), PHI(X))
        with (
            pytest.warns(DeprecationWarning, match=r"is now moments\(x, phi, \.\.\.\)"),
            pytest.warns(DeprecationWarning, match="takes y= by keyword only"),
        ):
            old = ka.dask.moments(phi, x, y)
        assert_same(old.compute(), ka.solvers.moments(X, PHI, y=Y))


# what travels


def test_a_recipe_is_a_value_that_pickles():
    again = pickle.loads(pickle.dumps(RECIPE))
    assert again == RECIPE
    assert again.map() is RECIPE.map()
    assert again.map().fingerprint == PHI.fingerprint
    assert len(pickle.dumps(RECIPE)) < 700


def test_recipes_without_a_seed_are_fresh_and_keep_theirs():
    one, other = (ka.dask.Recipe(GAUSSIAN, 3, 16) for _ in range(2))
    assert one.map().fingerprint != other.map().fingerprint
    assert pickle.loads(pickle.dumps(one)).map().fingerprint == one.map().fingerprint


def test_recipes_are_checked():
    for given in ({"kernel": "Gaussian"}, {"kernel": PHI}):
        with pytest.raises(DTypeError, match="kernel must be a Kernel"):
            ka.dask.Recipe(**{"dim": 3, "num_features": 8} | given)
    for name in ("dim", "num_features", "rng"):
        with pytest.raises(ParameterError, match=f"{name} must be"):
            ka.dask.Recipe(GAUSSIAN, **{"dim": 3, "num_features": 8, "rng": 0} | {name: -1})
    with pytest.raises(ParameterError, match="rng must be"):
        ka.dask.Recipe(GAUSSIAN, 3, 8, rng=np.random.default_rng(0))


@pytest.mark.parametrize("columns", [64, 1024])
def test_tasks_hold_a_recipe_and_not_frequencies(columns):
    recipe = ka.dask.Recipe(ka.kernels.Gaussian(), columns, 1024, rng=0)
    x = da.zeros((1000, columns), chunks=(10, -1))
    q = da.zeros((1000, columns), chunks=(50, -1))
    for collection in (
        ka.dask.features(x, recipe),
        ka.dask.moments(x, recipe, y=x[:, 0], fold=8),
        ka.dask.linear_attention(q, q, q, recipe),
        ka.dask.causal_linear_attention(q, q, q, recipe)[0],
    ):
        assert max(tasks(collection).values()) < 4000


def test_a_map_is_one_key_of_the_graph():
    phi = ka.random_features(ka.kernels.Gaussian(), 64, 1024, rng=0)
    x = da.zeros((1000, 64), chunks=(10, -1))
    for collection in (ka.dask.features(x, phi), ka.dask.moments(x, phi), ka.dask.linear_attention(x, x, x, phi)):
        sizes = tasks(collection)
        whole = sizes.pop(f"kernattn-map-{phi.fingerprint}")
        assert whole > phi.omega.nbytes
        assert max(sizes.values()) < 4000


def test_a_map_with_other_numbers_is_another_key():
    learnt = ka.with_numbers(PHI, omega=2 * PHI.spec.omega)
    x = chunked(X, (50, 50), 3)
    found = dask.compute(*(ka.dask.features(x, phi) for phi in (PHI, learnt, 2 * learnt)))
    for each, phi in zip(found, (PHI, learnt, 2 * learnt), strict=True):
        np.testing.assert_array_equal(each, phi(X))


def test_sums_travel_without_the_map():
    graph = ka.dask.moments(chunked(X, 10, -1), RECIPE, fold=2)
    leaves = [(graph.key[0], i) for i in range(5)]
    sums = dask.get(dict(graph.__dask_graph__()), leaves)
    assert {each.fingerprint for each in sums} == {PHI.fingerprint}
    assert all(not isinstance(each.phi, ka.features.FeatureMap) for each in sums)


def test_another_draw_on_a_worker_is_refused():
    x = chunked(X, 50, -1)
    found = ka.dask.features(x, RECIPE)
    from kernattn.dask import _recipe

    _recipe._map.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_recipe, "random_features", lambda *args, rng: ka.random_features(*args, rng=rng + 1))
        with pytest.raises(StateMismatchError, match="another one on this worker"):
            found.compute()
    _recipe._map.cache_clear()


# moments


@pytest.mark.parametrize("fold", [1, 3, 100])
@pytest.mark.parametrize("rows", [7, 30, 100])
def test_moments_are_those_of_the_rows(fold, rows):
    x, y, w = chunked(X, rows, 2), chunked(Y, 50, 1), chunked(W, 100)
    found = ka.dask.moments(x, RECIPE, y=y, weights=w, fold=fold).compute()
    assert_same(found, ka.solvers.moments(X, PHI, y=Y, weights=W))
    assert found.phi.fingerprint == PHI.fingerprint
    assert_same(ka.dask.moments(x, PHI, fold=fold).compute(), ka.solvers.moments(X, PHI))
    vector = ka.dask.moments(x, PHI, y=y[:, 0], fold=fold).compute()
    assert vector.vector
    assert_same(vector, ka.solvers.moments(X, PHI, y=Y[:, 0]))


def test_any_schedule_gives_the_same_bits():
    x, y = chunked(X, 3, -1), chunked(Y, 3, -1)
    found = ka.dask.moments(x, RECIPE, y=y, fold=2)
    first = found.compute()
    for _ in range(3):
        assert_same(found.compute(scheduler="threads", num_workers=4), first, exact=True)


def test_folds_at_once():
    x, y = chunked(X, 10, -1), chunked(Y, 10, -1)
    found = dask.compute(*(ka.dask.moments(x[i::3], RECIPE, y=y[i::3], fold=2) for i in range(3)))
    for i, fold in enumerate(found):
        assert_same(fold, ka.solvers.moments(X[i::3], PHI, y=Y[i::3]))


def test_moments_of_rows_of_unknown_number():
    x, y = unknown(X, 30), unknown(Y, 30)
    keep = x[:, 0] > 1.5
    found = ka.dask.moments(x[keep], RECIPE, y=y[keep], fold=2).compute()
    assert_same(found, ka.solvers.moments(X[X[:, 0] > 1.5], PHI, y=Y[X[:, 0] > 1.5]))
    none = ka.dask.moments(x[x[:, 0] > 9], RECIPE, y=y[x[:, 0] > 9, 0]).compute()
    assert_same(none, ka.solvers.initial_moments(PHI, targets=0))


def test_a_bad_row_is_named_with_its_chunk():
    x = X.copy()
    x[61, 1] = np.nan
    with pytest.raises(ParameterError, match="x must be finite; NaN or infinity in row 1") as found:
        ka.dask.moments(chunked(x, 10, -1), RECIPE, fold=4).compute()
    assert found.value.__notes__ == ["in chunk 6, counted from 0"]


def test_the_sums_given_stay_as_they_are():
    one = ka.dask.moments(chunked(X, 10, -1), RECIPE, fold=3)
    first, both = dask.compute(one, dask.delayed(add)(one, one))
    assert both.n == 200
    assert_same(first, ka.solvers.moments(X, PHI))


def test_refusals_come_at_once():
    x, y = chunked(X, 10, -1), chunked(Y, 10, -1)
    refused = [
        (DTypeError, "x must be a Dask array", lambda: ka.dask.moments(X, PHI)),
        (DTypeError, "y must be a Dask array", lambda: ka.dask.moments(x, PHI, y=Y)),
        (DTypeError, "phi must be a FeatureMap", lambda: ka.dask.moments(x, ka.kernels.Gaussian())),
        (DTypeError, "x must have one of the dtypes", lambda: ka.dask.features(x.astype(int), PHI)),
        (DTypeError, "y must have one of the dtypes", lambda: ka.dask.moments(x, PHI, y=y.astype(int))),
        (ShapeError, "x must have d = 3 columns", lambda: ka.dask.features(x[:, :2], PHI)),
        (EmptyInputError, "x must not be empty", lambda: ka.dask.features(x[:0], PHI)),
        (ShapeError, r"x must be \(n, d\)", lambda: ka.dask.moments(x[None], PHI)),
        (ShapeError, r"y must be \(100,\) or \(100, c\)", lambda: ka.dask.moments(x, PHI, y=y[:90])),
        (ShapeError, "in 10 chunks", lambda: ka.dask.moments(x, PHI, y=chunked(Y[:90], 9, -1))),
        (ShapeError, "in 5 chunks", lambda: ka.dask.moments(x, PHI, y=unknown(Y, 20))),
        (EmptyInputError, "y must not be empty", lambda: ka.dask.moments(x, PHI, y=y[:, :0])),
        (ShapeError, r"weights must be \(100,\)", lambda: ka.dask.moments(x, PHI, weights=y)),
        (ParameterError, "fold must be", lambda: ka.dask.moments(x, PHI, fold=0)),
        (ParameterError, "products must be", lambda: ka.dask.moments(x, PHI, products="float16")),
    ]
    for error, words, call in refused:
        with pytest.raises(error, match=words):
            call()


def test_a_chunk_is_loaded_once_for_rows_and_targets():
    loaded = []
    x = chunked(X, 10, -1).map_blocks(lambda block: loaded.append(1) or block, dtype=X.dtype, meta=X[:0])
    ka.dask.moments(x, RECIPE, y=x[:, :1], weights=abs(x[:, 1])).compute()
    assert len(loaded) == 10


# clusters


def cluster(folder, **options):
    distributed = pytest.importorskip("distributed")
    options |= {"n_workers": 2, "threads_per_worker": 1, "local_directory": str(folder)}
    return distributed.LocalCluster(dashboard_address=":0", silence_logs=50, **options)


def test_on_a_cluster_of_threads(tmp_path):
    distributed = pytest.importorskip("distributed")
    x, y = chunked(X, 7, -1), chunked(Y, 7, -1)
    q, k, v = attended(13)

    def tokens(x):
        return chunked(x, *(1, -1, 13, -1)[: x.ndim])

    sums, found = ka.dask.moments(x, PHI, y=y, fold=3), ka.dask.features(x, RECIPE)
    attention = ka.dask.causal_linear_attention(q, k, v, FAVOR)
    rows, gates = draw("delta", "channel")
    rows, gates = [tokens(x) for x in rows], {name: tokens(x) for name, x in gates.items()}
    fading = ka.dask.gated_linear_attention(*rows, **gates)
    with cluster(tmp_path, processes=False) as workers, distributed.Client(workers):
        there = [dask.compute(work, scheduler="distributed")[0] for work in (sums, found, attention, fading)]
    assert_same(there[0], sums.compute(), exact=True)
    np.testing.assert_array_equal(there[1], found.compute())
    assert_causal(there[2], dask.compute(*attention), 0)
    assert_causal(there[3], dask.compute(*fading), 0)


def test_a_worker_that_is_killed_changes_no_bit(tmp_path):
    """The first to load the 30th chunk dies of it, with the sums that it held; another does its work again."""
    distributed = pytest.importorskip("distributed")

    def load(block, folder, block_info=None):
        (place,) = block_info[0]["chunk-location"][:1]
        with (Path(folder) / "loaded").open("a") as file:
            file.write(f"{place} {os.getpid()}\n")
        if place == 30:
            try:
                (Path(folder) / "killed").touch(exist_ok=False)
            except FileExistsError:
                return block
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    x = da.from_array(X, chunks=(2, -1)).map_blocks(load, str(tmp_path), dtype=X.dtype, meta=X[:0])
    whole, work = (
        ka.dask.moments(rows, RECIPE, y=rows[:, 0], fold=3, backend="reference") for rows in (chunked(X, 2, -1), x)
    )
    with cluster(tmp_path, processes=True) as workers, distributed.Client(workers):
        found = work.compute(scheduler="distributed")
    assert (tmp_path / "killed").exists()
    loads = [line.split() for line in (tmp_path / "loaded").read_text().splitlines()]
    assert len({process for _, process in loads}) > 1
    assert_same(found, whole.compute(), exact=True)
