"""What does not fit is refused by its name: states and memories of other models, types, parameters of two libraries."""

import copy
from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.transformer import (
    Config,
    Decoder,
    Gated,
    forward,
    generate,
    initial_params,
    prefill,
    prepare_memory,
    step,
)

CONFIG = Config(dim=8, layers=2, heads=2, vocab=7, length=16)
CROSS, TYPES = replace(CONFIG, cross=True), replace(CONFIG, types=2)
ELU1 = ka.features.elu1()
X = np.random.default_rng(0).integers(7, size=(3, 5))
TOKEN = X[:, 0]


def begun(config=CONFIG, x=X, **how):
    return prefill(initial_params(config, rng=0), config, x, **how)[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 0}, "dim must be a positive integer"),
        ({"heads": 3}, "heads must divide dim"),
        ({"kv_heads": 3}, "kv_heads must divide heads"),
        ({"vocab": None}, "vocab or inputs must be given"),
        ({"inputs": 3}, "and not both"),
        ({"length": None}, "length must be given for learnt positions"),
        ({"grid": (2, 2)}, "grid must be given for axial positions"),
        ({"positions": "rotary", "length": None, "head_dim": 3}, "even head_dim"),
        ({"activation": "tanh"}, "activation must be one of relu"),
        ({"norm": "batch"}, "norm must be one of layer, rms"),
        ({"output": "classes"}, "classes must be given"),
        ({"vocab": None, "inputs": 2}, "logits of tokens need vocab"),
        ({"eps": 0}, "eps must be a positive number"),
        ({"rotary_dim": 2}, "rotary_dim must be given for rotary positions"),
        ({"positions": "rotary", "length": None, "rotary_dim": 6}, "rotary_dim of at most head_dim"),
        ({"gated": (None,)}, "gated must be one for all layers or one for each of 2"),
        ({"experts": ()}, "experts must be one for all layers or one for each of 2"),
        (
            {"gated": Gated(member="gated_delta", heads=4, key_dim=3, value_dim=5), "causal": False},
            "gated linear attention are causal",
        ),
    ],
)
def test_configs_that_are_refused(changes, message):
    with pytest.raises(errors.ParameterError, match=message):
        replace(CONFIG, **changes)


@pytest.mark.parametrize("attention", [None, ELU1], ids=["exact", "elu1"])
@pytest.mark.parametrize(
    ("change", "x", "message"),
    [
        ({}, TOKEN[:2], r"sequences \(3,\), as the state is; got \(2,\)"),
        ({}, [1, 2, 3], "x must be an array"),
        ({"layers": 1}, TOKEN, "of 2 layers; got 1"),
        ({"heads": 4}, TOKEN, r"heads \(3, 2\) of 4; got \(3, 4\) of 2"),
        ({"kv_heads": 1}, TOKEN, r"heads \(3, 2\) of 4; got \(3, 1, 1\) of 4"),
        ({"dim": 16}, TOKEN, r"heads \(3, 2\) of 4; got \(3, 2\) of 8"),
    ],
    ids=str,
)
def test_states_of_others(change, x, message, attention):
    state = begun(replace(CONFIG, **change), attention=attention)
    with pytest.raises(errors.KernattnError, match=message):
        step(initial_params(CONFIG, rng=0), CONFIG, state, x, attention=attention)
    if change:
        decoder = Decoder(initial_params(CONFIG, rng=0), CONFIG, attention=attention)
        with pytest.raises(errors.StateMismatchError, match=message):
            decoder.begin(state)


@pytest.mark.parametrize(("made", "used"), [(None, ELU1), (ELU1, None)])
def test_states_and_memories_of_another_kind(made, used):
    rows = np.ones((3, 4, 8), np.float32)
    params = initial_params(CROSS, rng=0)
    memory = prepare_memory(params, CROSS, rows, attention=made)
    with pytest.raises(errors.StateMismatchError, match="layer 0 must hold"):
        forward(params, CROSS, X, attention=used, memory=memory)
    with pytest.raises(errors.StateMismatchError, match="layer 0 must hold"):
        step(initial_params(CONFIG, rng=0), CONFIG, begun(attention=made), TOKEN, attention=used)
    for wrong, message in ((rows.astype(np.float64), "of float32; got float64"), (rows[:, :0], "must not be empty")):
        with pytest.raises(errors.ShapeError, match=message):
            prepare_memory(params, CROSS, wrong)


