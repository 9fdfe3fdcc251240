"""Layers of gated linear attention: each member against its paper's formulas token by token, its states and files."""

import json
from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.transformer import (
    Config,
    Gated,
    axial_shapes,
    forward,
    initial_params,
    load_params,
    prefill,
    save_params,
    shapes,
    step,
)
from kernattn.transformer._members import MEMBERS

SIZES = {"heads": 4, "key_dim": 3, "value_dim": 5, "key_heads": 2}


def config_of(member, **more):
    layer = Gated(member=member, **SIZES, **more)
    return Config(dim=8, layers=1, heads=1, vocab=7, positions=None, hidden=0, norm="rms", gated=layer)


def drawn(config, dtype="float64"):
    """Parameters of which none is 0 or 1."""
    rng = np.random.default_rng(0)
    params = initial_params(config, 0, "float64")
    params = {name: value + 0.1 * rng.standard_normal(value.shape) for name, value in params.items()}
    return {name: value.astype(dtype) for name, value in params.items()}


def tokens(*shape):
    return np.random.default_rng(0).integers(7, size=shape)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rms(x):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-5)


def by_hand(params, member, span, x):
    """Return logits of one sequence, by the recurrence of one head after the other."""

    def linear(name, y):
        return y @ params[f"layers.0.gated.{name}.weight"] + params.get(f"layers.0.gated.{name}.bias", 0)

    before = "layers.0.gated."
    of = {name.removeprefix(before): value for name, value in params.items() if name.startswith(before)}
    rows = params["embed.tokens"][x]
    y, n = rms(rows) * of["norm.scale"], len(x)
    mixed = np.concatenate([linear(part, y) for part in "qkv"], axis=1)
    if span:
        padded = np.concatenate([np.zeros((span - 1, mixed.shape[1])), mixed])
        mixed = np.array([np.sum(padded[t : t + span] * of["conv.weight"], axis=0) for t in range(n)])
        mixed = mixed + of.get("conv.bias", 0)
        mixed = mixed * sigmoid(mixed)
    q, k, v = mixed[:, :6].reshape(n, 2, 3), mixed[:, 6:12].reshape(n, 2, 3), mixed[:, 12:].reshape(n, 4, 5)
    low = linear("decay.low", y) if "decay.low.weight" in of else y
    logits = linear("decay", low) if "decay.weight" in of else None
    heads = np.zeros((n, 4, 5))
    for head in range(4):
        group, s = head // 2, np.zeros((3, 5))
        for t in range(n):
            key, query, value, beta, scale = k[t, group], q[t, group], v[t, head], 1.0, 3**-0.5
            fade = np.ones(3)
            if member == "retention":
                fade = np.full(3, 1 - 2.0 ** (-5 - head))
            elif member == "gla":
                fade = sigmoid(logits[t, 3 * group : 3 * group + 3]) ** (1 / 16)
            elif member == "kda":
                softplus = np.log1p(np.exp(logits[t, 3 * group : 3 * group + 3]))
                fade = np.exp(-np.exp(of["decay.log_rate"][group]) * softplus)
            elif member in ("gated_delta", "mamba2"):
                softplus = np.log1p(np.exp(logits[t, head]))
                fade = np.full(3, np.exp(-np.exp(of["decay.log_rate"][head]) * softplus))
            s = fade[:, None] * s
            if member in ("delta", "gated_delta", "kda"):
                key, query = (row / np.sqrt(row @ row + 1e-6) for row in (key, query))
                beta = sigmoid(linear("beta", y)[t, head])
                value = value - key @ s
            if member == "mamba2":
                beta, scale = softplus, 1.0
            s = s + beta * np.outer(key, value)
            heads[t, head] = scale * query @ s
            if member == "mamba2":
                heads[t, head] += of["skip"][head] * v[t, head]
    if member == "mamba2":
        gate = linear("gate", y)
        out = rms((heads.reshape(n, 20) * gate * sigmoid(gate)).reshape(n, 2, 10)).reshape(n, 20) * of["out_norm.scale"]
    else:
        out = (rms(heads) * of["out_norm.scale"]).reshape(n, 20)
        if member == "kda":
            out = out * sigmoid(linear("gate", linear("gate.low", y)))
        elif member != "delta":
            gate = linear("gate", y)
            out = out * gate * sigmoid(gate)
    rows = rows + linear("out", out)
    return rms(rows) * params["norm.scale"] @ params["output.weight"] + params["output.bias"]


