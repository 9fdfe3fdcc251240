"""The compiled decoder: what `forward` gives in float64, in every form and company."""

import tracemalloc

import numpy as np
import pytest

import kernattn as ka
from covering import turns
from kernattn.errors import DTypeError, ParameterError, ShapeError, StateMismatchError
from kernattn.features import MapSpec
from kernattn.transfer import Heads
from kernattn.transformer import Config, Decoder, Experts, Gated, forward, generate, initial_params, prefill, step
from kernattn.transformer import _generate as generation
from kernattn.transformer._members import MEMBERS

nrt = pytest.importorskip("numba.core.runtime._nrt_python")

VOCAB = 11
SIZES = {"member": "gated_delta", "heads": 4, "key_dim": 3, "value_dim": 5, "key_heads": 2}
GATED = Gated(**SIZES)
FORMS = {
    "usual": {},
    "after": {"norm_first": False},
    "llama": {
        "norm": "rms",
        "activation": "swiglu",
        "positions": "rotary",
        "length": None,
        "kv_heads": 2,
        "bias": False,
    },
    "tied": {"activation": "relu", "output": "tied"},
    "rows": {"activation": "gelu_tanh", "positions": "sinusoidal", "length": None, "output": None},
    "odd": {"kv_heads": 1, "hidden": 70, "head_dim": 6, "embedding_norm": True, "types": 2},
    "pixels": {"positions": "axial", "grid": (8, 8), "length": None},
    "qwen": {
        "norm": "rms", "activation": "swiglu", "positions": "rotary", "length": None, "kv_heads": 2, "bias": False,
        "rotary_dim": 4, "head_norm": True, "head_gate": True, "gated": (GATED, None),
    },
    "heads": {"head_norm": True, "head_gate": True, "norm_first": False, "gated": (None, GATED)},
    "experts": {"experts": (Experts(num_experts=70, num_chosen=3, hidden=9, shared=5), None), "gated": (None, GATED)},
    "few": {"norm_first": False, "experts": Experts(num_experts=4, num_chosen=1, hidden=80, normalise=False)},
    "mamba": {
        "hidden": 0, "positions": None, "length": None,
        "gated": Gated(member="mamba2", heads=6, key_dim=17, value_dim=70, key_heads=3, conv=2, conv_bias=True),
    },
    "wide": {"hidden": 0, "norm_first": False, "gated": Gated(member="kda", heads=3, key_dim=33, value_dim=40)},
    **{member: {"gated": (Gated(**{**SIZES, "member": member}), None)} for member in MEMBERS},
}  # fmt: skip
FAVOR = ka.random_features(ka.kernels.Softmax(), dim=6, num_features=16, rng=0)
COSINES = ka.random_features(ka.kernels.Gaussian(4.0), 6, 32, "trigonometric", rng=0)
KINDS = {"elu1": ka.features.elu1(), "favor": FAVOR, "exact": None, "mixed": [None, FAVOR], "cosines": COSINES}


RANDOM = [ka.random_features(ka.kernels.Softmax(), 6, 16, name, rng=3) for name in ("positive", "trigonometric")]
SHARES = MapSpec("exp_pair", RANDOM[0].spec.omega[:8], offset=np.linspace(-1, 1, 16), normalised=True, amplitude=1.3)
FITTED = ka.features.Fitted(ka.kernels.Softmax(), "hedgehog", SHARES, None, 0.1, "positive", 0.2)
APART = np.random.default_rng(1).standard_normal((2, 100, 6)) * np.geomspace(0.5, 2, 6) + 0.3
SHARP = ka.random_features(ka.kernels.Softmax(), 6, 16, "favor_sharp_asymmetric", data=tuple(APART), rng=0)
HEADS = {
    "a map each": Heads([*RANDOM, FITTED, SHARP], 5, (0.3, -0.2, 0.0, 0.1), (0.9, 1.1, 1.0, 1.0)),
    "without a window": Heads([*RANDOM, FITTED, SHARP]),
    "one map": Heads(FITTED, 3, (0.5, -0.5)),
    "elu1": Heads(ka.features.elu1(), 1),
    "a fitted map": FITTED,
    "forms of rows": SHARP,
}


