"""Attention of a module of PyTorch, fitted, swapped, decoded, put back and loaded."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import kernattn as ka  # noqa: E402
from kernattn.errors import ParameterError, StateMismatchError  # noqa: E402
from kernattn.features._fitted import learn  # noqa: E402
from kernattn.torch import HeadAttention, LinearAttention, SoftmaxAttention, load_transfer, transfer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:a fit was no better")  # few steps and few rows


class Model(nn.Module):
    """Two layers of attention whose inputs are heads."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weights = nn.ParameterList(1.5 * torch.randn(4, 4) for _ in range(2))
        self.layers = nn.ModuleList(SoftmaxAttention(causal=True, scale=scale) for scale in (None, 0.4))

    def forward(self, x, key_mask=None):
        for weight, layer in zip(self.weights, self.layers, strict=True):
            x = x + layer(x @ weight, x, x, key_mask=key_mask)
        return x


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    monkeypatch.setattr(learn, "STEPS", 100)


def rows():
    return torch.randn(4, 2, 20, 4, generator=torch.Generator().manual_seed(1))


def test_a_module_of_two_places_is_replaced_in_both_and_put_back(tmp_path):
    phi = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0)
    ka.transfer.Transfer((ka.transfer.Layer("layers.1", ka.transfer.Heads(phi), (0.1,), (0.2,), 1, 1),)).save(tmp_path)
    model = Model()
    own = model.last = model.layers[1]
    with load_transfer(model, tmp_path):
        assert type(model.last) is HeadAttention
        assert model.last is model.layers[1]
    assert model.last is model.layers[1] is own


def test_a_module_is_swapped_decoded_and_put_back(tmp_path):
    model, x = Model().train(), rows()
    own = model(x).detach()
    exact = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.4)
    torch.testing.assert_close(model.layers[1](x, x, x), exact, rtol=1e-5, atol=1e-5)
    swap = transfer(model, [(x,), {"x": x}], 8, window=3, sequences=8, rng=0)
    assert [type(layer) for layer in model.layers] == [HeadAttention] * 2
    assert [layer.name for layer in swap.transfer.layers] == ["layers.0", "layers.1"]
    assert model.layers[0].training
    ours = model(x)
    assert 0 < float((ours.detach() - own).norm()) < 0.7 * float((own - x).norm())
    ours.square().mean().backward()
    assert all(float(w.grad.abs().sum()) > 0 for w in model.weights)
    layer, state = model.layers[0], None
    whole, outs = layer(x, x, x), []
    for piece in x.split([16, 1, 3], dim=-2):
        out, state = layer.decode(piece, piece, piece, state)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, dim=-2), whole, rtol=1e-4, atol=1e-4)
    with pytest.raises(StateMismatchError, match="of these maps"):
        model.layers[1].decode(x, x, x, state)
    swap.save(tmp_path / "maps")
    kept = model.state_dict()
    swap.undo()
    assert torch.equal(model(x), own)
    with pytest.raises(RuntimeError, match="_extra_state"):
        model.load_state_dict(kept)
    again = Model()
    load_transfer(again, tmp_path / "maps")
    again.load_state_dict(kept)
    assert torch.equal(again(x), ours)
    other = Model()
    transfer(other, [x], 8, window=3, sequences=4, rng=1)
    with pytest.raises(ParameterError, match="the number of this module's maps"):
        other.load_state_dict(kept)


def test_what_cannot_be_is_named(tmp_path):
    with pytest.raises(ParameterError, match="model must hold modules SoftmaxAttention"):
        transfer(nn.Sequential(LinearAttention()), [rows()])
    with pytest.raises(ParameterError, match="got SoftmaxAttention itself one"):
        transfer(SoftmaxAttention(), [rows()])
    for one in (rows(), {"x": rows()}):
        with pytest.raises(ParameterError, match="batches must be an iterable of batches, such as a list of one"):
            transfer(Model(), one)
    with pytest.raises(ParameterError, match="scale must be a positive number"):
        SoftmaxAttention(scale=0.0)
    with pytest.raises(FileNotFoundError, match="holds no transfer: there is none"):
        load_transfer(Model(), tmp_path / "nothing")
