"""The matrix unit: sums in the order of its instruction, operands in parts, and when a process may use it."""

import ctypes
import errno
import os
import pickle
import platform
import re
import sys
from itertools import product
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import kernattn as ka
from processes import assert_fine

pytest.importorskip("numba")

from kernattn.ops._numba.codegen.registers import PAIRS, TILES
from kernattn.ops._numba.matrix import unit
from kernattn.ops._numba.matrix.products import GRAIN
from matrix_loops import add_product, add_product_by_tiles, pack

pytestmark = pytest.mark.usefixtures("matrix_unit")
TINY = np.finfo(np.float32).tiny
BFLOAT16 = ml_dtypes.bfloat16


def words_of(a, b, parts=(1, 1, 1)):
    """-> both in parts, and the numbers that say how."""
    form = (*parts, *a.shape, b.shape[1])
    words_a, words_b = np.zeros(parts[0] * a.size, np.uint16), np.zeros(parts[1] * b.size // 2, np.uint32)
    pack(a.reshape(-1), b.reshape(-1), form, words_a, words_b)
    return words_a, words_b, form


def times(a, b, c, parts=(1, 1, 1), add=add_product):
    found = c.copy()
    add(*words_of(a, b, parts), found.reshape(-1))
    return found


def flushed(x):
    x = np.float32(x)
    return np.copysign(np.float32(0), x) if abs(x) < TINY else x


def fused(x, y, total):
    """A fused multiply-add, by more digits than it needs."""
    return flushed(np.longdouble(flushed(x)) * np.longdouble(flushed(y)) + np.longdouble(total))


def tiles_by_the_manual(a, b, c):
    """TDPBF16PS as Intel's manual writes it, cell by cell."""
    found = np.empty_like(c)
    for i, j in product(range(len(c)), range(c.shape[1])):
        total = flushed(c[i, j])
        for block in range(0, a.shape[1], 32):
            sums = [np.float32(0), np.float32(0)]
            for k in range(32):
                sums[k % 2] = fused(a[i, block + k], b[block + k, j], sums[k % 2])
            total = flushed(total + flushed(sums[0] + sums[1]))
        found[i, j] = total
    return found


def pairs_by_the_manual(a, b, c):
    """VDPBF16PS as AMD's processors have it, cell by cell: the odd product first; c is added by a usual addition."""
    found = np.empty_like(c)
    for i, j in product(range(len(c)), range(c.shape[1])):
        total = np.float32(0)
        for k in range(0, a.shape[1], 2):
            total = fused(a[i, k], b[k, j], fused(a[i, k + 1], b[k + 1, j], total))
        found[i, j] = c[i, j] + total
    return found


UNITS = {"tiles": (tiles_by_the_manual, add_product_by_tiles), "pairs": (pairs_by_the_manual, add_product)}


def wide(rng, *shape):
    return rng.standard_normal(shape) * 10.0 ** rng.integers(-20, 15, shape)


KINDS = {
    "normal": (lambda rng, *shape: rng.standard_normal(shape), 1),
    "of all sizes": (wide, 1),
    "denormal products": (lambda rng, *shape: rng.standard_normal(shape) * 1e-19, 1e-38),
    "overflow": (lambda rng, *shape: rng.standard_normal(shape) * 3e19, 1e38),
}


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_the_manual(kind, name):
    if name == "pairs" and not PAIRS:
        pytest.skip("this machine multiplies no pairs")
    rng, (draw, size), (by_the_manual, add) = np.random.default_rng(0), KINDS[kind], UNITS[name]
    a, b = (draw(rng, *shape).astype(BFLOAT16).astype("f4") for shape in ((32, 64), (64, 32)))
    c = (size * rng.standard_normal((32, 32))).astype("f4")
    with np.errstate(over="ignore", invalid="ignore"):
        found, wanted = times(a, b, c, add=add)[:, ::8], by_the_manual(a, b[:, ::8], c[:, ::8])
    np.testing.assert_array_equal(found, wanted)
    if kind == "denormal products":
        assert (c != flushed_all(c)).any()


def flushed_all(x):
    return np.where(abs(x) < TINY, 0, x)


def test_denormal_operands_count_as_zero():
    a, b = np.full((32, 32), 1e-39, np.float32), np.full((32, 32), 1e30, np.float32)
    np.testing.assert_array_equal(times(a, b, np.zeros_like(a)), 0)


def test_parts_are_the_nearest_numbers_and_the_nearest_to_the_rest():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("f4") for shape in ((32, 32), (32, 64)))
    words_a, words_b, _ = words_of(a, b, (2, 2, 2))
    for x, found in ((a, words_a.reshape(2, 32, 32)), (b, words_b.view("u2").reshape(2, 16, 64, 2).swapaxes(2, 3))):
        left = x
        for part in found.view(BFLOAT16).astype("f4").reshape(2, *x.shape):  # of two that are as near, either may be it
            np.testing.assert_array_equal(abs(left - part), abs(left - left.astype(BFLOAT16).astype("f4")))
            left = left - part


