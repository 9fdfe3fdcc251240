"""Which backend runs, and what is said where one cannot."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import BackendUnavailable, ParameterError
from kernattn.ops import OPS
from kernattn.ops import dispatch as _dispatch
from xp import KINDS

FOREIGN = [kind for kind in KINDS if kind.name not in ("numpy", "readonly")]


def test_every_op_has_a_reference():
    assert {"features", "causal", "step", "key_state", "attend", "block_softmax"} <= set(OPS)
    for name, op in OPS.items():
        assert op.name == name
        assert "reference" in op.backends
        assert set(op.backends) <= set(_dispatch.BACKENDS)
        assert callable(op.implementation(np.ones(1), "reference"))


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_the_default_is_the_fastest_that_can_run(op):
    compiled = "cpu" in op.backends and _dispatch.missing("cpu") is None
    fastest = "cpu" if compiled else "reference"
    assert op.choose(np.ones(1)) == fastest
    for kind in FOREIGN:
        if kind.name != "cupy":
            wanted = "reference" if kind.name == "strict" else fastest
            assert op.choose(kind.asarray(np.ones(1, np.float32))) == wanted


def test_a_backend_without_that_op():
    op = _dispatch.Op("causal", ("reference",))
    for backend in ("cpu", "gpu"):
        with pytest.raises(BackendUnavailable, match=f"'{backend}' has no causal op; there is one for reference"):
            op.choose(np.ones(1), backend)


@pytest.mark.parametrize(("backend", "reason"), [("cpu", "numba is not installed"), ("gpu", "cupy is not installed")])
def test_a_backend_whose_library_is_missing(backend, reason, monkeypatch):
    op = _dispatch.Op("causal", ("reference", backend))
    _dispatch.missing.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(_dispatch, "find_spec", lambda name: None)
        with pytest.raises(BackendUnavailable, match=f"'{backend}' cannot run causal here: {reason}"):
            op.choose(np.ones(1), backend)
        assert op.choose(np.ones(1)) == "reference"
    _dispatch.missing.cache_clear()


@pytest.mark.parametrize("kind", [kind for kind in FOREIGN if kind.name in ("strict", "cupy")], ids=repr)
def test_a_backend_that_does_not_take_these_arrays(kind):
    op = _dispatch.Op("causal", ("reference", "cpu"))
    if _dispatch.missing("cpu") is not None:
        pytest.skip("no numba")
    with pytest.raises(
        BackendUnavailable, match="'cpu' takes NumPy arrays, and PyTorch's and JAX's in host memory; got "
    ):
        op.choose(kind.asarray(np.ones(1, np.float32)), "cpu")


@pytest.mark.parametrize("given", ["numba", "", "CPU", 3, True])
def test_an_unknown_backend(given):
    with pytest.raises(ParameterError, match="backend must be None or one of reference, cpu, gpu; got"):
        OPS["causal"].choose(np.ones(1), given)


def calls():
    phi = ka.features.elu1()
    x = np.ones((3, 2), np.float32)
    state = ka.key_state(x, x, phi, backend="reference")
    return {
        "linear_attention": lambda backend: ka.linear_attention(x, x, x, phi, backend=backend),
        "causal_linear_attention": lambda backend: ka.causal_linear_attention(x, x, x, phi, backend=backend),
        "linear_attention_step": lambda backend: ka.linear_attention_step(
            state, x[0], x[0], x[0], phi, backend=backend
        ),
        "key_state": lambda backend: ka.key_state(x, x, phi, backend=backend),
        "attend": lambda backend: ka.attend(state, x, phi, backend=backend),
        "softmax_attention": lambda backend: ka.softmax_attention(x, x, x, backend=backend),
        "phi": lambda backend: phi(x, backend=backend),
        "phi.query": lambda backend: phi.query(x, backend=backend),
        "phi.key": lambda backend: phi.key(x, backend=backend),
        "phi of a map without spec": lambda backend: ka.features.polynomial(2)(x, backend=backend),
    }


@pytest.mark.parametrize("name", list(calls()))
def test_every_call_asks_the_table(name):
    call = calls()[name]
    call("reference")
    with pytest.raises(ParameterError, match="backend must be None"):
        call("fastest")
    if _dispatch.missing("gpu") is not None:
        with pytest.raises(BackendUnavailable, match="'gpu'"):
            call("gpu")
