"""Batches of states: what joins, leaves and stays is, to the bit, what it was alone."""

import json
from functools import partial

import numpy as np
import pytest

import kernattn as ka
from kernattn.attention import GatedState, GatedStretch, initial_window_state, window_attention
from kernattn.attention._state_parts import leaves_of
from kernattn.errors import (
    DTypeError,
    EmptyInputError,
    FileFormatError,
    KernattnError,
    ParameterError,
    StateMismatchError,
)
from kernattn.transformer import Config, Gated, initial_params, prefill, step

PHI = ka.random_features(ka.kernels.Softmax(), dim=5, num_features=8, rng=0)
OTHER = ka.random_features(ka.kernels.Softmax(), dim=5, num_features=8, rng=1)
BATCH, HEADS, N, D, E = 4, 2, 6, 5, 3


def drawn(dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((BATCH, HEADS, N, c)).astype(dtype) for c in (D, D, E)]


def linear(dtype="float32", seed=0):
    _, k, v = drawn(dtype, seed)
    return ka.key_state(k, v, PHI)


def gated(dtype="float32", seed=0):
    q, k, v = drawn(dtype, seed)
    return ka.gated_linear_attention(q, k, v, g=-np.abs(q[..., 0]))[1]


def stretch(dtype="float32", seed=0):
    q, k, v = drawn(dtype, seed)
    return ka.attention.gated_state(k, v, g=-np.abs(q[..., 0]))


def window(dtype="float32", seed=0):
    return window_attention(*drawn(dtype, seed), PHI, window=4)[1]


KINDS = {"linear": linear, "gated": gated, "stretch": stretch, "window": window}


def parts(state):
    return {name: np.asarray(x) for name, x in state._asdict().items()}


def same(one, other):
    assert type(one) is type(other)
    a, b = parts(one), parts(other)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
        assert a[name].dtype == b[name].dtype


def at(state, index):
    """Return the states at an index by NumPy's own indexing."""
    return type(state)(**{name: x if x.ndim == 0 else x[index] for name, x in parts(state).items()})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [2, -1, [3, 0, 0], slice(1, None, 2), [True, False, False, True], [], np.int64(1)])
