"""Models that are compiled, copied, saved and loaded, and what their attention remembers."""

import copy
import io

import pytest

import kernattn as ka
from kernattn.errors import ParameterError, StateMismatchError
from kernattn.features._fitted import learn

torch = pytest.importorskip("torch")
kt = pytest.importorskip("kernattn.torch")
from torch import nn  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:a fit was no better")  # few steps and few rows
ROWS = torch.randn(4, 2, 9, 4, generator=torch.Generator().manual_seed(0))
PHI = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0)


class Model(nn.Module):
    """Attention of normalised heads."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(2)
        self.inner = nn.ModuleDict({"attention": kt.SoftmaxAttention(causal=True)})

    def forward(self, x):
        x = self.norm(x)
        return self.inner["attention"](x, x, x)


def compiled(model):
    return torch.compile(model, backend="eager")


def with_compiled_attention(model):
    model.inner["attention"] = compiled(model.inner["attention"])
    return model


@pytest.mark.parametrize("wrapped", [compiled, nn.DataParallel, with_compiled_attention])
def test_maps_fit_models_that_are_wrapped(wrapped, tmp_path):
    """pytorch/pytorch#101107: names of what is saved had "_orig_mod." before them, and the plain model refused it;
    pytorch/pytorch#117265: what is put into a compiled module after its first call was not called.
    """
    layer = ka.transfer.Layer("inner.attention", ka.transfer.Heads(PHI), (0.1,), (0.2,), 1, 1)
    ka.transfer.Transfer((layer,)).save(tmp_path)
    model, plain = wrapped(Model().eval()), Model().eval()
    with torch.no_grad():
        own = model(ROWS)
        with kt.load_transfer(model, tmp_path), kt.load_transfer(plain, tmp_path):
            torch.testing.assert_close(model(ROWS), plain(ROWS))
            assert not torch.allclose(model(ROWS), own)
        assert torch.equal(model(ROWS), own)


def test_a_run_goes_on_with_the_same_numbers(tmp_path, monkeypatch):
    """karpathy/nanoGPT#325: "_orig_mod." in names ended a run that was to go on; tenstorrent/tt-metal#55014: numbers of
    a model that are no parameters were left out of what tells models apart.
    """
    monkeypatch.setattr(learn, "STEPS", 2)
    given = {"num_features": 8, "rng": 0, "folder": tmp_path}
    model = Model()
    with kt.transfer(model, [ROWS], **given) as first:
        assert [layer.name for layer in first.transfer.layers] == ["inner.attention"]
    with kt.transfer(compiled(model), [ROWS], **given) as again:
        assert again.transfer.fingerprint == first.transfer.fingerprint
    model.norm.running_mean += 1
    with pytest.raises(ParameterError, match="another model"):
        kt.transfer(model, [ROWS], **given)


def reloaded(module):
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh = favor()
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


def favor(seed=0):
    return kt.FavorAttention(ka.kernels.Softmax(), 4, 8, causal=True, learnable=True, seed=seed)


@pytest.mark.parametrize("copied", [copy.deepcopy, reloaded, nn.Module.double])
def test_copies_of_learnt_modules_read_their_states(copied):
    """pytorch/pytorch#111503: a deep copy has versions of its own. Copies refused states as made before a step."""
    module, row = favor(), ROWS[:, :, :1]
    with torch.no_grad():
        for _ in range(3):
            module.omega *= 1.1
    state = module.decode(ROWS, ROWS, ROWS)[1]
    wanted = module.decode(row, row, row, state)[0]
    torch.testing.assert_close(copied(module).decode(row, row, row, state)[0], wanted)


def assign(module, numbers):
    module.load_state_dict({**module.state_dict(), "omega": numbers}, assign=True)


def put(module, numbers):
    module.omega = nn.Parameter(numbers)


@pytest.mark.parametrize("change", [assign, put])
def test_states_of_other_numbers_are_refused(change):
    """pytorch/pytorch#129362: numbers that are loaded by `assign` take the place of tensors. They were not seen."""
    module, row = favor(), ROWS[:, :, :1]
    change(module, 2 * module.omega.detach())
    state = module.decode(ROWS, ROWS, ROWS)[1]
    change(module, 2 * module.omega.detach())
    with pytest.raises(StateMismatchError, match="learnt on"):
        module.decode(row, row, row, state)
