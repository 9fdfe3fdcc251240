"""Each barrier, and each wait for copies, is needed: where it is gone, some order of threads gives other bits."""

import numpy as np
import pytest

from cuda_on_cpu import KernelError, RawModule
from cuda_on_cpu.mutate import without_one_barrier
from cuda_ops.runs import RUNS, error
from kernattn.ops._cuda import linear, runtime, sources

LITTLE, MUCH = runtime.Limits(90, 99_000, 1), runtime.Limits(90, 232_448, 1)
SEEDS = (1, 2, 3, 5)


# whose barriers an op's kernels run into
USES = {op: {f"{op}/kernels.cu"} for op in RUNS}
for _op in ("features", "gram", "key_state", "attend", "causal"):
    USES[_op].add("_cuda/maps.cuh")
for _op in ("features_vjp", "key_state_vjp", "causal_vjp"):
    USES[_op] |= {"_cuda/maps.cuh", "features_vjp/pulled.cuh"}
for _op in ("key_state_vjp", "causal_vjp"):
    USES[_op].add("key_state_vjp/back.cuh")
USES["causal"] |= {"causal/rows.cuh", "causal/chunk.cuh"}
USES["step"].add("_cuda/tile.cuh")
USES["gated_vjp"].add("gated_vjp/pull.cuh")
for _op in ("features", "gram"):
    USES[_op].add("_cuda/features.cuh")


def waits(op):
    """Do threads of its kernels wait for each other?"""
    return any("__syncthreads" in (sources.OPS / name).read_text(encoding="utf-8") for name in USES[op])


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op in RUNS if waits(op)])
def test_each_barrier_is_needed(cupy, monkeypatch, op):
    original = sources.source
    monkeypatch.setattr(linear, "SLAB_TILES", 1)
    survivors, tried, right = [], 0, {}

    def caught(limits):
        runtime._module.cache_clear()
        runtime._function.cache_clear()
        monkeypatch.setattr(runtime, "limits", lambda: limits)
        for seed in SEEDS:
            monkeypatch.setattr(RawModule, "seed", seed)
            try:
                with np.errstate(all="ignore"):
                    for i, part in enumerate(RUNS[op](cupy)):
                        known = right.setdefault((limits, i), part[0])
                        if not np.array_equal(part[0], known) or not error([part]) < 1e-4:
                            return True
            except KernelError:
                return True
        return False

    devices = (MUCH, LITTLE) if op == "causal" else (MUCH,)
    assert not any(caught(limits) for limits in devices), "the unchanged kernels are right"
    for line, text in without_one_barrier(original(op)):
        if where(original(op), line)[0] not in USES[op]:
            continue
        tried += 1
        monkeypatch.setattr(sources, "source", lambda name, text=text: text if name == op else original(name))
        if not any(caught(limits) for limits in devices):
            survivors.append((line, where(original(op), line)))
    runtime._module.cache_clear()
    runtime._function.cache_clear()
    assert tried > 0
    print(op, "survivors", survivors)
    assert not survivors


def where(source, line):
    """The file and line that a line of the joined source comes from."""
    lines = source.splitlines()[:line]
    start = max(i for i, text in enumerate(lines) if text.startswith("#line"))
    return lines[start].split('"')[1], line - start - 1