def model(**form):
    config = Config(**{"dim": 24, "layers": 2, "heads": 4, "vocab": VOCAB, "length": 64, **form})
    rng = np.random.default_rng(3)  # biases and scales that are not 0 and 1
    params = {
        name: value + 0.1 * rng.standard_normal(value.shape) for name, value in initial_params(config, rng=0).items()
    }
    return config, {name: value.astype(np.float32) for name, value in params.items()}


def tokens(*shape):
    return np.random.default_rng(0).integers(VOCAB, size=shape)


@pytest.mark.parametrize(("form", "kind"), turns(FORMS, KINDS))
def test_steps_are_the_forward_pass(form, kind):
    config, params = model(**FORMS[form])
    x, attention = tokens(3, 40), KINDS[kind]
    wanted = forward({name: value.astype(np.float64) for name, value in params.items()}, config, x, attention=attention)
    decoder = Decoder(params, config, attention=attention)
    first = decoder.prefill(x[:, :5])
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(first, wanted[:, :5], atol=1e-5 * largest)
    for t in range(5, 40):
        np.testing.assert_allclose(decoder.step(x[:, t]), wanted[:, t], atol=1e-5 * largest)


@pytest.mark.parametrize("kind", HEADS)
def test_steps_of_heads_with_maps_of_their_own_and_windows(kind):
    """As the batched model in float64, of prompts of unequal lengths, some below the window, in constant memory."""
    grouped = {"kv_heads": 2} if kind in ("one map", "a fitted map") else {}
    config, params = model(**grouped)
    x, lengths = tokens(3, 40), np.array([2, 7, 4])
    attention = [HEADS[kind], None] if kind == "elu1" else HEADS[kind]
    wide = {name: value.astype(np.float64) for name, value in params.items()}
    wanted = forward(wide, config, x, attention=attention)
    decoder = Decoder(params, config, attention=attention)
    rounding = np.abs(forward(params, config, x, attention=attention) - wanted).max()  # signed features cancel
    within = 1e-5 * np.abs(wanted).max() + 2 * rounding
    assert within < 1e-3
    decoder.prefill(x[:, :7], lengths=lengths)
    held = decoder.nbytes
    for t in range(30):
        out = decoder.step(x[np.arange(3), lengths + t])
        np.testing.assert_allclose(out, wanted[np.arange(3), lengths + t], atol=within)
    assert decoder.nbytes == held or kind == "elu1"  # whose other layer is exact
    alone = Decoder(params, config, attention=attention)
    alone.prefill(x[1:2, :7])
    for t in range(30):
        last = alone.step(x[1:2, 7 + t])
    np.testing.assert_array_equal(last[0], out[1])


@pytest.mark.parametrize(
    ("kind", "form"), [("elu1", "usual"), *(("exact", form) for form in ("usual", "qwen", "wide", "experts"))]
)
def test_a_sequence_has_the_same_bits_in_every_company(kind, form):
    config, params = model(**FORMS[form])
    x, alone, together = tokens(37, 12), [], []
    state = prefill(params, config, x[:, :1], attention=KINDS[kind])[1]
    for rows, found in ((slice(37), together), (slice(20, 21), alone), (slice(18, 21), alone)):
        decoder = Decoder(params, config, attention=KINDS[kind])
        decoder.begin(ka.take_states(state, rows))
        found.append([decoder.step(x[rows, t]) for t in range(1, 12)][-1])
    assert np.array_equal(together[0][20], alone[0][0])
    assert np.array_equal(together[0][18:21], alone[1])