def test_a_decoder_that_refused_a_state_goes_on_from_its_own():
    """No part of what was refused is kept: the loop would read beyond its memory."""
    params = initial_params(CONFIG, rng=0)
    decoder, other = (Decoder(params, CONFIG) for _ in range(2))
    for each in (decoder, other):
        each.prefill(X[:1])
    many = np.tile(X, (20, 1))
    longer = begun(x=many)
    shorter = begun(x=many[:, :3])
    mixed = longer._replace(layers=(longer.layers[0], shorter.layers[1]))
    with pytest.raises(errors.StateMismatchError, match="equally many"):
        decoder.begin(mixed)
    np.testing.assert_array_equal(decoder.step(TOKEN[:1]), other.step(TOKEN[:1]))


def test_a_copy_of_a_decoder_counts_its_own_tokens():
    decoder = Decoder(initial_params(CONFIG, rng=0), CONFIG, attention=ELU1)
    decoder.prefill(X)
    shallow, deep = copy.copy(decoder), copy.deepcopy(decoder)
    first = decoder.step(TOKEN)
    assert shallow._lengths is not decoder._lengths
    np.testing.assert_array_equal(deep.step(TOKEN), first)


def test_types_are_those_of_the_tokens():
    params = initial_params(TYPES, rng=0)
    for types, message in (
        (np.zeros(5, int), r"shapes \(5,\) and \(3, 5\)"),
        (np.zeros((2, 5), int), r"shapes \(2, 5\)"),
        ([[0] * 5] * 3, "types must be an array"),
        (np.full((3, 5), 2), "integers from 0 to 1"),
    ):
        with pytest.raises(errors.KernattnError, match=message):
            forward(params, TYPES, X, types=types)
    state = begun(TYPES)
    decoder = Decoder(params, TYPES)
    decoder.prefill(X)
    for types in (1, np.zeros(2, int)):
        with pytest.raises(errors.KernattnError, match="types must be"):
            step(params, TYPES, state, TOKEN, types=types)
        with pytest.raises(errors.ShapeError, match="types must be"):
            decoder.step(TOKEN, types=types)


def test_parameters_of_two_libraries():
    torch = pytest.importorskip("torch")
    params = initial_params(CONFIG, rng=0)
    with pytest.raises(errors.MixedLibraryError, match=r"params is of numpy, norm\.scale of torch"):
        forward({**params, "norm.scale": torch.ones(8)}, CONFIG, X)
    with pytest.raises(errors.DTypeError, match=r"norm\.scale must be an array"):
        forward({**params, "norm.scale": [1.0] * 8}, CONFIG, X)
    tensors = {name: torch.tensor(value) for name, value in params.items()}
    expected = forward(tensors, CONFIG, torch.tensor(X))
    for dtype in (torch.uint8, torch.int8, torch.int16):  # images are uint8
        assert torch.equal(forward(tensors, CONFIG, torch.tensor(X).to(dtype)), expected)


@pytest.mark.parametrize(
    "wrap", [lambda p: p, lambda p: p | ka.patterns.sinks(1), lambda p: ka.patterns.per_head([p] * 2)]
)
def test_patterns_whose_rows_change_when_tokens_follow(wrap):
    pattern = wrap(ka.patterns.bigbird(2, 1, rng=0))
    params = initial_params(CONFIG, rng=0)
    assert forward(params, CONFIG, X, attention=pattern).shape == (3, 5, 7)
    with pytest.raises(errors.ParameterError, match="stay as they are when tokens follow"):
        prefill(params, CONFIG, X, attention=pattern)
    with pytest.raises(errors.ParameterError, match="stay as they are when tokens follow"):
        step(params, CONFIG, begun(), TOKEN, attention=pattern)


def test_vectors_and_prompts_of_no_axis():
    config = Config(dim=8, layers=1, heads=2, inputs=3, positions=None, output=None)
    decoder = Decoder(initial_params(config, rng=0), config)
    decoder.prefill(np.zeros((2, 3, 3), np.float32))
    for x in (np.zeros((2, 3), complex), np.full((2, 3), None)):
        with pytest.raises(errors.DTypeError, match="x must have one of the dtypes"):
            decoder.step(x)
    with pytest.raises(errors.ShapeError, match="prompt must be"):
        generate(initial_params(CONFIG, rng=0), CONFIG, np.array(3), 2)


def test_tokens_of_a_dtype_that_numpy_does_not_know():
    types = pytest.importorskip("ml_dtypes")
    x = np.zeros((1, 4), dtype=types.bfloat16)
    with pytest.raises(errors.DTypeError, match=r"x must be integers .*; got bfloat16"):
        forward(initial_params(CONFIG, rng=0), CONFIG, x)
