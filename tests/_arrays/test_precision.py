"""The precision of products is asked for around calls: it nests, ends with its block, and is this thread's own."""

import threading

import numpy as np
import pytest

import kernattn as ka
from kernattn._arrays.precision import float32_products


def test_blocks_nest_and_end():
    assert float32_products() == "float32"
    with ka.precision("tf32"):
        assert float32_products() == "tf32"
        with ka.precision("float32"):
            assert float32_products() == "float32"
        assert float32_products() == "tf32"
        with pytest.raises(ZeroDivisionError), ka.precision("float32"):
            raise ZeroDivisionError
        assert float32_products() == "tf32"
    assert float32_products() == "float32"


def test_other_threads_do_not_see_it():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(float32_products()))
    with ka.precision("tf32"):
        thread.start()
        thread.join()
    assert seen == ["float32"]


@pytest.mark.parametrize("given", ["float16", "", None, 32])
def test_others_are_refused_at_once(given):
    with pytest.raises(ka.errors.ParameterError, match="products must be one of float32, tf32, bfloat16; got"):
        ka.precision(given)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_other_backends_do_not_change(backend, dtype):
    if backend.name == "gpu":
        pytest.skip("tests/cuda_ops/test_tf32.py")
    x = np.random.default_rng(0).normal(size=(2, 9, 4)).astype(dtype)
    phi = ka.random_features(ka.kernels.Softmax(), 4, 16, rng=0)
    plain, _ = ka.causal_linear_attention(x, x, x, phi, backend=backend.name)
    with ka.precision("tf32"):
        again, _ = ka.causal_linear_attention(x, x, x, phi, backend=backend.name)
    np.testing.assert_array_equal(again, plain)
