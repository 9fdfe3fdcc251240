"""Modules of kernattn.torch: what they compute, what they keep, and that they train."""

import copy
import io
import runpy

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

import kernattn as ka
from kernattn.errors import DTypeError, ParameterError, ShapeError, StateMismatchError
from kernattn.torch import FavorAttention, LinearAttention, reversible
from quality.tree import ROOT

B, H, N, D, E = 2, 4, 11, 8, 5


def heads(kv_heads=H, n=N, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, H, n, D), (B, kv_heads, n, D), (B, kv_heads, n, E)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def favor(**changes):
    settings = {"kernel": ka.kernels.Softmax(), "dim": D, "num_features": 16, "causal": True}
    return FavorAttention(**settings | changes).double()


def made(kind, **changes):
    return favor(**changes) if kind == "favor" else LinearAttention(**{"causal": True} | changes)


KINDS = pytest.mark.parametrize("kind", ["linear", "favor"])


def oracle(module, q, k, v, mask=None):
    """Attention as written, with the module's own features."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    weights = module.phi(q, backend="reference") @ module.phi(k, backend="reference").mT
    if module.causal:
        weights = weights.tril()
    if mask is not None:
        weights = weights * mask[:, None, None]
    z = weights.sum(-1, keepdim=True)
    return torch.where(z == 0, 0, weights @ v / torch.where(z == 0, 1, z))


@KINDS
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_of_heads_is_that_as_written(kind, causal, kv_heads):
    module = made(kind, causal=causal)
    q, k, v = heads(kv_heads)
    mask = torch.ones((B, N), dtype=torch.bool)
    mask[0, :3] = mask[1, 5:8] = False
    for given in (None, mask):
        out = module(q, k, v, key_mask=given)
        assert out.shape == (B, H, N, E)
        torch.testing.assert_close(out, oracle(module, q, k, v, given), rtol=1e-9, atol=1e-12)


@KINDS
@pytest.mark.parametrize("kv_heads", [2, 4])
def test_decoding_is_the_whole_in_parts(kind, kv_heads):
    module = made(kind)
    q, k, v = heads(kv_heads)
    mask = torch.ones((B, N), dtype=torch.bool)
    mask[1, [1, 6]] = False
    whole, state, parts = module(q, k, v, key_mask=mask), None, []
    for part in (slice(0, 5), slice(5, 6), slice(6, 7), slice(7, N)):
        out, state = module.decode(q[:, :, part], k[:, :, part], v[:, :, part], state, key_mask=mask[:, part])
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=2), whole, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("estimator", ["positive", "hyperbolic", "trigonometric", "phase", "optimal_positive"])
def test_a_module_is_the_map_that_it_names(estimator):
    module = favor(estimator=estimator, seed=7)
    design = ka.random_features(ka.kernels.Softmax(), D, 16, estimator, rng=0)
    phi = design.redraw(np.random.default_rng([7, 0]))
    q, k, v = heads()
    expected, _ = ka.causal_linear_attention(q, k, v, phi)
    torch.testing.assert_close(module(q, k, v), expected, rtol=2e-3, atol=2e-4)  # its omega is float32


@pytest.mark.parametrize("learnable", [False, True])
def test_a_loaded_module_gives_what_the_saved_one_gave(learnable):
    x, module = heads(), favor(seed=1, learnable=learnable)
    module.redraw()
    expected = module(*x)
    stream = io.BytesIO()
    torch.save(module.state_dict(), stream)
    stream.seek(0)
    other = favor(seed=2, learnable=learnable)
    assert not torch.equal(other(*x), expected)
    other.load_state_dict(torch.load(stream, weights_only=True))
    assert torch.equal(other(*x), expected)
    first, second = (each.decode(*x)[1] for each in (module, other))
    assert first.fingerprint == second.fingerprint
    for each in (module, other):
        each.redraw()
    assert torch.equal(other(*x), module(*x))
    assert all(isinstance(part, torch.Tensor) for part in module.state_dict().values())


@pytest.mark.parametrize("estimator", ["positive", "phase"])
@pytest.mark.parametrize("learnable", [False, True])
def test_a_module_without_memory_is_given_its_draw(learnable, estimator):
    """huggingface/transformers#45902: after `to_empty` a buffer that is computed held what memory had held."""
    given = {"estimator": estimator, "learnable": learnable, "seed": 3}
    with torch.device("meta"):
        module = favor(**given)
    module = module.to_empty(device="cpu")
    module.omega.data.fill_(7)
    module.reset_parameters()
    x, wanted = heads(), favor(**given)
    torch.testing.assert_close(module(*x), wanted(*x), rtol=1e-4, atol=1e-5)  # whose draw was rounded to float32
    for each in (module, wanted):
        each.redraw()
    assert torch.equal(module(*x), wanted(*x))