def test_every_float16_is_two_parts():
    x = np.arange(1 << 16, dtype="u2").view("f2").astype("f4")
    x = x[np.isfinite(x)][: 61 * 1024].reshape(-1, 32)
    words, _, _ = words_of(x, np.zeros((32, 32), "f4"), (2, 1, 1))
    one, other = words.view(BFLOAT16).astype("f4").reshape(2, -1)
    np.testing.assert_array_equal(one + other, x.reshape(-1))


@pytest.mark.parametrize(("parts", "error"), [((1, 1, 1), 2.0**-8), ((2, 2, 2), 2.0**-15), ((2, 2, 3), 2.0**-16)])
def test_products_of_parts(parts, error):
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(shape).astype("f4") for shape in ((64, 96), (96, 32), (64, 32)))
    wanted, size = c + a.astype("f8") @ b, np.abs(a) @ np.abs(b)
    assert (np.abs(times(a, b, c, parts) - wanted) <= error * size).all()
    assert (np.abs(times(a, b, c, (1, 1, 1)) - wanted) > 2.0**-15 * size).any()


@pytest.mark.parametrize(("m", "depth"), [(GRAIN, GRAIN), (5 * GRAIN, 3 * GRAIN), (GRAIN, 9 * GRAIN), (96, 64)])
@pytest.mark.parametrize("parts", [(1, 1, 1), (1, 2, 2), (2, 2, 3)])
def test_a_cell_is_its_own_row_and_column(m, depth, parts):
    rng = np.random.default_rng(m + depth)
    a, b, c = (rng.standard_normal(shape).astype("f4") for shape in ((m, depth), (depth, 64), (m, 64)))
    whole = times(a, b, c, parts)
    held = [sum(cut(x, count)) for x, count in ((a, parts[0]), (b, parts[1]))]
    left_out = 2.0**-16 if parts[2] < sum(parts[:2]) - 1 else 0
    error = depth * 2.0**-23 * (np.abs(c) + np.abs(a) @ np.abs(b)) + left_out * np.abs(a) @ np.abs(b)
    assert (np.abs(whole - (c + held[0] @ held[1])) <= error).all()
    i, j = m // 2, 40
    others = [rng.standard_normal(x.shape).astype("f4") for x in (a, b, c)]
    others[0][i], others[1][:, j], others[2][i, j] = a[i], b[:, j], c[i, j]
    assert times(*others, parts)[i, j] == whole[i, j]
    here, there = np.roll(a, 3, axis=0), np.roll(b, 17, axis=1)
    np.testing.assert_array_equal(
        times(here, there, np.roll(c, (3, 17), (0, 1)), parts), np.roll(whole, (3, 17), (0, 1))
    )


def cut(x, count):
    """-> so many parts of numbers, each the nearest bfloat16 to what is left."""
    for _ in range(count):
        part = (np.ascontiguousarray(x, "f4").view("u4") + np.uint32(0x8000) & np.uint32(0xFFFF0000)).view("f4")
        yield part.astype("f8")
        x = x - part


# ---- when ----


def test_it_is_used_where_there_is_one_unless_it_is_turned_off(monkeypatch):
    for given in (None, "", "1"):
        monkeypatch.delenv(unit.VARIABLE) if given is None else monkeypatch.setenv(unit.VARIABLE, given)
        assert unit.why_not() != "KERNATTN_MATRIX_UNIT is 0"
    monkeypatch.setenv(unit.VARIABLE, "0")
    assert unit.why_not() == "KERNATTN_MATRIX_UNIT is 0"
    assert unit.describe().startswith("not used: ")
    monkeypatch.setenv(unit.VARIABLE, "on")
    with pytest.raises(ka.errors.ParameterError, match="KERNATTN_MATRIX_UNIT must be 0, 1 or emulated; got 'on'"):
        unit.why_not()


@pytest.mark.skipif(not PAIRS, reason="this machine multiplies no pairs")
def test_a_target_that_multiplies_pairs_needs_no_leave(monkeypatch):
    monkeypatch.setattr(unit, "_refusal", None)
    for given in ("1", unit.EMULATED):
        monkeypatch.setenv(unit.VARIABLE, given)
        assert unit.why_not() is None
        assert unit.describe() == "AVX512_BF16, for exact attention of bfloat16 arrays"


@pytest.mark.skipif(TILES or PAIRS, reason="this machine has a unit")
def test_a_target_without_one_is_never_asked_for_it(monkeypatch):
    assert unit.describe() == "emulated, for tests"
    monkeypatch.setenv(unit.VARIABLE, "1")
    monkeypatch.setattr(unit, "_refusal", None)
    lacking = {
        ("linux", ()): "this CPU has none",
        ("linux", ("avx512bf16",)): "this CPU has none",  # Intel's, which are slower than floats
        ("linux", ("amx-tile", "amx-bf16")): "Numba compiles for a CPU without one",
        ("win32", ("avx512bf16", "sse4a")): "Numba compiles for a CPU without one",
        ("win32", ("amx-tile", "amx-bf16")): "it is used on Linux alone",
    }
    for (system, features), reason in lacking.items():
        unit._lacking.cache_clear()
        monkeypatch.setattr(unit.sys, "platform", system)
        monkeypatch.setattr(unit, "get_host_cpu_features", dict.fromkeys(features, True).copy)
        assert unit.why_not() == reason
    unit._lacking.cache_clear()


