"""What only a device can show: streams, no waiting, no allocation, graphs, arrays of torch, a million tokens."""

import numpy as np
import pytest

import kernattn as ka
import laws
import oracles
from cuda_ops.cases import to64
from kernattn.ops.dispatch import missing
from xp import Backend, Kind

if missing("gpu") is not None:
    pytest.skip(f"needs a GPU: {missing('gpu')}", allow_module_level=True)

pytestmark = pytest.mark.gpu
PHI = ka.random_features(ka.kernels.Softmax(), 16, 64, rng=0)
CALLS = {
    "linear": lambda q, k, v: ka.linear_attention(q, k, v, PHI),
    "causal": lambda q, k, v: ka.causal_linear_attention(q, k, v, PHI)[0],
    "step": lambda q, k, v: ka.linear_attention_step(
        ka.key_state(k[:, :-1], v[:, :-1], PHI), q[:, -1], k[:, -1], v[:, -1], PHI
    )[0],
    "softmax": lambda q, k, v: ka.softmax_attention(q, k, v, causal=True),
    "features": lambda q, k, v: PHI(q),
}


def problem(cupy, n=200, dtype="float32", seed=0):
    host = laws.arrays(seed, (2, n, 16), (2, n, 16), (2, n, 24), dtype=dtype)
    return host, [cupy.asarray(x) for x in host]


@pytest.mark.parametrize("call", CALLS)
def test_the_current_stream_is_used_and_not_waited_for(cupy, wait, call):
    """Inputs that arrive late on a stream are seen by what is launched after them there, and the caller goes on."""
    _, given = problem(cupy)
    wanted = CALLS[call](*given)
    late = [cupy.full_like(x, cupy.nan) for x in given]
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        CALLS[call](*late)
        stream.synchronize()
        wait()
        for to, source in zip(late, given, strict=True):
            to[...] = source
        out = CALLS[call](*late)
        assert not stream.done
        stream.synchronize()
    np.testing.assert_array_equal(to64(out), to64(wanted))


def test_constants_are_there_for_every_stream(cupy, wait):
    """A map that one stream uploads behind other work, a second one may use at once."""
    _, given = problem(cupy)
    same, phi = (ka.random_features(ka.kernels.Softmax(), 16, 64, rng=0) for _ in range(2))
    wanted = same(given[0])
    cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.Stream(non_blocking=True):
        wait()
        phi(given[0])
    with cupy.cuda.Stream(non_blocking=True) as stream:
        out = phi(given[0])
        stream.synchronize()
    np.testing.assert_array_equal(to64(out), to64(wanted))


def test_a_call_runs_on_the_device_of_its_arrays(cupy):
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two devices")
    with cupy.cuda.Device(1):
        host, given = problem(cupy)
    out = ka.linear_attention(*given, PHI)
    assert out.device.id == 1
    np.testing.assert_allclose(to64(out), laws.expected(PHI, *host)[0], atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("group", [(), (3,)])
def test_a_step_in_place_allocates_nothing_and_a_graph_repeats_it(cupy, allocations, dtype, group):
    shared = (1,) if group else ()
    shapes = ((2, *group, 16), (2, *shared, 16), (2, *shared, 24))
    tokens = [[cupy.asarray(x) for x in laws.arrays(t, *shapes, dtype=dtype)] for t in range(6)]
    lead = (2, *shared)
    held = ka.initial_state(PHI, lead, 24, like=tokens[0][0])
    plain = ka.initial_state(PHI, lead, 24, like=tokens[0][0])
    mask, out = cupy.ones(lead, dtype=bool), cupy.zeros((2, *group, 24), dtype=tokens[0][2].dtype)
    now = [x.copy() for x in tokens[0]]

    def step():
        got, after = ka.linear_attention_step(held, *now, PHI, key_mask=mask, reuse_state=True, out=out)
        assert got is out
        assert after.s is held.s

    stream, graph = cupy.cuda.Stream(non_blocking=True), None
    cupy.cuda.get_current_stream().synchronize()
    for t, token in enumerate(tokens):
        wanted, plain = ka.linear_attention_step(plain, *token, PHI, key_mask=mask)
        cupy.cuda.get_current_stream().synchronize()
        with stream:
            for to, source in zip(now, token, strict=True):
                to[...] = source
            if t == 0:
                step()
            elif t == 1:
                with allocations() as listed:
                    step()
                assert listed.sizes == []
            else:
                if graph is None:
                    stream.begin_capture()
                    step()
                    graph = stream.end_capture()
                graph.launch(stream)
            stream.synchronize()
        np.testing.assert_array_equal(to64(out), to64(wanted))
        for a, b in zip(held[:3], plain[:3], strict=True):
            np.testing.assert_array_equal(to64(a), to64(b))


def test_the_list_of_allocations_lists(cupy, allocations):
    _, given = problem(cupy)
    with allocations() as listed:
        CALLS["causal"](*given)
    assert sum(listed.sizes) >= given[2].nbytes


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensors_of_torch_come_and_go_without_a_copy(cupy, dtype):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    host, _ = problem(cupy, dtype="float32")
    sent = [torch.tensor(x, device="cuda").to(getattr(torch, dtype)) for x in host]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out, state = ka.causal_linear_attention(*sent, PHI)
        step, after = ka.linear_attention_step(state, *(x[:, -1] for x in sent), PHI, reuse_state=True)
    stream.synchronize()
    assert out.device == step.device == sent[0].device
    assert out.dtype == step.dtype == sent[0].dtype
    assert after.s is state.s
    host = [x.double().cpu().numpy() for x in sent]
    wanted, _ = laws.expected(PHI, *host, causal=True)
    close = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}[dtype]
    np.testing.assert_allclose(out.double().cpu().numpy(), wanted, atol=close)


