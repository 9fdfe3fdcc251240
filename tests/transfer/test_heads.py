"""Attention whose heads have maps of their own: each is what its map alone gives, whole, in pieces and in steps."""

from itertools import pairwise

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.transfer import Heads

D, M = 4, 6
MAPS = [ka.random_features(ka.kernels.Softmax(), D, M, "positive", rng=seed) for seed in range(2)]
MIXED = [MAPS[0], ka.random_features(ka.kernels.Softmax(), D, M, "trigonometric", rng=3)]
FORMS = {
    "a map each": Heads(MAPS),
    "unlike peaks": Heads(MIXED),
    "a window": Heads(MAPS, 3, (0.5, -0.5), (0.9, 1.1)),
    "one map": Heads(MAPS[0], 3, (0.5, -0.5), (0.9, 1.1)),
}


def rows(grouped, n=11):
    rng = np.random.default_rng(0)
    q = rng.standard_normal((3, 2, 2, n, D) if grouped else (3, 2, n, D))
    k, v = rng.standard_normal((2, 3, 2, 1, n, D) if grouped else (2, 3, 2, n, D))
    return q, k, v


def alone(heads, q, k, v, mask=None):
    """The attention of each head by the function of its map."""
    outs = []
    for at in range(2):
        phi = heads.maps[min(at, len(heads.maps) - 1)]
        given = (q[:, at], k[:, at], v[:, at], phi)
        there = None if mask is None else mask[:, 0]
        if heads.window:
            out, _ = ka.attention.window_attention(*given, heads.window, near_bias=heads.near_bias[at], key_mask=there)
            out = out * heads.scale[at]
        else:
            out, _ = ka.causal_linear_attention(*given, key_mask=there)
        outs.append(out)
    return np.stack(outs, axis=1)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_heads_are_what_each_map_gives(form, grouped):
    heads, (q, k, v) = FORMS[form], rows(grouped)
    mask = np.ones((3, 1, 11) if not grouped else (3, 1, 1, 11), bool)
    mask[0, ..., :2] = False
    out, whole = heads.prefill(q, k, v, key_mask=mask)
    np.testing.assert_allclose(out, alone(heads, q, k, v, mask), rtol=1e-12, atol=1e-12)
    outs, state = [], None
    for first, last in pairwise((0, 4, 9)):
        piece = (x[..., first:last, :] for x in (q, k, v))
        part, state = heads.prefill(*piece, state=state, key_mask=mask[..., first:last])
        outs.append(part)
    for at in (9, 10):
        token = (x[..., at : at + 1, :] for x in (q, k, v))
        part, state = heads.step(state, *token)
        outs.append(part)
    np.testing.assert_allclose(np.concatenate(outs, axis=-2), out, rtol=1e-9, atol=1e-10)
    for name in ("s", "z"):
        assert getattr(state, name).shape == getattr(whole, name).shape
        assert getattr(state, name).shape[:2] == (3, 2)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_memory_is_read_by_all_heads(grouped):
    q, k, v = rows(grouped)
    for heads in (FORMS["a map each"], FORMS["unlike peaks"]):
        whole = heads.attend(q, k, v, causal=False)
        np.testing.assert_allclose(heads.read(heads.summarise(k, v), q), whole, rtol=1e-12, atol=1e-12)
        for at, phi in enumerate(heads.maps):
            own = ka.linear_attention(q[:, at], k[:, at], v[:, at], phi)
            np.testing.assert_allclose(whole[:, at], own, rtol=1e-12, atol=1e-12)


def test_what_does_not_fit_is_named():
    q, k, v = rows(False)
    _, state = FORMS["a map each"].prefill(q, k, v)
    with pytest.raises(errors.StateMismatchError, match="of these maps"):
        Heads(MAPS[::-1]).prefill(q, k, v, state=state)
    with pytest.raises(errors.StateMismatchError, match="WindowState; got LinearState"):
        FORMS["a window"].prefill(q, k, v, state=state)
    with pytest.raises(errors.ShapeError, match="2 heads of keys"):
        Heads(MAPS).attend(q[:, :1], k[:, :1], v[:, :1], causal=True)
    with pytest.raises(errors.DTypeError, match="maps must be a feature map, or one a head; got 3"):
        Heads(3)
    with pytest.raises(errors.ParameterError, match="a window is for causal attention"):
        FORMS["a window"].attend(q, k, v, causal=False)
    for maps, window, bias in (((), 0, ()), (MAPS, -1, ()), (MAPS, 2, (np.nan,)), (MAPS, 2, (0.0, 0.0, 0.0))):
        with pytest.raises(errors.ParameterError):
            Heads(maps, window, bias)


def test_numbers_of_heads_keep_their_digits_beside_16_bits():
    zero, v = np.zeros((2, 2, D), np.float16), np.array([[[0], [1]]] * 2, np.float16)
    heads = Heads(2980.0 * MAPS[0], 1, (7.998, 0.0), (1.9993, 1.0))
    out, _ = heads.prefill(zero, zero, v)
    np.testing.assert_allclose(out[0, 1], 1.9993 / (1 + 2980 / np.exp(7.998)), rtol=3 * 2**-12)
