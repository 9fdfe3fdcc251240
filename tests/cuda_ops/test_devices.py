"""Two devices and late copies: calls run where their arrays are, and no stream reads constants before they land."""

import numpy as np
import pytest

import kernattn as ka
from cuda_ops.cases import array, to64
from kernattn.errors import BackendUnavailable, MixedLibraryError
from kernattn.ops import OPS
from kernattn.ops._cuda import constants, plans, sketches

SOFTMAX = ka.kernels.Softmax()
WINDOW = ka.patterns.local(3, 0) | ka.patterns.sinks(1)
INDEX, WEIGHT = np.arange(12).reshape(2, 6) % 7, np.linspace(-1.0, 1.0, 12).reshape(2, 6)


def maps(projection="orthogonal"):
    """A map that nothing has used."""
    return ka.random_features(SOFTMAX, 6, 40, "positive", projection, rng=0)


def steps(q, k, v, phi):
    state = ka.key_state(k[:, :-1], v[:, :-1], phi)
    out, state = ka.linear_attention_step(state, q[:, -1], k[:, -1], v[:, -1], phi)
    return out, state.s


def sketch(x, buckets):
    return OPS["tensor_sketch"].implementation(x)(x, INDEX, WEIGHT, buckets)


CALLS = {
    "features": lambda q, k, v: (maps()(q),),
    "chains": lambda q, k, v: (OPS["hadamard"].implementation(q)(q, maps("hadamard").omega),),
    "linear": lambda q, k, v: (ka.linear_attention(q, k, v, maps()),),
    "causal": lambda q, k, v: (ka.causal_linear_attention(q, k, v, maps())[0],),
    "step": lambda q, k, v: steps(q, k, v, maps()),
    "softmax": lambda q, k, v: (ka.softmax_attention(q, k, v, causal=True),),
    "pattern": lambda q, k, v: (ka.softmax_attention(q, k, v, pattern=WINDOW),),
    "gram": lambda q, k, v: OPS["gram"].implementation(q)(q, v, maps().spec, False),
    "tensor_sketch": lambda q, k, v: (sketch(q, 16),),
    "tensor_sketch by cuFFT": lambda q, k, v: (sketch(q, 12),),
    "orthogonalize": lambda q, k, v: (OPS["orthogonalize"].implementation(q)(q[:, :4], "gram_schmidt"),),
}


def inputs(cupy):
    rng = np.random.default_rng(0)
    return [array(cupy, rng.normal(size=(2, 10, c)), "float32") for c in (6, 6, 5)]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_runs_on_the_device_of_its_arrays(cupy, call):
    wanted = CALLS[call](*inputs(cupy))
    with cupy.cuda.Device(1):
        given = inputs(cupy)
    assert cupy.cuda.Device().id == 0
    for out, same in zip(CALLS[call](*given), wanted, strict=True):
        assert out.device.id == 1
        np.testing.assert_array_equal(to64(out), to64(same))


def test_arrays_of_two_devices_are_refused(cupy):
    q, k, v = inputs(cupy)
    with cupy.cuda.Device(1):
        other = inputs(cupy)[2]
    with pytest.raises(MixedLibraryError, match="one device"):
        ka.linear_attention(q, k, other, maps())
    with pytest.raises(MixedLibraryError, match=r"one device.*0, 1"):
        OPS["gram"].implementation(q)(q, other, maps().spec, False)
    state = ka.key_state(k, v, maps())
    with cupy.cuda.Device(1):
        away = inputs(cupy)[0]
    with pytest.raises(MixedLibraryError, match=r"one device"):
        ka.attend(state, away, maps())


@pytest.mark.parametrize("call", [call for call in CALLS if call not in ("softmax", "orthogonalize")])
def test_constants_are_there_for_every_stream(cupy, call, monkeypatch):
    """What one stream uploads, a second one may use at once."""
    wanted = CALLS[call](*inputs(cupy))
    given, phi, chains = inputs(cupy), maps(), maps("hadamard")
    monkeypatch.setattr(f"{__name__}.maps", lambda projection="orthogonal": chains if projection == "hadamard" else phi)
    cupy.cuda.get_current_stream().synchronize()
    constants._uploaded.clear()
    sketches._lists.clear()
    plans._levels.clear()
    with cupy.cuda.Stream(non_blocking=True):
        CALLS[call](*given)  # only launches: nothing here waits
    with cupy.cuda.Stream(non_blocking=True):
        for out, same in zip(CALLS[call](*given), wanted, strict=True):
            np.testing.assert_array_equal(to64(out), to64(same))


def test_a_first_call_inside_a_capture_is_refused(cupy):
    given, phi = inputs(cupy), maps()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for x in given:
            x.sum()
        stream.begin_capture()
        with pytest.raises(BackendUnavailable, match="before the capture"):
            ka.linear_attention(*given, phi)
        stream.end_capture()
        ka.linear_attention(*given, phi)
        stream.begin_capture()
        ka.linear_attention(*given, phi)
