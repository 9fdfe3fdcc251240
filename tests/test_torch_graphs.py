"""kernattn.torch in graphs of `torch.compile`: whole ones, their states, numbers and refusals."""

import pytest

import kernattn as ka
import maps
from tensors import inputs

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")

D = maps.DIM


def of_all(q, k, v, phi):
    out, state = ka.causal_linear_attention(q, k, v, phi, key_mask=torch.arange(k.shape[-2]) != 1)
    exact = ka.softmax_attention(q, k, v, causal=True)
    return out.sin() + ka.attend(state, q, phi) + exact + ka.linear_attention(q, k, v, phi), phi(q)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # of inductor itself
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_graphs_are_whole(backend):
    """Plain functions of the core; another draw is another graph, and another length is not."""
    torch.compiler.reset()
    compiled = torch.compile(of_all, backend=backend, fullgraph=True)
    for n in (5, 6, 7):
        for name in ("positive-softmax", "elu1"):
            given, phi = inputs(2, n=n), maps.make(name)
            got, wanted = compiled(*given, phi), of_all(*given, phi)
            for x, y in zip(got, wanted, strict=True):
                torch.testing.assert_close(x, y)
            grads = (torch.autograd.grad(sum(x.sum() for x in each), given) for each in (got, wanted))
            for x, y in zip(*grads, strict=True):
                torch.testing.assert_close(x, y)


@pytest.mark.parametrize("name", ["softmax_attention", "causal_linear_attention", "gated_linear_attention"])
def test_a_function_that_is_compiled_itself(name):
    torch.compiler.reset()
    run, given, options = getattr(ka, name), inputs(2, n=5), {}
    if name == "causal_linear_attention":
        options["phi"] = maps.make("elu1")
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    got, wanted = (each(*given, **options) for each in (compiled, run))
    if name != "softmax_attention":
        got, wanted = got[0], wanted[0]
    torch.testing.assert_close(got, wanted)
    for x, y in zip(*(torch.autograd.grad(each.sum(), given) for each in (got, wanted)), strict=True):
        torch.testing.assert_close(x, y)


def test_steps_in_a_graph_write_to_their_state():
    phi, (q, k, v) = maps.make("positive-softmax"), inputs(2, grad=False)

    def steps(state):
        for at in range(2):
            out, state = ka.linear_attention_step(state, q[:, at], k[:, at], v[:, at], phi, reuse_state=True)
        return out, state

    states = [ka.initial_state(phi, (2,), 3, q) for _ in range(2)]
    compiled = torch.compile(steps, backend="aot_eager", fullgraph=True)
    for x, y in zip(compiled(states[0])[:1], steps(states[1])[:1], strict=True):
        torch.testing.assert_close(x, y)
    for x, y in zip(states[0][:3], states[1][:3], strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("name", ["positive-softmax", pytest.param("elu1", marks=pytest.mark.slow)])
def test_states_of_a_graph(name):
    """They begin, are merged and tell their normalisers in it, for a map with a draw and one without."""
    phi, given = maps.make(name), inputs(2)

    def read(q, k, v):
        state = ka.initial_state(phi, k.shape[:-2], v.shape[-1], k)
        out, log, after = ka.attention.causal_with_lse(q, k, v, phi, state=state)
        late, more = ka.attention.attend_with_lse(ka.merge_states(after, state), q, phi)
        empty = ka.attention.initial_window_state(phi, 2, k.shape[:-2], v.shape[-1], k)
        return out, log.log, log.sign, late, more.log, *empty[:-1]

    torch.compiler.reset()
    got, wanted = torch.compile(read, backend="eager", fullgraph=True)(*given), read(*given)
    grads = [torch.autograd.grad(sum(x.sin().sum() for x in each[:5]), given) for each in (got, wanted)]
    for x, y in zip((*got, *grads[0]), (*wanted, *grads[1]), strict=True):
        torch.testing.assert_close(x, y)


def test_what_makes_no_state_is_refused_in_a_graph():
    phi, x = maps.make("positive-softmax"), torch.ones(2, 3, D)
    state = ka.key_state(x, x, phi)
    for says, call in (
        ("must be a tuple", lambda: ka.initial_state(phi, 3, 3, x)),
        ("must be positive", lambda: ka.initial_state(phi, (0,), 3, x)),
        ("at least 0", lambda: ka.attention.initial_window_state(phi, -1, (2,), 3, x)),
        ("one draw", lambda: ka.merge_states(state, ka.initial_state(phi.redraw(1), (2,), D, x))),
        ("one shape", lambda: ka.merge_states(state, ka.initial_state(phi, (1,), D, x))),
        ("a LinearState", lambda: ka.merge_states(state, x)),
        ("comes a GatedStretch", lambda: ka.merge_states(ka.attention.GatedState(x), state)),
    ):
        with pytest.raises(torch._dynamo.exc.Unsupported, match=says):
            torch.compile(call, backend="eager", fullgraph=True)()


def test_a_step_in_a_graph_learns_numbers():
    """Though nothing but the numbers requires a gradient."""
    phi, (q, k, v) = maps.make("positive-softmax"), inputs(2, grad=False)
    state, omega = ka.key_state(k, v, phi), torch.tensor(phi.spec.omega, requires_grad=True)

    def step(omega):
        return ka.linear_attention_step(state, q[:, 0], k[:, 0], v[:, 0], ka.with_numbers(phi, omega=omega))[0]

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    got, wanted = (torch.autograd.grad(each(omega).sin().sum(), omega)[0] for each in (compiled, step))
    torch.testing.assert_close(got, wanted)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call:UserWarning")
def test_a_state_of_another_draw_is_refused_in_a_graph():
    """Where the graph may break, by the core itself."""
    phi, (q, k, v) = maps.make("positive-softmax"), inputs(2, grad=False)
    other, state = phi.redraw(1), ka.key_state(k, v, phi)
    calls = {
        "attend": lambda state: ka.attend(state, q, other),
        "causal": lambda state: ka.causal_linear_attention(q, k, v, other, state=state)[0],
        "step": lambda state: ka.linear_attention_step(state, q[:, 0], k[:, 0], v[:, 0], other)[0],
    }
    for call in calls.values():
        with pytest.raises(torch._dynamo.exc.Unsupported, match="made by another map than phi"):
            torch.compile(call, backend="eager", fullgraph=True)(state)
    with pytest.raises(ka.errors.StateMismatchError, match=f"made by the map of fingerprint {phi.fingerprint}"):
        torch.compile(calls["attend"], backend="eager")(state)
    torch.compiler.reset()
    compiled = torch.compile(lambda state, phi: ka.attend(state, q, phi), backend="eager", fullgraph=True)
    for each in (phi, other):
        state = ka.key_state(k, v, each)
        torch.testing.assert_close(compiled(state, each), ka.attend(state, q, each))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="made by another map than phi"):
        compiled(state, phi)


