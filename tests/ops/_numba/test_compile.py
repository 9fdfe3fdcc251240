"""What is compiled, when it is out of date, and for which vectors."""

import importlib
import pkgutil
import re
import signal
import threading
from pathlib import Path

import pytest

from processes import assert_fine

pytest.importorskip("numba")

from numba.core.caching import FunctionCache
from numba.core.errors import TypingError

import kernattn.ops
from kernattn.ops._numba.codegen.compile import _PARTS, compiled, inner
from kernattn.ops._numba.codegen.memory import aligned, window
from kernattn.ops._numba.codegen.parts import Part, makes_arrays


def test_a_compiled_loop_is_out_of_date_when_a_part_of_it_is(monkeypatch):
    def double(x):
        return 2 * x

    for parts, hits in (("now", 0), ("now", 1), ("later", 0), ("later", 1)):
        monkeypatch.setattr("kernattn.ops._numba.codegen.compile._PARTS", parts)
        loop = compiled(double)
        assert loop(1.5) == 3
        assert sum(loop.stats.cache_hits.values()) == hits


def test_a_loop_is_out_of_date_when_any_file_changes_whose_code_it_may_hold():
    package = Path(kernattn.__file__).parent
    marked = re.compile(r"^@(inner|inner_exact|phase|overload|intrinsic)\b", re.MULTILINE)
    files = [file for file in package.rglob("*.py") if marked.search(file.read_text(encoding="utf-8"))]
    parts = {str(file.relative_to(package)) for file in files}
    assert {"ops/_numba/tiles/products.py", "ops/_decode/rows_loops.py"} <= parts
    assert parts <= {name for name, *_ in _PARTS}


def test_an_interrupt_comes_through_while_a_loop_goes_on_loading(monkeypatch):
    begun, waited = threading.Event(), threading.Event()

    def load(self, signature, target):
        begun.set()
        assert waited.wait(60)

    monkeypatch.setattr(FunctionCache, "load_overload", load)
    loop = compiled(lambda: 3)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins without one
    main = threading.main_thread().ident  # whom the terminal interrupts, too
    threading.Thread(target=lambda: (begun.wait(60), signal.pthread_kill(main, signal.SIGINT))).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop()
        assert not loop.signatures, "it is still loading"
    finally:
        signal.signal(signal.SIGINT, handler)
        waited.set()
    assert loop() == 3
    assert len(loop.signatures) == 1


def test_what_cannot_be_compiled_says_so():
    with pytest.raises(TypingError, match="object_of_no_type"):
        compiled(lambda: object_of_no_type)()  # noqa: F821


def test_parts_are_compiled_once_whatever_is_constant_and_kept_in_their_loops_alone():
    @inner
    def power(x, n):
        return x**n

    @compiled
    def both(x, n):
        return power(x, 2) + power(x, n)

    assert both(1.5, 3) == 1.5**2 + 1.5**3
    assert len(power.overloads) == 1
    assert power.stats.cache_path is None
    with pytest.raises(TypeError):
        power(1.5, 2)


def test_parts_that_make_no_arrays_count_none():
    @inner
    def room(x):
        return aligned(x.size, x)

    @inner
    def first(x):
        return window(x, 0, 1)[0]

    assert room.makes_arrays
    assert not first.makes_arrays
    assert makes_arrays(room.py_func)


def test_every_part_knows_whether_it_makes_arrays_though_a_part_may_stand_below_it():
    names = [each.name for each in pkgutil.walk_packages(kernattn.ops.__path__, "kernattn.ops.")]
    modules = map(importlib.import_module, [name for name in names if name.endswith("loops") or "_numba" in name])
    parts = [part for module in modules for part in vars(module).values() if isinstance(part, Part)]
    assert len(parts) > 100
    assert [part for part in parts if part.makes_arrays != makes_arrays(part.py_func)] == []


@pytest.mark.parametrize(("features", "size"), [("", 16), ("+avx,+avx2,+fma", 32)])
def test_vectors_are_those_that_numba_compiles_for(features, size):
    target = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    assert_fine(
        f"from kernattn.ops._numba.codegen.registers import VECTOR\nprint('fine' if VECTOR == {size} else VECTOR)",
        **target,
    )
