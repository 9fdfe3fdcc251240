"""Parameters as files, and the command that draws from them."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.cli import main
from kernattn.transformer import Config, generate, initial_params, load_params, save_params

CONFIG = Config(dim=8, layers=1, heads=2, vocab=7, positions="axial", grid=(4, 4))
PARAMS = initial_params(CONFIG, 3)


@pytest.mark.parametrize(
    ("given", "kept", "loaded"),
    [("float32", None, None), ("float64", None, None), ("float32", "float16", None), ("float32", "float16", "float32")],
)
def test_what_is_saved_is_loaded(given, kept, loaded, tmp_path):
    params = {name: value.astype(given) for name, value in PARAMS.items()}
    save_params(params, CONFIG, tmp_path / "p.npz", dtype=kept)
    found, config = load_params(tmp_path / "p.npz", loaded)
    assert config == CONFIG
    assert list(found) == list(params)
    for name, value in found.items():
        held = given if kept is None or value.ndim == 1 else kept
        assert value.dtype == (loaded or held)
        np.testing.assert_array_equal(value, params[name].astype(held))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"header": np.array("[]")}, "fields of a config"),
        ({"header": np.array(json.dumps({"dim": 8}))}, "is no config"),
        ({"format": np.array("kernattn map 1")}, "not of the format"),
        ({"norm.scale": np.full(8, np.nan, np.float32)}, r"norm\.scale must be finite"),
        ({"norm.scale": np.ones(7, np.float32)}, r"norm\.scale must be finite numbers \(8,\)"),
        ({"norm.scale": np.ones(8, np.float64)}, "several dtypes"),
        ({"norm.scale": np.array([b"x"] * 8)}, "must be an array of float16"),
        ({"more": np.ones(2)}, "does not name: more"),
    ],
)
def test_forged_files_are_refused(change, message, tmp_path):
    save_params(PARAMS, CONFIG, tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz") as file:
        content = dict(file)
    np.savez(tmp_path / "p.npz", **content | change)
    with pytest.raises(errors.FileFormatError, match=message):
        load_params(tmp_path / "p.npz")


def test_the_command_draws(tmp_path, capsys):
    save_params(PARAMS, CONFIG, tmp_path / "p.npz")
    phi = ka.random_features(ka.kernels.Softmax(), 4, 16, rng=1)
    phi.save(tmp_path / "map.npz")
    words = ["transformer", str(tmp_path / "p.npz"), "--prompt", "1", "2", "--steps", "5"]
    words += ["--sequences", "3", "--seed", "4"]
    for more, kind in ((["--elu1"], ka.features.elu1()), (["--map", str(tmp_path / "map.npz")], phi), ([], None)):
        expected = generate(PARAMS, CONFIG, np.tile([1, 2], (3, 1)), 5, attention=kind, rng=4)
        assert main([*words, *more]) == 0
        printed = capsys.readouterr().out
        np.testing.assert_array_equal(np.array([line.split() for line in printed.splitlines()], int), expected)
    for name, value in (("temperature", 0), ("top_k", 1), ("top_p", 0.3)):
        drawn = generate(PARAMS, CONFIG, np.tile([1, 2], (3, 1)), 5, rng=4, **{name: value})
        assert np.any(drawn != expected)
        assert main([*words, f"--{name.replace('_', '-')}", str(value)]) == 0
        printed = capsys.readouterr().out
        np.testing.assert_array_equal(np.array([line.split() for line in printed.splitlines()], int), drawn)
    assert main([*words, "--out", str(tmp_path / "out.npy")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--elu1", "--map", "m.npz"], "--elu1 and --map"),
        (["--sequences", "0"], "--sequences must be 1"),
        (["--prompt", "9", "--steps", "3"], "x must be integers from 0 to 6"),
        (["--steps", "99"], "more than the 16 positions"),
    ],
)
def test_what_the_command_refuses(more, message, tmp_path, capsys):
    save_params(PARAMS, CONFIG, tmp_path / "p.npz")
    assert main(["transformer", str(tmp_path / "p.npz"), *more]) == 2
    assert message in capsys.readouterr().err


def test_where_the_command_does_not_write(tmp_path, capsys):
    """Before any work, and without harm to what is there: a device would be replaced by a file."""
    model = tmp_path / "p.npz"
    save_params(PARAMS, CONFIG, model)
    before = model.read_bytes()
    os.mkfifo(tmp_path / "device")
    for out, message in (
        (model, "another file than those that are read"),
        (tmp_path, "got the directory"),
        (tmp_path / "device", "got the device"),
        (tmp_path / "none" / "out.npy", "there is no directory"),
    ):
        assert main(["transformer", str(model), "--steps", "3", "--out", str(out)]) == 2
        assert message in capsys.readouterr().err
    assert model.read_bytes() == before
    assert (tmp_path / "device").is_fifo()
    with pytest.raises(errors.ParameterError, match="got the device"):
        save_params(PARAMS, CONFIG, tmp_path / "device")


def test_what_is_not_saved(tmp_path):
    with pytest.raises(errors.ParameterError, match="they lack"):
        save_params(PARAMS, replace(CONFIG, layers=2), tmp_path / "p.npz")
    with pytest.raises(errors.ParameterError, match="dtype must be one of"):
        save_params(PARAMS, CONFIG, tmp_path / "p.npz", dtype="int8")
    assert not list(tmp_path.iterdir())
