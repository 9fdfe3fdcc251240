"""Models whose weights have 16 bits: what the float32 model of the same rounded weights computes."""

import tracemalloc

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.transformer import (
    Config,
    Decoder,
    Experts,
    Gated,
    cast_params,
    forward,
    generate,
    initial_params,
    load_params,
    prefill,
    save_params,
    step,
)
from kernattn.transformer import _generate as generation

bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
pytest.importorskip("numba")

KINDS = {"bfloat16": np.dtype(bfloat16), "float16": np.dtype(np.float16)}
GATED = Gated(member="gated_delta", heads=4, key_dim=3, value_dim=5, key_heads=2)
FORMS = {
    "usual": {},
    "odd": {"dim": 45, "heads": 3, "hidden": 67, "head_dim": 5, "embedding_norm": True, "types": 2, "output": "tied"},
    "deep": {"dim": 200, "layers": 1, "hidden": 129, "norm": "rms", "activation": "swiglu", "bias": False},
    "experts": {"experts": (Experts(num_experts=5, num_chosen=2, hidden=9, shared=5), None), "gated": (None, GATED)},
    "mamba": {"gated": Gated(member="mamba2", heads=6, key_dim=17, value_dim=70, key_heads=3, conv_bias=True)},
    "kda": {"gated": Gated(member="kda", heads=3, key_dim=9, value_dim=11)},
    "gla": {"gated": (Gated(member="gla", heads=4, key_dim=3, value_dim=5), None)},
    "retention": {"gated": (Gated(member="retention", heads=4, key_dim=3, value_dim=5), None)},
    "rows": {"vocab": None, "inputs": 3, "output": None},
}  # fmt: skip
EVERY = [(form, kind) for form in FORMS for kind in KINDS if kind == "bfloat16" or form in ("odd", "deep", "experts")]


def model(kind, **form):
    """Return a config, parameters of 16 bits and the same numbers in float32."""
    config = Config(**{"dim": 24, "layers": 2, "heads": 4, "vocab": 11, "length": 64, **form})
    rng = np.random.default_rng(3)  # biases and scales that are not 0 and 1
    params = {
        name: (value + 0.1 * rng.standard_normal(value.shape)).astype(np.float32)
        for name, value in initial_params(config, rng=0).items()
    }
    narrow = cast_params(params, kind)
    return config, narrow, {name: value.astype(np.float32) for name, value in narrow.items()}


def inputs(config, *shape):
    rng = np.random.default_rng(0)
    if config.vocab is None:
        return rng.standard_normal((*shape, config.inputs)).astype(np.float32)
    return rng.integers(config.vocab, size=shape)


@pytest.mark.parametrize(("form", "kind"), EVERY)
def test_steps_have_the_bits_of_float32_weights(form, kind):
    """For one row, a few, and more than a tall block; and each is near the array operations."""
    config, narrow, wide = model(kind, **FORMS[form])
    phi = ka.features.elu1()
    for rows in (1, 3, 17):
        x = inputs(config, rows, 6)
        _, state = prefill(wide, config, x[:, :4], attention=phi)
        decoders = [Decoder(params, config, attention=phi) for params in (narrow, wide)]
        for decoder in decoders:
            decoder.begin(state)
        for t in (4, 5):
            found, expected = (decoder.step(x[:, t]) for decoder in decoders)
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, expected)
            out, state = step(narrow, config, state, x[:, t], attention=phi)
            np.testing.assert_allclose(found, out, atol=2e-5 * np.abs(out).max())


