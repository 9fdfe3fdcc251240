"""Gated attention: what is refused, and what its errors and warnings name."""

import numpy as np
import pytest

import kernattn as ka
from gated import D
from kernattn.attention import GatedState, GatedStretch
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError, StateMismatchError


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"g": np.full((1, 9), 0.1)}, ParameterError, "g must be natural logarithms of decays, at most 0; got 0.1"),
        ({"gk": np.full((1, 9, 4), 1e-9)}, ParameterError, "gk must be natural logarithms"),
        ({"g": np.zeros((1, 8))}, ShapeError, r"g must be \(..., 9\) or \(..., 1\)"),
        ({"g": np.zeros((1, 9, 4))}, ShapeError, "decays of each channel are gk"),
        ({"gk": np.zeros((1, 9))}, ShapeError, r"gk must be \(..., 9, 4\)"),
        ({"beta": np.zeros((9, 2)), "q": np.zeros((2, 9, 4))}, ShapeError, "heads come before tokens: transpose"),
        ({"gk": np.zeros((9, 2, 4)), "q": np.zeros((2, 9, 4))}, ShapeError, "heads come before tokens: transpose"),
        ({"g": np.zeros(2), "q": np.zeros((2, 9, 4))}, ShapeError, r"a number for each head is \(heads, 1\)"),
        ({"erase": (np.zeros((1, 9, 4)),) * 3}, ParameterError, r"got a tuple of an array float64\(1, 9, 4\),"),
        ({"state": (0, GatedState(np.zeros((1, 4, 2))))}, DTypeError, "outputs and the state: give the second"),
        ({"beta": np.zeros((3, 1, 9), "f4")}, DTypeError, "beta must have dtype float64; got float32"),
        ({"beta": np.zeros((2, 9)), "k": np.zeros((3, 9, 4))}, ShapeError, "the leading axes must broadcast"),
        ({"erase": np.zeros((2, 1, 9, 4))}, ParameterError, "erase must be a pair of arrays"),
        ({"erase": (np.zeros((1, 9, 4)),) * 2, "beta": np.zeros((1, 9))}, ParameterError, "exclude each other"),
        ({"k": np.zeros((1, 8, 4)), "v": np.zeros((1, 8, 2))}, ShapeError, "the number of tokens"),
        ({"q": np.zeros((1, 9, 3))}, ShapeError, r"the last axis \(d\)"),
        ({"state": np.zeros((1, 4, 2))}, DTypeError, r"got ndarray; an array .* by ka.attention.GatedState\(array\)"),
        ({"state": GatedStretch(np.zeros((1, 4, 2)), np.ones((1, 1)))}, DTypeError, "got GatedStretch; merge_states"),
        ({"state": {}}, DTypeError, "state must be a GatedState.*; got dict$"),
        ({"state": GatedState(np.zeros((2, 4, 2)))}, StateMismatchError, r"\(1, 4, 2\); got \(2, 4, 2\)"),
        ({"state": GatedState(np.zeros((1, 4, 2), "f4"))}, DTypeError, "is float64; got float32"),
        ({"erase": (None, np.zeros((1, 9, 4)))}, ParameterError, "got None for one of them"),
        ({"g": np.zeros((0, 9))}, EmptyInputError, "g must not be empty"),
        ({"scale": float("nan")}, ParameterError, "scale must be a finite number"),
        ({"l2_normalise": 1}, (DTypeError, ParameterError), "l2_normalise must be"),
    ],
)
def test_refusals(change, error, says):
    arguments = {"q": np.zeros((1, 9, 4)), "k": np.zeros((1, 9, 4)), "v": np.zeros((1, 9, 2))} | change
    with pytest.raises(error, match=says):
        ka.gated_linear_attention(**arguments)