def test_taken_states_are_those_of_the_sequences(kind, index):
    state = KINDS[kind]()
    taken = ka.take_states(state, index)
    same(taken, at(state, np.asarray(index, np.int64) if isinstance(index, list) and not index else index))
    assert not any(np.shares_memory(x, y) for x, y in zip(parts(taken).values(), parts(state).values(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_of_a_state_is_no_sequence_of_a_batch(kind):
    """Fields come by name, and all at once, but none by its place: state[0] would rather be a sequence."""
    state = KINDS[kind]()
    for index in (0, -1, np.int64(0)):
        with pytest.raises(DTypeError, match=r"has fields, s.* and no items: ka.take_states\(state"):
            state[index]
    assert tuple(state) == state[:]
    assert type(state)(*state).s is state.s


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stacked_states_are_a_batch(kind, dtype):
    state = KINDS[kind](dtype)
    same(ka.stack_states(ka.take_states(state, i) for i in range(BATCH)), state)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("index", [1, [3, 0], slice(0, 2), [False, True, True, False]])
def test_put_states_take_the_places_and_the_others_stay(kind, reuse, index):
    state, new, before = KINDS[kind](), ka.take_states(KINDS[kind](seed=1), index), KINDS[kind]()
    put = ka.put_states(state, index, new, reuse_state=reuse)
    same(ka.take_states(put, index), new)
    places = np.arange(BATCH)[index]
    rest = np.setdiff1d(np.arange(BATCH), places)
    same(ka.take_states(put, rest), ka.take_states(before, rest))
    if reuse:
        assert put is state
    else:
        same(state, before)


def test_sequences_join_and_leave_a_batch():
    """Each is decoded to the bits that it has in a batch that never changes."""
    rng = np.random.default_rng(5)
    tokens = rng.standard_normal((3, 9, 40, HEADS, D)).astype(np.float32)
    empty = ka.initial_state(PHI, (HEADS,), D, like=tokens[0])
    alone = ka.stack_states([empty] * 9)
    wanted = []
    for t in range(40):
        out, alone = ka.linear_attention_step(alone, *tokens[:, :, t], PHI)
        wanted.append(out)
    slots, age, waiting = np.arange(3), np.zeros(3, int), list(range(3, 9))
    batch = ka.stack_states([empty] * 3)
    while len(slots):
        out, batch = ka.linear_attention_step(batch, *tokens[:, slots, age], PHI, reuse_state=True)
        for row, (who, t) in enumerate(zip(slots, age, strict=True)):
            np.testing.assert_array_equal(out[row], wanted[t][who])
        age += 1
        leaves = (age == 40) | (rng.random(len(slots)) < 0.02) * (age > 5)
        for row in np.flatnonzero(leaves):
            if waiting:
                batch = ka.put_states(batch, int(row), empty, reuse_state=True)
                slots[row], age[row], leaves[row] = waiting.pop(0), 0, False
        if leaves.any():
            batch, slots, age = ka.take_states(batch, ~leaves), slots[~leaves], age[~leaves]


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_tensors_stay_tensors(library):
    module = pytest.importorskip(library)
    make = module.tensor if library == "torch" else module.numpy.asarray
    state = linear()
    tensors = ka.LinearState(*(make(x) for x in state[:3]), state.fingerprint)
    for reuse in (False, True):
        found = ka.put_states(tensors, [0, 2], ka.take_states(tensors, [3, 3]), reuse_state=reuse)
        assert all(type(x) is type(tensors.s) for x in found[:3])
        same(found, ka.take_states(state, [3, 1, 3, 3]))
    same(ka.stack_states([ka.take_states(tensors, i) for i in range(BATCH)]), ka.take_states(state, [3, 1, 3, 3])
         if library == "torch" else state)  # fmt: skip


def remembered(name, prompts):
    """Return a step of a model, and what it remembers of prompts (sequences, n)."""
    how = PHI if name == "maps" else None
    gated = Gated(member="gated_delta", heads=2, key_dim=4, value_dim=4) if name == "gated" else None
    config = Config(dim=10, layers=2, heads=2, vocab=7, length=40, gated=gated)
    params = initial_params(config, rng=0)
    return partial(step, params, config, attention=how), prefill(params, config, prompts, attention=how)[1]


@pytest.mark.parametrize("name", ["maps", "gated", "exact"])
def test_models_remember_batches(name):
    tokens = np.random.default_rng(0).integers(7, size=(5, 12))
    one, state = remembered(name, tokens[:, :6])
    others = ka.stack_states([ka.take_states(state, i) for i in (4, 0, 3)])
    mixed = ka.put_states(others, [1], ka.take_states(state, [2]))
    for t in range(6, 12):
        out, state = one(state, tokens[:, t])
        found, mixed = one(mixed, tokens[[4, 2, 3], t])
        np.testing.assert_array_equal(found, out[[4, 2, 3]])


def test_what_models_of_other_lengths_remember_is_refused():
    tokens = np.zeros((2, 6), int)
    one, other = (remembered("exact", tokens[:, :n])[1] for n in (4, 6))
    with pytest.raises(StateMismatchError, match=r"states\[1\]\.layers\[0\]\.k must be float32 \(2, 2, 4, 5\)"):
        ka.stack_states([one, other])
    with pytest.raises(StateMismatchError, match="KeysValues"):
        ka.put_states(remembered("maps", tokens)[1], 0, ka.take_states(one, 0))


def test_memory_that_several_share_is_copied():
    """Views of one state for many cannot be written to one by one."""
    torch = pytest.importorskip("torch")
    one = GatedState(torch.ones(2, 3, 4))
    batch = GatedState(one.s.expand(3, 2, 3, 4))
    put = ka.put_states(batch, 1, GatedState(torch.zeros(2, 3, 4)), reuse_state=True)
    assert put.s[:, 0, 0, 0].tolist() == [1, 0, 1]
    assert bool((one.s == 1).all())


def test_memory_that_cannot_be_written_to_row_by_row_is_copied():
    """Sequences change places within a batch; tensors of inference mode are written to in it alone."""
    torch = pytest.importorskip("torch")
    for make in (np.arange, torch.arange):
        batch = GatedState(make(24.0).reshape(4, 3, 2))
        put = ka.put_states(batch, [1, 2, 3], GatedState(batch.s[:3]), reuse_state=True)
        assert put.s[:, 0, 0].tolist() == [0, 0, 6, 12]
    with torch.inference_mode():
        batch = GatedState(torch.ones(2, 3, 2))
        assert ka.put_states(batch, 0, GatedState(torch.zeros(3, 2)), reuse_state=True) is batch
    assert ka.put_states(batch, 1, GatedState(torch.zeros(3, 2)), reuse_state=True) is not batch


def test_gradients_pass_through_batches():
    torch = pytest.importorskip("torch")
    _, k, v = (torch.tensor(x, requires_grad=True) for x in drawn("float64"))
    state = ka.key_state(k, v, PHI)
    put = ka.put_states(state, 1, ka.take_states(state, 0), reuse_state=True)
    assert put is not state  # its memory is autograd's
    put.s.sum().backward()
    assert bool((k.grad[1] == 0).all())
    assert bool((v.grad[0] != 0).any())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_states_come_back_from_files_with_the_same_bits(kind, dtype, tmp_path):
    state = KINDS[kind](dtype)
    ka.save_state(state, tmp_path / "state.npz")
    same(ka.load_state(tmp_path / "state.npz"), state)
    torch = pytest.importorskip("torch")
    loaded = ka.load_state(tmp_path / "state.npz", like=torch.zeros(1))
    assert isinstance(loaded.s, torch.Tensor)
    same(loaded, state)


def model_state(attention, form):
    """Return what a model remembers, whose sequences are of unequal length, and a step of it."""
    config = Config(dim=8, layers=2, heads=2, vocab=9, **form)
    params = initial_params(config, rng=0)
    tokens = np.random.default_rng(0).integers(9, size=(3, 5))
    how = {"attention": attention}
    _, state = prefill(params, config, tokens, lengths=np.array([2, 5, 4]), **how)
    return state, lambda given, rows=slice(None): step(params, config, given, tokens[rows, 0], **how)[0]


MODELS = [
    ([None, ka.features.elu1()], {"positions": "rotary", "kv_heads": 1}),
    (
        None,
        {
            "positions": "learnt",
            "length": 9,
            "gated": (Gated(member="gated_delta", heads=2, key_dim=4, value_dim=4), None),
        },
    ),
]


@pytest.mark.parametrize(("attention", "form"), MODELS)
@pytest.mark.parametrize("index", [slice(None), 1])
def test_what_a_model_remembers_comes_back_from_a_file(attention, form, index, tmp_path):
    whole, go_on = model_state(attention, form)
    state = ka.take_states(whole, index)
    ka.save_state(state, tmp_path / "state.npz")
    again = ka.load_state(tmp_path / "state.npz")
    for (place, x), (other, y) in zip(
        leaves_of("state", state).items(), leaves_of("state", again).items(), strict=True
    ):
        assert (place, x.dtype, x.shape) == (other, y.dtype, y.shape)
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(go_on(again, index), go_on(state, index))


def test_forged_files_of_models_are_refused(tmp_path):
    path, forged = tmp_path / "state.npz", tmp_path / "forged.npz"
    ka.save_state(model_state(*MODELS[0])[0], path)
    with np.load(path) as file:
        held = dict(file)
    node = json.loads(str(held["header"]))
    layers, positions, memory = node["of"]
    others = [
        {**node, "of": []}, {**node, "of": 3}, {**node, "kind": "Memory", "of": [layers]}, {**node, "kind": "tuple"},
        {**node, "of": [positions, positions, memory]}, {**node, "of": [layers, None, memory]},
        {**node, "of": [layers, positions, positions]}, {**node, "of": [layers["of"][0], positions, memory]},
        {**node, "of": [{"kind": "tuple", "of": [positions, layers["of"][1]]}, positions, memory]}, positions, None,
        {**node, "of": [layers, {**positions, "dtype": "float32"}, memory]},
    ]  # fmt: skip
    for other in others:
        np.savez(forged, **{**held, "header": np.array(json.dumps(other))})
        with pytest.raises(FileFormatError, match=r"forged\.npz"):
            ka.load_state(forged)
    for name in held.keys() - {"format", "header"}:
        for wrong in (held[name].astype("float16"), held[name][..., None, None], held[name][..., :-1]):
            np.savez(forged, **{**held, name: wrong})
            try:
                state = ka.load_state(forged)
            except FileFormatError:
                continue
            with pytest.raises(KernattnError):
                model_state(*MODELS[0])[1](state)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_windows_of_16_bits_come_back(dtype, tmp_path):
    torch = pytest.importorskip("torch")
    q, k, v = (torch.tensor(x).to(getattr(torch, dtype)) for x in drawn())
    state = window_attention(q, k, v, PHI, window=4)[1]
    ka.save_state(state, tmp_path / "state.npz")
    again = ka.load_state(tmp_path / "state.npz", like=q)
    assert again.k.dtype == q.dtype
    assert all(torch.equal(x, y) for x, y in zip(state[:-1], again[:-1], strict=True))
    np.testing.assert_array_equal(ka.load_state(tmp_path / "state.npz").k.astype("float32"), state.k.float().numpy())


def test_libraries_must_have_the_dtypes_of_a_file(tmp_path):
    """Numbers come back bit by bit, or not at all."""
    ml_dtypes, jax = pytest.importorskip("ml_dtypes"), pytest.importorskip("jax")
    narrow = window()._replace(**{x: np.ones((BATCH, HEADS, 4, 3), ml_dtypes.bfloat16) for x in "kv"})
    ka.save_state(narrow, tmp_path / "narrow.npz")
    same(ka.load_state(tmp_path / "narrow.npz", like=np.zeros(1)), narrow)
    ka.save_state(linear("float64"), tmp_path / "wide.npz")
    with jax.enable_x64(False), pytest.raises(DTypeError, match=r"that has the state's float64 .* jax_enable_x64"):
        ka.load_state(tmp_path / "wide.npz", like=jax.numpy.zeros(1))
    with pytest.raises(DTypeError, match="like must be an array"):
        ka.load_state(tmp_path / "none.npz", like=[0.0])


def test_what_has_seen_nothing_comes_back(tmp_path):
    state = initial_window_state(PHI, 4, (HEADS,), E, like=np.zeros(D, np.float32))
    ka.save_state(state, tmp_path / "state.npz")
    same(ka.load_state(tmp_path / "state.npz"), state)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda s: ka.stack_states(None), DTypeError, "states must be an iterable of states; got None"),
        (lambda s: ka.stack_states([]), EmptyInputError, "at least one state; got none"),
        (lambda s: ka.stack_states([s, gated()]), StateMismatchError, r"states\[0\] is a LinearState, states\[1\] a G"),
        (lambda s: ka.stack_states([s, linear("float64")]), StateMismatchError, "float32 .*; got float64"),
        (lambda s: ka.stack_states([s.s]), DTypeError, r"states\[0\] must be a LinearState, .*; got ndarray"),
        (lambda s: ka.stack_states([s, ka.key_state(*drawn()[1:], OTHER)]), StateMismatchError, "one draw"),
        (lambda s: ka.take_states(s, 4), ParameterError, "from -4 to 3, as there are 4; got 4"),
        (lambda s: ka.take_states(s, [0, -5]), ParameterError, "from -4 to 3"),
        (lambda s: ka.take_states(s, [True]), ParameterError, "4 bool; got"),
        (lambda s: ka.take_states(s, 1.0), ParameterError, "index must be an int, a slice"),
        (lambda s: ka.take_states(s, [[0]]), ParameterError, "index must be"),
        (lambda s: ka.take_states(s, slice("a")), ParameterError, "index must be"),
        (lambda s: ka.take_states(s, np.ma.array([0, 1], mask=[0, 1])), ParameterError, r"a masked array int64\(2,\)"),
        (lambda s: ka.stack_states(np.array(3)), DTypeError, "an iterable of states; got 3"),
        (lambda s: ka.take_states(GatedState(np.ones((3, 2))), 0), StateMismatchError, r"must be a batch.*\(3, 2\)"),
        (lambda s: ka.move_states((s, np.array([None])), s.s), DTypeError, r"state\[1\] must be an array of numbers"),
        (lambda s: ka.put_states(s, [0, -4], ka.take_states(s, [0, 1])), ParameterError, "each state once"),
        (lambda s: ka.put_states(s, [0], ka.take_states(s, 0)), StateMismatchError, r"\(1, 2, 8, 3\); got"),
        (lambda s: ka.put_states(s, 0, ka.take_states(s, 0), reuse_state=1), ParameterError, "True or False"),
        (lambda s: ka.save_state(ka.take_states(s, []), "state.npz"), ParameterError, "no empty axis"),
        (lambda s: ka.save_state(s.s, "state.npz"), DTypeError, "got ndarray"),
        (lambda s: ka.stack_states([s, s._replace(fingerprint=np.zeros(0, int))]), DTypeError, "must be an integer"),
        (
            lambda s: ka.save_state(GatedState(np.ones((3, 2), np.float16)), "state.npz"),
            DTypeError, "sums of float32 or float64 to be saved; got {'s': 'float16'}",
        ),
        (
            lambda s: ka.take_states(GatedStretch(np.ones((2, 3, 4)), np.ones((1, 3, 1))), 0),
            StateMismatchError, "leading axes",
        ),
    ],
)  # fmt: skip
def test_wrong_calls(call, error, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=match):
        call(linear())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_forged_files_are_refused(kind, tmp_path):
    path, state = tmp_path / "state.npz", KINDS[kind]()
    ka.save_state(state, path)
    raw = path.read_bytes()
    with np.load(path) as file:
        held = dict(file)
    forgeries = [raw[: len(raw) // 2], b""]
    np.savez(path, **{**held, "format": np.array("kernattn map 1")})
    forgeries.append(path.read_bytes())
    for name, x in held.items():
        wrong = [x.astype("float16"), np.array(["x"])] if x.ndim else [np.array("{}"), np.array(3)]
        wrong += [x[:1], x[..., None]] if x.ndim and kind != "gated" else []  # one array alone may have any shape
        for other in wrong:
            np.savez(tmp_path / "forged.npz", **{**held, name: other})
            forgeries.append((tmp_path / "forged.npz").read_bytes())
    for text in ("[]", '{"kind": []}', '{"kind": "linear"}', '{"kind": "gated", "dtypes": {"s": "float32"}, "x": 1}',
                 '{"kind": "linear", "fingerprint": 1e9, "dtypes": {}}'):  # fmt: skip
        np.savez(tmp_path / "forged.npz", **{**held, "header": np.array(text)})
        forgeries.append((tmp_path / "forged.npz").read_bytes())
    for forgery in forgeries:
        path.write_bytes(forgery)
        with pytest.raises(FileFormatError, match=r"state\.npz"):
            ka.load_state(path)
