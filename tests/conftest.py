"""Fixtures every test sees: kinds of array, backends, and poisoned memory."""

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from xp import KINDS, backends

HERE = Path(__file__).parent
os.environ["NUMBA_CACHE_DIR"] = str(HERE / ".numba_cache")  # what is compiled below is not for users
os.environ["PYTHONPATH"] = os.pathsep.join(  # loops that were compiled here need this file in other processes, too
    [str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)
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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Slow tests run where they are asked for: `pytest -m slow`.

    What one worker makes once for many tests stays with it: `pytest -n 2 --dist loadgroup`.

    The ops compile every loop, and the others find it on the disk; JAX compiles in memory; a file has what it caches.
    Large groups come first, so the kernels of CUDA, long tests in small files, are one group too.
    """
    if "slow" not in config.option.markexpr:
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    for item in items:
        *folder, file = item.path.relative_to(HERE).parts
        whole = folder[:1] in (["cuda_ops"], ["ops"])
        name = "jax" if "jax" in item.nodeid else folder[0] if whole else "/".join((*folder, file))
        item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture(params=KINDS, ids=repr, scope="session")
def xp(request):
    """Each kind of array in turn, see xp.Kind."""
    return request.param


@pytest.fixture(params=backends("causal", "step", "key_state", "attend"), ids=repr, scope="session")
def backend(request):
    """Each backend that can run linear attention here, see xp.Backend."""
    return request.param


def _poisoned(allocate):
    def poisoned(*args, **kwargs):
        result = allocate(*args, **kwargs)
        if np.issubdtype(result.dtype, np.inexact):
            result.fill(np.nan)
        return result

    return poisoned


EMPTY, EMPTY_LIKE = np.empty, np.empty_like
POISONED = {"empty": _poisoned(np.empty), "empty_like": _poisoned(np.empty_like)}

if find_spec("numba"):  # what Numba compiles in a test, its own np.zeros among it, gets the plain functions
    from numba.extending import overload

    overload(POISONED["empty"])(lambda shape, dtype=float: lambda shape, dtype=float: EMPTY(shape, dtype))
    overload(POISONED["empty_like"])(lambda arr, dtype=None: lambda arr, dtype=None: EMPTY_LIKE(arr, dtype))


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    """Memory that nobody wrote is NaN, so that reading it shows."""
    for name, poisoned in POISONED.items():
        monkeypatch.setattr(np, name, poisoned)
