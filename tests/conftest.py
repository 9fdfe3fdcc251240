"""Fixtures every test sees: kinds of array, backends, and poisoned memory."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from xp import KINDS, backends

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # JAX's compiler is most of its tests' time

settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", parent=settings.get_profile("fixed"), derandomize=False, max_examples=500)
settings.load_profile("fixed")  # `pytest --hypothesis-profile=thorough` searches further


@pytest.fixture(params=KINDS, ids=repr, scope="session")
def xp(request):
    """Each kind of array in turn, see xp.Kind."""
    return request.param


@pytest.fixture(params=backends("causal", "step", "key_state", "attend"), ids=repr, scope="session")
def backend(request):
    """Each backend that can run linear attention here, see xp.Backend."""
    return request.param


def _poison(allocate):
    def poisoned(*args, **kwargs):
        result = allocate(*args, **kwargs)
        if np.issubdtype(result.dtype, np.inexact):
            result.fill(np.nan)
        return result

    return poisoned


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    """Memory that nobody wrote is NaN, so that reading it shows."""
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(np, name, _poison(getattr(np, name)))