def test_learnt_numbers_and_array_operations_in_a_graph():
    phi, polynomial = maps.make("positive-softmax"), maps.make("polynomial")
    omega = torch.tensor(phi.spec.omega, requires_grad=True)
    q, k, v = inputs()

    def outputs(omega):
        learnt = ka.with_numbers(phi, omega=omega)
        rest = (
            ka.causal_linear_attention(q, k, v, phi, backend="reference")[0],
            ka.linear_attention(q, k, v, polynomial),
        )
        return ka.linear_attention(q, k, v, learnt), *rest

    got, wanted = torch.compile(outputs, backend="aot_eager", fullgraph=True)(omega), outputs(omega)
    for x, y in zip(got, wanted, strict=True):
        torch.testing.assert_close(x, y)
    grads = [torch.autograd.grad(sum(x.sin().sum() for x in each), (omega, q)) for each in (got, wanted)]
    for x, y in zip(*grads, strict=True):
        torch.testing.assert_close(x, y)


def test_numbers_of_another_shape_are_refused_in_a_graph():
    phi, (q, k, v) = maps.make("positive-softmax"), inputs(grad=False)
    omega = torch.tensor(phi.spec.omega)

    def run(omega, **more):
        return ka.linear_attention(q, k, v, ka.with_numbers(phi, omega=omega, **more))

    compiled = torch.compile(run, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(omega), run(omega))
    for call in (lambda: compiled(omega[:2]), lambda: compiled(omega, lengthscale=omega[0])):
        torch.compiler.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match="must have one of the shapes"):
            call()


