"""No signal and no wrong bit where others use the unit too: 300 times on hardware, a few by emulation."""

import os
from importlib.util import find_spec

import pytest

from processes import assert_fine

pytest.importorskip("numba")

from kernattn.ops._numba.codegen.registers import TILES
from matrix_soak import alternate

SOAK = """
import matrix_soak
torch = __import__("torch") if {torch} else None
matrix_soak.alternate(300, torch)
print("fine")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_alternations_with_threads_forks_and_torch(matrix_unit):
    if TILES:
        assert_fine(SOAK.format(torch=find_spec("torch") is not None), KERNATTN_MATRIX_UNIT="1")
    else:
        alternate(4)
