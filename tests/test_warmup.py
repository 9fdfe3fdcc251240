"""Warming up: after it no dtype that was asked for compiles anything."""

import pytest

import kernattn as ka
from kernattn.errors import ParameterError
from processes import assert_fine

pytest.importorskip("numba")

AFTER = """
import kernattn as ka
import numpy as np

ka.warmup()
from numba.core import event

class Listener(event.Listener):
    def on_start(self, event):
        raise AssertionError(f"compiles {event.data['dispatcher']}")

    def on_end(self, event):
        pass

with event.install_listener("numba:compile", Listener()):
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 70, 16)).astype("f4")
    phi = ka.random_features(ka.kernels.Softmax(), dim=16, num_features=32)
    mask = np.ones(70, bool)
    out, state = ka.causal_linear_attention(q, k, v, phi, key_mask=mask, segment_ids=np.arange(70) // 9, backend="cpu")
    ka.linear_attention(q.astype("f2"), k.astype("f2"), v.astype("f2"), phi, backend="cpu")
    ka.linear_attention_step(state, q[:, 0], k[:, 0], v[:, 0], phi, reuse_state=True, backend="cpu")
    ka.softmax_attention(q, k, v, causal=True, key_mask=mask, backend="cpu")
    ka.random_features(ka.kernels.Gaussian(), dim=16, num_features=32)(q, backend="cpu")

from kernattn.ops._numba.helper_threads import _watch
from kernattn.ops.attend.loops import answer
from kernattn.ops.key_state.loops import recur
from kernattn.ops.block_softmax.loops import online_softmax
from kernattn.ops.features.loops import write_features
from kernattn.ops.step.loops import advance

for loop in (_watch, answer, advance, online_softmax, recur, write_features):
    assert len(loop.signatures) == 1, (loop, loop.signatures)
print("fine")
"""


GRADIENTS = """
import kernattn as ka
import numpy as np

ka.warmup(gradients=True)
from numba.core import event

class Listener(event.Listener):
    def on_start(self, event):
        raise AssertionError(f"compiles {event.data['dispatcher']}")

    def on_end(self, event):
        pass

with event.install_listener("numba:compile", Listener()):
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 70, 16)).astype("f4")
    phi = ka.random_features(ka.kernels.Softmax(), dim=16, num_features=32)
    options = {"key_mask": np.ones(70, bool), "segment_ids": np.arange(70) // 9}
    result, pullback = ka.vjp(ka.causal_linear_attention, q, k, v, phi, **options, backend="cpu")
    pullback(result)
    out, pullback = ka.vjp(ka.linear_attention, q, k, v, ka.features.elu1(), backend="cpu")
    pullback(out)
print("fine")
"""


@pytest.mark.parametrize("script", [AFTER, GRADIENTS], ids=["forwards", "gradients"])
def test_nothing_compiles_afterwards(script):
    assert_fine(script)


def test_other_dtypes_are_refused():
    with pytest.raises(ParameterError, match="bfloat16"):
        ka.warmup(dtypes=["float32", "bfloat16"])
    with pytest.raises(ParameterError, match="gradients must be True or False"):
        ka.warmup(gradients=1)