def test_opcheck():
    from kernattn.torch._specs import keep_map

    phi, (q, k, v) = maps.make("positive-softmax"), inputs(2)
    keep_map(phi)
    name, ops = phi.spec.content, torch.ops.kernattn
    none, state = (None, None, None), [x.detach() for x in ka.key_state(k, v, phi)[:3]]
    token = [x[:, 0].detach() for x in (q, k, v)]
    for op, given in (
        (ops.features, (q, *none, name, None)),
        (ops.key_state, (k, v, *none, None, name, None)),
        (ops.attend, (*state, q, *none, name, None)),
        (ops.linear_attention, (k, v, *none, None, q, *none, name, name, None)),
        (ops.causal, (q, k, v, *none, *none, *state, torch.arange(5) > 1, None, name, name, None)),
        (ops.block_softmax, (q, k, v, *none, 0.5, "causal", None)),
        (ops.step, (*state, *token, *none, *none, None, name, name, None)),
        (ops.step_, (*state, *token, *none, *none, None, name, name, None)),
    ):
        torch.library.opcheck(op.default, given, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("shape", [pytest.param((), marks=pytest.mark.slow), (D,)])
def test_a_lengthscale_over_chains_in_a_graph(shape):
    phi, lengthscale = (
        ka.random_features(ka.kernels.Gaussian(1.5), D, 16, "positive", "hadamard", rng=1),
        torch.full(shape, 0.7, dtype=torch.float64, requires_grad=True),
    )

    def outputs(q, k, v, lengthscale):
        learnt = ka.with_numbers(phi, lengthscale=lengthscale)
        return ka.causal_linear_attention(q, k, v, learnt)[0], ka.linear_attention(q, k, v, learnt), learnt(q)

    compiled = torch.compile(outputs, backend="aot_eager", fullgraph=True)
    for n in (5, 7):
        given = [*inputs(n=n), lengthscale]
        got, wanted = compiled(*given), outputs(*given)
        grads = [torch.autograd.grad(sum(x.sin().sum() for x in each), given) for each in (got, wanted)]
        for x, y in zip((*got, *grads[0]), (*wanted, *grads[1]), strict=True):
            torch.testing.assert_close(x, y)


def test_numbers_that_change():
    """Which the compiler makes symbols; array operations, names and plans ask what they are."""
    torch.compiler.reset()
    phi, (q, k, v) = maps.make("positive-softmax"), inputs(2, n=6, grad=False)
    weights = torch.arange(1.0, 5.0, dtype=q.dtype)[:, None, None]

    def run(size, bias):
        each = {"weights_k": weights[:size].expand(size, D, D), "weights_v": weights[:size].expand(size, 3, 3)}
        return (
            ka.attention.window_attention(q, k, v, phi, size, near_bias=bias)[0]
            + ka.attention.nystrom_attention(q, k, v, num_landmarks=size)
            + ka.attention.compressed_attention(q, k, v, factor=size, **each)
            + ka.gated_linear_attention(q, k, v, **ka.gates.lightning(2, 1, size, like=q))[0]
        )

    compiled = torch.compile(run, backend="eager", fullgraph=True, dynamic=True)
    for size, bias in ((2, 0.1), (3, -0.5)):
        torch.testing.assert_close(compiled(size, bias), run(size, bias))


def test_what_is_refused_below_a_graph_says_why():
    phi, (q, k, v) = maps.make("positive-softmax"), inputs(2, grad=False)
    for says, call in (
        ("must have one dtype", lambda: ka.attention.window_attention(q, k, v.float(), phi, 2)),
        ("num_heads must be a positive integer", lambda: ka.gates.retention(0, like=q)),
        ("unexpected keyword", lambda: ka.attention.nystrom_attention(q, k, v, num_landmark=2)),
    ):
        with pytest.raises(torch._dynamo.exc.Unsupported, match=says):
            torch.compile(call, backend="eager", fullgraph=True)()


def test_an_export_of_the_reference_holds_all_its_numbers():
    """So it runs where the map was never made, and other exporters know its operations."""
    phi, given = maps.make("positive-softmax"), tuple(inputs(2, grad=False))

    class Layer(torch.nn.Module):
        def forward(self, q, k, v):
            return ka.linear_attention(q, k, v, phi, backend="reference")

    exported = torch.export.export(Layer(), given)
    assert not any("kernattn" in str(node.target) for node in exported.graph.nodes)
    torch.testing.assert_close(exported.module()(*given), ka.linear_attention(*given, phi))


def test_a_graph_of_another_process_says_what_to_do():
    from kernattn.torch import _plans, _specs

    with pytest.raises(ka.errors.ParameterError, match=r"not known in this process.*backend='reference'"):
        _specs.spec_of("another")
    with pytest.raises(ka.errors.ParameterError, match=r"not known in this process.*backend='reference'"):
        _plans.plan_of("another")


@pytest.mark.parametrize("name", ["linear", "exact", "gated"])
def test_derivatives_of_torch_func_within_a_graph(name):
    """By array operations."""
    torch.compiler.reset()
    phi, (q, k, v) = maps.make("positive-softmax"), inputs(2, grad=False)
    losses = {
        "linear": lambda q: ka.causal_linear_attention(q, k, v, phi)[0].sin().sum(),
        "exact": lambda q: ka.softmax_attention(q, k, v, causal=True).sin().sum(),
        "gated": lambda q: ka.gated_linear_attention(q, k, v)[0].sin().sum(),
    }
    slope = torch.func.grad(losses[name])
    torch.testing.assert_close(torch.compile(slope, backend="eager", fullgraph=True)(q), slope(q))
    slopes, each = torch.vmap(slope), torch.stack([q, -q])
    torch.testing.assert_close(torch.compile(slopes, backend="eager", fullgraph=True)(each), slopes(each))
