"""The door of public functions: what crosses as NumPy's arrays, what does not, and what PyTorch knows of it after."""

import weakref
from dataclasses import dataclass

import numpy as np
import pytest

import kernattn as ka
import maps
from kernattn._arrays.door import crossed_at_once
from kernattn.errors import DTypeError, MixedLibraryError, ParameterError, StateMismatchError
from seam import MapSpec
from xp import to_numpy

torch = pytest.importorskip("torch")
pytest.importorskip("numba")

PHI = maps.make("elu1")


@crossed_at_once
def seen(*args, backend=None, **options):
    """Return the kinds of the arguments that a function sees."""
    return tuple(type(x) for x in (*args, *options.values()))


@crossed_at_once
def placed(q, k=None, *, key_mask=None, backend=None):
    """Return the kinds of the arguments that a function sees."""
    return tuple(type(x) for x in (q, k, key_mask))


def rows(dtype="float32", **options):
    rng = np.random.default_rng(1)
    return [torch.tensor(rng.standard_normal((2, 5, maps.DIM))).to(getattr(torch, dtype), **options) for _ in "qkv"]


def test_plain_tensors_cross_wherever_they_stand():
    x = rows()[0]
    assert seen(x, None, 2.0, PHI) == (np.ndarray, type(None), float, type(PHI))
    assert seen(x, key_mask=x > 0, backend="cpu") == (np.ndarray, np.ndarray)
    state = ka.key_state(x, x, PHI)
    assert seen(state, torch.nn.Parameter(x, requires_grad=False))[1] is np.ndarray
    with torch.no_grad():
        assert seen(x.clone().requires_grad_()) == (np.ndarray,)
    with torch.inference_mode():
        assert seen(x + 1) == (np.ndarray,)
    assert seen(x.to(torch.bfloat16)) == (np.ndarray,)
    assert seen(np.ones(2), x) == (np.ndarray, torch.Tensor)
    assert placed(key_mask=x > 0, k=2, q=x) == (np.ndarray, int, np.ndarray)
    for args, options in (((), {"k": x}), ((x,), {"q": x}), ((x,), {"k": x, "q": x})):
        with pytest.raises(TypeError, match="'q'"):
            placed(*args, **options)


class Mine(torch.Tensor):
    """A subclass, of which nobody knows what it does."""


