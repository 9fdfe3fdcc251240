"""The speech example in a tiny form, on made frames: no sound, no speech program."""

import importlib
import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "speech"
MODULES = "bilstm", "corpus", "phonemes", "recogniser", "report", "sound", "timing", "train"
TINY = {"epochs": 6, "batch": 4, "dim": 32, "layers": 1, "warmup": 4}


@pytest.fixture(scope="module")
def speech():
    """The modules of the example, by name, which other examples may have too."""
    shadowed = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in MODULES}
    finally:
        sys.path.remove(str(FOLDER))
        for name in MODULES:
            del sys.modules[name]
        sys.modules.update(shadowed)


@pytest.fixture(scope="module")
def said(speech):
    """Utterances in which four phonemes are directions of 24 frames each, between pauses, in noise."""
    rng = np.random.default_rng(0)
    directions = 3 * rng.standard_normal((4, 40))
    found = []
    for _ in range(24):
        labels = rng.integers(4, size=rng.integers(3, 6))
        frames = np.concatenate([np.repeat([directions[i], 0 * directions[i]], 12, axis=0) for i in labels])
        noise = rng.standard_normal(frames.shape)
        found.append(speech["corpus"].Utterance((frames + noise).astype(np.float32), (1 + labels).tolist()))
    return found


def test_folded(speech):
    phonemes = speech["phonemes"]

    def names(mnemonics):
        return " ".join(phonemes.PHONEMES[label - 1] for label in phonemes.folded(mnemonics))

    assert len(phonemes.PHONEMES) == 40
    assert names("D_@2 k_w_'I_k v_'E_r_i_; 'aU_3") == "dh ah k w ih k v eh r iy aw er"
    assert names("b_'V_?_n- 'i:_tS__! w_,aI_l t_'3_:_n") == "b ah t ah n iy ch w ay l t er n"
    with pytest.raises(ValueError, match="'Q'"):
        phonemes.folded("b_'Q")


def test_greedy_is_the_path_without_repeats_and_blanks(speech):
    rng = np.random.default_rng(1)
    for path in rng.integers(3, size=(200, 12)).tolist():
        kept = [b for a, b in zip([None, *path], path, strict=False) if a != b and b != 0]
        assert speech["phonemes"].greedy(path) == kept
    assert speech["phonemes"].greedy([0, 2, 2, 0, 2, 1]) == [2, 2, 1]


def test_edits_are_those_of_the_recursion(speech):
    edits = speech["phonemes"].edits

    @cache
    def naive(a, b):
        if not a or not b:
            return len(a) + len(b)
        changed = naive(a[1:], b[1:]) + (a[0] != b[0])
        return min(changed, naive(a[1:], b) + 1, naive(a, b[1:]) + 1)

    rng = np.random.default_rng(2)
    draws = [tuple(rng.integers(1, 4, size=rng.integers(8)).tolist()) for _ in range(90)]
    for a, b, c in zip(draws, draws[1:], draws[2:], strict=False):
        assert edits(a, b) == naive(a, b) == edits(b, a)
        assert edits(a, c) <= edits(a, b) + edits(b, c)
        assert edits(a, a) == 0
    assert speech["phonemes"].error_rate([[1, 2], []], [[1, 3], [1, 1]]) == 75


def test_mel_bands_share_every_frequency(speech):
    bands = speech["sound"].mel_bands(22050, 1024)
    centres = np.argmax(bands, axis=1)
    assert np.all(np.diff(centres) > 0)
    inside = slice(centres[0] + 1, centres[-1])
    assert_allclose(bands[:, inside].sum(axis=0), 1, rtol=1e-12)


def test_a_tone_is_loudest_in_the_band_of_its_frequency(speech):
    """The tone's frequency steps up; the band that is loudest against its own mean follows."""
    rate, rng = 16000, np.random.default_rng(3)
    tones = [300, 900, 2700]
    samples = np.concatenate([np.sin(2 * np.pi * f * np.arange(rate) / rate) for f in tones])
    frames = speech["sound"].log_mel(samples + 0.01 * rng.standard_normal(len(samples)), rate)
    assert frames.shape == (1 + (len(samples) - 400) // 160, 40)
    assert_allclose(frames.mean(axis=0), 0, atol=1e-4)
    assert_allclose(frames.std(axis=0), 1, rtol=1e-4)
    bands = speech["sound"].mel_bands(rate, 512)
    for i, f in enumerate(tones):
        best = np.argmax(bands[:, round(f / rate * 512)])
        middle = frames[100 * i + 20 : 100 * i + 80, best]
        assert np.min(middle) > np.max(np.delete(frames[:, best], np.s_[max(0, 100 * i - 5) : 100 * i + 105]))


def test_noise_has_the_power_that_is_asked_for(speech):
    rng = np.random.default_rng(4)
    samples = np.sin(np.arange(20000) / 9)
    for decibels, colour in ((5, 0.0), (20, 1.5)):
        noise = speech["sound"].noisy(samples, decibels, colour, rng) - samples
        assert_allclose(10 * np.log10(np.mean(samples**2) / np.mean(noise**2)), decibels, rtol=1e-6)
        power = np.abs(np.fft.rfft(noise)[1:]) ** 2
        slope = np.polyfit(np.log(np.arange(1, len(power) + 1)), np.log(power), 1)[0]
        assert_allclose(slope, -colour, atol=0.1)


def test_rows_are_neighbouring_frames(speech):
    recogniser = speech["recogniser"]
    frames = np.random.default_rng(5).standard_normal((21, 3)).astype(np.float32)
    rows = recogniser.stacked(frames)
    starts = range(0, 21 - recogniser.STACKED + 1, recogniser.STEP)
    assert_allclose(rows, [frames[i : i + recogniser.STACKED].ravel() for i in starts], rtol=0)


def training(speech, method, path):
    return speech["train"].Training(speech["train"].settings_of(method, 1e-2, 0) | TINY, path)


@pytest.mark.parametrize("method", ["softmax", "linear", "lsh-4", "bi-lstm"])
def test_a_model_learns_and_goes_on_where_it_stopped(speech, said, method, tmp_path):
    run = training(speech, method, tmp_path / "run.npz")
    before = speech["train"].evaluated(run.model, said, 8)
    for _ in range(3):
        run.epochs.append(run.epoch(said))
    run.keep()
    resumed = training(speech, method, tmp_path / "run.npz")
    for each in (run, resumed):
        for _ in range(3):
            each.epochs.append(each.epoch(said))
    losses = [epoch["loss"] for epoch in run.epochs]
    assert losses == [epoch["loss"] for epoch in resumed.epochs]
    assert losses[-1] < 0.5 * losses[0], losses
    assert speech["train"].evaluated(run.model, said, 8) < before
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]
    with pytest.raises(SystemExit, match="other settings"):
        speech["train"].Training({**run.settings, "rate": 1.0}, tmp_path / "run.npz")


