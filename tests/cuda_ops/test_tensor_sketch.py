"""The kernel `tensor_sketch` on the emulation against transforms of the count sketches as written."""

import gc

import numpy as np
import pytest

from cuda_ops.cases import DTYPES, array, to64
from kernattn.ops._cuda import sketches
from kernattn.ops.tensor_sketch.order import order

ROOMS = (232_448, 4096, 0)  # everything in shared memory; not the rows of 1500 columns; nothing: cuFFT's transforms


def wanted(x, index, weight, buckets):
    """[P_0, P_(M/2) where M is even, sqrt 2 Re P_f, sqrt 2 Im P_f, ...] / sqrt M."""
    spectrum = np.ones((*x.shape[:-1], buckets), complex)
    for h, w in zip(index, weight, strict=True):
        sketch = np.zeros((*x.shape[:-1], buckets))
        for j, bucket in enumerate(h):
            sketch[..., bucket] += w[j] * x[..., j]
        spectrum *= np.fft.fft(sketch)
    real = [spectrum.real[..., f] for f in ((0,) if buckets % 2 else (0, buckets // 2))]
    pairs = [part[..., f] * np.sqrt(2) for f in order(buckets) for part in (spectrum.real, spectrum.imag)]
    return np.stack(real + pairs, axis=-1) / np.sqrt(buckets)


def problem(cupy, n, d, copies, buckets, dtype):
    rng = np.random.default_rng(buckets)
    index, weight = rng.integers(buckets, size=(copies, d)), rng.normal(size=(copies, d))
    return array(cupy, rng.normal(size=(2, n, d)), dtype), index, weight


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("room", ROOMS)
def test_tensor_sketch(cupy, device_with, dtype, room):
    from kernattn.ops.tensor_sketch.gpu import launch, tensor_sketch

    limits = device_with(room)
    shapes = [(20, 9, 2, 2), (3, 5, 3, 4), (7, 5, 1, 8), (2, 33, 2, 128), (2, 1500, 3, 256), (1, 20, 3, 4096)]
    shapes = shapes if dtype.startswith("float") and dtype != "float16" else shapes[:-1]  # halves: 8 warps suffice
    whole = 0
    for n, d, copies, buckets in [*shapes, (4, 7, 2, 1), (5, 6, 3, 12), (3, 8, 1, 7)]:
        x, index, weight = problem(cupy, n, d, copies, buckets, dtype)
        whole += launch(2 * n, d, buckets, dtype, limits) is not None
        out = tensor_sketch(x, index, weight, buckets)
        assert out.dtype == ("float64" if dtype == "float64" else "float32")
        exact = wanted(to64(x), index, weight, buckets)
        tolerance = (1e-13 if dtype == "float64" else 4e-6) * np.abs(exact).max()
        np.testing.assert_allclose(to64(out), exact, atol=tolerance)
    assert whole == {232_448: len(shapes), 4096: 4 if dtype == "float64" else 5, 0: 0}[room]


def test_the_order_of_threads_does_not_matter(cupy, monkeypatch):
    from cuda_on_cpu import RawModule
    from kernattn.ops.countsketch.gpu import countsketch
    from kernattn.ops.tensor_sketch.gpu import tensor_sketch

    x, index, weight = problem(cupy, 5, 300, 2, 16, "float32")
    for sketch in (countsketch, tensor_sketch):
        outputs = []
        for seed in (1, 2):
            monkeypatch.setattr(RawModule, "seed", seed)
            outputs.append(to64(sketch(x, index, weight, 16)))
        np.testing.assert_array_equal(*outputs)


def test_what_the_device_holds_is_made_once(cupy):
    import kernattn as ka

    phi = ka.random_features(ka.kernels.Polynomial(2), 5, 16, estimator="tensor_sketch", rng=0)
    x = np.random.default_rng(0).normal(size=(3, 5))
    first = phi(cupy.asarray(x))
    held = dict(sketches._lists)
    assert len(held) == 1
    np.testing.assert_array_equal(to64(phi(cupy.asarray(x))), to64(first))
    assert sketches._lists == held
    np.testing.assert_allclose(to64(first), phi(x), rtol=1e-10, atol=1e-12)
    del phi, held
    gc.collect()
    assert not sketches._lists