def watched():
    """Calls that see tensors, by what keeps them."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    x = rows()[0]
    omega = torch.tensor(maps.make("positive-softmax").omega, dtype=torch.float32)
    found = []

    def note(x):
        found.append(seen(x))
        return x * 2

    def inside(context, *args):
        with context:
            return seen(*args)

    def transformed(transform):
        transform(note)(x)
        return found[-1]

    yield "a subclass", lambda: seen(x.as_subclass(Mine))
    yield "another library", lambda: seen(x, np.ones(2))
    yield "a list of another library", lambda: seen(x, [np.ones(2)])
    yield "a state of another library", lambda: seen(x, ka.key_state(x.numpy(), x.numpy(), PHI))
    yield "a number that is learnt", lambda: seen(x, ka.with_numbers(maps.make("positive-softmax"), omega=omega))
    yield "no spec", lambda: seen(x, maps.make("polynomial"))
    yield "the reference", lambda: seen(x, backend="reference")
    yield "autocast", lambda: inside(torch.autocast("cpu", torch.bfloat16), x)
    yield "a mode", lambda: inside(FlopCounterMode(display=False), x)
    yield "another mode", lambda: inside(type("Mode", (TorchDispatchMode,), {})(), x)
    yield "vmap", lambda: transformed(torch.vmap)
    yield "functionalize", lambda: transformed(torch.func.functionalize)
    yield "forwards", lambda: transformed(lambda f: lambda x: torch.func.jvp(f, (x,), (x,)))
    yield "a negation", lambda: seen(torch.conj(torch.complex(x, x)).imag)
    yield "no strides", lambda: seen(x.to_sparse())
    yield "no memory", lambda: seen(x.to("meta"))
    yield "a gradient beside", lambda: seen(x, x.clone().requires_grad_())
    yield "a gradient beside 16 bits", lambda: seen(*(y.to(torch.bfloat16) for y in (x, x.clone().requires_grad_())))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch.func.jvp's own
def test_what_is_watched_is_left_to_the_function():
    for why, call in watched():
        assert issubclass(call()[0], torch.Tensor), why


def test_refusals_name_what_was_given():
    q, k, v = rows()
    with pytest.raises(MixedLibraryError, match="torch"):
        ka.linear_attention(q, k, v, PHI, key_mask=np.ones(5, bool))
    with pytest.raises(DTypeError, match="got int64"):
        ka.linear_attention(q.long(), k, v, PHI)
    with pytest.raises(TypeError, match="unexpected keyword"):
        ka.linear_attention(q, k, v, PHI, mask=None)


CALLS = {
    "full": lambda q, k, v, **o: ka.linear_attention(q, k, v, PHI, **o),
    "causal": lambda q, k, v, **o: ka.causal_linear_attention(q, k, v, PHI, **o)[0],
    "state": lambda q, k, v, **o: ka.causal_linear_attention(q, k, v, PHI, state=ka.key_state(k, v, PHI), **o)[1].s,
    "exact": lambda q, k, v, **o: ka.softmax_attention(q, k, v, scale=0.3, causal=True, **o),
    "lse": lambda q, k, v, **o: ka.attention.softmax_with_lse(q, k, v, **o)[1],
    "gated": lambda q, k, v, **o: ka.gated_linear_attention(q, k, v, g=GATE, **o)[0],
    "key_state": lambda q, k, v, **o: ka.attend(ka.key_state(k, v, PHI, **o), q, PHI, **o),
}
GATE = torch.full((2, 1), -0.1)


@pytest.mark.parametrize("wanted", [(True, True, True), (True, False, False), (False, False, True)])
@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_those_of_the_reference(name, wanted):
    def pulled(**options):
        leaves = [x.requires_grad_(some) for x, some in zip(rows(), wanted, strict=True)]
        out = CALLS[name](*leaves, **options)
        out.sin().sum().backward()
        return [out.detach(), *(torch.zeros(x.shape) if x.grad is None else x.grad for x in leaves)]

    if (name == "state" and not any(wanted[1:])) or (name == "lse" and not any(wanted[:2])):
        return  # the state has seen no queries, and logs of sums no values
    for got, other in zip(pulled(), pulled(backend="reference"), strict=True):
        np.testing.assert_allclose(to_numpy(got), to_numpy(other), rtol=1e-4, atol=1e-5)


def test_what_is_saved_is_known_to_autograd():
    q, k, v = (x.requires_grad_() for x in rows())
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        out, _ = ka.causal_linear_attention(q, k, v, PHI)
    assert len(packed) == 7  # inputs, the output and its normaliser, the peak of the state
    out.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        out.sum().backward()
    again = v * 1
    out, _ = ka.causal_linear_attention(q, k, again, PHI)
    again.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_states_have_peaks_without_gradients():
    q, k, v = (x.requires_grad_() for x in rows())
    out, after = ka.causal_linear_attention(q, k, v, PHI)
    assert [x.requires_grad for x in (out, *after[:3])] == [True, True, True, False]
    assert type(after) is ka.LinearState
    first = torch.autograd.grad(out.square().sum() + after.z.sum(), (q, k, v))
    slow, state = ka.causal_linear_attention(q, k, v, PHI, backend="reference")
    second = torch.autograd.grad(slow.square().sum() + state.z.sum(), (q, k, v))
    for got, other in zip(first, second, strict=True):
        torch.testing.assert_close(got, other, rtol=1e-4, atol=1e-5)


def test_calls_of_a_form_that_was_seen_are_those_of_the_function():
    """Its op alone runs then: other values, layouts and maps of the form, and what values or kinds decide."""
    q, k, v = rows()
    mask = torch.tensor([[True, False, True, True, False]] * 2)
    others = [x.mT.contiguous().mT * 2 for x in rows()]
    for given in ((q, k, v), others, (q, q, q)):
        host = [x.numpy() for x in given]
        for phi in (PHI, maps.make("positive-softmax"), maps.make("relu")):
            for options in ({}, {"key_mask": mask}, {"key_mask": ~mask}):
                named = {name: x.numpy() for name, x in options.items()}
                for _ in range(2):
                    out, state = ka.causal_linear_attention(*given, phi, **options)
                    wanted, after = ka.causal_linear_attention(*host, phi, **named)
                    for x, y in zip((out, *state), (wanted, *after), strict=True):
                        np.testing.assert_array_equal(to_numpy(x), y)
                    token, _ = ka.linear_attention_step(state, *(x[:, 0] for x in given), phi)
                    wanted, _ = ka.linear_attention_step(after, *(x[:, 0] for x in host), phi)
                    np.testing.assert_array_equal(to_numpy(token), wanted)
    for scale in (0.0, -0.0):
        out, _ = ka.gated_linear_attention(q, k, v, scale=scale)
        wanted, _ = ka.gated_linear_attention(*(x.numpy() for x in (q, k, v)), scale=scale)
        np.testing.assert_array_equal(torch.signbit(out), np.signbit(wanted))
    for scale in (0.5, 2.0):  # a number of an array
        out = ka.softmax_attention(q, k, v, scale=torch.tensor(scale))
        np.testing.assert_allclose(out, ka.softmax_attention(*(x.numpy() for x in (q, k, v)), scale=scale), rtol=1e-5)
    assert ka.softmax_attention(q, k, v, causal=True).shape == v.shape
    with pytest.raises(ParameterError, match="causal"):
        ka.softmax_attention(q, k, v, causal=1)
    ka.gated_linear_attention(q, k, v, g=GATE)
    with pytest.raises(ParameterError, match="at most 0"):
        ka.gated_linear_attention(q, k, v, g=-GATE)
    with pytest.raises(StateMismatchError):
        ka.linear_attention_step(state, q[:, 0], k[:, 0], v[:, 0], PHI)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_calls_with_options_and_states_need_no_checks_once_seen(dtype, monkeypatch):
    """The function itself does not run again; what it writes to an argument is in the argument that was given."""
    q, k, v = rows(dtype)
    token = [x[:, 0].contiguous() for x in (q, k, v)]
    state = ka.initial_state(PHI, (2,), v.shape[-1], like=v)

    def calls():
        before = type(state)(*(x.clone() for x in state[:-1]), state.fingerprint)
        out, after = ka.linear_attention_step(before, *token, PHI, reuse_state=True)
        assert all(x is y for x, y in zip(before[:-1], after[:-1], strict=True))
        return out, *after[:-1], ka.softmax_attention(q, k, v, causal=True), ka.attend(after, q, PHI)

    first = calls()
    checked = []
    for module in ("_recurrent", "_softmax", "_states"):
        monkeypatch.setattr(f"kernattn.attention.{module}.autocast", lambda *x: checked.append(x) or x)
    for x, y in zip(first, calls(), strict=True):
        assert x.dtype is y.dtype
        assert torch.equal(x, y)
    assert not checked
    with pytest.raises(ParameterError, match="causal"):
        ka.softmax_attention(q, k, v, causal=1)
    assert ka.softmax_attention(q, k.clone().requires_grad_(), v, causal=True).requires_grad


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_with_gates_needs_no_checks_once_seen_but_of_its_logs(dtype, monkeypatch):
    q, k, v = (x[:, 0].contiguous() for x in rows(dtype))
    logs, pair = torch.full((2,), -0.1), (0.1 * q, k)
    all_options = {"g": logs, "beta": -logs}, {"gk": logs[:, None] * torch.ones(maps.DIM)}, {"g": logs, "erase": pair}

    def steps(states, q, times=1):
        for options, before in zip(all_options, states, strict=True):
            given = {name: x if name == "erase" else times * x for name, x in options.items()}
            out, after = ka.gated_linear_attention_step(before, q, k, v, **given, reuse_state=True)
            assert q.requires_grad or after.s is before.s
            yield out

    def begin():
        return [ka.attention.GatedState(torch.ones(2, maps.DIM, v.shape[-1])) for _ in all_options]

    seen = [*steps(begin(), q.clone().requires_grad_(), 0)] if dtype == "float32" else []
    assert all(x.requires_grad for x in seen)
    first = [*steps(begin(), q)]
    states, wanted = begin(), [*steps(begin(), q, 2)]
    with monkeypatch.context() as patch:
        patch.setattr("kernattn.attention._gated.autocast", None)
        for x, y in zip([*steps(begin(), q), *steps(states, q, 2)], first + wanted, strict=True):
            assert x.dtype is y.dtype
            assert torch.equal(x, y)
    kept = [state.s.clone() for state in states]
    for options, state, s in zip(all_options, states, kept, strict=True):
        for name in options.keys() - {"erase", "beta"}:
            with pytest.raises(ParameterError, match=f"{name} must be natural logarithms .*; got 0.1"):
                ka.gated_linear_attention_step(state, q, k, v, **{**options, name: -options[name]}, reuse_state=True)
        assert torch.equal(state.s, s)


@pytest.mark.parametrize("given", ["qkvs", "qskv", "qkvn", "qkv"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_state_that_is_not_first_is_told(given, library):
    x = rows()[0][:, 0]
    x = x if library == "torch" else x.numpy()
    for state, call, more in (
        (ka.attention.GatedState(x), ka.gated_linear_attention_step, ()),
        (ka.initial_state(PHI, (2,), maps.DIM, like=x), ka.linear_attention_step, (PHI,)),
    ):
        args = [{"s": state, "n": None}.get(name, x) for name in given]
        with pytest.raises(DTypeError, match=rf"{call.__name__}\(state, q, k, v.*takes the state first; got \("):
            call(*args, *more)
    with pytest.raises(DTypeError, match=r"attend\(state, q, phi\) takes the state first; got"):
        ka.attend(x, state, PHI)
    with pytest.raises(DTypeError, match="state must be a GatedState"):
        ka.gated_linear_attention_step(x, x, x, x)
    with pytest.raises(DTypeError, match="takes the state first"):
        ka.gated_linear_attention_step(x, x, x, state=state)


def test_a_step_beside_a_window_is_replayed_unless_its_numbers_are_extreme(monkeypatch):
    q, k, v = rows()
    token = [x[:, -1].contiguous() for x in (q, k, v)]
    _, state = ka.attention.window_attention(q, k, v, PHI, 3)
    host = type(state)(*(x.numpy() for x in state[:-1]), state.fingerprint)
    first, _ = ka.attention.window_attention_step(state, *token, PHI)
    with monkeypatch.context() as patch:
        patch.setattr("kernattn.attention._mechanisms.window.check_arrays", None)
        out, after = ka.attention.window_attention_step(state, *token, PHI)
    assert torch.equal(out, first)
    assert type(after) is type(state)
    large = [token[0] * 1e20, token[1] * 1e20, token[2]]  # scores beyond float32, which the loop leaves to others
    out, _ = ka.attention.window_attention_step(state, *large, PHI)
    wanted, _ = ka.attention.window_attention_step(host, *(x.numpy() for x in large), PHI)
    np.testing.assert_array_equal(to_numpy(out), wanted)
    leaf = token[0].clone().requires_grad_()
    assert ka.attention.window_attention_step(state, leaf, *token[1:], PHI)[0].requires_grad


class Rising(ka.features.FeatureMap):
    """A user's map that is not frozen."""

    dim, power = maps.DIM, 1.0
    spec = property(lambda self: MapSpec("exp", self.power * np.eye(maps.DIM)))

    def num_features_of(self, dim):
        return dim

    def scaled_query(self, x):
        raise NotImplementedError

    def redraw(self, rng=None):
        return self


@dataclass(frozen=True, eq=False)
class Frozen(Rising):
    """Frozen, as a map should be."""


class Thawed(Frozen):
    """Takes new attributes all the same: it is no dataclass itself."""


@pytest.mark.parametrize("kind", [Rising, Thawed])
def test_maps_that_change_are_asked_each_time(kind):
    q, k, v = rows()
    phi = kind()
    for power in (1.0, 2.0):
        phi.power = power
        out = ka.linear_attention(q, k, v, phi)
        np.testing.assert_array_equal(out, ka.linear_attention(*(x.numpy() for x in (q, k, v)), phi))


def test_maps_are_not_kept_by_what_is_known_of_them():
    """Nor does a new map, where memory puts it in the place of one that is gone, answer as that did."""
    q, k, v = rows()
    for seed in range(6):
        phi = ka.random_features(ka.kernels.Softmax(), maps.DIM, 8, rng=seed)
        out = ka.linear_attention(q, k, v, phi)
        np.testing.assert_array_equal(out, ka.linear_attention(*(x.numpy() for x in (q, k, v)), phi))
        gone = weakref.ref(phi)
        del phi
        assert gone() is None  # nothing holds it, no circle either