REFUSALS = {
    (errno.EINVAL, None, 0): r"the kernel knows no unit \(Invalid argument\)",
    (0, 0, 0): "the kernel offers none",
    (0, 1 << 18, errno.ENOSPC): "a thread's stack for signals is too small for its state",
    (0, 1 << 18, errno.EPERM): r"the kernel refuses it \(Operation not permitted\)",
    (0, 1 << 18, 0): None,
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="system calls of Linux")
@pytest.mark.parametrize("case", REFUSALS, ids=str)
def test_a_process_asks_the_kernel_once(case, monkeypatch):
    known, supported, asked = case
    calls = []

    def syscall(number, question, argument):
        calls.append((number.value, question.value))
        if question.value == unit.SUPPORTED:
            ctypes.set_errno(known)
            if known == 0:
                argument._obj.value = supported
            return -1 if known else 0
        assert argument.value == 18
        ctypes.set_errno(asked)
        return -1 if asked else 0

    monkeypatch.setattr(unit, "TILES", True)
    monkeypatch.setattr(unit, "PAIRS", False)
    monkeypatch.setattr(unit, "_answer", [])
    monkeypatch.setattr(unit.ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syscall=Callable(syscall)))
    monkeypatch.setenv(unit.VARIABLE, "1")
    for _ in range(2):
        found = unit.why_not()
        assert found is None if REFUSALS[case] is None else re.fullmatch(REFUSALS[case], found)
    assert calls == [(158, 0x1021), (158, 0x1023)][: 1 + (supported == 1 << 18)]


class Callable:
    """A function of a library of C, which can be told what it returns."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *given):
        return self.function(*given)


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="a system call of Linux on x86-64"
)
def test_the_kernel_itself_answers():
    answer = unit._refusal()
    assert answer is None or answer.startswith(("the kernel", "a thread"))


COMPILES = """
import numpy as np
from numba import types as t
from matrix_loops import add_product
word, pairs, number = (t.Array(x, 1, "C") for x in (t.uint16, t.uint32, t.float32))
add_product.compile((word, pairs, t.UniTuple(t.int64, 6), number))
code = add_product.inspect_asm(add_product.signatures[0])
for name in {names}:
    assert name in code, name
assert "emulated" not in code
print("fine")
"""
TILE = ("ldtilecfg", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease")
FEATURES = "+64bit,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+avx512f,+avx512bw,+avx512dq,+avx512vl,+amx-tile,+amx-bf16"


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="its instructions are those of x86-64"
)
def test_a_target_with_a_unit_has_its_instructions(tmp_path):
    """Compiled here, whatever machine this is; run on one that has them."""
    pairs = f"{FEATURES},+avx512bf16,+sse4a".replace("+amx", "-amx")
    for name, features, has in (("sapphirerapids", FEATURES, TILE), ("znver4", pairs, ("vdpbf16ps",))):
        script, cache = COMPILES.format(names=has), str(tmp_path / name)
        assert_fine(script, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES=features, NUMBA_CACHE_DIR=cache)


ALL_LOOPS = """
import pickle
from importlib import import_module
for module, name, signature in pickle.loads(bytes.fromhex({loops!r})):
    loop = getattr(import_module(module), name)
    loop.compile(signature)
    code = loop.inspect_asm(loop.signatures[0])
    assert "tdpbf16ps" in code or name == "pack_keys", name
    assert "emulated" not in code, name
print("fine")
"""


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="its instructions are those of x86-64"
)
def test_every_loop_compiles_for_a_target_with_a_unit(tmp_path):
    """As `test_a_target_with_a_unit_has_its_instructions`, for the loops that users run."""
    from kernattn.ops.attend.matrix_loops import answer_tiles
    from kernattn.ops.block_softmax.matrix_loops import pack_keys, tiled_softmax
    from kernattn.ops.features.matrix_loops import write_features_tiles
    from kernattn.ops.key_state.matrix_loops import recur_tiles

    x, phi = np.ones((150, 32), BFLOAT16), ka.features.elu1()
    ka.softmax_attention(x, x, x)
    ka.causal_linear_attention(x, x, x, phi)
    ka.linear_attention(x, x, x, phi)
    ka.random_features(ka.kernels.Softmax(), 32, 32, rng=0)(np.ones((256, 32), BFLOAT16))
    loops = [
        (loop.__module__, loop.__name__, loop.signatures[0])
        for loop in (pack_keys, tiled_softmax, recur_tiles, answer_tiles, write_features_tiles)
    ]
    script = ALL_LOOPS.format(loops=pickle.dumps(loops).hex())
    assert_fine(script, NUMBA_CPU_NAME="sapphirerapids", NUMBA_CPU_FEATURES=FEATURES, NUMBA_CACHE_DIR=str(tmp_path))
