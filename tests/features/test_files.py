"""Maps to files and back."""

import pickle

import numpy as np
import pytest

import kernattn as ka
import maps
from laws import arrays

FIXED = ka.features.Elementwise, ka.features.Cosformer, ka.features.Monomials, ka.features.Taylor2
SAVED = [name for name in maps.MAPS if name != "generalized-own"]


@pytest.mark.parametrize("name", SAVED)
def test_round_trip(name, tmp_path):
    phi = maps.make(name)
    path = tmp_path / "map.npz"
    phi.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["map.npz"], "no temporary file is left"
    again = ka.load(str(path))
    assert type(again) is type(phi)
    assert again.fingerprint == phi.fingerprint
    assert again == phi
    assert hash(again) == hash(phi)
    assert (phi.redraw(5) == phi) is isinstance(phi, FIXED)
    for dtype in ("float32", "float64"):
        (x,) = arrays(1, (2, 5, maps.DIM), dtype=dtype)
        np.testing.assert_array_equal(again(x), phi(x))
        state = ka.key_state(x, x, phi)
        np.testing.assert_array_equal(ka.attend(state, x, again), ka.attend(state, x, phi))
    np.testing.assert_array_equal(again.redraw(5)(x), phi.redraw(5)(x))
    again.save(path)
    assert ka.load(path).fingerprint == phi.fingerprint


@pytest.mark.parametrize(
    "projection", [ka.projections.Iid(norms="sqrt_d"), ka.projections.Orthogonal("gram_schmidt", "sqrt_d")]
)
@pytest.mark.parametrize("kernel", [ka.kernels.Softmax(0.3), ka.kernels.Gaussian(np.arange(1.0, 6.0))])
def test_the_design_comes_back(projection, kernel, tmp_path):
    phi = ka.random_features(kernel, 5, 8, "positive", projection, rng=0)
    phi.save(tmp_path / "a.npz")
    again = ka.load(tmp_path / "a.npz")
    assert again.projection == projection
    (x,) = arrays(1, (5, 5), dtype="float64")
    np.testing.assert_array_equal(again.kernel(x), kernel(x))
    np.testing.assert_array_equal(again.variance(x, x), phi.variance(x, x))


def test_files_hold_no_pickle(tmp_path):
    path = tmp_path / "map.npz"
    maps.make("phase-ard").save(path)
    with np.load(path, allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file)


def test_damaged_files(tmp_path):
    path = tmp_path / "map.npz"
    maps.make("positive-ard").save(path)
    content = path.read_bytes()
    for damaged in (
        content[: len(content) // 2],
        content[:-5],
        b"",
        b"no zip file",
        content[:200] + b"xxxx" + content[204:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(ka.errors.FileFormatError, match=r"map\.npz"):
            ka.load(path)


def test_foreign_files(tmp_path):
    path = tmp_path / "foreign.npz"
    np.savez(path, a=np.ones(3))
    with pytest.raises(ka.errors.FileFormatError, match=r"foreign\.npz"):
        ka.load(path)
    np.save(tmp_path / "plain.npy", np.ones(3))
    with pytest.raises(ka.errors.FileFormatError, match=r"plain\.npy"):
        ka.load(tmp_path / "plain.npy")
    (tmp_path / "pickled").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ka.errors.FileFormatError, match="pickled"):
        ka.load(tmp_path / "pickled")
    with pytest.raises(FileNotFoundError):
        ka.load(tmp_path / "nothing.npz")


def edited(path, header=None, drop=(), **arrays):
    with np.load(path) as file:
        content = {name: file[name] for name in file if name not in drop}
    content |= arrays
    if header is not None:
        content["header"] = np.array(header(str(content["header"])))
    np.savez(path, **content)


def test_a_class_that_has_no_row_is_told_of_the_table(tmp_path):
    path = tmp_path / "map.npz"
    ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0).save(path)
    edited(path, header=lambda h: h.replace("Positive", "Mine"))
    with pytest.raises(ka.errors.FileFormatError, match=r"unknown type, 'features.Mine': .*ka\.features\.ESTIMATORS"):
        ka.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"header": lambda h: h.replace("Positive", "Negative")},
        {"header": lambda h: h.replace('"omega"', '"alpha"')},
        {"header": lambda h: "[" + h},
        {"header": lambda h: "[]"},
        {"header": lambda h: '"Positive"'},
        {"drop": ("array0",)},
        {"format": np.array("kernattn map 99")},
    ],
    ids=["unknown type", "unknown field", "no json", "a list", "a string", "no array", "other version"],
)
def test_files_that_someone_edited(change, tmp_path):
    path = tmp_path / "map.npz"
    ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0).save(path)
    edited(path, **change)
    with pytest.raises(ka.errors.FileFormatError, match=r"map\.npz"):
        ka.load(path)


def test_object_arrays_are_refused(tmp_path):
    path = tmp_path / "map.npz"
    ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0).save(path)
    edited(path, array0=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ka.errors.FileFormatError):
        ka.load(path)


def test_a_function_of_ones_own_cannot_be_saved(tmp_path):
    with pytest.raises(ka.errors.ParameterError, match="cube"):
        maps.make("generalized-own").save(tmp_path / "map.npz")
    assert not list(tmp_path.iterdir())
