"""Warming up: after it no dtype that was asked for compiles anything."""

import pytest

import kernattn as ka
from kernattn.errors import ParameterError
from processes import assert_fine

pytest.importorskip("numba")

NOTHING_COMPILES = """
import kernattn as ka
import numpy as np
from kernattn.ops._numba.codegen.compile import Loop

compile_for = Loop._compile_for_args

def refuse(loop, *args, **none):
    raise AssertionError(f"{loop} is compiled, or loaded, for {args}")

def warm(**asked):
    Loop._compile_for_args = compile_for
    ka.warmup(**asked)
    Loop._compile_for_args = refuse

warm()
q, k, v = np.random.default_rng(0).standard_normal((3, 2, 70, 16)).astype("f4")
phi = ka.random_features(ka.kernels.Softmax(), dim=16, num_features=32)
mask = {"key_mask": np.ones(70, bool), "segment_ids": np.arange(70) // 9}
out, state = ka.causal_linear_attention(q, k, v, phi, **mask, backend="cpu")
ka.linear_attention(q.astype("f2"), k.astype("f2"), v.astype("f2"), phi, backend="cpu")
ka.linear_attention_step(state, q[:, 0], k[:, 0], v[:, 0], phi, reuse_state=True, backend="cpu")
ka.softmax_attention(q, k, v, causal=True, key_mask=mask["key_mask"], backend="cpu")
ka.random_features(ka.kernels.Gaussian(), dim=16, num_features=32)(q, backend="cpu")

from kernattn.ops._numba.helper_threads import _watch
from kernattn.ops.attend.loops import answer
from kernattn.ops.key_state.loops import recur
from kernattn.ops.block_softmax.loops import online_softmax
from kernattn.ops.features.loops import write_features
from kernattn.ops.step.loops import advance

for loop in (_watch, answer, advance, online_softmax, recur, write_features):
    assert len(loop.signatures) == 1, (loop, loop.signatures)

warm(gradients=True)
result, pullback = ka.vjp(ka.causal_linear_attention, q, k, v, phi, **mask, backend="cpu")
pullback(result)
out, pullback = ka.vjp(ka.linear_attention, q, k, v, ka.features.elu1(), backend="cpu")
pullback(out)

warm(gates=True, gradients=True)
g, gk, beta = -abs(k[..., 0]), -abs(k), np.full((2, 70), 0.01, "f4")
members = {}, {"g": g}, {"gk": gk, "beta": beta, **mask}, {"g": g, "beta": beta}, {"gk": gk, "erase": (k / 99, k)}
for member in members:
    (out, state), pullback = ka.vjp(ka.gated_linear_attention, q, k, v, **member, backend="cpu")
    pullback((out, None))
ka.gated_linear_attention_step(state, q[:, 0], k[:, 0], v[:, 0], gk=gk[:, 0], beta=beta[:, 0], backend="cpu")
ka.merge_states(*[ka.attention.gated_state(k, v, g=g, beta=beta, backend="cpu")] * 2)
phi = ka.features.elu1()
for decay in {"g": g}, {"gk": gk}:
    _, state = ka.causal_linear_attention(q, k, v, phi, **decay, backend="cpu")
ka.linear_attention_step(state, q[:, 0], k[:, 0], v[:, 0], phi, g=g[:, 0], backend="cpu")
print("fine")
"""


def test_nothing_compiles_afterwards():
    """Nor is anything loaded that was compiled before, as most loops are here. Each warmup asks for more."""
    assert_fine(NOTHING_COMPILES)


def test_other_dtypes_are_refused():
    with pytest.raises(ParameterError, match="bfloat16"):
        ka.warmup(dtypes=["float32", "bfloat16"])
    for name in ("gates", "gradients"):
        with pytest.raises(ParameterError, match=f"{name} must be True or False"):
            ka.warmup(**{name: 1})


@pytest.mark.parametrize("asked", ["emulated", "0"])
def test_loops_of_the_matrix_unit_where_it_is_asked_for(asked, matrix_unit, monkeypatch):
    """Each would be compiled where it is called, on float16."""
    called = set()

    def record(name):
        def loop(*given):
            called.add(name)
            return True

        return loop

    loops = ("key_state.matrix.recur_tiles", "attend.cpu.answer_tiles", "features.cpu.write_features_tiles")
    for name in (*loops, "block_softmax.matrix.pack_keys", "block_softmax.matrix.tiled_softmax"):
        monkeypatch.setattr(f"kernattn.ops.{name}", record(name))
    monkeypatch.setattr("kernattn._warmup.FORWARDS", ())
    monkeypatch.setenv("KERNATTN_MATRIX_UNIT", asked)
    ka.warmup(("float64",))
    assert not called
    ka.warmup(("float32",))
    assert len(called) == (5 if asked == "emulated" else 0)
