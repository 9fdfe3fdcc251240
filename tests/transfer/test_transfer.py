"""Transfer of a transformer on arrays: what is recorded, what is fitted, what is worth what, and files."""

import json
import shutil

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.features._fitted import learn
from kernattn.transfer import _fit, _run
from kernattn.transfer._rows import Recorder
from kernattn.transformer import Config, Decoder, forward, generate, initial_params, prefill, step, transfer

CONFIG = Config(dim=8, layers=2, heads=2, vocab=7, length=24, hidden=8)
TOKENS = np.random.default_rng(0).integers(7, size=(6, 24))
FEW = {"sequences": 6, "window": 4, "rng": 0}
pytestmark = pytest.mark.filterwarnings("ignore:a fit was no better")  # few steps and few rows


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    monkeypatch.setattr(learn, "STEPS", 100)
    monkeypatch.setattr(_fit, "FITTED_TO", 64)


def params_of(config=CONFIG):
    return {name: (2.5 * x).astype(np.float32) for name, x in initial_params(config, rng=0).items()}


@pytest.fixture(scope="module")
def moved():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learn, "STEPS", 100)
        patch.setattr(_fit, "FITTED_TO", 64)
        return transfer(params_of(), CONFIG, [TOKENS], 8, **FEW)


def test_a_model_is_nearly_itself(moved):
    params = params_of()
    exact, found = (forward(params, CONFIG, TOKENS, attention=how) for how in (None, moved))
    favor = [ka.random_features(ka.kernels.Softmax(), 4, 8, "positive", rng=seed) for seed in range(4)]
    errors_of = [np.linalg.norm(forward(params, CONFIG, TOKENS, attention=phi) - exact) for phi in favor]
    assert np.linalg.norm(found - exact) < 0.8 * min(errors_of)
    assert [layer.name for layer in moved.layers] == ["layers.0", "layers.1"]
    for layer in moved.layers:
        assert layer.error < layer.random_error
        assert (layer.seen, layer.held, len(layer.heads.maps)) == (5, 1, 2)
    assert "layers.1" in str(moved)


def test_tokens_follow_one_by_one(moved):
    params = params_of()
    whole = forward(params, CONFIG, TOKENS, attention=moved)
    out, state = prefill(params, CONFIG, TOKENS[:, :20], attention=moved)
    np.testing.assert_allclose(out, whole[:, :20], rtol=1e-4, atol=1e-4)
    for at in range(20, 24):
        out, state = step(params, CONFIG, state, TOKENS[:, at], attention=moved)
        np.testing.assert_allclose(out, whole[:, at], rtol=1e-4, atol=1e-4)
    decoder = Decoder(params, CONFIG, attention=moved)
    decoder.prefill(TOKENS[:, :20])
    for at in range(20, 24):
        np.testing.assert_allclose(decoder.step(TOKENS[:, at]), whole[:, at], rtol=1e-4, atol=1e-4)
    assert generate(params, CONFIG, TOKENS[:, :4], 3, attention=moved, rng=0).shape == (6, 3)


def test_errors_are_of_sequences_that_no_fit_saw(monkeypatch):
    """What is fitted to and what judges have no row in common."""
    seen = {}
    own_map, own_error = _fit._map, _fit._error

    def noting(kernel, q, k, v, asked, rng):
        seen.setdefault("rows", []).append(k)
        return own_map(kernel, q, k, v, asked, rng)

    def judged(heads, head, rows, place):
        seen.setdefault("held", []).append(rows)
        return own_error(heads, head, rows, place)

    monkeypatch.setattr(_fit, "_map", noting)
    monkeypatch.setattr(_fit, "_error", judged)
    one = Config(dim=8, layers=1, heads=2, inputs=3, positions=None, output=None)
    x = np.random.default_rng(0).standard_normal((6, 24, 3)).astype(np.float32)
    transfer(params_of(one), one, [x[:3], x[3:]], 8, sequences=5, rng=0)
    fitted = np.concatenate(seen["rows"])
    for rows in seen["held"]:
        assert len(rows) == 1
        for key in rows[0].k.reshape(-1, 4).astype(np.float64):
            assert np.abs(fitted - key).max(axis=1).min() > 0


def test_a_recorder_is_a_reservoir_of_whole_sequences():
    rng, counts = np.random.default_rng(0), np.zeros(40)
    for seed in range(60):
        recorder = Recorder(4, 5, seed, set())
        for first in range(0, 40, 10):
            x = np.broadcast_to(np.arange(first, first + 10)[:, None, None, None], (10, 2, 8, 3)).astype(np.float32)
            recorder.take("a", x, x, x, None, True, 0.5)
        kept = recorder.kept["a"]
        assert [x.k.shape for x in kept] == [(2, 5, 3)] * 4
        numbers = {float(x.k[0, 0, 0]) for x in kept}
        assert len(numbers) == 4
        counts[[int(x) for x in numbers]] += 1
    assert 0 < counts.min() <= counts.max() < 18  # 6 each, of a binomial law whose deviation is 2.3
    recorder = Recorder(4, 99, 0, set())
    x = rng.standard_normal((2, 1, 2, 6, 3)).astype(np.float32)  # one head of keys serves two
    mask = np.array([[True] * 6, [False] * 2 + [True] * 4])
    recorder.take("a", x, x[:, :, :1], x[:, :, :1], mask, True, 0.5)
    first, second = recorder.kept["a"]
    assert first.q.shape == (1, 2, 6, 3)
    np.testing.assert_array_equal(second.q, x[1, :, :, 2:])
    np.testing.assert_array_equal(second.k, x[1, :, 0, 2:])
    with pytest.raises(errors.ParameterError, match="of one kind"):
        recorder.take("a", x, x[:, :, :1], x[:, :, :1], mask, False, 0.5)
    with pytest.raises(errors.ParameterError, match="q of b must be finite"):
        recorder.take("b", x * np.nan, x[:, :, :1], x[:, :, :1], mask, True, 0.5)


