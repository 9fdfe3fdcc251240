"""Namespaces, dtypes and the way to the host and back."""

import numpy as np
import pytest

import kernattn as ka
from kernattn._arrays import namespaces as _array
from kernattn.errors import DTypeError, MixedLibraryError, ParameterError
from xp import KINDS, dtype_name, to_numpy


def test_one_namespace(xp):
    a, b = xp.asarray(np.ones(3, np.float32)), xp.asarray(np.ones(2, np.float32))
    namespace = _array.namespace(a=a, b=b)
    assert namespace is _array.namespace(b=b)
    assert xp.holds(namespace.exp(a))


@pytest.mark.parametrize("other", [kind for kind in KINDS if kind.name not in ("numpy", "readonly")], ids=repr)
def test_libraries_do_not_mix(other):
    with pytest.raises(
        MixedLibraryError, match=r"numpy.*" + {"strict": "array_api_strict"}.get(other.name, other.name)
    ):
        _array.namespace(q=np.ones(3), k=other.asarray(np.ones(3, np.float32)))


@pytest.mark.parametrize("given", [[1.0, 2.0], 3.0, np.float64(2.0), "abc", None, (1, 2), np.float32], ids=repr)
def test_only_arrays_are_arrays(given):
    with pytest.raises(DTypeError, match=f"q must be an array.*got {type(given).__name__}"):
        _array.namespace(q=given)


def test_of_a_table_its_numbers_are_asked_for():
    table = pytest.importorskip("pandas").DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    for given in (table, table["a"]):
        with pytest.raises(DTypeError, match=rf"x must be an array.*got {type(given).__name__}: give x\.to_numpy\(\)$"):
            _array.namespace(x=given)
    assert ka.kernels.Gaussian()(table.to_numpy()).shape == (2, 2)


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        (np.array([[1.0, "a"]], object), "ColumnTransformer"),
        (np.array([["a"]]), "ColumnTransformer"),
        (np.array([["2020-01-01"]], "datetime64[D]"), "divided by numpy.timedelta64"),
        (np.array([[1]], "timedelta64[D]"), "divided by numpy.timedelta64"),
        (np.array([[1]]), "got int64$"),
    ],
    ids=["mixed", "text", "dates", "times", "integers"],
)
def test_what_else_a_table_holds_is_told_how_to_become_numbers(values, hint):
    with pytest.raises(DTypeError, match=hint):
        ka.kernels.Gaussian()(values)


def test_dtypes(xp):
    for dtype in xp.dtypes:
        with xp.wide():
            x = xp.asarray(np.ones(3), dtype)
            namespace = _array.namespace(x=x)
            assert _array.dtype_name(x) == dtype
            assert _array.check_floating("x", x) == dtype
            wide = "float64" if dtype == "float64" else "float32"
            assert dtype_name(namespace.zeros(1, dtype=_array.accumulation_dtype(namespace, x))) == wide


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool", "complex64"])
def test_only_real_floats(dtype, xp):
    with xp.wide():
        x = xp.asarray(np.ones(3, dtype))
        with pytest.raises(DTypeError, match=f"q must have one of the dtypes float16, .*got {dtype}"):
            _array.check_floating("q", x)


def test_to_the_host_and_back(xp):
    for dtype in xp.dtypes:
        with xp.wide():
            x = xp.asarray(np.array([[0.5, -2.0, 1024.0]]), dtype)
            host = _array.to_numpy64(x)
            assert type(host) is np.ndarray
            assert host.dtype == np.float64
            np.testing.assert_array_equal(host, [[0.5, -2.0, 1024.0]])
            host[:] = 7.0  # a copy
            np.testing.assert_array_equal(to_numpy(x), [[0.5, -2.0, 1024.0]])
            back = _array.like(np.array([[1.5]]), x)
            assert xp.holds(back)
            assert dtype_name(back) == dtype
            np.testing.assert_array_equal(to_numpy(back), [[1.5]])


def test_tensors_that_need_gradients_reach_the_host():
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(_array.to_numpy64(torch.ones(2, requires_grad=True)), [1.0, 1.0])


def test_zeros_and_constants_stand_beside(xp):
    x = xp.asarray(np.ones(3, np.float32))
    namespace = _array.namespace(x=x)
    zeros = _array.zeros(namespace, (2, 1), namespace.float32, x)
    constant = _array.constant(namespace, np.array([1.0, 2.0]), namespace.float32, x)
    for got, wanted in ((zeros, np.zeros((2, 1))), (constant, np.array([1.0, 2.0]))):
        assert xp.holds(got)
        assert dtype_name(got) == "float32"
        np.testing.assert_array_equal(to_numpy(got), wanted)


def test_other_devices():
    strict = pytest.importorskip("array_api_strict")
    device = strict.Device("device1")
    x = strict.asarray([1.0, 2.0], device=device)
    np.testing.assert_array_equal(_array.to_numpy64(x), [1.0, 2.0])
    assert _array.like(np.ones(2), x).device == device
    assert _array.zeros(_array.namespace(x=x), (2,), x.dtype, x).device == device


def test_generator():
    def drawn(rng):
        return ka.projections.Iid().draw(1, 1, rng).item()

    source, same = np.random.default_rng(3), np.random.default_rng(3)
    assert [drawn(source), drawn(source)] == [drawn(same), drawn(same)]  # it goes on where it was
    assert drawn(5) == drawn(np.random.default_rng(5)) == drawn(np.int64(5)) == drawn(np.random.SeedSequence(5))
    assert drawn(None) != drawn(None)
    for given in (-1, 1.5, "seed", True, np.random.RandomState(0), [1]):
        with pytest.raises(ParameterError, match="rng must be None, a non-negative integer"):
            drawn(given)
