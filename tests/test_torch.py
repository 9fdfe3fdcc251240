"""kernattn.torch: compiled gradients on tensors, in eager mode and under `torch.func`."""

import gc
import weakref

import numpy as np
import pytest

import kernattn as ka
import maps
from kernattn._runtime.parallel import threads
from kernattn.errors import DTypeError, MixedLibraryError, ParameterError, ShapeError
from kernattn.ops import dispatch as _dispatch
from tensors import inputs

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")

D = maps.DIM


@pytest.fixture
def compiled_only(monkeypatch):
    """Raise where an op of attention runs as array operations that PyTorch would differentiate."""
    load = _dispatch._load

    def loaded(name, backend):
        assert backend != "reference" or not torch.is_grad_enabled(), f"{name} on the reference"
        return load(name, backend)

    monkeypatch.setattr(_dispatch, "_load", loaded)


@pytest.mark.parametrize("name", ["elu1", "trigonometric-softmax", "positive-softmax"])
def test_gradcheck_of_every_function(name, compiled_only):
    """Masks, segments, grouped heads, a state in and out, and tokens one by one, in a loss each."""
    phi = maps.make(name)
    q = inputs(2, 2)[0]
    k, v = inputs(2, 1)[1:]
    mask, ids = torch.arange(5) % 4 != 2, torch.arange(5) // 3

    def outputs(q, k, v):
        past = ka.key_state(k[..., :2, :], v[..., :2, :], phi)
        out, state = ka.causal_linear_attention(q, k, v, phi, state=past, key_mask=mask, segment_ids=ids)
        token, last = ka.linear_attention_step(state, q[:, :, 0], k[:, :, 0], v[:, :, 0], phi)
        rows = ka.attend(last, q, phi)
        exact = ka.softmax_attention(q, k, v, causal=True, key_mask=mask)
        return out, token, rows, ka.linear_attention(q, k, v, phi, key_mask=mask), exact, phi(q)

    assert torch.autograd.gradcheck(outputs, (q, k, v), fast_mode=True)


def test_numbers_of_a_map_are_learnt():
    phi = maps.make("positive-softmax")
    omega = torch.tensor(phi.spec.omega, requires_grad=True)
    scale = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def outputs(q, k, v, omega, scale, backend=None):
        chosen = ka.with_numbers(phi, omega=omega, scale=scale)
        out, state = ka.causal_linear_attention(q, k, v, chosen, backend=backend)
        rows = ka.attend(state, q, chosen, backend=backend)
        return out, rows, ka.linear_attention(q, k, v, chosen, backend=backend), chosen(q, backend=backend)

    given = *inputs(2), omega, scale
    assert torch.autograd.gradcheck(outputs, given, fast_mode=True)
    for fast, slow in zip(outputs(*given), outputs(*given, backend="reference"), strict=True):
        torch.testing.assert_close(fast, slow)
    with torch.no_grad():
        for fast, slow in zip(outputs(*given), outputs(*given, backend="reference"), strict=True):
            torch.testing.assert_close(fast, slow)
    assert torch.autograd.gradgradcheck(lambda *a: outputs(*a, backend="reference")[2], given, fast_mode=True)
    same = ka.with_numbers(phi, omega=omega)
    torch.testing.assert_close(ka.linear_attention(*given[:3], same), ka.linear_attention(*given[:3], phi))
    with torch.no_grad():
        omega.add_(0.1)
    moved = ka.linear_attention(*given[:3], same)
    torch.testing.assert_close(moved, ka.linear_attention(*given[:3], same, backend="reference"))


def test_row_weights_are_learnt_as_vjp_says():
    phi = maps.make("positive-ard")
    row_weights = torch.tensor(phi.spec.row_weights, requires_grad=True)
    q, k, v = inputs(grad=False)
    out = ka.linear_attention(q, k, v, ka.with_numbers(phi, row_weights=row_weights))
    out.square().sum().backward()
    arrays = (x.numpy() for x in (q, k, v))
    wanted, pullback = ka.vjp(ka.linear_attention, *arrays, ka.with_numbers(phi, row_weights=phi.spec.row_weights))
    np.testing.assert_allclose(out.detach(), wanted, rtol=1e-12)
    assert row_weights.grad.abs().max() > 0
    np.testing.assert_allclose(row_weights.grad, pullback(2 * wanted).phi.row_weights, rtol=1e-9)


