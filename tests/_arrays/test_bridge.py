"""Arrays of PyTorch and JAX on compiled ops: NumPy's numbers, in kind, from the same memory; what must be kept is."""

import sys
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import kernattn as ka
import maps
from kernattn._arrays import bridge as _bridge
from kernattn.errors import BackendUnavailable
from kernattn.ops import dispatch as _dispatch
from seam import PeakedSum
from xp import KINDS, dtype_name, numpy_dtype, to_numpy

pytestmark = pytest.mark.skipif(_dispatch.missing("cpu") is not None, reason="no numba")

LENT = [kind for kind in KINDS if kind.name in ("torch", "jax")]
PHI, COMPUTED = "positive-softmax", "polynomial"
DTYPES = ["float32", "float64", "float16", "bfloat16"]
N, E = 7, 3
MASK, IDS = np.arange(N) % 3 != 1, np.arange(N) // 4


@pytest.fixture(params=LENT, ids=repr)
def kind(request):
    with request.param.wide():
        yield request.param


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def inputs(dtype="float32", lead=(2,)):
    shapes = (*lead, N, maps.DIM), (*lead, N, maps.DIM), (*lead, N, E)
    rng = np.random.default_rng(1)
    return [(0.5 * rng.standard_normal(shape)).astype(numpy_dtype(dtype)) for shape in shapes]


def forms(name, q, k, v, mask=None, ids=None, backend=None):
    """Every form of attention and of features, as a flat list of arrays."""
    phi = maps.make(name)
    out, after = ka.causal_linear_attention(q, k, v, phi, key_mask=mask, segment_ids=ids, backend=backend)
    state = ka.key_state(k, v, phi, key_mask=mask, backend=backend)
    token, state_after = ka.linear_attention_step(state, *(x[..., 0, :] for x in (q, k, v)), phi, backend=backend)
    softmax = ka.attention.softmax_with_lse(q, k, v, causal=True, key_mask=mask, backend=backend)
    rest = ka.attend(state, q, phi, backend=backend), phi(q, backend=backend)
    linear = ka.linear_attention(q, k, v, phi, key_mask=mask, backend=backend)
    return [out, *after[:3], *state[:3], token, *state_after[:3], *softmax, *rest, linear]


@pytest.mark.parametrize("backend", [None, "cpu"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (COMPUTED, "float32"),
        *((PHI, dtype) for dtype in DTYPES),
        *(pytest.param(COMPUTED, dtype, marks=pytest.mark.slow) for dtype in DTYPES[1:]),
    ],
)
def test_numbers_of_numpy(kind, name, dtype, backend):
    given = inputs(dtype)
    wanted = forms(name, *given, MASK, IDS)
    before = [kind.asarray(x, dtype) for x in given]
    got = forms(name, *before, kind.asarray(MASK), kind.asarray(IDS), backend)
    for each, other in zip(got, wanted, strict=True):
        assert kind.holds(each)
        assert dtype_name(each) == dtype_name(other)
        assert tuple(each.shape) == other.shape
        if name == PHI:  # the same loops on the same numbers
            np.testing.assert_array_equal(to_numpy(each), to_numpy(other))
        else:  # features that the library computed
            np.testing.assert_allclose(to_numpy(each), to_numpy(other), rtol=2e-2 if "16" in dtype else 1e-5, atol=1e-6)
    for x, was in zip(before, given, strict=True):
        np.testing.assert_array_equal(to_numpy(x), to_numpy(was))


def test_the_reference_takes_them_too(kind):
    def outputs(*arrays, backend):
        phi = maps.make(PHI)
        state = ka.key_state(*arrays[1:], phi, backend=backend)
        token, _ = ka.linear_attention_step(state, *(x[..., 0, :] for x in arrays), phi, backend=backend)
        return token, ka.softmax_attention(*arrays, backend=backend), phi(arrays[0], backend=backend)

    wanted = outputs(*inputs(), backend=None)
    run = kind.whole(lambda *arrays: outputs(*arrays, backend="reference"))
    for each, other in zip(run(*map(kind.asarray, inputs())), wanted, strict=True):
        assert kind.holds(each)
        np.testing.assert_allclose(to_numpy(each), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["tensor_sketch", "complex_to_real", "sum", "neurons"])
def test_maps_that_run_other_ops(kind, name):
    x = inputs()[0]
    np.testing.assert_allclose(to_numpy(maps.make(name)(kind.asarray(x))), maps.make(name)(x), rtol=2e-5, atol=1e-6)


