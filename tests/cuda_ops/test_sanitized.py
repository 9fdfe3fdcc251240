"""The kernels built with -fsanitize=address,undefined: no access outside arrays and the shared memory asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_on_cpu import gxx, sanitizing

TESTS = Path(__file__).parents[1]
SHARED = "test_causal.py::test_little_shared_memory"
RUNS = {
    "features": ["test_features.py::test_features[exp-float32]", "test_features.py::test_features[sincos-bfloat16]"],
    "key_state": ["test_key_state.py::test_bidirectional[exp-bfloat16]"],
    "causal": ["test_causal.py::test_causal[exp_pair-float32-1]"],
    "norms": ["test_causal.py::test_norms_that_differ_inside_a_chunk[True-bfloat16]"],
    "rooms": [
        f"{SHARED}[{x}]" for x in ("float32-130000-outside2", "bfloat16-100000-outside3", "float32-65536-outside4")
    ],
    "step": ["test_step.py::test_an_empty_state_and_wild_norms"],
    "groups": ["test_step.py::test_groups"],
    "gated": [f"test_gated.py::test_recurrence[{x}]" for x in ("none-none-bfloat16", "pair-channels-float32")],
    "gated_vjp": [f"test_gated_vjp.py::test_cotangents[{x}-channels-float32]" for x in ("delta", "pair")],
    "short": [
        "test_causal_conv.py::test_what_is_no_number_stays_in_its_channel_and_its_taps",
        "test_causal_conv.py::test_states_that_are_not_contiguous_move_on_where_they_are",
        "test_selective_step.py::test_states_that_are_not_contiguous_are_renewed_where_they_are",
    ],
    "block_softmax": ["test_block_softmax.py::test_block_softmax[True-float16]"],
    "plans": ["test_plans.py::test_plans[at any start-bfloat16-True]"],
    "plans_vjp": ["test_plans.py::test_cotangents[float32-True-at any start]"],
    "gram": ["test_gram.py::test_gram[exp_pair-float32]", "test_gram.py::test_gram[exp-bfloat16]"],
    "hadamard": [f"test_hadamard.py::test_hadamard[{room}-exp_pair-float32]" for room in (256, 232448)],
    "orthogonalize": [f"test_orthogonalize.py::test_orthogonalize[{room}-float32]" for room in ("inside", "outside")],
    "sketches": [
        "test_countsketch.py::test_countsketch[232448-float16]",
        "test_tensor_sketch.py::test_tensor_sketch[232448-float64]",
        "test_tensor_sketch.py::test_tensor_sketch[4096-float16]",
    ],
    "features_vjp": ["test_features_vjp.py::test_features_vjp[exp_pair-float32]"],
    "attend_vjp": ["test_attend_vjp.py::test_pullbacks[exp-bfloat16]"],
    "causal_vjp": ["test_causal_vjp.py::test_causal_vjp[exp_pair-float32]"],
    "rooms_vjp": ["test_causal_vjp.py::test_sums_outside_shared_memory[exp_pair]"],
    "block_softmax_vjp": ["test_block_softmax_vjp.py::test_block_softmax_vjp[float16]"],
    "alignment": ["test_alignment.py::test_unaligned_arrays[float32]"],
}
QUICK = ("hadamard",)  # a build under the sanitizers takes some seconds


def run(tests):
    environment = os.environ | sanitizing() | {"CUDA_ON_CPU_SANITIZE": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--no-showlocals",
        "-p",
        "no:cacheprovider",
        "-m",
        "slow or not slow",
        *(f"cuda_ops/{test}" for test in tests),
    ]
    result = subprocess.run(command, env=environment, cwd=TESTS, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]
    assert "skipped" not in result.stdout


@pytest.mark.skipif(gxx() is None, reason="the emulation builds with g++, which is not on PATH")
def test_no_bad_access():
    run([test for name in QUICK for test in RUNS[name]])


@pytest.mark.slow
@pytest.mark.skipif(gxx() is None, reason="the emulation builds with g++, which is not on PATH")
@pytest.mark.parametrize("name", [name for name in RUNS if name not in QUICK])
def test_no_bad_access_at_length(name):
    run(RUNS[name])
