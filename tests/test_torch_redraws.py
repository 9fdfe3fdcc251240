"""Modules of kernattn.torch that are drawn again: in training, beside copies, graphs, checkpoints and states."""

import copy

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import kernattn as ka
from kernattn.errors import ParameterError, StateMismatchError
from kernattn.torch import reversible
from module_cases import favor, heads


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


def test_an_interval_is_no_part_of_a_graph():
    module = favor(redraw_interval=2).train()
    x = heads()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="redraw_interval counts calls"):
        torch.compile(module, fullgraph=True, backend="aot_eager")(*x)
