"""What a sweep prepares comes before its bar, in every process, and what compiles is in nobody's seconds."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

import dice
from kernattn import _warmup
from kernattn.errors import ParameterError
from kernattn.studies import PRESETS, _cells, _run, run
from kernattn.studies._presets import study as presets
from processes import assert_fine

MODULE = """
from dataclasses import replace
import dice

prepared = []

def facts(cell):
    return {"prepared": len(prepared)}

sweep = replace(dice.sweep, facts=facts, prepare=lambda: prepared.append(None))
"""


def test_it_comes_once_and_before_the_bar(tmp_path, monkeypatch):
    events = []

    def trial(cell, rng):
        events.append("trial")
        return dice.trial(cell, rng)

    monkeypatch.setattr(_run, "bar", lambda *_, **__: events.append("bar") or nullcontext())
    sweep = replace(dice.cast(faces=(6,)), trial=trial, prepare=lambda: events.append("prepare"))
    run(sweep, tmp_path)
    assert events == ["prepare", "bar", *["trial"] * (4 * sweep.stop.draws)]
    events.clear()
    run(sweep, tmp_path)  # nothing is left to measure
    assert events == ["bar"]


def test_every_worker_prepares_once(tmp_path, monkeypatch):
    (tmp_path / "prepared_dice.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    records = run("prepared_dice:sweep", tmp_path / "out", workers=2)
    assert {record["prepared"] for record in records} == {1}


def test_it_must_be_a_function():
    with pytest.raises(ParameterError, match="prepare must be a function; got 3"):
        replace(dice.sweep, prepare=3)


def test_the_clock_stands_still_while_loops_are_compiled(tmp_path, monkeypatch):
    now = 0.0

    def passes(seconds):
        nonlocal now
        now += seconds

    def trial(cell, rng):
        passes(1)
        _cells.teller.begin("a loop", kept=True)
        passes(100)
        _cells.teller.end()
        return dice.trial(cell, rng)

    for module in ("kernattn._runtime.compiling", "kernattn.studies._cells"):
        monkeypatch.setattr(f"{module}.perf_counter", lambda: now)
    monkeypatch.setattr(_cells.teller, "seconds", 0.0)
    sweep = replace(dice.cast(faces=(6,), dice=(3,)), trial=trial)
    assert [record["seconds"] for record in run(sweep, tmp_path)] == [sweep.stop.draws] * 2


def test_what_will_compile_is_told_before_it_does(tmp_path, monkeypatch):
    events = []
    monkeypatch.setattr(_run.teller, "expect", lambda: events.append("told"))
    run(dice.sweep, tmp_path / "nothing to prepare")
    assert events == []
    run(replace(dice.sweep, prepare=lambda: events.append("prepared")), tmp_path / "something")
    assert events == ["told", "prepared"]


def test_a_new_attention_study_says_so_before_its_tokens_are_read(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    events = []
    monkeypatch.setattr(presets.teller, "expect", lambda: events.append("told"))
    monkeypatch.setattr(presets, "run", lambda *_, **__: events.append("run") or [])
    monkeypatch.setattr(presets, "write", lambda *_: None)
    for _ in range(2):
        presets.study("attention", tmp_path, quick=True)
        (tmp_path / "records.jsonl").touch()
    assert events == ["told", "run", "run"]


def test_without_numba_nothing_is_prepared(monkeypatch):
    monkeypatch.setattr(_warmup, "missing", lambda backend: "numba is not installed")
    monkeypatch.setattr(_warmup, "CALLS", {})
    _warmup.preparation(float64=("features",))()


NOTHING_COMPILES = """
import numpy as np
from kernattn.ops._numba.codegen.compile import Loop
from kernattn.studies import PRESETS
from kernattn.studies._worker import find_sweep

sweep = find_sweep(PRESETS[{name!r}].sweep, {{"quick": {quick}}})
if sweep.prepare is not None:
    sweep.prepare()

def refuse(loop, *args, **none):
    raise AssertionError(f"{{loop}} was not prepared for {{args}}")

Loop._compile_for_args = refuse
seen = set()
for cell in sweep.cells():
    kind = tuple(value for value in cell.values() if isinstance(value, str))
    if kind not in seen:
        seen.add(kind)
        with np.errstate(all="ignore"):
            if sweep.facts is not None:
                sweep.facts(cell)
            sweep.trial(cell, sweep.generator(cell, 0))
print("fine")
"""
USUAL = ("redraw", "time-to-error")


@pytest.mark.parametrize(
    ("name", "quick"),
    [(name, True) for name in USUAL]
    + [pytest.param(name, quick, marks=pytest.mark.slow) for name in PRESETS for quick in (True, False)],
)
def test_afterwards_no_kind_of_cell_compiles(name, quick):
    pytest.importorskip("numba")
    pytest.importorskip("sklearn")
    assert_fine(NOTHING_COMPILES.format(name=name, quick=quick), OPENBLAS_NUM_THREADS="1")
