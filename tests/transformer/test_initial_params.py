"""Parameters to begin with have the law that is said, and rows do not grow with the depth."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.transformer import Config, initial_params

CONFIG = Config(dim=64, layers=8, heads=4, vocab=100, length=32)


def test_the_sizes_of_weights():
    for name, value in initial_params(CONFIG, 0, "float64").items():
        if name.endswith("scale"):
            np.testing.assert_array_equal(value, 1)
        elif name.endswith("bias"):
            np.testing.assert_array_equal(value, 0)
        else:
            wanted = 0.02 if name.startswith("embed.") else len(value) ** -0.5
            if name.endswith(("out.weight", "down.weight")):  # of what a layer adds, twice
                wanted /= (2 * CONFIG.layers) ** 0.5
            spread = 5 * wanted / np.sqrt(2 * value.size)  # of the root mean square, five standard deviations
            assert abs(np.sqrt(np.mean(value**2)) - wanted) < spread, name


def test_draws_are_fresh_unless_told():
    one, other, third = (initial_params(CONFIG, rng)["embed.tokens"] for rng in (None, None, 0))
    assert np.any(one != other)
    np.testing.assert_array_equal(third, initial_params(CONFIG, 0)["embed.tokens"])


def test_old_names():
    with pytest.warns(DeprecationWarning, match=r"remember is now kernattn\.transformer\.prepare_memory"):
        assert ka.transformer.remember is ka.transformer.prepare_memory
