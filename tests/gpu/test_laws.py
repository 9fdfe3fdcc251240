"""The laws through the public API with backend="gpu", as on the emulation."""

import pytest

from kernattn.ops.dispatch import missing

if missing("gpu") is not None:
    pytest.skip(f"needs a GPU: {missing('gpu')}", allow_module_level=True)

from cuda_ops.test_public import *  # noqa: F403

pytestmark = pytest.mark.gpu