def test_the_lengthscale_is_learnt_as_vjp_says():
    phi = maps.make("phase-ard")
    lengthscale = torch.tensor(phi.kernel.lengthscale, dtype=torch.float64, requires_grad=True)
    q, k, v = inputs(grad=False)
    out = ka.linear_attention(q, k, v, ka.with_numbers(phi, lengthscale=lengthscale))
    out.sum().backward()
    arrays = (x.numpy() for x in (q, k, v))
    wanted, pullback = ka.vjp(
        ka.linear_attention, *arrays, ka.with_numbers(phi, lengthscale=np.asarray(phi.kernel.lengthscale))
    )
    np.testing.assert_allclose(out.detach(), wanted, rtol=1e-12)
    np.testing.assert_allclose(lengthscale.grad, pullback(np.ones_like(wanted)).phi.lengthscale, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch.func.jvp's own
def test_derivatives_that_are_refused_name_the_reference():
    phi = maps.make("elu1")
    q, k, v = inputs()
    (first,) = torch.autograd.grad(ka.linear_attention(q, k, v, phi).sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="backend='reference'"):
        first.sum().backward()
    assert torch.autograd.gradgradcheck(
        lambda *given: ka.linear_attention(*given, phi, backend="reference"), (q, k, v), fast_mode=True
    )


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch.func.jvp's own
def test_tangents_pass_through_array_operations():
    phi = maps.make("elu1")
    q, k, v = inputs(grad=False)
    out, tangent = torch.func.jvp(lambda q: ka.linear_attention(q, k, v, phi), (q,), (k,))
    step = 1e-6
    ends = [ka.linear_attention(q + sign * step * k, k, v, phi) for sign in (1, -1)]
    torch.testing.assert_close(out, ka.linear_attention(q, k, v, phi))
    torch.testing.assert_close(tangent, (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["elu1", "positive-softmax", "trigonometric-softmax"])
def test_nothing_comes_of_what_is_not_seen(name):
    phi = maps.make(name)
    q, k, v = inputs(dtype=torch.float32)
    with torch.no_grad():
        k[0], v[0] = float("nan"), float("nan")
    mask = torch.arange(5) > 0
    out, _ = ka.causal_linear_attention(q, k, v, phi, key_mask=mask)
    (out.square().sum() + ka.softmax_attention(q, k, v, causal=True, key_mask=mask).square().sum()).backward()
    for x in (q, k, v):
        assert torch.isfinite(x.grad).all()
        assert (x.grad[0] == 0).all()


def test_vmap_and_grad_of_torch_func():
    phi = maps.make("positive-softmax")
    q, k, v = inputs(3, 2, grad=False)

    def loss(q, k, v):
        out, state = ka.causal_linear_attention(q, k, v, phi)
        exact = ka.softmax_attention(q, k, v)
        return (out.sin() + ka.attend(state, q, phi) + exact + ka.linear_attention(q, k, v, phi)).sum()

    for dims, given in (
        ((0, 0, 0), (q, k, v)),
        ((0, None, None), (q, k[0], v[0])),
        ((1, None, 0), (q, k[0, 0], v[0])),
    ):
        own = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)), in_dims=dims)(*given)
        for item in range(2):
            one = [x if dim is None else x.select(dim, item) for x, dim in zip(given, dims, strict=True)]
            leaves = [x.clone().requires_grad_() for x in one]
            loss(*leaves).backward()
            for found, x in zip(own, leaves, strict=True):
                torch.testing.assert_close(found[item], x.grad)
    omega = torch.tensor(phi.spec.omega)
    per_item = torch.func.vmap(
        torch.func.grad(lambda omega, q: ka.linear_attention(q, q, q, ka.with_numbers(phi, omega=omega)).sum()),
        in_dims=(None, 0),
    )(omega, q)
    assert per_item.shape == (3, *omega.shape)
    assert not torch.allclose(per_item[0], per_item[1])


def test_vmap_beside_what_is_the_same_for_all_items():
    """A call on tensors that no transform wraps is one amid transforms as well."""
    phi = maps.make("positive-softmax")
    q, k, v = inputs(3, grad=False)
    keys, values = (x[0].clone().requires_grad_() for x in (k, v))
    found = torch.func.vmap(lambda q: ka.attend(ka.key_state(keys, values, phi), q, phi))(q)
    torch.testing.assert_close(found, ka.linear_attention(q, keys, values, phi))
    found.sum().backward()
    assert (values.grad != 0).all()


def test_graphs_of_autograd_go_with_their_outputs():
    """No cycle of references keeps what a call kept for its gradients until the garbage collector comes."""
    q, k, v = inputs()
    calls = {
        "linear": lambda: ka.linear_attention(q, k, v, maps.make("elu1")),
        "causal": lambda: ka.causal_linear_attention(q, k, v, maps.make("elu1"))[0],
        "softmax": lambda: ka.softmax_attention(q, k, v),
        "state": lambda: ka.key_state(k, v, maps.make("elu1")).s,
        "features": lambda: maps.make("elu1")(q),
        "array operations": lambda: ka.linear_attention(q, k, v, maps.make("polynomial")),
    }
    gc.disable()
    try:
        for name, call in calls.items():
            out = call()
            out.sum().backward()
            held = weakref.ref(out)
            del out
            assert held() is None, name
    finally:
        gc.enable()


