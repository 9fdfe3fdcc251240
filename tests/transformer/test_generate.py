"""Tokens drawn one by one: the most likely ones, their frequencies, unequal prompts."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.transformer import Config, forward, generate, initial_params

CONFIG = Config(dim=8, layers=2, heads=2, vocab=7, length=24)
PARAMS = initial_params(CONFIG, 0, "float64")
PARAMS |= {name: 30 * value for name, value in PARAMS.items() if name.startswith("embed")}
ELU1 = ka.features.elu1()
PROMPT = np.random.default_rng(0).integers(7, size=(3, 4))


@pytest.mark.parametrize("attention", [None, ELU1], ids=["exact", "elu1"])
def test_temperature_zero_takes_the_most_likely_token(attention):
    drawn = generate(PARAMS, CONFIG, PROMPT, 6, attention=attention, temperature=0)
    x = PROMPT
    for _ in range(6):
        logits = forward(PARAMS, CONFIG, x, attention=attention)[:, -1]
        x = np.concatenate([x, np.argmax(logits, axis=-1)[:, None]], axis=-1)
    np.testing.assert_array_equal(drawn, x[:, 4:])
    one = generate(PARAMS, CONFIG, PROMPT, 6, attention=attention, top_k=1, rng=3)
    np.testing.assert_array_equal(one, drawn)
    np.testing.assert_array_equal(generate(PARAMS, CONFIG, PROMPT, 6, attention=attention, top_p=1e-9, rng=0), drawn)


def test_draws_do_not_depend_on_the_sequences_beside():
    together = generate(PARAMS, CONFIG, PROMPT, 6, attention=ELU1, rng=2)
    np.testing.assert_array_equal(generate(PARAMS, CONFIG, PROMPT[:2], 6, attention=ELU1, rng=2), together[:2])


@pytest.mark.statistical
@pytest.mark.parametrize("how", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.6}], ids=str)
def test_frequencies_of_tokens(how):
    """Counts of 4,000 draws are within 4.5 standard deviations of the law, token by token."""
    prompt = np.tile(PROMPT[:1], (4000, 1))
    drawn = generate(PARAMS, CONFIG, prompt, 1, attention=ELU1, rng=1, **how)[:, 0]
    logits = forward(PARAMS, CONFIG, PROMPT[:1], attention=ELU1)[0, -1] / how.get("temperature", 1)
    law = np.exp(logits - logits.max())
    order = np.argsort(-law)
    keep = how.get("top_k", 7)
    if "top_p" in how:
        keep = 1 + int(np.sum(np.cumsum(law[order]) / law.sum() < how["top_p"]))
        assert 1 < keep < 7
    law[order[keep:]] = 0
    law /= law.sum()
    counts = np.bincount(drawn, minlength=7)
    assert np.all(counts[law == 0] == 0)
    assert np.all(np.abs(counts - 4000 * law) <= 4.5 * np.sqrt(4000 * law * (1 - law)) + 1e-9)


@pytest.mark.parametrize("attention", [None, ELU1], ids=["exact", "elu1"])
def test_prompts_of_unequal_length(attention):
    lengths = np.array([4, 1, 3])
    drawn = generate(PARAMS, CONFIG, PROMPT, 5, attention=attention, lengths=lengths, temperature=0)
    for i, length in enumerate(lengths):
        alone = generate(PARAMS, CONFIG, PROMPT[i : i + 1, :length], 5, attention=attention, temperature=0)
        np.testing.assert_array_equal(drawn[i : i + 1], alone)


def test_a_seed_repeats_and_the_end_stays():
    one = generate(PARAMS, CONFIG, PROMPT, 20, attention=ELU1, rng=5)
    np.testing.assert_array_equal(one, generate(PARAMS, CONFIG, PROMPT, 20, attention=ELU1, rng=5))
    assert np.any(one != generate(PARAMS, CONFIG, PROMPT, 20, attention=ELU1, rng=6))
    stop = int(one[0, 3])
    ended = generate(PARAMS, CONFIG, PROMPT, 20, attention=ELU1, rng=5, stop=stop)
    for row, whole in zip(ended, one, strict=True):
        found = np.flatnonzero(whole == stop)
        last = found[0] if len(found) else 20
        np.testing.assert_array_equal(row[: last + 1], whole[: last + 1])
        assert np.all(row[last:] == stop)


def test_progress_is_shown(capsys):
    generate(PARAMS, CONFIG, PROMPT, 3, attention=ELU1, rng=0, progress=True)
    assert "3/3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"temperature": -1}, "temperature must be 0 or more"),
        ({"top_k": 8}, "top_k must be 7 at most"),
        ({"top_p": 0}, r"top_p must lie in \(0, 1\]"),
        ({"stop": 7}, "stop must be a token from 0 to 6"),
        ({"steps": 22}, "more than the 24 positions"),
        ({"steps": 0}, "steps must be a positive integer"),
    ],
)
def test_what_is_refused(how, message):
    with pytest.raises(errors.ParameterError, match=message):
        generate(PARAMS, CONFIG, PROMPT, **{"steps": 2, **how}, attention=ELU1)


def test_sequences_that_end_apart_hold_their_stop_to_the_end():
    prompt = np.repeat(PROMPT[:1], 8, axis=0)
    plain = generate(PARAMS, CONFIG, prompt, 6, attention=ELU1, rng=1)
    stop = int(plain[0, 1])
    ended = np.cumsum(plain == stop, axis=1) > 0
    assert len(set(ended.sum(axis=1))) > 1
    drawn = generate(PARAMS, CONFIG, prompt, 6, attention=ELU1, rng=1, stop=stop)
    np.testing.assert_array_equal(drawn, np.where(ended, stop, plain))