@pytest.mark.parametrize(
    ("member", "more"),
    [(member, {}) for member in MEMBERS] + [("mamba2", {"conv": 2, "conv_bias": True}), ("kda", {"conv": 0})],
    ids=str,
)
def test_members_are_those_of_their_papers(member, more):
    """Whole sequences, and tokens one by one, after prompts that are shorter than the convolution too."""
    config = config_of(member, **more)
    params, x = drawn(config), tokens(2, 9)
    assert list(params) == list(shapes(config))
    wanted = np.stack([by_hand(params, member, config.gated.span, row) for row in x])
    np.testing.assert_allclose(forward(params, config, x), wanted, rtol=1e-9, atol=1e-11)
    for first in (1, 5):
        out, state = prefill(params, config, x[:, :first])
        np.testing.assert_allclose(out, wanted[:, :first], rtol=1e-9, atol=1e-11)
        for t in range(first, 9):
            out, state = step(params, config, state, x[:, t])
            np.testing.assert_allclose(out, wanted[:, t], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("member", MEMBERS)
def test_prompts_of_unequal_length_and_padding_before(member):
    config = config_of(member)
    params, x, lengths = drawn(config), tokens(3, 9), np.array([9, 4, 1])
    out, state = prefill(params, config, x, lengths=lengths)
    for t in range(3):
        out, state = step(params, config, state, x[:, t])
    for row, length in enumerate(lengths):
        alone = np.concatenate([x[row, :length], x[row, :3]])[None]
        np.testing.assert_allclose(out[row], forward(params, config, alone)[0, -1], rtol=1e-9, atol=1e-11)
    mask = np.arange(9) >= np.array([0, 5, 8])[:, None]
    padded = forward(params, config, x, key_mask=mask)
    for row, first in enumerate((0, 5, 8)):
        alone = forward(params, config, x[row : row + 1, first:])[0]
        np.testing.assert_allclose(padded[row, first:], alone, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("member", [None, "mamba2", "kda"])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_a_state_keeps_no_memory_of_its_prompt(member, length):
    """ml-explore/mlx-lm#1701: what was kept of a sequence was a view, which held all there had been before."""
    config = Config(dim=8, layers=1, heads=2, vocab=7, positions="rotary") if member is None else config_of(member)
    params = drawn(config)
    _, state = prefill(params, config, tokens(2, length), attention=None if member else ka.features.elu1())
    for _ in range(2):
        layer = state.layers[0]
        arrays = [state.positions, *(x for x in layer if isinstance(x, np.ndarray))]
        for x in arrays:
            held = x
            while held.base is not None:
                held = held.base
            assert held.nbytes <= x.nbytes
        _, state = step(params, config, state, tokens(2), attention=None if member else ka.features.elu1())


LIBRARIES = [(library, member) for library in ("torch", "array_api_strict") for member in ("mamba2", "kda")]
LIBRARIES += [("jax.numpy", "kda"), pytest.param("jax.numpy", "mamba2", marks=pytest.mark.slow)]  # compiles for 4 s


@pytest.mark.parametrize(("library", "member"), LIBRARIES)
def test_arrays_of_other_libraries(library, member):
    xp = pytest.importorskip(library)
    config = replace(config_of(member), layers=2, hidden=6, activation="swiglu")
    params, x = drawn(config, "float32"), tokens(2, 6)
    lengths = np.array([6, 2])
    theirs = {name: xp.asarray(value) for name, value in params.items()}
    out, state = prefill(params, config, x, lengths=lengths)
    found, other = prefill(theirs, config, xp.asarray(x), lengths=xp.asarray(lengths))
    assert type(found) is type(theirs["output.weight"])
    np.testing.assert_allclose(np.asarray(found), out, rtol=2e-5, atol=2e-5)
    out, _ = step(params, config, state, x[:, 0])
    found, _ = step(theirs, config, other, xp.asarray(x[:, 0]))
    np.testing.assert_allclose(np.asarray(found), out, rtol=2e-5, atol=2e-5)


def test_every_parameter_is_trained():
    """Against differences along a direction, in float64."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    for member in MEMBERS:
        config = config_of(member, **({"conv_bias": True} if member == "mamba2" else {}))
        values, x = drawn(config), tokens(1, 5)
        params = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
        forward(params, config, torch.tensor(x)).square().sum().backward()
        along = {name: rng.standard_normal(value.shape) for name, value in values.items()}
        assert all(torch.any(params[name].grad != 0) for name in values)
        ahead, behind = (
            np.sum(forward({name: values[name] + by * along[name] for name in values}, config, x) ** 2)
            for by in (1e-6, -1e-6)
        )
        slope = sum(np.sum(params[name].grad.numpy() * along[name]) for name in values)
        np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, rtol=1e-6, err_msg=member)


@pytest.mark.slow
def test_gradients_in_jax():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    config = config_of("gated_delta")
    params, x = drawn(config, "float32"), tokens(2, 6)
    tensors = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    forward(tensors, config, torch.tensor(x)).square().sum().backward()
    arrays, ours = {name: jax.numpy.asarray(value) for name, value in params.items()}, jax.numpy.asarray(x)
    found = jax.grad(lambda given: (forward(given, config, ours) ** 2).sum())(arrays)
    for name, value in found.items():
        atol = 1e-4 * np.abs(value).max()
        np.testing.assert_allclose(tensors[name].grad.numpy(), np.asarray(value), atol=atol, err_msg=name)


def test_files_keep_the_layers(tmp_path):
    config = replace(config_of("mamba2", conv_bias=True), layers=3)
    config = replace(config, gated=(config.gated, None, Gated(member="kda", **SIZES)))
    params = initial_params(config, 0)
    save_params(params, config, tmp_path / "model.npz")
    found, same = load_params(tmp_path / "model.npz")
    assert same == config
    np.testing.assert_array_equal(forward(found, same, tokens(2, 4)), forward(params, config, tokens(2, 4)))
    with np.load(tmp_path / "model.npz") as file:
        content = dict(file)
    header = json.loads(str(content["header"]))
    for gated, message in (([None, 3, None], "gated must be"), ({"member": "kda"}, "missing"), ([], "for each of 3")):
        np.savez(tmp_path / "forged.npz", **content | {"header": np.array(json.dumps(header | {"gated": gated}))})
        with pytest.raises(errors.FileFormatError, match=message):
            load_params(tmp_path / "forged.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"member": "rwkv4"}, "member must be one of retention, gla"),
        ({"heads": 0}, "heads must be a positive integer"),
        ({"key_heads": 3}, "key_heads must divide heads = 4; got 3"),
        ({"conv": -1}, "conv must be a non-negative integer"),
        ({"conv_bias": 1}, "conv_bias must be"),
        ({"member": "gla", "conv_bias": True}, "conv_bias is for a layer with a convolution"),
    ],
    ids=str,
)
def test_layers_that_are_refused(change, message):
    with pytest.raises(errors.ParameterError, match=message):
        Gated(**{"member": "kda", **SIZES, **change})


def test_states_of_another_layout_are_refused():
    config = config_of("gated_delta")
    params, x = drawn(config), tokens(2, 4)
    _, state = prefill(params, config, x)
    for change, message in (
        ({"value_dim": 4}, r"layer 0 must hold s \(2, 2, 2, 3, 5\)"),
        ({"key_heads": 4}, r"layer 0 must hold s \(2, 2, 2, 3, 5\)"),
        ({"conv": 3}, r"window \(2, 3, 32\); got .*\(2, 2, 32\)"),
        ({"conv": 0}, r"window \(2, 3, 32\); got .*None"),
    ):
        other = replace(config, gated=replace(config.gated, **change))
        _, wrong = prefill(drawn(other), other, x)
        with pytest.raises(errors.StateMismatchError, match=message):
            step(params, config, wrong, x[:, 0])
    exact = replace(config, gated=None)
    with pytest.raises(errors.StateMismatchError, match="layer 0 must hold KeysValues; got GatedLayer"):
        step(drawn(exact), exact, state, x[:, 0])
    _, wrong = prefill(drawn(exact), exact, x)
    with pytest.raises(errors.StateMismatchError, match="layer 0 must hold GatedLayer; got KeysValues"):
        step(params, config, wrong, x[:, 0])


def test_where_gated_layers_do_not_go():
    with pytest.raises(errors.DTypeError, match="gated must be"):
        Config(dim=8, layers=1, heads=2, vocab=7, positions=None, gated="kda")
    config = replace(config_of("kda"), positions="axial", grid=(2, 2))
    with pytest.raises(errors.ParameterError, match="gated layers"):
        axial_shapes(config, 1)
    own = forward(drawn(config), config, tokens(1, 4), attention=lambda q, k, v, **more: v)
    np.testing.assert_array_equal(own, forward(drawn(config), config, tokens(1, 4), attention=ka.features.elu1()))