def test_a_state_comes_before_a_stretch():
    state = GatedState(np.zeros((2, 2)))
    with pytest.raises(StateMismatchError, match="after a gated state comes a GatedStretch"):
        ka.merge_states(state, state)
    for s, through in (((2, 1), np.zeros((3, 1))), ((2,), np.zeros(2)), ((2, 1), np.zeros((2, 1), "f4"))):
        with pytest.raises(StateMismatchError, match="through of b must be"):
            ka.merge_states(GatedState(np.zeros(s)), GatedStretch(np.zeros(s), through))
    with pytest.raises(DTypeError, match=r"a\.through must be an array"):
        ka.merge_states(GatedStretch(np.zeros((2, 1)), None), GatedStretch(np.zeros((2, 1)), np.zeros((2, 1))))


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"q": np.zeros((0, 3))}, EmptyInputError, r"q must not be empty; got shape \(0, 3\)"),
        ({"g": np.zeros(0)}, EmptyInputError, r"g must not be empty; got shape \(0,\)"),
        ({"gk": np.zeros((2, 4))}, ShapeError, r"gk must be \(..., 3\), for a query of shape \(2, 3\); .* \(2, 4\)"),
        ({"erase": (np.zeros((2, 3)), np.zeros(4))}, ShapeError, r"erase\[1\] must be \(..., 3\), .* shape \(4,\)"),
    ],
)
def test_a_step_names_shapes_as_they_were_given(change, error, says):
    """Without an axis of tokens, which no token has."""
    arguments = {name: np.zeros((2, 3)) for name in "qkv"} | change
    with pytest.raises(error, match=says):
        ka.gated_linear_attention_step(None, **arguments)


def test_a_step_takes_a_list_as_the_pair_that_erases():
    q, k, v, a, b = np.random.default_rng(4).standard_normal((5, 2, D))
    pair, _ = ka.gated_linear_attention_step(None, q, k, v, erase=(a, b))
    same, _ = ka.gated_linear_attention_step(None, q, k, v, erase=[a, b])
    np.testing.assert_array_equal(pair, same)


def test_keys_too_long_for_a_delta_rule_are_told():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 2, 600, 16)).astype(np.float32)
    beta = rng.uniform(0, 1, (2, 600)).astype(np.float32)
    with pytest.warns(UserWarning, match=r"beta k\^T k is up to .*, where above 2 .*l2_normalise=True"):
        out, _ = ka.gated_linear_attention(q, k, v, beta=beta)
    assert not np.isfinite(out[:, -1]).any()
    assert np.isfinite(ka.gated_linear_attention(q, k, v, beta=beta, l2_normalise=True)[0]).all()
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    assert np.isfinite(ka.gated_linear_attention(q, k, v, beta=2 * beta)[0]).all()
    v[0, 3] = np.nan  # not from growth: no warning
    assert np.isnan(ka.gated_linear_attention(q, k, v, beta=beta)[0][0, 3:]).all()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_shares_outside_0_to_2_are_told(library):
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 2, 9, D))
    beta, mask = rng.uniform(0, 2, (2, 9)), np.arange(9) != 4
    arrays = [q, k, v, beta]
    if library == "torch":
        torch = pytest.importorskip("torch")
        arrays, mask = [torch.tensor(x, requires_grad=True) for x in arrays], torch.tensor(mask)
    *rows, beta = arrays
    options = {"key_mask": mask, "l2_normalise": True}
    ka.gated_linear_attention(*rows, beta=beta, **options)
    for factor, says in ((3, "is .* to 5.* here"), (-1, "is -1.* here.* of logits")):
        with pytest.warns(UserWarning, match=rf"in \[0, 2\] for keys of norm 1, and {says}"):
            ka.gated_linear_attention(*rows, beta=factor * beta, **options)
    ka.gated_linear_attention(rows[0], rows[1] / 100, rows[2], beta=3 * beta)  # short keys
    masked = beta.detach().clone() if library == "torch" else beta.copy()
    masked[:, 4] = -7
    ka.gated_linear_attention(*rows, beta=masked, **options)
