"""The transformer is trained as it is: tensors in, gradients out."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.transformer import Config, forward, generate, initial_params, prepare_memory

torch = pytest.importorskip("torch")
ELU1 = ka.features.elu1()


def trained(params, loss, steps, rate=3e-3):
    """Return parameters after Adam on a loss of the parameters and the step."""
    tensors = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    adam = torch.optim.Adam(tensors.values(), rate)
    for i in range(steps):
        adam.zero_grad()
        loss(tensors, i).backward()
        adam.step()
    return {name: value.detach().numpy() for name, value in tensors.items()}


def test_an_encoder_classifies():
    """Which of two tokens comes first? No bag of tokens tells, and no single one."""
    config = Config(
        dim=16, layers=1, heads=2, vocab=6, length=8, causal=False, output="classes", classes=2, activation="gelu_tanh"
    )
    rng = np.random.default_rng(0)
    x = np.argsort(rng.random((512, 6)), axis=-1)
    label = (np.argmax(x == 0, axis=-1) < np.argmax(x == 1, axis=-1)).astype(np.int64)

    def loss(params, i):
        rows = torch.arange(64) + 64 * (i % 6)
        logits = forward(params, config, torch.tensor(x)[rows], attention=ELU1)
        return torch.nn.functional.cross_entropy(logits, torch.tensor(label)[rows])

    params = trained(initial_params(config, rng=0), loss, 90, 1e-2)
    found = np.argmax(forward(params, config, x[384:], attention=ELU1), axis=-1)
    assert np.mean(found == label[384:]) > 0.95


def test_an_encoder_and_a_decoder_reverse():
    encoder = Config(dim=16, layers=1, heads=2, vocab=6, length=6, causal=False, output=None, activation="relu")
    decoder = Config(dim=16, layers=1, heads=2, vocab=6, length=6, cross=True, activation="relu")
    both = {f"encoder.{name}": value for name, value in initial_params(encoder, 1).items()}
    both |= {f"decoder.{name}": value for name, value in initial_params(decoder, 2).items()}
    phi = ka.random_features(ka.kernels.Softmax(), 8, 16, rng=0)
    rng = np.random.default_rng(0)

    def of(params, part):
        return {name.removeprefix(f"{part}."): value for name, value in params.items() if name.startswith(part)}

    def read(params, x):
        rows = forward(of(params, "encoder"), encoder, x, attention=phi)
        return prepare_memory(of(params, "decoder"), decoder, rows, attention=phi)

    def loss(params, i):
        x = torch.tensor(rng.integers(1, 6, size=(64, 5)))
        given = torch.cat([torch.zeros_like(x[:, :1]), x.flip(-1)[:, :-1]], dim=-1)
        logits = forward(of(params, "decoder"), decoder, given, attention=phi, memory=read(params, x))
        return torch.nn.functional.cross_entropy(logits.reshape(-1, 6), x.flip(-1).reshape(-1))

    params = trained(both, loss, 250, 1e-2)
    x = rng.integers(1, 6, size=(40, 5))
    drawn = generate(
        of(params, "decoder"), decoder, np.zeros((40, 1), int), 5,
        attention=phi, memory=read(params, x), temperature=0,
    )  # fmt: skip
    assert np.mean(drawn == x[:, ::-1]) > 0.9