def test_autocast():
    phi, given = maps.make("positive-softmax"), inputs(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = ka.linear_attention(*given, phi)
        exact = ka.softmax_attention(given[0].bfloat16(), *given[1:], key_bias=torch.zeros(given[1].shape[:-1]))
    assert out.dtype == exact.dtype == torch.bfloat16
    (out.float().sum() + exact.float().sum()).backward()
    for x in given:
        assert x.grad.dtype == torch.float32
    torch.testing.assert_close(out.float(), ka.linear_attention(*given, phi), rtol=0.05, atol=0.05)


def test_autocast_of_the_reference():
    given, elu1 = inputs(dtype=torch.float32), maps.make("elu1")
    for call in (
        lambda: ka.linear_attention(*given, elu1, backend="reference"),
        lambda: ka.causal_linear_attention(*given, elu1, backend="reference")[0],
        lambda: ka.softmax_attention(*given, backend="reference"),
    ):
        with torch.autocast("cpu", torch.bfloat16):
            out = call()
        assert out.dtype == torch.bfloat16
        torch.testing.assert_close(out.float(), call(), rtol=0.02, atol=0.02)


def test_what_is_refused():
    phi, (q, k, v) = maps.make("positive-softmax"), inputs()
    omega = torch.tensor(phi.spec.omega)
    with pytest.raises(MixedLibraryError, match="v of numpy"):
        ka.linear_attention(q, k, v.detach().numpy(), phi)
    with pytest.raises(ParameterError, match="needs an array"):
        ka.with_numbers(phi)
    with pytest.raises(ParameterError, match="offset needs a map"):
        ka.with_numbers(phi, offset=omega)
    with pytest.raises(ParameterError, match="a map with a spec"):
        ka.with_numbers(maps.make("polynomial"), omega=omega)
    with pytest.raises(ParameterError, match="lengthscale needs a random feature map of a kernel with a lengthscale"):
        ka.with_numbers(phi, lengthscale=omega)
    with pytest.raises(ShapeError, match="omega must have shape"):
        ka.with_numbers(phi, omega=omega[:2])
    with pytest.raises(DTypeError, match="omega must have one of the dtypes"):
        ka.with_numbers(phi, omega=omega.long())
    learnt = ka.with_numbers(phi, omega=omega)
    with pytest.raises(MixedLibraryError):
        ka.linear_attention(*(x.detach().numpy() for x in (q, k, v)), learnt)
    with pytest.raises(ParameterError, match="redraw the map"):
        learnt.redraw()


def test_numbers_of_another_library_are_refused_after_the_map_has_passed():
    phi, chains = (
        maps.make("positive-softmax"),
        ka.random_features(ka.kernels.Gaussian(1.5), D, 16, "positive", "hadamard", rng=1),
    )
    q, k, v = (x.detach() for x in inputs())
    given = [x.numpy() for x in (q, k, v)]
    state = ka.key_state(*given[1:], phi)
    token = [x[0] for x in given]
    ka.linear_attention(*given, phi), ka.attend(state, given[0], phi), ka.linear_attention_step(state, *token, phi)
    learnt = ka.with_numbers(phi, omega=torch.tensor(phi.spec.omega))
    for call in (
        lambda: ka.linear_attention(*given, learnt),
        lambda: ka.attend(state, given[0], learnt),
        lambda: ka.linear_attention_step(state, *token, learnt),
        lambda: ka.with_numbers(chains, lengthscale=torch.tensor(2.0))(given[0]),
    ):
        with pytest.raises(MixedLibraryError, match="phi of torch"):
            call()
    scaled = ka.with_numbers(chains, lengthscale=np.asarray(2.0))  # NumPy's numbers serve every library
    torch.testing.assert_close(ka.linear_attention(q, k, v, scaled).numpy(), ka.linear_attention(*given, scaled))
    out, back = ka.vjp(ka.linear_attention, q, k, v, scaled)
    wanted = ka.vjp(ka.linear_attention, *given, scaled)[1](np.ones_like(given[2]))
    np.testing.assert_allclose(back(torch.ones_like(out)).phi.lengthscale.numpy(), wanted.phi.lengthscale)


def test_a_map_with_a_kernel_number_serves_calls_of_every_mode():
    phi = maps.make("positive-softmax")
    scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    learnt = ka.with_numbers(phi, scale=scale)
    q, k, v = inputs(grad=False)
    with torch.inference_mode():
        ka.linear_attention(q, k, v, learnt)
    torch.func.grad(lambda q: ka.linear_attention(q, k, v, learnt).sum())(q)
    grads = [torch.autograd.grad(ka.linear_attention(q, k, v, learnt).sin().sum(), scale)[0] for _ in range(2)]
    assert grads[0] == grads[1] != 0


class Rows(torch.utils.data.Dataset):
    """Attention computed by workers, and the threads that it may use there."""

    def __init__(self, given, phi):
        self.given, self.phi = given, phi

    def __len__(self):
        return 2

    def __getitem__(self, at):
        q, k, v = (x[at] for x in self.given)
        out, _ = ka.causal_linear_attention(q, k, v, self.phi)
        return out, threads()


@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")  # by JAX, where another test has loaded it
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # on one core
def test_workers_of_a_loader_compute_on_one_thread(monkeypatch):
    monkeypatch.delenv("KERNATTN_NUM_THREADS", raising=False)
    given, phi = inputs(2, grad=False), maps.make("positive-softmax")
    wanted, _ = ka.causal_linear_attention(*given, phi)  # loops are loaded, threads of both pools have run
    loader = torch.utils.data.DataLoader(Rows(given, phi), num_workers=2, multiprocessing_context="fork", timeout=300)
    for at, (out, count) in enumerate(loader):
        torch.testing.assert_close(out[0], wanted[at])
        assert count == 1


def test_old_names_of_the_door_warn_where_they_are_used():
    import kernattn.torch as door

    phi = maps.make("elu1")
    q, *_ = inputs(grad=False)
    for name, new in [("linear_attention", ka.linear_attention), ("softmax_with_lse", ka.attention.softmax_with_lse)]:
        with pytest.warns(DeprecationWarning, match=rf"kernattn\.torch\.{name} is now kernattn\.") as caught:
            assert getattr(door, name) is new
        assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=r"phi\(x\), or phi\.key\(x\)") as caught:
        assert torch.equal(door.features(q, phi, keys=True), phi.key(q))
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch.func.jvp's own
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tangents_of_signed_features_are_those_of_differences(dtype):
    """A normaliser below 1 bounds its row; PyTorch adds the tangent of a bound that is not met and takes it off."""
    phi = maps.make("trigonometric-softmax")
    q, k, v = inputs(grad=False)

    def loss(q, k, v):
        return ka.causal_linear_attention(q, k, v, phi)[0], ka.linear_attention(q, k, v, phi)

    narrow = [x.to(dtype) for x in (q, k, v)]
    found = torch.func.jvp(loss, tuple(narrow), (narrow[1], narrow[0], narrow[2]))[1]
    step = 1e-6
    ends = [loss(q + sign * step * k, k + sign * step * q, v + sign * step * v) for sign in (1, -1)]
    for tangent, *pair in zip(found, *ends, strict=True):
        wanted = (pair[0] - pair[1]) / (2 * step)
        error = torch.linalg.norm(tangent.double() - wanted) / torch.linalg.norm(wanted)
        assert error < (1e-6 if dtype == torch.float64 else 1e-2)


