"""Each barrier of each kernel is needed, and the emulation notices when it is gone."""

import numpy as np
import pytest

from cuda_on_cpu import KernelError, RawModule
from cuda_on_cpu.mutate import without_one_barrier
from cuda_ops.runs import RUNS, error
from kernattn.ops import _cuda, _cuda_linear

LITTLE, MUCH = _cuda.Limits(90, 99_000, 1), _cuda.Limits(90, 232_448, 1)
SEEDS = (1, 2, 3, 5)


# whose barriers an op's kernels run into
USES = {op: {f"{op}/kernels.cu"} for op in RUNS}
for _op in ("features", "gram", "key_state", "attend", "causal"):
    USES[_op].add("maps.cuh")
USES["causal"] |= {"tile.cuh", "causal/chunk.cuh"}
for _op in ("features", "gram"):
    USES[_op].add("features.cuh")


@pytest.mark.slow
@pytest.mark.parametrize("op", RUNS)
def test_each_barrier_is_needed(cupy, monkeypatch, op):
    original = _cuda.source

    monkeypatch.setattr(_cuda_linear, "SLAB_TILES", 1)
    survivors, tried = [], 0

    def caught(limits):
        _cuda._module.cache_clear()
        _cuda._function.cache_clear()
        monkeypatch.setattr(_cuda, "limits", lambda: limits)
        for seed in SEEDS:
            monkeypatch.setattr(RawModule, "seed", seed)
            try:
                with np.errstate(all="ignore"):
                    wrong = not error(RUNS[op](cupy)) < 1e-4
            except KernelError:
                wrong = True
            if wrong:
                return True
        return False

    devices = (MUCH, LITTLE) if op == "causal" else (MUCH,)
    assert not any(caught(limits) for limits in devices), "the unchanged kernels are right"
    for line, text in without_one_barrier(original(op)):
        if where(original(op), line)[0] not in USES[op]:
            continue
        tried += 1
        monkeypatch.setattr(_cuda, "source", lambda name, text=text: text if name == op else original(name))
        if not any(caught(limits) for limits in devices):
            survivors.append((line, where(original(op), line)))
    _cuda._module.cache_clear()
    _cuda._function.cache_clear()
    assert tried > 0
    print(op, "survivors", survivors)
    assert not survivors


def where(source, line):
    """The file and line that a line of the joined source comes from."""
    lines = source.splitlines()[:line]
    start = max(i for i, text in enumerate(lines) if text.startswith("#line"))
    return lines[start].split('"')[1], line - start - 1
