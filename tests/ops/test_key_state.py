"""Summaries of keys: what they refuse, and what they leave behind."""

import tracemalloc

import numpy as np
import pytest

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