@pytest.mark.parametrize("backend", [None, "reference", "graph"])
@pytest.mark.parametrize("projection", ["orthogonal", "hadamard"])
def test_what_a_mask_hides_does_not_reach_a_learnt_scale(projection, backend):
    """Rows that a learnt number multiplies: NaN times a cotangent of 0 is NaN."""
    phi = ka.random_features(ka.kernels.Softmax(), 4, 8, "positive", projection, rng=0)
    q, k, v = (torch.tensor(x) for x in np.random.default_rng(1).standard_normal((3, 2, 9, 4)))
    mask = torch.arange(9) > 2
    hidden = torch.where(mask[:, None], 0.0, torch.nan)

    def loss(scale, k, v):
        learnt, options = ka.with_numbers(phi, scale=scale), {"key_mask": mask}
        options |= {"backend": None if backend == "graph" else backend}
        near = ka.attention.window_attention(k, k, v, learnt, 3, **options)[0]
        far = ka.causal_linear_attention(q, k, v, learnt, **options)[0]
        return (near + far + ka.linear_attention(q, k, v, learnt, **options)).square().sum()

    run = torch.compile(loss, backend="aot_eager", fullgraph=True) if backend == "graph" else loss
    scale = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(run(scale, k + hidden, v + hidden), scale)
    ends = [loss(scale.detach() + step, k, v) for step in (1e-6, -1e-6)]
    torch.testing.assert_close(found, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-6)