def test_a_bidirectional_lstm_is_that_of_packed_sequences(speech):
    net, x = speech["bilstm"].BiLSTM(5, 3, 1), torch.randn(2, 7, 5)
    lengths = torch.tensor([4, 7])
    peer = torch.nn.LSTM(5, 3, 1, batch_first=True, bidirectional=True)
    for suffix, one in (("", net.forth[0]), ("_reverse", net.back[0])):
        for name, value in one.named_parameters():
            getattr(peer, name + suffix).data.copy_(value)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(peer(packed)[0], batch_first=True)
    there = torch.arange(7) < lengths[:, None]
    assert_allclose(net(x, there)[there].detach(), wanted[there].detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["softmax", "linear", "bi-lstm"])
def test_an_utterance_knows_nothing_of_those_beside_it(speech, said, method):
    recogniser = speech["recogniser"]
    model = recogniser.Recogniser(method, 32, 1, 0)
    together = recogniser.batch(said[:6])
    with torch.no_grad():
        logits = model.logits(together)
        for one, rows, there in zip(said, logits, together.there, strict=False):
            alone = model.logits(recogniser.batch([one]))[0]
            assert_allclose(rows[there], alone, rtol=1e-4, atol=1e-5)


def test_every_method_is_timed(speech):
    rows = speech["timing"].timed({16: 1})
    assert {row["method"] for row in rows} == {*speech["recogniser"].METHODS, "ctc"}
    assert all(row["seconds"] > 0 for row in rows)


def test_tables_tell_the_records(speech, tmp_path):
    report = speech["report"]

    def kept(method, rate, seed, epochs, seen, unseen):
        settings = {"method": method, "rate": rate, "seed": seed, "epochs": epochs}
        measured = [{"cpu_seconds": 10.0, "seen": 90.0, "unseen": 95.0}]
        measured += [{"cpu_seconds": 12.0, "seen": seen, "unseen": unseen}]
        record = {"settings": settings, "parameters": 1234, "epochs": measured}
        (tmp_path / f"{method}-{rate:g}-{seed}.json").write_text(json.dumps(record), encoding="utf-8")

    kept("linear", 0.01, 0, 2, 30.0, 20.0)
    kept("linear", 0.004, 0, 2, 25.0, 21.5)
    kept("linear", 0.004, 1, 2, 25.0, 23.26)
    kept("softmax", 0.004, 0, 3, 1.0, 1.0)
    runs = report.loaded(tmp_path)
    assert set(runs) == {"linear"}, "what is not finished is not reported"
    chosen = report.best(runs)
    assert [run["settings"]["rate"] for run in chosen["linear"]] == [0.004, 0.004], "chosen by seen voices alone"
    (row,) = report.errors(chosen).splitlines()[2:]
    assert row == "| linear, elu + 1 | 1,234 | 0.004 | 2 | 25.0 | 21.5 to 23.3 | 11 | 8.08 | 824 |"
    assert report.rates(runs).splitlines()[::2] == ["| | rate 0.004 | rate 0.01 |", "| linear, elu + 1 | 25.0 | 30.0 |"]
    made = zip([*speech["recogniser"].METHODS, "ctc"], [0.05, 0.03, 0.04, 0.02, 0.01], strict=True)
    table = report.times([{"n": 1000, "method": method, "seconds": seconds} for method, seconds in made])
    assert "| softmax | 50 ms (2.00) |" in table.splitlines()
    assert table.splitlines()[-1] == "| CTC alone, in each of these | 10 ms |"
    page = "a\n<!-- x: made by examples/speech/report.py -->\nold\n<!-- end of x -->\nb"
    assert report.placed(page, "x", "| \\1 |").splitlines()[2] == "| \\1 |"
    with pytest.raises(SystemExit, match="one place"):
        report.placed(page, "y", "")
    report.curves(chosen, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