def test_memory_is_lent(kind, monkeypatch):
    """What an op reads lies where the array lies, and what it wrote is what comes back."""
    seen = []

    def features(x, spec):
        seen.append((x, np.full((64, 4096), 3.0, np.float32)))
        return seen[-1][1]

    monkeypatch.setattr(_dispatch, "_load", lambda name, backend: features)
    x = kind.asarray(np.ones((64, 64), np.float32))
    result = maps.make("elu1")(x)
    read, written = seen[0]
    address = x.data_ptr() if kind.name == "torch" else x.unsafe_buffer_pointer()
    assert type(read) is np.ndarray
    assert read.ctypes.data == address
    if kind.name == "torch":
        assert result.data_ptr() == written.ctypes.data
    assert kind.holds(result)


def test_layouts(kind):
    """Strides are kept: transposed, sliced, reversed and expanded arrays."""
    x = np.random.default_rng(2).standard_normal((2 * maps.DIM, 2, 2 * N)).astype(np.float32)
    wanted = [x.transpose(1, 2, 0)[:, ::2, ::2], np.broadcast_to(x[::2, 0].T[N:], (3, N, maps.DIM))]
    a = kind.asarray(x)
    if kind.name == "torch":
        views = [a.permute(1, 2, 0)[:, ::2, ::2], a[::2, 0].T[N:].expand(3, N, maps.DIM)]
    else:
        views = [a.transpose(1, 2, 0)[:, ::2, ::2], np.broadcast_to(1, (3, 1, 1)) * a[::2, 0].T[N:]]
    phi = maps.make(PHI)
    for view, each in zip(views, wanted, strict=True):
        got, _ = ka.causal_linear_attention(view, view, view, phi)
        np.testing.assert_array_equal(to_numpy(got), ka.causal_linear_attention(each, each, each, phi)[0])


def test_a_state_is_stepped_in_place_where_it_can_be_written_to(kind):
    phi, given = maps.make(PHI), inputs()
    tokens = [x[:, 0] for x in given]
    wanted, after = ka.linear_attention_step(ka.key_state(*given[1:], phi), *tokens, phi)
    state = ka.key_state(*map(kind.asarray, given[1:]), phi)
    old = [np.array(to_numpy(x)) for x in state[:3]]
    out, new = ka.linear_attention_step(state, *map(kind.asarray, tokens), phi, reuse_state=True)
    np.testing.assert_array_equal(to_numpy(out), wanted)
    for part, was, before, then in zip(new[:3], state[:3], old, after[:3], strict=True):
        np.testing.assert_array_equal(to_numpy(part), then)
        if kind.name == "torch":
            assert part is was
        else:
            np.testing.assert_array_equal(to_numpy(was), before)


# ---- what is kept ----


def watched(torch):
    """Calls of features, each with an array that must not be lent, and the word that says why."""
    from torch._subclasses import FakeTensorMode

    x = torch.ones(2, maps.DIM)

    class Mine(torch.Tensor):
        pass

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    yield "FakeTensor", lambda phi: phi(fake.from_tensor(x))
    yield "Mine", lambda phi: phi(x.as_subclass(Mine))
    yield "torch.func", lambda phi: torch.func.functionalize(phi)(x)
    yield "forwards", lambda phi: torch.func.jvp(phi, (x,), (x,))
    yield "negation", lambda phi: phi(torch.conj(torch.complex(x, x)).imag)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch.func.jvp's own
@pytest.mark.parametrize("number", range(5))
def test_what_no_edge_takes_is_kept(torch, number, monkeypatch):
    why, call = list(watched(torch))[number]
    phi = maps.make(PHI)
    ran = []
    load = _dispatch._load
    monkeypatch.setattr(_dispatch, "_load", lambda name, backend: ran.append(backend) or load(name, backend))
    call(phi)
    assert ran[-1] == "reference"
    call(lambda x: phi(x, backend="reference"))
    with pytest.raises(BackendUnavailable, match=f"'cpu' cannot take .*{why}.*backend='reference' takes it"):
        call(lambda x: phi(x, backend="cpu"))


def differentiated(torch):
    """Calls of features whose arrays the edge takes."""
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.ones(2, maps.DIM)
    needs = torch.ones(2, maps.DIM, requires_grad=True)
    yield lambda phi: phi(needs)
    yield lambda phi: phi(torch.nn.Parameter(x))
    yield lambda phi: phi(needs * 2)
    yield lambda phi: torch.func.vmap(phi)(x[None])
    yield lambda phi: torch.func.grad(lambda x: phi(x).sum())(x)
    yield lambda phi: make_fx(phi)(x)