@pytest.mark.parametrize("form", FORMS)
def test_whole_sequences_are_those_of_float32_weights(form):
    config, narrow, wide = model("bfloat16", **FORMS[form])
    x = inputs(config, 2, 7)
    expected = forward(wide, config, x)
    found = forward(narrow, config, x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compiled", [True, False])
def test_greedy_tokens_are_those_of_float32_weights(kind, compiled, monkeypatch):
    config, narrow, wide = model(kind)
    prompt, phi = inputs(config, 3, 5), ka.features.elu1()
    expected = generate(wide, config, prompt, 20, attention=phi, temperature=0)
    if not compiled:
        monkeypatch.setattr(generation, "why_not_compiled", lambda *given: "for a test")
    np.testing.assert_array_equal(generate(narrow, config, prompt, 20, attention=phi, temperature=0), expected)


def test_no_whole_copy_is_widened():
    """A Decoder holds the weights once more and not wider; a prompt takes less than its largest matrix in float32."""
    config = Config(dim=512, layers=2, heads=4, vocab=4000, length=16, output="tied")
    narrow = cast_params(initial_params(config, rng=0), "bfloat16")
    size = sum(value.nbytes for value in narrow.values())
    largest = max(value.nbytes for value in narrow.values())
    tracemalloc.start()
    try:
        decoder = Decoder(narrow, config, attention=ka.features.elu1())
        made = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        decoder.prefill(np.zeros((1, 2), int))
        taken = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert size < made < 1.3 * size
    assert taken < 2 * largest


@pytest.mark.parametrize("kind", KINDS)
def test_files_keep_the_dtype(kind, tmp_path):
    config, narrow, wide = model(kind)
    save_params(narrow, config, tmp_path / "as-it-is.npz")
    save_params(wide, config, tmp_path / "cast.npz", dtype=kind)
    for name in ("as-it-is", "cast"):
        found, same = load_params(tmp_path / f"{name}.npz")
        assert same == config
        assert {x.dtype for x in found.values() if x.ndim > 1} == {KINDS[kind]}
        assert {x.dtype for x in found.values() if x.ndim == 1} == {np.dtype(np.float32)}
        assert all(np.array_equal(found[name], narrow[name]) for name in narrow)
    found, _ = load_params(tmp_path / "cast.npz", "float32")
    assert {x.dtype for x in found.values()} == {np.dtype(np.float32)}
    assert all(np.array_equal(found[name], wide[name]) for name in wide)


def test_vectors_may_have_16_bits_too(tmp_path):
    config, narrow, _ = model("bfloat16")
    all_narrow = {name: value.astype(bfloat16) for name, value in narrow.items()}
    save_params(all_narrow, config, tmp_path / "p.npz")
    found, _ = load_params(tmp_path / "p.npz")
    assert {x.dtype for x in found.values()} == {np.dtype(bfloat16)}
    wide = {name: value.astype(np.float32) for name, value in found.items()}
    x = inputs(config, 2, 5)
    outs = []
    for params in (found, wide):
        decoder = Decoder(params, config)
        decoder.prefill(x[:, :4])
        outs.append(decoder.step(x[:, 4]))
    np.testing.assert_allclose(*outs, rtol=1e-5, atol=1e-5)


def test_bits_that_are_no_number_are_refused(tmp_path):
    config, narrow, _ = model("bfloat16")
    save_params(narrow, config, tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz") as file:
        content = dict(file)
    content["output.weight"][0, 0] = 0x7F80
    np.savez(tmp_path / "p.npz", **content)
    with pytest.raises(errors.FileFormatError, match=r"output\.weight must be finite numbers"):
        load_params(tmp_path / "p.npz")


def test_refusals(tmp_path):
    config, narrow, wide = model("bfloat16")
    for dtype, call in (
        ("int8", lambda: cast_params(wide, "int8")),
        ("int8", lambda: save_params(wide, config, tmp_path / "p.npz", dtype="int8")),
    ):
        with pytest.raises(errors.ParameterError, match=f"one of bfloat16, float16, float32, float64; got '{dtype}'"):
            call()
    with pytest.raises(errors.DTypeError, match="matrices of NumPy with 16 bits beside vectors in float32; got bfloat"):
        Decoder(narrow | {"output.weight": wide["output.weight"]}, config)
    with pytest.raises(errors.DTypeError, match="one dtype"):
        forward(wide | {"norm.scale": narrow["norm.scale"].astype(bfloat16)}, config, inputs(config, 1, 2))
    huge = wide | {"output.weight": np.full_like(wide["output.weight"], 1e5)}
    with pytest.raises(errors.ParameterError, match=r"params\['output.weight'\] must be finite numbers of float16"):
        cast_params(huge, "float16")
    of_vectors, vectors, _ = model("bfloat16", **FORMS["rows"])
    with pytest.raises(errors.ShapeError, match="of float32; got bfloat16"):
        forward(vectors, of_vectors, inputs(of_vectors, 1, 2).astype(bfloat16))