def test_gradients_of_torch_tensors(cupy):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    host, _ = problem(cupy)
    sent = [torch.tensor(x, device="cuda", requires_grad=True) for x in host]
    ka.causal_linear_attention(*sent, PHI)[0].square().sum().backward()
    wanted = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in host]
    ka.causal_linear_attention(*wanted, PHI, backend="reference")[0].square().sum().backward()
    for x, y in zip(sent, wanted, strict=True):
        scale = float(y.grad.abs().max())
        np.testing.assert_allclose(x.grad.double().cpu().numpy(), y.grad.numpy(), rtol=0, atol=1e-4 * scale)


@pytest.mark.parametrize("name", ["linear", "causal"])
def test_a_million_tokens(cupy, allocations, name):
    """Against running sums in float64; memory beyond the output stays a fraction of the inputs."""
    n = 2**20
    phi = ka.features.elu1()
    q, k, v = (x[0] for x in laws.arrays(3, (1, n, 4), (1, n, 4), (1, n, 4)))
    given = [cupy.asarray(x) for x in (q, k, v)]
    with allocations() as listed:
        if name == "causal":
            out, _ = ka.causal_linear_attention(*given, phi)
        else:
            out = ka.linear_attention(*given, phi)
    assert sum(listed.sizes) <= out.nbytes + 32 * 2**20
    fq, fk = (np.where(x > 0, x + 1.0, np.exp(np.minimum(x, 0).astype(np.float64))) for x in (q, k))
    s, z = np.einsum("na,ne->nae", fk, v.astype(np.float64)), fk
    s, z = (np.cumsum(x, axis=0) if name == "causal" else np.sum(x, axis=0, keepdims=True) for x in (s, z))
    wanted = np.einsum("na,nae->ne", fq, np.broadcast_to(s, (n, 4, 4))) / np.sum(fq * z, axis=-1, keepdims=True)
    np.testing.assert_allclose(to64(out), wanted, atol=1e-4 * np.abs(v).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exact_attention_over_many_tiles(cupy, dtype):
    (q, k, v), given = problem(cupy, n=1000, dtype=dtype)
    out = ka.softmax_attention(*given, causal=True)
    wanted, _ = oracles.softmax_attention(*map(to64, (q, k, v)), may=oracles.allowed(1000, 1000, causal=True))
    np.testing.assert_allclose(to64(out), wanted, atol=1e-4 if dtype == "float32" else 1e-10)


def test_long_sequences_and_states():
    """Long enough that every multiprocessor has a slab."""
    backend = Backend("gpu", Kind("cupy"))
    q, k, v = laws.arrays(5, *((1, 20_000, c) for c in (16, 16, 8)), scale=0.5)
    for phi in (PHI, ka.features.elu1()):
        whole, state = laws.causal(phi, q, k, v, backend)
        first, middle = laws.causal(phi, q[:, :7001], k[:, :7001], v[:, :7001], backend)
        second, _ = laws.causal(phi, q[:, 7001:], k[:, 7001:], v[:, 7001:], backend, state=middle)
        np.testing.assert_allclose(np.concatenate([first, second], axis=-2), whole, atol=1e-4)
        last = laws.linear(phi, q[:, -1:], k, v, backend)
        np.testing.assert_allclose(last, whole[:, -1:], atol=1e-4)
        np.testing.assert_allclose(laws.attend(phi, state, q[:, -1:], backend), last, atol=1e-4)