@pytest.mark.parametrize(
    ("kind", "form"),
    [("favor", "llama"), ("exact", "llama"), ("mixed", "llama"), ("exact", "qwen"), ("exact", "mamba")],
)
def test_prompts_of_unequal_length(kind, form):
    config, params = model(**FORMS[form])
    x, lengths, attention = tokens(3, 9), np.array([2, 9, 5]), KINDS[kind]
    decoder = Decoder(params, config, attention=attention)
    decoder.prefill(x, lengths=lengths)
    _, state = prefill(params, config, x, attention=attention, lengths=lengths)
    for t in range(4):
        out, state = step(params, config, state, x[:, t], attention=attention)
        np.testing.assert_allclose(decoder.step(x[:, t]), out, atol=1e-5 * np.abs(out).max())


JOINED = [("usual", "mixed"), ("mamba", "exact"), ("qwen", "exact"), ("usual", "a map each")]


@pytest.mark.parametrize(
    ("form", "kind", "index"),
    [
        *[(*each, index) for each, index in zip(JOINED, (1, [2, 0], [False, True, True], 2), strict=True)],
        *[(*each, slice(0)) for each in JOINED],  # nobody
    ],
)
def test_sequences_that_leave_go_on_elsewhere(form, kind, index):
    """What a decoder gives back is what `step` remembers, and goes on in another row of another decoder."""
    config, params = model(**FORMS[form])
    how = HEADS[kind] if kind in HEADS else KINDS[kind]
    x, lengths = tokens(3, 12), np.array([2, 5, 4])
    decoder, other = (Decoder(params, config, attention=how) for _ in range(2))
    decoder.prefill(x[:, :5], lengths=lengths)
    _, wanted = prefill(params, config, x[:, :5], attention=how, lengths=lengths)
    for t in range(5, 8):
        decoder.step(x[:, t])
        _, wanted = step(params, config, wanted, x[:, t], attention=how)
    taken, places = decoder.take(index), np.arange(3)[index]
    wanted = ka.take_states(wanted, index)
    assert [type(layer) for layer in taken.layers] == [type(layer) for layer in wanted.layers]
    np.testing.assert_array_equal(taken.positions, wanted.positions)
    if not places.size:
        other.prefill(tokens(5, 9))
        before = other._memories.flat.copy()
        other.put([], taken)
        np.testing.assert_array_equal(other._memories.flat, before)
        return
    found, after = (step(params, config, state, x[places, 8], attention=how) for state in (taken, wanted))
    np.testing.assert_allclose(found[0], after[0], atol=2e-5 * np.abs(after[0]).max())
    other.prefill(tokens(5, 9))
    other.put(places + 1, taken)
    for t in range(8, 11):
        given = np.repeat(x[:1, t], 5)
        given[places + 1] = x[places, t]
        np.testing.assert_array_equal(other.step(given)[places + 1], decoder.step(x[:, t])[places])


@pytest.mark.parametrize(("form", "kind"), JOINED)
@pytest.mark.parametrize("index", [1, [2, 0], [False, True, True]])
def test_sequences_join_and_leave(form, kind, index):
    """Those that stay and those that come have the bits that they have in batches of their own."""
    config, params = model(**FORMS[form])
    how = HEADS[kind] if kind in HEADS else KINDS[kind]
    x = tokens(3, 12)
    others = tokens(3, 40)[:, ::-1]
    apart = Decoder(params, config, attention=how)
    mixed, new = (Decoder(params, config, attention=how) for _ in range(2))
    apart.prefill(x[:, :4])
    mixed.prefill(x[:, :4])
    places = np.arange(3)[index]
    _, state = prefill(params, config, others[places, :36], attention=how)
    new.begin(state if places.ndim else ka.stack_states([state]))
    for t in range(4, 6):
        np.testing.assert_array_equal(mixed.step(x[:, t]), apart.step(x[:, t]))
    mixed.put(index, state)
    rest = np.setdiff1d(np.arange(3), places)
    for t in range(6, 10):
        given = x[:, t].copy()
        given[places] = others[places, t + 30]
        out, wanted = mixed.step(given), apart.step(x[:, t])
        np.testing.assert_array_equal(out[rest], wanted[rest])
        np.testing.assert_array_equal(
            out[places], new.step(others[np.atleast_1d(places), t + 30]).reshape(out[places].shape)
        )


