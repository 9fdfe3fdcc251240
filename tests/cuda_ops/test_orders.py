"""Every kernel under several orders of its threads: no order may change a bit of what comes out.

No kernel adds with atomics, so that only a race could. Between two barriers the emulation runs the threads in an order
drawn from a seed, a warp far ahead of the others where it is odd (cuda_on_cpu.h).
"""

from dataclasses import replace

import numpy as np
import pytest

import oracles
from cuda_on_cpu import RawModule
from cuda_ops.pullbacks import differences
from cuda_ops.runs import RUNS, against_attention, arrays
from cuda_ops.test_attend_vjp import problem as attended
from cuda_ops.test_attend_vjp import pullbacks
from kernattn.ops._cuda import runtime
from kernattn.ops._cuda.linear import linear_code
from kernattn.ops._cuda.maps import map_code
from kernattn.ops.causal.gpu import causal, launch, walk_code
from seam import MapSpec

FEW, MANY = range(1, 3), range(1, 17)
EACH = {run: op for op, run in reversed(RUNS.items())}.values()  # of ops that one run reaches, one
SMALL = {  # shapes and maps that other tests compile the kernels for
    "features": (5, 7, 80, "elementwise"),
    "features_vjp": (5, 0, 37, "exp_pair"),
    "key_state_vjp": (5, 7, 37, "exp_pair"),
    "attend_vjp": (5, 7, 37, "exp_pair"),
    "causal_vjp": (5, 7, 37, "exp_pair"),
    "key_state": (5, 7, 40, "elementwise"),
    "attend": (5, 7, 40, "elementwise"),
    "causal": (5, 7, 40, "elementwise"),
    "step": (5, 7, 300),
    "gated": (21,),
    "gated_vjp": (21,),
    "causal_conv": (37,),
    "causal_conv_step": (37,),
    "selective_step": (70,),
    "block_softmax": (5, 7),
    "block_softmax_vjp": (5, 7),
    "gram": (5, 7, 40, "elementwise"),
    "hadamard": (100,),
    "countsketch": (300,),
    "tensor_sketch": (300,),
    "orthogonalize": (70,),
}


def check(monkeypatch, seeds, run):
    """Run under each seed: right once, and the same to the last bit ever after."""
    first = None
    for seed in seeds:
        monkeypatch.setattr(RawModule, "seed", seed)
        outs = []
        for out, wanted, unit in run():
            assert np.max(np.abs(out - wanted) / unit) < 1e-4, f"seed {seed}"
            outs.append(out)
        first = first or outs
        for out, same in zip(outs, first, strict=True):
            np.testing.assert_array_equal(out, same, err_msg=f"seed {seed}")


@pytest.fixture
def device(slab_tiles, device_with):
    slab_tiles(1)
    return device_with


def large_causal(cupy, kind, d, e, frequencies):
    """Causal attention by a map whose features of a chunk do not fit shared memory."""
    spec, q, k, v, _, mask = arrays(cupy, kind, 150, d, e, frequencies)
    if kind == "sincos":
        spec = replace(spec, row_weights=None)  # of a Gaussian kernel
    limits = runtime.limits()
    code = linear_code(map_code("float32", spec, False, d, limits), "float32", e, limits)
    assert launch(2, 150, e, frequencies, walk_code(code, d, frequencies, limits), limits).phi_room > 0
    out, *_ = causal(q, k, v, spec, spec, None, cupy.asarray(mask), None, False)
    yield against_attention(out, q, k, v, spec, oracles.allowed(150, 150, causal=True, key_mask=mask))


@pytest.mark.parametrize("op", EACH)
def test_every_kernel(cupy, monkeypatch, device, op):
    device(232_448)
    check(monkeypatch, FEW, lambda: RUNS[op](cupy, *SMALL[op]))


@pytest.mark.parametrize(("kind", "d", "frequencies"), [("relu", 5, 100), ("elementwise", 100, 100), ("sincos", 5, 50)])
def test_features_outside_shared_memory(cupy, monkeypatch, device, kind, d, frequencies):
    device(80_000)
    check(monkeypatch, FEW, lambda: large_causal(cupy, kind, d, 7, frequencies))


def test_weights_of_rows_are_learnt_where_values_have_more_columns_than_a_tile(cupy, monkeypatch, device):
    device(99_000)
    spec = MapSpec("exp", row_weights=np.linspace(-0.3, 0.3, 5))  # no projection: rows have one tile, values two
    given = attended(cupy, spec, "float32", (2,), (2,), 70, 5, 40)
    check(monkeypatch, FEW, lambda: differences(*pullbacks(cupy, *given, True)))


@pytest.mark.slow
@pytest.mark.parametrize("shared_bytes", [232_448, 99_000])
@pytest.mark.parametrize("op", RUNS)
def test_every_kernel_at_length(cupy, monkeypatch, device, op, shared_bytes):
    device(shared_bytes)
    check(monkeypatch, MANY, lambda: RUNS[op](cupy))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "d", "frequencies"),
    [("relu", 128, 256), ("elementwise", 320, 320), ("sincos", 128, 128), ("exp", 128, 256)],
)
def test_large_maps(cupy, monkeypatch, device, kind, d, frequencies):
    device(232_448)
    check(monkeypatch, MANY, lambda: large_causal(cupy, kind, d, 128, frequencies))