def test_what_is_drawn_without_gradients_is_for_training_too():
    """pytorch/pytorch#135892: what was made in inference mode was kept, and training met it."""
    module, x = favor(redraw_interval=2).train(), heads()
    with torch.inference_mode():
        module.redraw()
        module(*x)
    x[0].requires_grad_()
    module(*x).sum().backward()
    assert torch.isfinite(x[0].grad).all()


def test_copies_go_their_own_way():
    x, module = heads(), favor()
    other = copy.deepcopy(module)
    assert torch.equal(other(*x), module(*x))
    other.redraw()
    assert not torch.equal(other(*x), module(*x))
    assert torch.equal(favor()(*x), module(*x))


def test_redraws_come_every_so_often_in_training_alone():
    x, module = heads(), favor(redraw_interval=3, seed=4)
    module.eval()
    evaluated = [module(*x) for _ in range(5)]
    module.train()
    trained = [module(*x) for _ in range(7)]
    assert all(torch.equal(each, evaluated[0]) for each in [*evaluated, *trained[:3]])
    assert torch.equal(trained[3], trained[5])
    assert not torch.equal(trained[3], trained[2])
    assert not torch.equal(trained[6], trained[5])
    again = favor(seed=4)
    again.redraw()
    assert torch.equal(again(*x), trained[3])


@pytest.mark.parametrize("kept", ["checkpoint", "reversible"])
def test_calls_computed_again_have_the_numbers_of_before(kept):
    """And are not counted: three steps with a redraw before each give the gradients of plain calls."""
    x = heads()
    found = []
    for way in ("plain", kept):
        module = favor(redraw_interval=1, seed=4).train()
        attention = Alone(module, x)
        run = {
            "plain": lambda q, f=attention: q + f(q),
            "checkpoint": lambda q, f=attention: q + torch.utils.checkpoint.checkpoint(f, q, use_reentrant=False),
            "reversible": lambda q, f=attention: reversible(f, torch.nn.Identity())(q, q)[0],
        }[way]
        for _ in range(3):
            q = x[0].detach().clone().requires_grad_()
            found.append(torch.autograd.grad(run(q).sin().sum(), q)[0])
    for plain, again in zip(found[:3], found[3:], strict=True):
        torch.testing.assert_close(again, plain)
    assert not torch.equal(found[0], found[1])


class Alone(torch.nn.Module):
    def __init__(self, module, x):
        super().__init__()
        self.module, self.k = module, x[1].detach()

    def forward(self, q):
        return self.module(q, self.k, self.k)


def test_a_redraw_between_a_call_and_its_way_back_is_refused():
    x, module = heads(), favor(redraw_interval=1).train()
    layers = reversible(Alone(module, x), torch.nn.Identity())
    y = layers(x[0].requires_grad_(), x[0])[0]
    module.redraw()
    with pytest.raises(ParameterError, match="buffers of f and g must be those of the forward pass"):
        y.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_redraw_between_a_checkpoint_and_its_way_back(reentrant):
    """Two layers share a module that is redrawn in between; a step has the gradient of plain calls, or is refused."""
    x = heads()

    def step(call):
        attention = Alone(favor(redraw_interval=1, seed=4).train(), x)
        q = x[0].detach().clone().requires_grad_()
        y = call(attention, q)
        (y + call(attention, y.sin())).sum().backward()
        return q.grad

    def kept(f, q, preserve=True):
        return q + torch.utils.checkpoint.checkpoint(f, q, use_reentrant=reentrant, preserve_rng_state=preserve)

    torch.testing.assert_close(step(kept), step(lambda f, q: q + f(q)))
    with pytest.raises(ParameterError, match="preserve_rng_state=True"):
        step(lambda f, q: kept(f, q, preserve=False))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_that_begin_at_one_seed(reentrant):
    """Their random numbers are the same, their draws are not: queries tell them apart, and equal ones are refused."""

    def steps(call, same=False):
        attention, outs, queries = Alone(favor(redraw_interval=1, seed=4).train(), heads()), [], []
        for seed in range(3):
            queries.append(heads(seed=0 if same else seed)[0].detach().clone().requires_grad_())
            torch.manual_seed(0)
            outs.append(call(attention, queries[-1]))
        for out in outs:
            out.sin().sum().backward()
        return [q.grad for q in queries]

    def kept(f, q):
        return torch.utils.checkpoint.checkpoint(f, q, use_reentrant=reentrant)

    torch.testing.assert_close(steps(kept), steps(lambda f, q: f(q)))
    with pytest.raises(ParameterError, match="which it was is not known"):
        steps(kept, same=True)