@pytest.mark.parametrize("kind", ["hedgehog", "exponential"])
def test_beside_exact_weights_a_fit_has_the_kernels_size(kind):
    rng = np.random.default_rng(1)
    centres = 1.5 * rng.standard_normal((6, 4))
    q, k, more = (centres[rng.integers(6, size=96)] + 0.3 * rng.standard_normal((96, 4)) for _ in range(3))
    kernel = ka.kernels.Softmax()
    phi = ka.features.fit(kernel, (q, k), 8, kind=kind, rng=0)
    ours = _fit.calibrate(phi, q, k)
    same = [ka.linear_attention(more, k, k, each) for each in (phi, ours)]
    np.testing.assert_allclose(*same, rtol=1e-9, atol=1e-9)

    def sums(each):
        return np.log(np.sum(each.query(more) @ each.key(k).T, axis=1))

    exact = np.log(np.sum(kernel(more, k), axis=1))
    off, before = (np.sqrt(np.mean((sums(each) - exact) ** 2)) for each in (ours, phi))
    assert off < 0.5 * before


def test_a_run_goes_on_where_it_was_stopped(tmp_path, monkeypatch, moved):
    folder, own, calls = tmp_path / "maps", _run.fit_layer, []

    def stopped(name, *args):
        calls.append(name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return own(name, *args)

    monkeypatch.setattr(_run, "fit_layer", stopped)
    with pytest.raises(KeyboardInterrupt):
        transfer(params_of(), CONFIG, [TOKENS], 8, folder=folder, **FEW)
    with pytest.raises(FileNotFoundError, match="1 layers of one that is not complete"):
        ka.transfer.load(folder)
    with pytest.raises(errors.ParameterError, match="another num_features: num_features=8"):
        transfer(params_of(), CONFIG, [TOKENS], 16, folder=folder, **FEW)
    other = {name: np.float32(1.01) * x for name, x in params_of().items()}
    with pytest.raises(errors.ParameterError, match="another model"):
        transfer(other, CONFIG, [TOKENS], 8, folder=folder, **FEW)
    made = transfer(params_of(), CONFIG, [TOKENS], 8, folder=folder, **FEW)
    assert calls == ["layers.0", "layers.1", "layers.1"]
    assert made.fingerprint == moved.fingerprint == ka.transfer.load(folder).fingerprint
    again = transfer(params_of(), CONFIG, iter(()), 8, folder=folder, **FEW)  # nothing is run
    anyone = transfer(params_of(), CONFIG, iter(()), 8, folder=folder, **FEW | {"rng": None})  # the folder's
    with pytest.warns(DeprecationWarning, match=r"transfer\(seed=\) is now rng="):
        older = transfer(params_of(), CONFIG, iter(()), 8, folder=folder, seed=0, sequences=6, window=4)
    assert again.fingerprint == anyone.fingerprint == older.fingerprint
    with pytest.raises(errors.ParameterError, match="another rng: rng=0"):
        transfer(params_of(), CONFIG, iter(()), 8, folder=folder, **FEW | {"rng": np.random.default_rng(1)})
    assert [layer.errors for layer in again.layers] == [layer.errors for layer in moved.layers]
    x = TOKENS[:2]
    np.testing.assert_array_equal(*(forward(params_of(), CONFIG, x, attention=each) for each in (again, moved)))
    assert not list(folder.glob(".kernattn-*"))
    with pytest.raises(errors.ParameterError, match="no transfer yet"):
        again.save(folder)
    shutil.copy(folder / "layer-0000.npz", folder / "layer-0001.npz")
    with pytest.raises(errors.FileFormatError, match="several transfers"):
        ka.transfer.load(folder)
    (folder / "layer-0001.npz").write_bytes(b"PK")
    with pytest.raises(errors.FileFormatError, match=r"layer-0001\.npz"):
        ka.transfer.load(folder)
    for name in ("transfer.json", "settings.json"):  # brackets deeper than Python follows
        (folder / name).write_text("[" * 100_000)
        with pytest.raises(errors.FileFormatError, match=rf"{name} is damaged"):
            transfer(params_of(), CONFIG, [TOKENS], 8, folder=folder, **FEW)


def test_no_byte_of_a_folder_can_be_another(tmp_path, moved):
    """Errors and counts of sequences, which no fingerprint holds, and even what no reader of archives looks at."""
    moved.save(tmp_path / "made")
    ka.transfer.load(tmp_path / "made")
    layer = moved.layers[1]
    other = ka.transfer.Layer(layer.name, layer.heads, (0.0, 0.0), layer.random_errors, layer.seen, layer.held)
    ka.transfer.Transfer((moved.layers[0], other)).save(tmp_path / "forged")
    listed = json.loads((tmp_path / "made" / "transfer.json").read_text())
    whole = (tmp_path / "made" / "layer-0001.npz").read_bytes()
    flipped = (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), len(whole) // 40))
    for content in ((tmp_path / "forged" / "layer-0001.npz").read_bytes(), whole + b"\0", b"", *flipped):
        (tmp_path / "made" / "layer-0001.npz").write_bytes(content)
        with pytest.raises(errors.FileFormatError, match=r"layer-0001\.npz is not the file"):
            ka.transfer.load(tmp_path / "made")
    (tmp_path / "made" / "layer-0001.npz").write_bytes(whole)
    for layers in (2, None, [], [None, None], [[], {}], listed["layers"][:1], listed["layers"][::-1]):
        (tmp_path / "made" / "transfer.json").write_text(json.dumps(listed | {"layers": layers}))
        with pytest.raises(errors.FileFormatError):
            ka.transfer.load(tmp_path / "made")


def test_random_maps_are_kept_where_fits_do_not_help(monkeypatch):
    monkeypatch.setattr(learn, "RATE", 1e3)
    monkeypatch.setattr(learn, "MOST", 30.0)
    one = Config(dim=8, layers=1, heads=2, vocab=7, length=24, hidden=0)
    with pytest.warns(UserWarning, match=r"no better than a random map, which these have: layers\.0: 0"):
        made = transfer(params_of(one), one, [TOKENS], 8, sequences=6, shared=True, output_scale=True, rng=0)
    assert made["layers.0"].random_heads == (0,)
    assert len(made["layers.0"].heads.scale) == 2


def test_what_cannot_be_is_refused_before_any_fit():
    params = params_of()

    def asked(match, config=CONFIG, batches=(TOKENS,), **given):
        of = params if config is CONFIG else params_of(config)
        with pytest.raises(errors.ParameterError, match=match):
            transfer(of, config, batches, 8, **given)

    asked("kind must be one of hedgehog, exponential", kind="omega")
    asked("sequences must be 2 at least", sequences=1)
    asked("one batch at least", batches=())
    asked("2 sequences at least", batches=(TOKENS[:1],))
    one = {"dim": 8, "layers": 1, "heads": 2, "vocab": 7, "length": 24}
    asked("layers.0 attends to all tokens", Config(**one, causal=False), window=2)
    asked("without cross attention", Config(**one, cross=True))
    params = params | {"layers.0.attention.q.weight": np.full((8, 8), np.nan, np.float32)}
    asked("of layers.0 must be finite")
    heads = ka.transfer.Heads(ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0))
    for few in ((), (0.1, 0.2)):
        with pytest.raises(errors.ParameterError, match="a number for each of one or more heads; got"):
            ka.transfer.Layer("layers.0", heads, few, (0.1,)[: len(few)], 3, 1)
    two = ka.transfer.Heads([heads.maps[0]] * 2)
    with pytest.raises(errors.ParameterError, match="each of 2 heads; got 3 and 3"):
        ka.transfer.Layer("layers.0", two, (0.1,) * 3, (0.1,) * 3, 3, 1)
    same = ka.transfer.Layer("layers.0", heads, (0.1,), (0.2,), 3, 1)
    for layers in ((), (same, same)):
        with pytest.raises(errors.ParameterError, match="each of a name of its own"):
            ka.transfer.Transfer(layers)
    other = ka.transfer.Transfer((ka.transfer.Layer("layers.1", heads, (0.1,), (0.2,), 3, 1),))
    params, config = params_of(Config(**one)), Config(**one)
    with pytest.raises(errors.ParameterError, match="a transfer of a model of 1 layers"):
        forward(params, config, TOKENS, attention=other)


def test_a_layer_that_a_transfer_lacks_attends_exactly_and_is_told(tmp_path):
    params, heads = params_of(), ka.transfer.Heads(ka.features.elu1(), window=4)
    first = ka.transfer.Transfer((ka.transfer.Layer("layers.0", heads, (0.1,), (0.2,), 5, 1),))
    found = forward(params, CONFIG, TOKENS, attention=first)
    np.testing.assert_array_equal(found, forward(params, CONFIG, TOKENS, attention=[heads, None]))
    assert repr(first).startswith("Transfer(1 layer, ")
    with pytest.raises(KeyError, match=r"0 is none of the layers layers\.0"):
        first[0]
    (tmp_path / "file").touch()
    for call in (lambda: first.save(tmp_path / "file"), lambda: transfer(params, CONFIG, [], folder=tmp_path / "file")):
        with pytest.raises(errors.ParameterError, match="folder must be the name of a folder; got the file"):
            call()
