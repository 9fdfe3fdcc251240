"""Real tokens are what they are said to be; files that are not what they should be are refused."""

import io
import zipfile

import numpy as np
import pytest

from kernattn.errors import DTypeError, EmptyInputError, FileFormatError, ParameterError, ShapeError
from kernattn.studies._tokens import MOST_DIGITS, own_tokens, shipped_tokens, unseen_tokens

GOOD = {"q": np.ones((2, 3)), "k": np.ones((4, 3)), "v": np.ones((4, 2))}


@pytest.mark.parametrize("source", ["china", "flower", "digits"])
def test_shipped_tokens(source):
    pytest.importorskip("sklearn")
    tokens = shipped_tokens(source, queries=20, keys=100, seed=1)
    np.testing.assert_allclose(np.sum(tokens.k**2, axis=1), 16)
    np.testing.assert_array_equal(tokens.q, tokens.k[::5])
    assert tokens.v.shape == (100, {"china": 16, "flower": 2, "digits": 10}[source])
    if source == "digits":
        np.testing.assert_array_equal(np.sort(tokens.v, axis=1), np.eye(10)[np.full(100, 9)])
    else:
        np.testing.assert_allclose(tokens.v.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(tokens.v.std(axis=0), 1)
    if source == "china":  # whitened: uncorrelated
        np.testing.assert_allclose(tokens.v.T @ tokens.v / 100, np.eye(16), atol=1e-10)
    again, other = (shipped_tokens(source, 20, 100, seed) for seed in (1, 2))
    assert tokens.digest == again.digest != other.digest


@pytest.mark.parametrize("source", ["china", "digits"])
def test_tokens_for_a_fit_are_others_of_the_same_law(source):
    """None of them is a token that judges; they have one whitening, so pixels of both lie on one affine map."""
    pytest.importorskip("sklearn")
    judged, unseen = shipped_tokens(source, 1200, 1200, 1), unseen_tokens(source, 1200, 1)
    count = MOST_DIGITS - 1200 if source == "digits" else 1200
    assert 0.98 * count <= len(unseen.k) <= count
    np.testing.assert_allclose(np.sum(unseen.k**2, axis=1), 16)
    assert np.max(unseen.k @ judged.k.T) < 16 - 1e-9
    np.testing.assert_allclose(unseen.k.T @ unseen.k / len(unseen.k), judged.k.T @ judged.k / 1200, atol=0.25)
    assert len(unseen.v) == len(unseen.q) == len(unseen.k)


def test_scale_is_a_factor_on_queries_and_keys():
    tokens = shipped_tokens("digits", 5, 40, 0).scaled(0.5)
    np.testing.assert_allclose(np.sum(tokens.q**2, axis=1), 4)
    assert tokens.name == "digits@0.5"


@pytest.mark.parametrize(("queries", "keys"), [(0, 100), (101, 100), (5, 16), (5, 1798)])
def test_shipped_tokens_have_limits(queries, keys):
    with pytest.raises(ParameterError, match=f"got {keys} keys and {queries} queries"):
        shipped_tokens("digits", queries, keys, 0)


def save(path, **arrays):
    np.savez(path, **(GOOD | arrays))
    return path


def test_own_tokens(tmp_path):
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((10, 3)), rng.standard_normal((4, 3)).astype(np.float16), rng.standard_normal((4, 2))
    path = save(tmp_path / "mine.npz", q=q, k=k, v=v)
    tokens = own_tokens(path, 10, 0)
    for found, given in zip((tokens.q, tokens.k, tokens.v), (q, k, v), strict=True):
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, given)
    fewer = own_tokens(path, 4, 0)
    assert fewer.q.shape == (4, 3)
    assert all(any(np.array_equal(row, old) for old in q) for row in fewer.q)
    assert "4 of its 10 queries" in fewer.description


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({"q": np.ones((2, 3), dtype=int)}, DTypeError, "q must be float16, float32 or float64; got int64"),
        ({"v": np.ones((4, 2), dtype=complex)}, DTypeError, "v must be .* got complex128"),
        ({"k": np.ones(3)}, ShapeError, r"k must have two axes.*\(3,\)"),
        ({"v": np.ones((4, 0))}, EmptyInputError, r"v is empty; got shape \(4, 0\)"),
        ({"k": np.full((4, 3), np.nan)}, ParameterError, "k has values that are not finite"),
        ({"q": np.ones((2, 5))}, ShapeError, r"q and k .* \(2, 5\) and \(4, 3\)"),
        ({"v": np.ones((3, 2))}, ShapeError, r"k and v .* \(4, 3\) and \(3, 2\)"),
        ({"k": np.ones((1, 3)), "v": np.ones((1, 2))}, ShapeError, "fewer than two keys"),
        ({"mask": np.ones(4)}, FileFormatError, "no others; it holds"),
        ({"q": np.asarray([None])}, FileFormatError, "plain numbers"),
    ],
)
def test_bad_arrays(tmp_path, arrays, error, message):
    with pytest.raises(error, match=message):
        own_tokens(save(tmp_path / "bad.npz", **arrays), 8, 0)


def broken_zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in "qkv":
            file.writestr(f"{name}.npy", b"\x93NUMPY garbage")
    return buffer.getvalue()


def single_array():
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


@pytest.mark.parametrize("content", [b"", b"text\n", b"PK\x03\x04 torn", broken_zip(), single_array()])
def test_bad_files(tmp_path, content):
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"bad\.npz"):
        own_tokens(path, 8, 0)


def test_missing_files(tmp_path):
    with pytest.raises(FileFormatError, match="does not exist"):
        own_tokens(tmp_path / "none.npz", 8, 0)
    with pytest.raises(FileFormatError, match="cannot be read"):
        own_tokens(tmp_path, 8, 0)
