"""Maps that users write: given rows in the dtype in which sums run, and checked in what they return."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.features import FeatureMap, ScaledFeatures
from refusals import refused

Q = np.random.default_rng(0).standard_normal((5, 4))


@dataclass(frozen=True, eq=False)
class Own(FeatureMap):
    """Features of any dimension, as a function of rows gives them."""

    function: Callable[[Any], Any]
    dim = None

    def num_features_of(self, dim):
        return dim

    def scaled_query(self, x):
        return self.function(x)

    def redraw(self, rng=None):
        return self


SHIFTED = Own(lambda x: ScaledFeatures(1 + x**2, 0 * x[..., :1]))


@pytest.mark.parametrize(
    "phi",
    [SHIFTED, 3 * SHIFTED, SHIFTED + SHIFTED, SHIFTED * ka.features.relu()],
    ids=("own", "multiple", "sum", "product"),
)
def test_rows_of_sixteen_bits_are_widened_before_a_map_sees_them(phi):
    q = (300 * Q).astype(np.float16)  # float16 does not hold their squares
    wide = q.astype(np.float32)
    wanted, state = ka.causal_linear_attention(wide, wide, Q.astype(np.float32), phi, backend="reference")
    for key in (q, _of_torch(q)):
        value = Q.astype(np.float16) if key is q else _of_torch(Q.astype(np.float16))
        out, after = ka.causal_linear_attention(key, key, value, phi, backend="reference")
        np.testing.assert_allclose(np.asarray(out), wanted, rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(np.asarray(after.z), state.z, rtol=1e-6)
        assert tuple(ka.initial_state(phi, (), 4, key).peak.shape) == state.peak.shape


def test_features_of_sixteen_bits():
    np.testing.assert_allclose(SHIFTED(Q.astype(np.float16)), 1 + Q**2, rtol=2e-3)
    assert SHIFTED.scaled(Q.astype(np.float16)).values.dtype == np.float32


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda x: 1 + x**2, errors.DTypeError, "must return ScaledFeatures"),
        (lambda x: None, errors.DTypeError, "got None"),
        (lambda x: (x, x, x), errors.DTypeError, "must return ScaledFeatures"),
        (lambda x: ScaledFeatures(1 + x**2, 0.0), errors.DTypeError, "the log_scale of scaled_key of Own must be"),
        (lambda x: ScaledFeatures(x.tolist(), 0 * x[..., :1]), errors.DTypeError, "the values of scaled_key of Own"),
        (lambda x: ScaledFeatures(x.astype(int), 0 * x[..., :1]), errors.DTypeError, "int64"),
        (lambda x: ScaledFeatures(x, np.zeros(())), errors.ShapeError, "values (5, 4) and log scales (5, 1)"),
        (lambda x: ScaledFeatures(x[..., :2], 0 * x[..., :1]), errors.ShapeError, "(5, 2)"),
        (lambda x: ScaledFeatures(x[:1], 0 * x[:1, :1]), errors.ShapeError, "(1, 4) and (1, 1)"),
        (lambda x: ScaledFeatures(x[:3], 0 * x[:, :1]), errors.ShapeError, "(3, 4)"),
    ],
)
def test_what_a_map_returns_is_checked(function, error, words):
    phi = Own(function)
    calls = (
        lambda: ka.linear_attention(Q, Q, Q, phi),
        lambda: ka.key_state(Q, Q, phi),
        lambda: ka.linear_attention(Q, Q, Q, 2 * phi),
        lambda: ka.attention.window_attention(Q, Q, Q, phi, 2),
    )
    for call in calls:
        with refused(error, words):
            call()
    with refused(error, words.replace("scaled_key", "scaled_query")):
        phi(Q)


def _of_torch(array):
    return pytest.importorskip("torch").from_numpy(array)
