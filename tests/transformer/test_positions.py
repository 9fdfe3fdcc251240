"""Where the next token stands: counted in wide integers, from 0, and the same in a file."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, FileFormatError, KernattnError, StateMismatchError
from kernattn.transformer import Config, Decoder, forward, initial_params, prefill, step

ELU1 = ka.features.elu1()
CONFIG = Config(dim=8, layers=1, heads=2, vocab=7, length=32)
TOKENS = np.random.default_rng(0).integers(7, size=(2, 300))


def begun(attention=None):
    params = initial_params(CONFIG, rng=0)
    return params, prefill(params, CONFIG, TOKENS[:, :5], attention=attention)[1]


@pytest.mark.parametrize(("dtype", "length"), [(np.uint8, 253), (np.int8, 125)])
def test_lengths_of_few_bits(dtype, length):
    """A sequence goes on beyond what the integers of its prompt's length can count."""
    config = Config(dim=8, layers=1, heads=2, vocab=7, positions="rotary", length=None)
    params = initial_params(config, rng=0)
    lengths = np.array([length, length - 1], dtype)
    _, state = prefill(params, config, TOKENS[:, :length], attention=ELU1, lengths=lengths)
    narrow = state._replace(positions=state.positions.astype(dtype))
    for given in (state, narrow):  # as files of before have them
        for t in range(length, length + 6):
            out, given = step(params, config, given, TOKENS[:, t], attention=ELU1)
        np.testing.assert_array_equal(given.positions, [length + 6, length + 5])
        wanted = forward(params, config, TOKENS[:1, : length + 6], attention=ELU1)[0, -1]
        np.testing.assert_allclose(out[0], wanted, atol=1e-5)


WRONG = {
    "negative": (np.array([-1, 5]), StateMismatchError, "integers from 0; got -1"),
    "floats": (np.array([5.0, 5.0]), StateMismatchError, "must be integers; got float64"),
    "flags": (np.array([True, True]), StateMismatchError, "must be integers; got bool"),
    "none": (None, DTypeError, r"state\.positions must be an array"),
    "a list": ([5, 5], DTypeError, r"state\.positions must be an array"),
}


@pytest.mark.parametrize("given", WRONG)
@pytest.mark.parametrize("attention", [None, ELU1], ids=["exact", "elu1"])
def test_wrong_positions_are_refused(given, attention, tmp_path):
    """By whatever goes on from a state, and before anything changes; a table of positions was read from its end."""
    positions, error, message = WRONG[given]
    params, state = begun(attention)
    wrong = state._replace(positions=positions)
    decoder = Decoder(params, CONFIG, attention=attention)
    decoder.begin(state)
    before = decoder._memories.flat.copy()
    calls = (
        lambda: decoder.begin(wrong),
        lambda: decoder.put([0, 1], wrong),
        lambda: step(params, CONFIG, wrong, TOKENS[:, 5], attention=attention),
        lambda: ka.save_state(wrong, tmp_path / "state.npz"),
    )
    for call in calls:
        with pytest.raises(error, match=message):
            call()
    np.testing.assert_array_equal(decoder._memories.flat, before)
    np.testing.assert_array_equal(decoder.positions, [5, 5])
    assert not list(tmp_path.iterdir())


def test_files_of_wrong_positions_are_refused(tmp_path):
    path = tmp_path / "state.npz"
    ka.save_state(begun()[1], path)
    with np.load(path) as file:
        held = dict(file)
    (name,) = (name for name, x in held.items() if x.dtype == np.int64)
    np.savez(path, **{**held, name: np.array([3, -3])})
    with pytest.raises(FileFormatError, match="integers from 0; got -3"):
        ka.load_state(path)


@pytest.mark.parametrize("part", [lambda s: s.layers, lambda s: s.layers[0], lambda s: (s, s)])
def test_what_cannot_be_loaded_is_not_saved(part, tmp_path):
    """A part of a state, or several: the file could not be read again."""
    with pytest.raises(DTypeError, match="state must be a LinearState"):
        ka.save_state(part(begun()[1]), tmp_path / "state.npz")
    assert not list(tmp_path.iterdir())


def test_a_window_of_two_dtypes_is_no_state(tmp_path):
    phi, path = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0), tmp_path / "state.npz"
    state = ka.attention.initial_window_state(phi, 3, (2,), 4, like=np.zeros(4, np.float32))
    ka.save_state(state, path)
    with np.load(path) as file:
        held = dict(file)
    header = str(held["header"]).replace('"k": "float32"', '"k": "float16"')
    assert header != str(held["header"])
    np.savez(path, **{**held, "header": np.array(header)})
    with pytest.raises(FileFormatError, match=r"state\.npz: .*one dtype"):
        ka.load_state(path)
    with pytest.raises(KernattnError):
        ka.load_state(path, like=np.zeros(1))