@pytest.mark.parametrize("number", range(6))
def test_what_the_edge_takes_is_compiled(torch, number, monkeypatch):
    call = list(differentiated(torch))[number]
    phi = maps.make(PHI)
    ran = []
    load = _dispatch._load
    monkeypatch.setattr(_dispatch, "_load", lambda name, backend: ran.append((name, backend)) or load(name, backend))

    def at(backend):
        return lambda x: phi(x, backend=backend)

    for backend in (None, "cpu", "reference"):
        ran.clear()
        call(at(backend))
        assert {way for name, way in ran if name == "features"} == {backend or "cpu"}


@pytest.mark.parametrize("which", ["q", "k", "v", "s"])
def test_every_argument_is_looked_at(torch, which):
    phi, arrays = maps.make(PHI), dict(zip("qkv", map(torch.tensor, inputs()), strict=True))
    state = ka.key_state(arrays["k"], arrays["v"], phi)
    arrays["s"] = state.s
    arrays[which] = arrays[which].detach().requires_grad_()
    state = state._replace(s=arrays.pop("s"))
    out, _ = ka.causal_linear_attention(**arrays, phi=phi, state=state)
    assert out.requires_grad
    out.sum().backward()
    slow, _ = ka.causal_linear_attention(**arrays, phi=phi, state=state, backend="reference")
    assert slow.requires_grad
    np.testing.assert_allclose(to_numpy(slow), to_numpy(out), rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        got, _ = ka.causal_linear_attention(**arrays, phi=phi, state=state, backend="cpu")
    assert not got.requires_grad
    np.testing.assert_allclose(to_numpy(got), to_numpy(out), rtol=1e-4, atol=1e-6)
    softmax = {name: arrays[name] for name in "qkv"}
    assert ka.softmax_attention(**softmax).requires_grad == (which != "s")


def test_inference(torch):
    phi = maps.make(PHI)
    with torch.inference_mode():
        x = torch.tensor(inputs()[0])
        np.testing.assert_array_equal(to_numpy(phi(x, backend="cpu")), phi(inputs()[0]))
    np.testing.assert_array_equal(to_numpy(phi(x, backend="cpu")), phi(inputs()[0]))


@pytest.mark.filterwarnings("ignore:Dynamo")
def test_torch_compiles_around_it(torch):
    phi, x = maps.make(PHI), torch.tensor(inputs()[0])
    twice = torch.compile(lambda x: 2 * phi(2 * x), backend="eager")
    np.testing.assert_allclose(to_numpy(twice(x)), 2 * phi(2 * inputs()[0]), rtol=1e-5)


def test_tracers_and_other_devices_of_jax():
    jax = pytest.importorskip("jax")
    phi, x = maps.make(PHI), jax.numpy.ones((2, maps.DIM))
    for call in (jax.jit, jax.vmap, jax.grad):
        call(lambda x: phi(x, backend="cpu").sum())(x[None])
    with pytest.raises(BackendUnavailable, match=r"'cpu' cannot take .*traced"):
        jax.jit(lambda x: ka.linear_attention(x, x, x, maps.make("polynomial"), backend="cpu"))(x)
    with jax.enable_x64(True):
        wide = jax.numpy.ones((2, maps.DIM), "float64")
    with jax.enable_x64(False), pytest.raises(BackendUnavailable, match="jax_enable_x64"):
        phi(wide, backend="cpu")
    there = jax.device_put(x, jax.devices("cpu")[0])  # committed
    assert phi(there).committed
    assert not phi(x).committed


@pytest.mark.parametrize("constructor", ["jax's own", "public"])
@pytest.mark.parametrize("committed", [False, True])
def test_results_of_jax_outlive_what_they_were_made_of(constructor, committed, monkeypatch):
    jax = pytest.importorskip("jax")
    like = jax.device_put(np.ones(2, np.float32), jax.devices("cpu")[0] if committed else None)
    library = _bridge.library_of(like)
    if constructor == "public":
        monkeypatch.setattr(library, "put", None)
    host = np.arange(2.0**16, dtype=np.float32).reshape(-1, 256)
    given = [library.give(each, like) for each in (host.copy(), host.copy()[:, ::2], host.copy().T)]
    for _ in range(8):
        np.full(host.shape, np.nan, np.float32)  # in whatever memory is free
    for each, wanted in zip(given, (host, host[:, ::2], host.T), strict=True):
        assert each.committed == committed
        assert each.sharding == like.sharding
        np.testing.assert_array_equal(each + 0, wanted)


def test_strict_arrays_stay_on_the_reference():
    strict = pytest.importorskip("array_api_strict")
    assert _bridge.library_of(strict.asarray([1.0])) is None
    assert _bridge.library_of(np.ones(1)) is None


def test_plain_values_and_tuples_cross_as_they_are(kind):
    library = _bridge.library_of(kind.asarray(np.ones(2, np.float32)))
    x = kind.asarray(np.ones(2, np.float32))

    def op(*given):
        assert isinstance(given[0], PeakedSum)
        assert all(type(part) is np.ndarray for part in given[0])
        assert given[1:] == (None, True, "words", 2.5, ())
        return given[0], None, (given[0].z,)

    sums, nothing, (z,) = library.call(op, x, (PeakedSum(x, x + 1, x), None, True, "words", 2.5, ()))
    assert nothing is None
    assert z is sums.z
    assert sums.s is x


@pytest.mark.parametrize("by_protocol", [True, False])
def test_cuda_tensors_run_on_their_device_and_stream(torch, monkeypatch, by_protocol):
    """CuPy and CUDA are stood in for: which context is entered when, what crosses, and whose memory is handed out."""
    events, allocators = [], []

    @contextmanager
    def entered(*what):
        events.append(what)
        yield
        events.append("left")

    def allocator(room):
        allocators.append(room)
        return entered("allocator")

    cuda = SimpleNamespace(Device=partial(entered, "device"), Stream=SimpleNamespace())
    if by_protocol:
        cuda.Stream.from_external = lambda stream: entered("stream", stream.__cuda_stream__()[1], None)
    else:
        cuda.ExternalStream = partial(entered, "stream")
    cuda.using_allocator, cuda.UnownedMemory, cuda.MemoryPointer = allocator, lambda *x: x, lambda *x: x
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, from_dlpack=np.from_dlpack))
    stream = SimpleNamespace(cuda_stream=77)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)

    def op(x, dtype):
        (pointer, size, held, device), offset = allocators[-1](24)
        assert (pointer, size, device, offset) == (held.data_ptr(), 24, None, 0)
        assert (held.nbytes, held.dtype, held.device) == (24, torch.uint8, torch.device("cpu"))
        events.append((x.dtype, dtype))
        x[0] = 2.0
        return x, x + 1

    for name in ("float32", "bfloat16"):
        x, events[:] = torch.zeros(3, dtype=getattr(torch, name)), []
        same, more = _bridge.TorchCuda().call(op, x, (x, x.dtype))
        assert same is x
        assert more.dtype == x.dtype
        assert more.tolist() == [3.0, 1.0, 1.0]
        dtype = numpy_dtype(name)
        entries = [("device", None), ("stream", 77, None), ("allocator",)]
        assert events == [*entries, (dtype, dtype), "left", "left", "left"]
    with pytest.raises(_bridge.CannotLend, match="gradient"):
        _bridge.TorchCuda().call(op, x, (x.float().requires_grad_(), None))


def test_full_attention_crosses_once(kind, monkeypatch):
    crossings = []
    given = [kind.asarray(x) for x in inputs()]
    library = _bridge.library_of(given[0])
    monkeypatch.setattr(library, "refuse_watched", lambda: crossings.append(library))
    out = ka.linear_attention(*given, maps.make(PHI))
    assert kind.holds(out)
    assert crossings == [library] * (kind.name == "jax")  # tensors cross at the door of the function


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_no_dtype_crosses_by_way_of_an_error(torch, dtype):
    """PyTorch's refusal to lend bfloat16 to NumPy, and to take it, costs ten times a loan: a step has seven."""
    pytest.importorskip("ml_dtypes")
    tensor = torch.arange(6.0).to(getattr(torch, dtype))
    library, raised = _bridge.library_of(tensor), []
    sys.setprofile(lambda frame, event, function: raised.append(function) if event == "c_exception" else None)
    try:
        lent = library.lend(tensor)
        back = library.give(lent.copy(), tensor)
    finally:
        sys.setprofile(None)
    assert not raised
    assert lent.__array_interface__["data"][0] == tensor.data_ptr()
    assert torch.equal(back, tensor)