@pytest.mark.parametrize("gated", [None, (GATED, None)])
def test_exact_attention_makes_room(gated):
    config, params = model(length=150, gated=gated)
    x = tokens(2, 150)
    wanted = forward(params, config, x, attention=KINDS["mixed"])
    decoder = Decoder(params, config, attention=KINDS["mixed"])
    decoder.prefill(x[:, :40])
    for t in range(40, 150):
        np.testing.assert_allclose(decoder.step(x[:, t]), wanted[:, t], atol=1e-5 * np.abs(wanted).max())


def test_exact_attention_asks_no_room_beyond_a_short_length():
    config, params = model(length=32)
    decoder = Decoder(params, config)
    decoder.prefill(tokens(2, 5))
    sizes = {"layers": 2, "keys and values": 2, "sequences": 2, "heads": 4, "width": 6, "tokens": 32, "bytes": 4}
    assert np.prod(list(sizes.values())) <= decoder.nbytes < 1.01 * np.prod(list(sizes.values()))


@pytest.mark.parametrize("gated", [None, GATED])
def test_memory_of_maps_does_not_grow_and_vectors_are_taken(gated):
    config = Config(dim=16, layers=1, heads=2, inputs=3, positions=None, output=None, gated=gated)
    params = initial_params(config, rng=0)
    decoder = Decoder(params, config, attention=ka.features.elu1())
    x = np.random.default_rng(0).standard_normal((2, 300, 3)).astype(np.float32)
    decoder.prefill(x[:, :1])
    before = decoder.nbytes
    outs = [decoder.step(x[:, t]) for t in range(1, 300)]
    assert decoder.nbytes == before
    wanted = forward(params, config, x, attention=ka.features.elu1())
    np.testing.assert_allclose(np.stack(outs, axis=1), wanted[:, 1:], atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(("gated", "attention"), [(None, FAVOR), (GATED, FAVOR), (None, HEADS["one map"])])
@pytest.mark.parametrize("steps", [2**11, pytest.param(2**16, marks=pytest.mark.slow)])
def test_memory_is_constant_in_the_number_of_steps(steps, gated, attention):
    """What Python and NumPy hold after many steps is what they held after a few; so do the compiled loops."""
    config = Config(dim=12, layers=1, heads=2, vocab=VOCAB, positions=None, gated=gated)
    decoder = Decoder(initial_params(config, rng=0), config, attention=attention)
    decoder.prefill(tokens(1, 1))
    held, last = [], tokens(1)
    nrt.memsys_enable_stats()
    tracemalloc.start()
    try:
        for t in range(steps):
            last = decoder.step(last).argmax(axis=-1)
            if t in (steps // 8, steps - 1):
                of_loops = nrt.memsys_get_stats_alloc() - nrt.memsys_get_stats_free()
                held.append((tracemalloc.get_traced_memory()[0], of_loops))
    finally:
        tracemalloc.stop()
        nrt.memsys_disable_stats()
    (before, of_loops), (after, of_later_loops) = held
    assert after - before < 1000
    assert of_later_loops == of_loops


@pytest.mark.parametrize("form", ["usual", "qwen", "mamba", "experts"])
def test_shared_among_threads(monkeypatch, on_threads, form):
    config, params = model(**FORMS[form])
    x = tokens(40, 6)
    on_threads(2)
    monkeypatch.setattr("kernattn.ops._numba.helper_threads.EACH", 1e-12)
    decoder = Decoder(params, config, attention=FAVOR)
    decoder.prefill(x[:, :1])
    shared = [decoder.step(x[:, t]) for t in range(1, 6)]
    on_threads(1)
    decoder.prefill(x[:, :1])
    for out, t in zip(shared, range(1, 6), strict=True):
        assert np.array_equal(decoder.step(x[:, t]), out)


def test_generation_goes_through_it(monkeypatch):
    config, params = model()
    drawn = generate(params, config, tokens(4, 3), 20, attention=FAVOR, rng=0)
    monkeypatch.setattr(generation, "why_not_compiled", lambda *given: "for a test")
    assert np.array_equal(generate(params, config, tokens(4, 3), 20, attention=FAVOR, rng=0), drawn)


def test_refusals():
    config, params = model()
    for attention, reason in ((ka.patterns.local(4), "pattern"), (lambda q, k, v, **more: v, "by a function")):
        with pytest.raises(ParameterError, match=reason):
            Decoder(params, config, attention=attention)
    with pytest.raises(ParameterError, match="not arrays of NumPy in float32, bfloat16 or float16"):
        Decoder({name: value.astype(np.float64) for name, value in params.items()}, config)
    crossing = Config(dim=8, layers=1, heads=2, vocab=5, length=16, cross=True)
    with pytest.raises(ParameterError, match="cross"):
        Decoder(initial_params(crossing, rng=0), crossing)
    decoder = Decoder(params, config, attention=FAVOR)
    with pytest.raises(ParameterError, match="a prompt must come before"):
        decoder.step(tokens(2))
    with pytest.raises(ParameterError, match="a prompt must come before"):
        _ = decoder.positions
    decoder.prefill(tokens(2, 64))
    with pytest.raises(ShapeError, match=r"x must be \(2,\); got \(3,\)"):
        decoder.step(tokens(3))
    with pytest.raises(ParameterError, match="integers from 0 to 10"):
        decoder.step(np.array([0, 11]))
    with pytest.raises(DTypeError, match="integers from 0 to 10; got an array float64"):
        decoder.step(np.array([1.0, 2.0]))
    decoder.put([1], prefill(params, config, tokens(1, 4), attention=FAVOR)[1])
    np.testing.assert_array_equal(decoder.positions, [64, 4])
    with pytest.raises(ParameterError, match=r"before position 64.*; sequences \[0\] of the batch have no room"):
        decoder.step(tokens(2))
    mixed, theirs = model(gated=GATED)
    with pytest.raises(StateMismatchError, match="layer 0 must hold LinearState; got GatedLayer"):
        decoder.begin(prefill(theirs, mixed, tokens(2, 4))[1])
    with pytest.raises(StateMismatchError, match="layer 0 must hold"):
        decoder.begin(prefill(params, config, tokens(2, 4), attention=FAVOR.redraw(1))[1])
    mixed, theirs = model(gated=GATED)
    with pytest.raises(StateMismatchError, match="layer 0 must hold LinearState; got GatedLayer"):
        decoder.begin(prefill(theirs, mixed, tokens(2, 4))[1])
    with pytest.raises(StateMismatchError, match="layer 0 must hold"):
        decoder.begin(prefill(params, config, tokens(2, 4))[1])


def test_what_does_not_fit_a_place_is_refused():
    config, params = model()
    decoder = Decoder(params, config, attention=FAVOR)
    _, state = prefill(params, config, tokens(2, 4), attention=FAVOR)
    with pytest.raises(ParameterError, match="by prefill or begin; got none"):
        decoder.put([0, 1], state)
    with pytest.raises(ParameterError, match="by prefill or begin; got none"):
        decoder.take(0)
    decoder.prefill(tokens(2, 4))
    with pytest.raises(ParameterError, match="from -2 to 1, as there are 2; got"):
        decoder.take(2)
    before = decoder._memories.flat.copy()
    for index in (0, [0], [1, 1]):
        with pytest.raises(StateMismatchError, match=r"the leading axes .* got \(2,\)"):
            decoder.put(index, state)
    with pytest.raises(ParameterError, match="from -2 to 1, as there are 2; got"):
        decoder.put([0, 2], state)
    other = ka.random_features(ka.kernels.Softmax(), dim=6, num_features=16, rng=9)
    with pytest.raises(StateMismatchError, match="another map"):
        decoder.put([0, 1], prefill(params, config, tokens(2, 4), attention=other)[1])
    np.testing.assert_array_equal(decoder._memories.flat, before)
