"""No signal and no wrong bit where others use the unit too, 300 times: a process of its own, on hardware alone."""

import os
from importlib.util import find_spec

import pytest

from processes import assert_fine

pytest.importorskip("numba")

from kernattn.ops._numba.codegen.registers import TILES

SOAK = """
import matrix_soak
torch = __import__("torch") if {torch} else None
matrix_soak.alternate(300, torch)
print("fine")
"""


@pytest.mark.slow
@pytest.mark.skipif(not TILES or not hasattr(os, "fork"), reason="needs a matrix unit, and forks")
def test_alternations_with_threads_forks_and_torch():
    assert_fine(SOAK.format(torch=find_spec("torch") is not None), KERNATTN_MATRIX_UNIT="1")
