"""Summaries of keys: what they refuse, and what they leave behind."""

import tracemalloc

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError
from seam import MapSpec, ScaledFeatures

pytest.importorskip("numba")

from kernattn.ops.key_state.cpu import key_state


def test_signed_features_with_scales_of_their_own_are_refused():
    x = ScaledFeatures(-np.ones((4, 3)), np.zeros((4, 3)))
    with pytest.raises(ParameterError, match="positive values only"):
        key_state(x, np.ones((4, 2)), None, None)


def test_lengths_leave_no_tables_of_many_heads_behind():
    spec, lengths = MapSpec("elu1"), range(1, 12)
    key_state(np.ones((20_000, 1, 1), "f4"), np.ones((20_000, 1, 1), "f4"), spec, None)
    tracemalloc.start()
    try:
        for n in lengths:
            x = np.ones((20_000, n, 1), "f4")
            key_state(x, x, spec, None)
        del x
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20_000 * 48  # less than the table of one length


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_values_of_every_width(dtype):
    """Rows of a tile are whole cache lines: with too few of them, values of 10 columns ran into each other."""
    rng, phi, most = np.random.default_rng(0), ka.features.elu1(), 2e-4 if dtype == "float32" else 1e-10
    for width in (3, 8, 9, 10, 12, 17, 20, 24, 28, 33):
        q, k = rng.standard_normal((2, 40, 4)).astype(dtype)
        v = rng.standard_normal((40, width)).astype(dtype)
        wide = rng.standard_normal((40, width)).astype(dtype) / (2 * width**0.5)
        for call in (
            lambda backend: ka.causal_linear_attention(q, k, v, phi, backend=backend)[0],  # noqa: B023
            lambda backend: ka.linear_attention(q, k, v, phi, backend=backend),  # noqa: B023
            lambda backend: ka.gated_linear_attention(wide, wide, v, backend=backend)[0],  # noqa: B023
        ):
            np.testing.assert_allclose(call(None), call("reference"), rtol=0, atol=most)