def test_one_graph_serves_all_draws():
    x, module = heads(), favor()
    counter = CompileCounter()
    compiled = torch.compile(module, backend=counter, fullgraph=True)
    for _ in range(3):
        q, k, v = x
        wanted, _ = ka.causal_linear_attention(q, k, v, module.phi)
        torch.testing.assert_close(compiled(*x), wanted)
        module.redraw()
    assert counter.frame_count == 1


def test_an_interval_that_is_passed_is_due():
    x, module = heads(), favor(redraw_interval=3, seed=4).train()
    module.set_extra_state(torch.tensor([4, 0, 7]))
    module(*x)
    assert module.get_extra_state().tolist() == [4, 1, 1]


def test_a_state_of_before_a_step_of_training_is_refused():
    x, module = [each.detach() for each in heads()], favor(learnable=True, causal=True)
    state = module.decode(*x)[1]
    state = module.decode(*x, state)[1]
    module(*x).sum().backward()
    torch.optim.SGD(module.parameters(), 0.1).step()
    with pytest.raises(StateMismatchError, match="learnt on"):
        module.decode(*x, state)


def test_a_graph_of_before_a_redraw_has_its_own_numbers():
    x, module = heads(), favor(redraw_interval=1).train()
    q = x[0].requires_grad_()
    total = sum(module(q, *x[1:]).sum() for _ in range(2))
    total.backward()
    alone = torch.zeros_like(q)
    fresh = favor()
    for _ in range(2):
        alone += torch.autograd.grad(fresh(q, *x[1:]).sum(), q)[0]
        fresh.redraw()
    torch.testing.assert_close(q.grad, alone)


def test_a_state_of_another_draw_is_refused():
    x, module = heads(n=1), favor()
    _, state = module.decode(*x)
    module.redraw()
    with pytest.raises(StateMismatchError, match="one draw"):
        module.decode(*x, state)


def test_what_is_learnt_has_gradients():
    x = heads()
    fixed, learnt = favor(), favor(learnable=True)
    assert list(fixed.parameters()) == []
    assert [name for name, _ in learnt.named_parameters()] == ["omega"]
    torch.testing.assert_close(fixed(*x), learnt(*x), rtol=0, atol=0)
    g = torch.randn(B, H, N, E, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    (learnt(*x) * g).sum().backward()
    step = 1e-6 * torch.randn(learnt.omega.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    with torch.no_grad():
        learnt.omega += step
        up = (learnt(*x) * g).sum()
        learnt.omega -= 2 * step
        down = (learnt(*x) * g).sum()
    torch.testing.assert_close((learnt.omega.grad * step).sum(), (up - down) / 2, rtol=1e-5, atol=1e-12)


@KINDS
def test_dtypes(kind):
    exact = made(kind)(*heads())
    for dtype, digits in ((torch.float32, 1e-4), (torch.bfloat16, 5e-2)):
        module = made(kind).to(dtype)
        out = module(*heads(dtype=dtype))
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), exact, rtol=digits, atol=2 * digits)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = made(kind).float()(*heads(dtype=torch.float32))
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), exact, rtol=5e-2, atol=1e-1)


