"""The transformer: whole sequences against PyTorch's layers and an oracle, and token by token against whole ones."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.transformer import Config, Experts, Gated, forward, initial_params, prefill, prepare_memory, shapes, step
from xp import to_numpy

GATED = Gated(member="gated_delta", heads=4, key_dim=3, value_dim=5, key_heads=2)
BASE = Config(dim=8, layers=2, heads=2, vocab=7, length=16)
CONFIGS = {
    "base": BASE,
    "post": replace(
        BASE, norm_first=False, activation="relu", positions="sinusoidal", length=None, embedding_norm=True
    ),
    "llama": replace(
        BASE, heads=4, kv_heads=2, norm="rms", bias=False, activation="swiglu", positions="rotary", length=None
    ),
    "axial": replace(BASE, positions="axial", length=None, grid=(3, 5), output="tied", activation="gelu_tanh", types=2),
    "vectors": replace(BASE, vocab=None, inputs=3, output=None, head_dim=6, hidden=5),
    "cross": replace(BASE, cross=True, heads=4, kv_heads=1),
    "hybrid": replace(
        BASE, heads=4, kv_heads=2, head_dim=4, positions="rotary", length=None, rotary_dim=2, head_norm=True,
        head_gate=True, gated=(GATED, None),
    ),
    "experts": replace(BASE, experts=(Experts(num_experts=3, num_chosen=2, hidden=4, shared=5), None)),
}  # fmt: skip
KINDS = {
    "exact": None,
    "pattern": ka.patterns.local(3),
    "elu1": ka.features.elu1(),
    "favor": ka.random_features(ka.kernels.Softmax(), 4, 16, rng=1),
}


def kind_of(name, config):
    if name == "favor" and config.head_width != 4:
        return ka.random_features(ka.kernels.Softmax(), config.head_width, 16, rng=1)
    return KINDS[name]


def drawn(config, seed=0):
    """Parameters of which none is 0 or 1."""
    rng = np.random.default_rng(seed)
    params = initial_params(config, seed, "float64")
    return {name: value + 0.1 * rng.standard_normal(value.shape) for name, value in params.items()}


def inputs(config, n=9, batch=(2,), seed=0):
    rng = np.random.default_rng(seed)
    if config.vocab is None:
        return rng.standard_normal((*batch, n, config.inputs))
    return rng.integers(config.vocab, size=(*batch, n))


def memory_of(config, params, kind):
    if not config.cross:
        return None
    rows = np.random.default_rng(5).standard_normal((2, 6, config.dim))
    mask = np.arange(6) < np.array([6, 4])[:, None]
    return prepare_memory(
        params, config, rows, attention=None if isinstance(kind, ka.patterns.Pattern) else kind, key_mask=mask
    )


@pytest.mark.parametrize("attention", KINDS)
@pytest.mark.parametrize("name", CONFIGS)
def test_whole_sequences_are_prefill_and_steps(name, attention):
    config = CONFIGS[name]
    kind, params, x = kind_of(attention, config), drawn(config), inputs(config)
    memory = memory_of(config, params, kind)
    types = np.arange(9) % 2 + np.zeros((2, 1), int) if config.types else None
    expected = forward(params, config, x, attention=kind, memory=memory, types=types)
    assert expected.shape == (2, 9, config.dim if config.output is None else config.vocab)
    for first in (1, 5):
        early = None if types is None else types[:, :first]
        out, state = prefill(params, config, x[:, :first], attention=kind, memory=memory, types=early)
        np.testing.assert_allclose(out, expected[:, :first], rtol=1e-9, atol=1e-11)
        for t in range(first, 9):
            of = None if types is None else types[:, t]
            out, state = step(params, config, state, x[:, t], attention=kind, types=of)
            np.testing.assert_allclose(out, expected[:, t], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("attention", KINDS)
def test_tokens_do_not_see_later_ones(attention):
    params, x = drawn(BASE), inputs(BASE)
    out = forward(params, BASE, x, attention=KINDS[attention])
    other = x.copy()
    other[:, 5:] = (other[:, 5:] + 3) % BASE.vocab
    changed = forward(params, BASE, other, attention=KINDS[attention])
    np.testing.assert_array_equal(changed[:, :5], out[:, :5])
    assert np.all(np.abs(changed[:, 5:] - out[:, 5:]).max(axis=-1) > 1e-6)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("causal", [False, True])
def test_layers_are_those_of_pytorch(norm_first, activation, causal):
    torch = pytest.importorskip("torch")
    config = Config(
        dim=8, layers=1, heads=2, inputs=8, output=None, positions=None,
        norm_first=norm_first, activation=activation, causal=causal,
    )  # fmt: skip
    params = drawn(config)
    params |= {"embed.inputs.weight": np.eye(8), "embed.inputs.bias": np.zeros(8)}
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 32, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    ).eval()
    of = {name.removeprefix("layers.0."): torch.tensor(value) for name, value in params.items()}
    layer.load_state_dict(
        {
            "self_attn.in_proj_weight": torch.cat([of[f"attention.{part}.weight"].T for part in "qkv"]),
            "self_attn.in_proj_bias": torch.cat([of[f"attention.{part}.bias"] for part in "qkv"]),
            "self_attn.out_proj.weight": of["attention.out.weight"].T,
            "self_attn.out_proj.bias": of["attention.out.bias"],
            "linear1.weight": of["feed_forward.up.weight"].T,
            "linear1.bias": of["feed_forward.up.bias"],
            "linear2.weight": of["feed_forward.down.weight"].T,
            "linear2.bias": of["feed_forward.down.bias"],
            "norm1.weight": of["attention.norm.scale"],
            "norm1.bias": of["attention.norm.bias"],
            "norm2.weight": of["feed_forward.norm.scale"],
            "norm2.bias": of["feed_forward.norm.bias"],
        }
    )
    x = torch.randn(2, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mask = torch.nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64) if causal else None
    with torch.no_grad():
        rows = layer(x, src_mask=mask, is_causal=causal)
        if norm_first:
            rows = torch.nn.functional.layer_norm(rows, (8,), of["norm.scale"], of["norm.bias"])
    np.testing.assert_allclose(forward(params, config, x.numpy()), rows.numpy(), rtol=1e-9, atol=1e-10)


def test_the_llama_layer_by_hand():
    config = replace(CONFIGS["llama"], layers=1)
    params, x = drawn(config), inputs(config, batch=(), n=5)

    def rms(name, rows):
        return rows / np.sqrt(np.mean(rows**2, axis=-1, keepdims=True) + config.eps) * params[f"{name}.scale"]

    def turn(row, position):  # (..., 2): the pair (0, 1) of a head of two, one frequency
        c, s = np.cos(position), np.sin(position)
        return np.array([c * row[0] - s * row[1], s * row[0] + c * row[1]])

    rows = params["embed.tokens"][x]
    y = rms("layers.0.attention.norm", rows)
    q, k, v = (y @ params[f"layers.0.attention.{part}.weight"] for part in "qkv")
    out = np.zeros((5, 8))
    for head in range(4):
        kv = head // 2
        for i in range(5):
            scores = [
                turn(q[i, 2 * head : 2 * head + 2], i) @ turn(k[j, 2 * kv : 2 * kv + 2], j) / np.sqrt(2)
                for j in range(i + 1)
            ]
            weights = np.exp(scores) / np.sum(np.exp(scores))
            out[i, 2 * head : 2 * head + 2] = weights @ v[: i + 1, 2 * kv : 2 * kv + 2]
    rows = rows + out @ params["layers.0.attention.out.weight"]
    y = rms("layers.0.feed_forward.norm", rows)
    gate, up, down = (params[f"layers.0.feed_forward.{part}.weight"] for part in ("gate", "up", "down"))
    rows = rows + (y @ up * (y @ gate) / (1 + np.exp(-y @ gate))) @ down
    expected = rms("norm", rows) @ params["output.weight"]
    np.testing.assert_allclose(forward(params, config, x), expected, rtol=1e-10)


def test_axial_and_sinusoidal_positions():
    config = CONFIGS["axial"]
    params = drawn(config)
    flat = replace(config, positions="learnt", length=15, grid=None)
    table = params["embed.positions.0"][:, None] + params["embed.positions.1"]
    same = {name: params[name] for name in params if not name.startswith("embed.positions")}
    same["embed.positions"] = table.reshape(15, 8)
    x = inputs(config, n=15)
    np.testing.assert_allclose(forward(params, config, x), forward(same, flat, x), rtol=1e-12)

    config = CONFIGS["post"]
    flat = replace(config, positions="learnt", length=9)
    angle = np.arange(9)[:, None] / 10000 ** (np.arange(0, 8, 2) / 8)
    params = drawn(config)
    table = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(9, 8)
    x = inputs(config)
    out = forward({**params, "embed.positions": table}, flat, x)
    np.testing.assert_allclose(forward(params, config, x), out, rtol=1e-12)


def test_classes_are_of_the_mean_over_tokens_that_are_there():
    config = replace(BASE, causal=False, output="classes", classes=3)
    params, x = drawn(config), inputs(config)
    mask = np.arange(9) < np.array([9, 4])[:, None]
    out = forward(params, config, x, key_mask=mask)
    assert out.shape == (2, 3)
    np.testing.assert_allclose(out[1:], forward(params, config, x[1:, :4]), rtol=1e-10)


@pytest.mark.parametrize("attention", ["exact", "pattern", "elu1"])
@pytest.mark.parametrize("name", ["base", "post", "llama", "vectors", "hybrid", "experts"])
def test_padding_before_and_behind_changes_nothing(name, attention):
    """Positions count from the first token; vectors that are none may be NaN."""
    config = CONFIGS[name]
    kind, x = kind_of(attention, config), inputs(config, n=5)
    both_ways = () if config.gated else (replace(config, causal=False),)
    for model in (config, *both_ways, replace(config, output="classes", classes=3)):
        params = drawn(model)
        wanted = forward(params, model, x[:1], attention=kind)
        for before in (0, 2, 4):
            there, mask = slice(before, before + 5), np.zeros((2, 9), bool)
            mask[0, there] = mask[1] = True  # of the second sequence, all tokens are there
            given = np.full((2, 9, *x.shape[2:]), 3 if config.vocab else np.nan).astype(x.dtype)
            given[:, there], given[1] = x, x[1, 0]
            out = forward(params, model, given, attention=kind, key_mask=mask)[:1]
            out = out if model.output == "classes" else out[:, there]
            np.testing.assert_allclose(out, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("pattern", [ka.patterns.local(1) | ka.patterns.sinks(1), ka.patterns.fixed(3, 1)])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_patterns_count_tokens_from_the_first_that_is_there(pattern, library):
    """Padding before a sequence is neither its sink nor a block of it."""
    make = np.asarray if library == "numpy" else pytest.importorskip("torch").tensor
    params, x = {key: make(each) for key, each in drawn(BASE).items()}, inputs(BASE, n=5)
    wanted = to_numpy(forward(params, BASE, make(x), attention=pattern))
    mask = np.array([[0, 0, 1, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1, 1]], bool)
    given = np.full(mask.shape, 3)
    given[mask] = x.reshape(-1)
    out = to_numpy(forward(params, BASE, make(given), attention=pattern, key_mask=make(mask)))
    np.testing.assert_allclose(out[mask].reshape(wanted.shape), wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("attention", ["exact", "elu1", "favor"])
@pytest.mark.parametrize("name", ["base", "llama", "cross", "hybrid"])
def test_prompts_of_unequal_length(name, attention):
    config = CONFIGS[name]
    kind, params, x = kind_of(attention, config), drawn(config), inputs(config)
    lengths, memory = np.array([9, 4]), memory_of(config, params, kind)
    out, state = prefill(params, config, x, attention=kind, lengths=lengths, memory=memory)
    token = np.array([1, 2])
    last, _ = step(params, config, state, token, attention=kind)
    alone = np.concatenate([x[1, :4], [2]])[None]
    if memory is not None:
        memory = type(memory)(tuple(_second(layer) for layer in memory.layers))
    expected = forward(params, config, alone, attention=kind, memory=memory)
    np.testing.assert_allclose(out[1, 3], expected[0, 3], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(last[1], expected[0, 4], rtol=1e-9, atol=1e-11)


def _second(layer):
    return layer._replace(**{name: part[1:] for name, part in layer._asdict().items() if hasattr(part, "shape")})


def test_a_function_of_ones_own_and_a_layer_each():
    seen = []

    def own(q, k, v, causal, key_mask):
        seen.append((causal, key_mask))
        return ka.softmax_attention(q, k, v, causal=causal, key_mask=key_mask)

    params, x = drawn(BASE), inputs(BASE)
    out = forward(params, BASE, x, attention=[own, KINDS["elu1"]])
    np.testing.assert_array_equal(out, forward(params, BASE, x, attention=[None, KINDS["elu1"]]))
    assert seen == [(True, None)]
    with pytest.raises(errors.ParameterError, match="whole sequences only"):
        prefill(params, BASE, x, attention=own)


def test_nothing_is_written_into_and_dtypes_stay():
    params = {name: value.astype(np.float32) for name, value in drawn(BASE).items()}
    for value in params.values():
        value.setflags(write=False)
    x = inputs(BASE).astype(np.int32)
    x.setflags(write=False)
    out, state = prefill(params, BASE, x, attention=KINDS["elu1"])
    assert out.dtype == np.float32
    before = [np.array(part) for layer in state.layers for part in layer[:3]]
    step(params, BASE, state, x[:, 0], attention=KINDS["elu1"])
    for old, part in zip(before, (part for layer in state.layers for part in layer[:3]), strict=True):
        np.testing.assert_array_equal(old, part)


def test_tokens_and_lengths_may_be_traced():
    """Nobody can look at them."""
    jax = pytest.importorskip("jax")
    config = Config(dim=8, layers=1, heads=2, vocab=17, length=9)
    params = {name: jax.numpy.asarray(value) for name, value in initial_params(config, rng=0).items()}

    def run(tokens, lengths):
        return prefill(params, config, tokens, attention=ka.features.exp(), lengths=lengths)[0]

    out = jax.eval_shape(run, jax.numpy.ones((3, 5), int), jax.numpy.asarray([1, 5, 2]))
    assert out.shape == (3, 5, 17)


@pytest.mark.parametrize("library", ["torch", "jax.numpy", "array_api_strict"])
def test_arrays_of_other_libraries(library):
    xp = pytest.importorskip(library)
    config = replace(BASE, activation="gelu_tanh" if library == "array_api_strict" else "gelu")
    params, x = drawn(config), inputs(config)
    params = {name: value.astype(np.float32) for name, value in params.items()}
    expected = forward(params, config, x, attention=KINDS["elu1"])
    theirs = {name: xp.asarray(value) for name, value in params.items()}
    out, state = prefill(theirs, config, xp.asarray(x), attention=KINDS["elu1"])
    assert type(out) is type(theirs["output.weight"])
    np.testing.assert_allclose(np.asarray(out), expected, rtol=2e-5, atol=2e-5)
    out, _ = step(theirs, config, state, xp.asarray(x[:, 0]), attention=KINDS["elu1"])
    assert type(out) is type(theirs["output.weight"])


def test_arguments_that_are_refused():
    params, x = drawn(BASE), inputs(BASE)
    less = {name: value for name, value in params.items() if name != "norm.scale"}
    wrong = {**params, "norm.scale": np.ones(3)}
    for given, kind, message in (
        ([], errors.DTypeError, "params must be a dictionary"),
        (less, errors.ParameterError, r"they lack norm\.scale"),
        ({**params, "more": x}, errors.ParameterError, "they hold more"),
        (wrong, errors.ShapeError, r"norm\.scale'\] must be \(8,\)"),
        ({**params, "norm.scale": np.ones(8, np.float32)}, errors.DTypeError, "of one dtype, .*; got float32, float64"),
    ):
        with pytest.raises(kind, match=message):
            forward(given, BASE, x)
    for tokens, message in (
        (x + 7, "integers from 0 to 6; got"),
        (x - 7, "integers from 0 to 6; got"),
        (x.astype(float), "x must be integers"),
        (x[:, :0], "must not be empty"),
        (np.zeros((1, 17), int), "16 tokens at most"),
    ):
        with pytest.raises(errors.KernattnError, match=message):
            forward(params, BASE, tokens)
    for how, message in (
        ({"attention": "softmax"}, "attention must be None, a Pattern"),
        ({"attention": [None]}, "one for each of 2"),
        ({"key_mask": np.ones(9, bool)}, r"key_mask must be bool \(2, 9\)"),
        ({"types": x}, "types=0"),
        ({"memory": 3}, "cross=False"),
    ):
        with pytest.raises(errors.KernattnError, match=message):
            forward(params, BASE, x, **how)
    with pytest.raises(errors.ParameterError, match="causal config"):
        prefill(params, replace(BASE, causal=False), x)
    with pytest.raises(errors.ParameterError, match="lengths must lie from 1 to 9"):
        prefill(params, BASE, x, lengths=np.array([0, 3]))
    _, state = prefill(params, BASE, x, attention=KINDS["elu1"])
    with pytest.raises(errors.StateMismatchError):
        step(params, BASE, state, x[:, 0], attention=KINDS["favor"])
    for _ in range(9, 16):
        _, state = step(params, BASE, state, x[:, 0], attention=KINDS["elu1"])
    with pytest.raises(errors.ParameterError, match="before position 16"):
        step(params, BASE, state, x[:, 0], attention=KINDS["elu1"])


def test_shapes_name_every_parameter_that_counts():
    """Each parameter moves the output."""
    for name, config in CONFIGS.items():
        params, x = drawn(config), inputs(config, n=16 if config.positions == "learnt" else 15)
        memory = memory_of(config, params, None)
        types = np.arange(x.shape[1]) % 2 + np.zeros((2, 1), int) if config.types else None
        out = forward(params, config, x, memory=memory, types=types)
        for parameter in shapes(config):
            if parameter.endswith("k.bias"):
                continue  # the same for every key: softmax does not see it, but for rotary ones
            other = {
                **params,
                parameter: params[parameter] + 0.1 * np.random.default_rng(9).random(params[parameter].shape),
            }
            memory = memory_of(config, other, None)
            moved = forward(other, config, x, memory=memory, types=types)
            assert np.max(np.abs(moved - out)) > 1e-6, (name, parameter)
