"""Reversible layers: the gradients of plain ones, in memory that does not grow with their number."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numba")

from kernattn import errors  # noqa: E402
from kernattn.torch import LinearAttention, Reversible, reversible  # noqa: E402
from kernattn.transformer import reversible as plain  # noqa: E402


class Attention(torch.nn.Module):
    """Attention of two heads of four."""

    def __init__(self):
        super().__init__()
        self.of_all, self.attend = torch.nn.Linear(8, 24), LinearAttention(causal=True)

    def forward(self, x):
        q, k, v = (
            self.of_all(torch.nn.functional.dropout(x, 0.2, self.training))
            .reshape(*x.shape[:-1], 3, 2, 4)
            .movedim(-3, 0)
            .transpose(-2, -3)
        )
        return self.attend(q, k, v).transpose(-2, -3).flatten(-2)


def fed():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.3), torch.nn.Linear(16, 8))


def layers(count):
    torch.manual_seed(0)
    return reversible([Attention() for _ in range(count)], [fed() for _ in range(count)]).double()


def inputs():
    return [torch.randn(2, 5, 8, dtype=torch.float64).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("training", [True, False])
def test_gradients_are_those_of_plain_layers(training):
    module = layers(3).train(training)
    x = inputs()
    torch.manual_seed(1)
    out = module(*x)
    found = torch.autograd.grad((out[0] * out[1]).sum(), (*x, *module.parameters()))
    torch.manual_seed(1)
    y = x
    for f, g in zip(module.f, module.g, strict=True):
        y = plain(f, g, *y)
    wanted = torch.autograd.grad((y[0] * y[1]).sum(), (*x, *module.parameters()))
    torch.testing.assert_close(out, tuple(y))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def test_a_backward_pass_leaves_the_draws_where_they_were():
    module, x = layers(2).train(), inputs()
    out = module(*x)
    before = torch.get_rng_state()
    (out[0] + out[1]).sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_kept_besides_parameters_does_not_grow_with_the_layers():
    kept = []
    for count in (1, 6):
        module, sizes = layers(count).eval(), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.nbytes) or t, lambda t: t):
            module(*inputs())
        kept.append(sum(sizes) - sum(parameter.nbytes for parameter in module.parameters()))
    assert kept[0] == kept[1] == 2 * 2 * 5 * 8 * 8


def test_shared_and_frozen_modules():
    f, g = torch.nn.Linear(8, 8).double(), torch.nn.Linear(8, 8).double()
    g.weight.requires_grad_(False)
    module, x = reversible([f, f], [g, g]), inputs()
    out = module(*x)
    out[0].sum().backward()
    y = x
    for _ in range(2):
        y = plain(f, g, *y)
    wanted = torch.autograd.grad(y[0].sum(), f.weight)[0]
    torch.testing.assert_close(f.weight.grad, wanted)
    assert g.weight.grad is None
    assert g.bias.grad is not None
    assert len(list(copy.deepcopy(module).parameters())) == 4


def test_autocast_casts_on_the_way_back_too():
    module = reversible([fed() for _ in range(3)], [fed() for _ in range(3)]).eval()
    x = [each.detach().float().requires_grad_() for each in inputs()]
    found = []
    for run in (module, lambda *x: plain_layers(module, *x)):
        with torch.autocast("cpu", torch.bfloat16):
            y1, y2 = run(*x)
        found.append(torch.autograd.grad((y1 * y2).sum(), (*x, *module.parameters())))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5 * float(b.abs().max()) + 1e-7)


def plain_layers(module, *x):
    for f, g in zip(module.f, module.g, strict=True):
        x = plain(f, g, *x)
    return x


def test_parameters_that_were_changed_in_place_are_refused():
    module = layers(2)
    out = module(*inputs())
    with torch.no_grad():
        next(module.parameters()).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out[0].sum().backward()


def test_what_is_refused():
    linear = torch.nn.Linear(2, 2)
    with pytest.raises(errors.DTypeError, match="x2 must be a dense tensor"):
        reversible(linear, linear)(torch.zeros(3, 2), [1.0, 2.0])
    with pytest.raises(errors.DTypeError, match="modules of PyTorch"):
        Reversible([torch.sin], [linear])
    with pytest.raises(errors.ParameterError, match="as many"):
        reversible([linear, linear], linear)
    with pytest.raises(errors.ParameterError, match="one at least"):
        reversible([], [])
