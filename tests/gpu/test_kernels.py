"""The tests of the kernels, written for the emulation, on the device: every op against the float64 oracles."""

from importlib import import_module
from importlib.util import find_spec
from inspect import signature

import pytest

from kernattn.ops import OPS
from kernattn.ops.dispatch import missing

if missing("gpu") is not None:
    pytest.skip(f"needs a GPU: {missing('gpu')}", allow_module_level=True)

pytestmark = pytest.mark.gpu
NAMES = (*OPS, "plans", "tf32", "blind", "extremes")
MODULES = [name for name in NAMES if find_spec(f"cuda_ops.test_{name}") is not None]
TESTS = {
    f"{name}_of_{module}": test
    for module in MODULES
    for name, test in vars(import_module(f"cuda_ops.test_{module}")).items()
    if name.startswith("test_") and "cupy" in signature(test).parameters
}
globals().update(TESTS)


def test_every_op_is_among_them():
    ours = {name for name, op in OPS.items() if "gpu" in op.backends}
    assert ours - set(MODULES) <= {"attend", "gated_step", "causal_conv_step", "hybrid_vjp", "key_state_vjp"}, (
        "tested with key_state, gated, causal_conv, hybrid, and attend_vjp"
    )
    assert {name.rpartition("_of_")[2] for name in TESTS} == set(MODULES)
