"""Kac walks: orthogonal rows by random rotations, uniform only after enough of them."""

import pytest

import kernattn as ka
from kernattn import errors

P = ka.projections


@pytest.mark.parametrize("number", [0, 1.0, "9"], ids=repr)
def test_steps_are_counted(number):
    with pytest.raises(errors.ParameterError, match=f"steps must be a positive integer.*{number!r}"):
        P.Kac(steps=number)