def test_an_interval_is_no_part_of_a_graph():
    module = favor(redraw_interval=2).train()
    x = heads()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="redraw_interval counts calls"):
        torch.compile(module, fullgraph=True, backend="aot_eager")(*x)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"kernel": "softmax"}, DTypeError, "kernel"),
        ({"dim": 0}, ParameterError, "dim must be a positive integer"),
        ({"num_features": 0}, ParameterError, "num_features must be a positive integer"),
        ({"projection": "hadamard"}, ParameterError, "frequencies that are a matrix"),
        ({"estimator": "favor_sharp"}, ParameterError, "data"),
        ({"causal": 1}, ParameterError, "causal must be True or False; got 1"),
        ({"learnable": 1}, ParameterError, "learnable must be True or False; got 1"),
        ({"redraw_interval": 0}, ParameterError, "redraw_interval must be a positive integer"),
        ({"redraw_interval": 2, "learnable": True}, ParameterError, "redraw_interval must be None for learnable"),
        ({"seed": -1}, ParameterError, "seed must be a non-negative integer"),
    ],
)
def test_arguments_are_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        favor(**arguments)


@pytest.mark.parametrize(
    "state", [torch.zeros(2, dtype=torch.int64), torch.zeros(3), torch.tensor([0, -1, 0]), [0, 0, 0]]
)
def test_what_was_saved_is_checked(state):
    module = favor()
    saved = module.state_dict() | {"_extra_state": state}
    with pytest.raises(ParameterError, match="_extra_state must hold a seed, redraws and calls"):
        module.load_state_dict(saved)


def test_tensors_are_checked():
    module, (q, k, v) = LinearAttention(), heads()
    with pytest.raises(DTypeError, match=r"phi must be a FeatureMap, such as .*elu1\(\)"):
        LinearAttention("elu1")
    for name, told in (("rng", "seed here"), ("nb_features", "num_features here"), ("is_causal", "causal here")):
        with pytest.raises(TypeError, match=rf"FavorAttention\(\) got .* {name!r}: that is {told}"):
            FavorAttention(**{name: 1})
    with pytest.raises(ShapeError, match=r"q must be \(batch, heads, n, d\)"):
        module(q[0], k, v)
    with pytest.raises(ShapeError, match=r"key_mask must be \(batch, l\)"):
        module(q, k, v, key_mask=torch.ones((B, H, N), dtype=torch.bool))
    with pytest.raises(ShapeError, match="got 4 for q, 3 for k and 3 for v"):
        module(q, k[:, :3], v[:, :3])
    with pytest.raises(ParameterError, match="causal=False"):
        module.decode(q, k, v)


def test_a_module_says_what_it_is():
    text = repr(favor())
    assert "Softmax" in text
    assert "causal=True" in text
    assert "tensor" not in text
    assert repr(LinearAttention()).startswith("LinearAttention(")


@pytest.fixture(scope="module")
def recall():
    return runpy.run_path(str(ROOT / "examples" / "plot_recall.py"))["losses"]


def last(found):
    return float(np.mean(found[-20:]))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_what_is_learnt_recalls_better(recall, seed):
    uniform, fixed, learnt = (
        last(recall(name, seed, 150)) for name in ("uniform", "fixed features", "learnt features")
    )
    assert fixed < uniform - 0.1
    assert learnt < fixed - 0.3


@KINDS
def test_compiled_modules(kind):
    module = made(kind, **({"learnable": True} if kind == "favor" else {}))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = [each.requires_grad_() for each in heads(2)]
    torch.testing.assert_close(compiled(*x), module(*x))
    leaves = [*x, *module.parameters()]
    found, expected = (torch.autograd.grad(run(*x).square().sum(), leaves) for run in (compiled, module))
    for ours, own in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, own)
    if kind == "favor":
        module.redraw()
        torch.testing.assert_close(compiled(*x), module(*x))


def test_compiled_training_in_bfloat16_recalls(recall):
    compiled = {"fullgraph": True, "backend": "aot_eager"}
    uniform = last(recall("uniform", 0, 60))
    assert last(recall("learnt features", 0, 60, compiled, low=True)) < uniform - 0.3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # of inductor itself
def test_training_by_the_usual_compiler(recall):
    uniform = last(recall("uniform", 0, 150))
    assert last(recall("learnt features", 0, 150, {"fullgraph": True}, low=True)) < uniform - 0.6
