"""Attention that is fitted to a model: sequences of padding alone, and heads with nothing to learn."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from kernattn.features._fitted import learn
from kernattn.transfer._fit import fit_layer
from kernattn.transfer._rows import Recorder
from kernattn.transfer._run import settings_of

ROWS = np.random.default_rng(0).standard_normal((3, 8, 4, 9, 4))  # q, k and v of 4 heads


def recorded(q, k, v, mask=None):
    recorder = Recorder(6, 9, 0, set())
    recorder.take("layer", q, k, v, mask, True, 0.5)
    return recorder.kept["layer"], recorder.places["layer"]


def test_sequences_of_padding_alone_are_left_out():
    """microsoft/LMOps#38: a mask without a token made the loss of a distillation NaN. Here it ended the fit."""
    mask = np.arange(9) < np.array([[9], [0], [4], [9], [0], [2], [7], [9]])
    some = mask.any(axis=1)
    found, wanted = recorded(*ROWS, mask)[0], recorded(*ROWS[:, some], mask[some])[0]
    assert len(found) == 6
    for one, other in zip(found, wanted, strict=True):
        for x, y in zip(one, other, strict=True):
            assert_array_equal(x, y)


@pytest.mark.parametrize("window", [0, 2])
def test_heads_with_nothing_to_learn(window, monkeypatch):
    """huggingface/transformers#3528: a layer without heads that are alive ended in ZeroDivisionError;
    Lightning-AI/torchmetrics#1573: a score relative to the spread of a constant was 8e4. Here it was 4e134.
    """
    monkeypatch.setattr(learn, "STEPS", 2)
    q, k, v = ROWS.copy()
    q[:, 0], k[:, 1], v[:, 2], v[:, 3] = 1, 0, 0, 1.1
    asked = settings_of(8, "hedgehog", window, False, False, 6, 9, 0)
    layer = fit_layer("layer", 0, *recorded(q, k, v), asked, lambda: None)
    assert {0, 1, 2} <= {*layer.random_heads}
    assert max(layer.errors[2:] + layer.random_errors[1:]) < 1
