"""The command line: what it prints, how it fails."""

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import kernattn as ka
from kernattn.cli import main
from kernattn.features import _transform_file
from kernattn.studies import read_records
from kernattn.studies._presets import draw
from processes import run_script


@pytest.fixture
def tokens(tmp_path):
    """A file of 12 tokens."""
    x = 0.3 * np.random.default_rng(0).standard_normal((12, 4))
    np.savez(tmp_path / "mine.npz", q=x, k=x, v=x)
    return tmp_path / "mine.npz"


def words(tokens, out, *more, **axes):
    given = ["study", "attention", "--data", str(tokens), "--out", str(out), "--workers", "0", *more]
    chosen = {"estimator": "positive", "m": 4} | axes
    return [*given, "--set", *(f"{axis}={values}" for axis, values in chosen.items())]


def one_line(capsys):
    """The one line on stderr."""
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("kernattn")
    assert "Traceback" not in printed.err
    return printed.err


def test_quick_study_of_real_tokens(tmp_path, capsys, monkeypatch):
    """Of its twelve files one is drawn."""
    pytest.importorskip("sklearn")
    whole = draw.write_figures
    monkeypatch.setattr(draw, "write_figures", lambda *of: whole(*of, ["attention_mse"], formats=["png"]))
    options = ["--quick", "--draws", "6", "--workers", "0"]
    options += ["--set", "estimator=positive", "projection=iid", "m=16", "scale=2"]
    assert main(["study", "attention", "--out", str(tmp_path / "out"), *options]) == 0
    printed = capsys.readouterr().out
    assert "2 records" in printed
    assert printed.count("\n") == 3  # a verdict per dataset, and where the files are
    assert (tmp_path / "out" / "attention_mse.png").exists()


def test_study_of_own_tokens_and_what_a_folder_refuses(tokens, tmp_path, capsys, no_figures):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    assert main(words(tokens, out, "--draws", "6")) == 0
    assert main(words(tokens, out, "--draws", "6")) == 0
    capsys.readouterr()
    (out / "config.json").write_text('{"settings": {"study": "attention", "kernattn": "0.1.0"}}')
    assert main(words(tokens, out, "--draws", "6")) == 2
    assert "holds a study of kernattn 0.1" in one_line(capsys)


def test_a_damaged_record_is_one_line_and_no_end(tokens, tmp_path, capsys, no_figures):
    out = tmp_path / "out"
    assert main(words(tokens, out, "--draws", "6")) == 0
    first, second = (out / "records.jsonl").read_bytes().splitlines(keepends=True)
    (out / "records.jsonl").write_bytes(first + second[20:])
    capsys.readouterr()
    assert main(words(tokens, out, "--draws", "6")) == 0
    assert "line 2 is not a record; moved to records.rejected.jsonl" in one_line(capsys)
    assert (out / "records.rejected.jsonl").read_bytes() == second[20:]
    assert (out / "records.jsonl").read_bytes().count(b"\n") == 2


@pytest.mark.parametrize(
    ("options", "axes", "message"),
    [
        ([], {"m": 7}, "m must be even"),
        (["--draws", "3"], {}, "draws must be an integer, at least 6; got 3"),
        ([], {"projection": "nonsense"}, "got 'nonsense'"),
        (["--data", "nowhere.npz"], {}, "nowhere.npz does not exist"),
        ([], {"scale": 0}, "scale takes positive numbers, as 1.0; got 0.0"),
    ],
)
def test_user_errors_are_one_line(options, axes, message, tokens, tmp_path, capsys):
    assert main(words(tokens, tmp_path / "out", *options, **axes)) == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "out").exists()


MINE = """
import numpy as np
import kernattn as ka

def cosines(dim, num_features):
    def factory(rng):
        omega = rng.standard_normal((num_features, dim))
        return lambda x: np.cos(x @ omega.T)
    return ka.features.from_function(dim=dim, num_features=num_features, factory=factory)

fixed = ka.features.from_function(lambda x: np.concatenate([x + 3, 3 - x], axis=-1))
short = lambda dim, num_features: ka.features.from_function(lambda x: x[..., :1])
narrow = lambda dim, num_features: ka.features.from_function(lambda x: x, dim=3)
none = lambda dim, num_features: None
others = lambda d, m: None
number = 7
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module with maps of one's own, in the working directory."""
    (tmp_path / "maps_of_mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield
    sys.modules.pop("maps_of_mine", None)


@pytest.mark.usefixtures("mine", "no_figures")
def test_maps_of_ones_own(tokens, tmp_path, capsys):
    axes = {"estimator": "maps_of_mine:cosines,maps_of_mine:fixed", "m": "4,8"}
    assert main(words(tokens, tmp_path / "out", "--draws", "6", **axes)) == 0
    assert "3 records" in capsys.readouterr().out
    records = read_records(tmp_path / "out")
    assert [(r["estimator"], r["projection"], r["m"]) for r in records] == [
        ("maps_of_mine:cosines", "iid", 4),
        ("maps_of_mine:cosines", "iid", 8),
        ("maps_of_mine:fixed", "iid", 8),
    ]
    x = np.load(tokens)["q"]
    features = np.concatenate([x + 3, 3 - x], axis=1)
    gram, weights = features @ features.T, np.exp(x @ x.T / 2)
    out, exact = (each / each.sum(axis=1, keepdims=True) @ x for each in (gram, weights))
    assert records[-1]["attention_mse"] == pytest.approx(np.mean((out - exact) ** 2), rel=1e-6)
    assert all(r["kernel_relative_mse_low"] is None for r in records)  # nothing is known of their tails


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("maps_of_mine:short", "must give 4 features a row; 2 rows got (2, 1)"),
        ("maps_of_mine:fixed", "makes 8 features: name them as m"),
        ("maps_of_mine:narrow", "takes rows of 3 columns; the tokens have 4"),
        ("maps_of_mine:none", "must return a feature map; got None"),
        ("maps_of_mine:others", "must be a function of dim and num_features, by these names; it takes (d, m)"),
        ("maps_of_mine:number", "must be a feature map, or a function of dim and num_features"),
        ("maps_of_mine:nothing", "maps_of_mine:nothing is not there"),
        ("no_module_here:map", "no_module_here:map is not there"),
    ],
)
def test_wrong_maps_are_found_before_any_work(name, message, tokens, tmp_path, capsys):
    assert main(words(tokens, tmp_path / "out", estimator=name)) == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_figures")
def test_options_of_the_version_before(tokens, tmp_path, capsys):
    given = ["study", "attention", "--data", str(tokens), "--out", str(tmp_path / "out"), "--draws", "6"]
    assert main([*given, "--workers", "0", "--estimators", "positive", "--m", "4", "8"]) == 0
    warned = capsys.readouterr().err.splitlines()
    assert "kernattn: warning: --m is now --set m=4,8" in warned
    assert [(r["estimator"], r["m"]) for r in read_records(tmp_path / "out")] == [("positive", m) for m in (4, 8)] * 2


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_data_that_are_not_finite(name, tmp_path, capsys):
    arrays = {each: np.ones((5, 4)) for each in "qkv"}
    arrays[name][2, 1] = np.nan
    np.savez(tmp_path / "mine.npz", **arrays)
    assert main(words(tmp_path / "mine.npz", tmp_path / "out")) == 2
    assert f"mine.npz: {name} has values that are not finite" in one_line(capsys)
    assert not (tmp_path / "out").exists()


def test_every_study_has_a_folder_of_its_own(capsys):
    with pytest.raises(SystemExit):
        main(["study", "gaussian-kernel", "--help"])
    assert "study-gaussian-kernel" in capsys.readouterr().out


def test_folder_that_cannot_be_made(tokens, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(words(tokens, tmp_path / "file" / "out")) == 2
    assert "file" in one_line(capsys)


@pytest.mark.parametrize(
    "argv", [[], ["study"], ["nonsense"], ["study", "attention", "--draws", "x"], ["study", "attention", "--nonsense"]]
)
def test_bad_usage_is_one_line(argv, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(argv)
    assert exit_.value.code == 2
    assert "--help" in one_line(capsys)


def interrupted(*_):
    raise KeyboardInterrupt


def test_interruption_tells_what_is_kept(tokens, tmp_path, capsys, monkeypatch, no_figures):
    trial = "kernattn.studies._presets.attention.measure.Task.trial"
    with monkeypatch.context() as patch:
        patch.setattr(trial, interrupted)
        assert main(words(tokens, tmp_path / "out")) == 130
    assert one_line(capsys) == "kernattn: interrupted\n"
    assert main(words(tokens, tmp_path / "out")) == 0
    capsys.readouterr()
    monkeypatch.setattr(trial, interrupted)
    assert main(words(tokens, tmp_path / "out", m="4,8")) == 130
    n = len(read_records(tmp_path / "out"))
    kept = f"{n} of {2 * n} cells are in {tmp_path / 'out'}, and the same call goes on from there"
    assert one_line(capsys) == f"kernattn: interrupted; {kept}\n"


def test_interruption_of_the_arguments(capsys, monkeypatch):
    monkeypatch.setattr("kernattn.cli._main.parser", interrupted)
    assert main([]) == 130
    assert one_line(capsys) == "kernattn: interrupted\n"


def test_interrupted_features(tmp_path, capsys, monkeypatch):
    rows, out = tmp_path / "rows.npy", tmp_path / "features.npy"
    np.save(rows, np.ones((5000, 2)))
    command = ["features", str(rows), str(out), "--kernel", "gaussian", "--num-features", "4"]
    append, calls = _transform_file._Work.append, []

    def second(work, *given):
        calls.append(append(work, *given[:2], -1.0))
        return interrupted() if len(calls) % 2 else None

    monkeypatch.setattr(_transform_file._Work, "append", second)
    assert main(command) == 130
    kept = f"what is done is in {out}.partial, and the same call goes on from there"
    assert one_line(capsys) == f"kernattn: interrupted; {kept}\n"
    assert main(command) == 0
    assert np.load(out).shape == (5000, 4)


def test_missing_extra(tokens, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(words(tokens, tmp_path / "out")) == 2
    line = one_line(capsys)
    assert "matplotlib is not installed and is needed for the study's " in line
    assert line.endswith(": pip install 'kernattn[study]'\n")


def test_report_of_no_folder(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nothing")]) == 2
    wanted = f"folder must be the folder of a study, or one that holds such folders; got {tmp_path / 'nothing'}"
    assert wanted in one_line(capsys)


def test_info(capsys):
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    for line in ("Versions", "Threads", "Backends", "Ops"):
        assert f"\n{line}\n" in f"\n{printed}"
    rows = {words[0]: words[1:] for words in map(str.split, printed.splitlines()) if words}
    assert rows["numpy"] == [np.__version__]
    assert rows["reference"][0] == "available,"
    assert {"causal", "step", "features"} <= rows.keys()
    assert rows["gpu"][0] in ("available,", "unavailable:")
    assert rows["their"][1] in ("128", "256", "512", "none:")
    assert rows["matrix"][:3] == ["unit", "not", "used:"]


def test_info_imports_nothing_heavy_for_versions():
    heavy = {"torch", "jax", "sklearn", "matplotlib", "numba"}
    script = f"import sys, kernattn.studies; kernattn.studies.versions(); print(*{heavy} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_module_runs():
    run = subprocess.run([sys.executable, "-m", "kernattn", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("kernattn ")


NO_METADATA = """
import importlib.metadata as metadata

find = metadata.distribution

def absent(name):
    if name == "kernattn":
        raise metadata.PackageNotFoundError(name)
    return find(name)

metadata.distribution = absent
from kernattn.cli import main
from kernattn.features import _transform_file
assert main(["info"]) == 0
main(["--version"])
"""


def test_a_source_tree_has_no_metadata():
    done = run_script(NO_METADATA)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"\nkernattn {ka.__version__}\n")


@pytest.mark.skipif(os.name != "posix", reason="pipes that break")
def test_a_reader_may_leave():
    words = [sys.executable, "-m", "kernattn", "info"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_features_of_a_file(tmp_path, capsys):
    x = np.random.default_rng(0).standard_normal((50, 3))
    rows, out, kept = tmp_path / "rows.csv", tmp_path / "out.npy", tmp_path / "map.npz"
    np.savetxt(rows, x, "%.17g", ",", header="a,b,c", comments="")
    draw = ["--kernel", "Gaussian(lengthscale=[1, 2, 3])", "--num-features", "16", "--seed", "5", "--map", str(kept)]
    for more in (draw, draw, ["--map", str(kept)], draw[:6]):  # drawn, drawn again, taken, not kept
        out.unlink(missing_ok=True)
        assert main(["features", str(rows), str(out), *more]) == 0
        assert "50 rows are in" in capsys.readouterr().out
        phi = ka.random_features(ka.kernels.Gaussian([1, 2, 3]), 3, 16, rng=5)
        np.testing.assert_allclose(np.load(out), phi(x), rtol=1e-12, atol=1e-12)
    assert ka.load(kept).fingerprint == phi.fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "a map to draw needs --kernel and --num-features"),
        (["--kernel", "gauss", "--num-features", "4"], "--kernel must be one of additive_chi2"),
        (["--kernel", "gaussian(2)", "--num-features", "4"], "--kernel takes parameters as gaussian(name=number)"),
        (["--kernel", "gaussian(sigma=2)", "--num-features", "4"], "'sigma': that is lengthscale here"),
        (["--kernel", "rbf", "--num-features", "4"], "'rbf': that is 'gaussian' here"),
        (["--kernel", "gaussian(lengthscale=-1)", "--num-features", "4"], "lengthscale must be"),
        (["--kernel", "gaussian(lengthscale=open('x'))", "--num-features", "4"], "--kernel takes parameters as"),
        (["--kernel", "gaussian", "--num-features", "8", "--map", "map.npz"], "holds another map"),
    ],
)
def test_features_that_are_refused(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.ones((5, 3)))
    ka.random_features(ka.kernels.Gaussian(), 3, 4, rng=0).save("map.npz")
    assert main(["features", "rows.npy", "out.npy", *options]) == 2
    assert message in one_line(capsys)
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("out", "message"),
    [("out.txt", "out must be a file of"), ("none/out.npy", "no directory"), ("map.npz", "must be another file than")],
)
def test_a_map_is_saved_only_where_features_can_be_written(out, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.ones((5, 3)))
    draw = ["--kernel", "gaussian", "--num-features", "4", "--map", "map.npz"]
    assert main(["features", "rows.npy", out, *draw]) == 2
    assert message in one_line(capsys)
    assert not list(tmp_path.glob("map*"))


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("study attention", ["optimal_positive", "orthogonal"]),
        ("study uniform", ["over=ball,attention", "sobol"]),
        pytest.param("bench", ["causal-elu1"], marks=pytest.mark.skipif(not find_spec("numba"), reason="no loops")),
    ],
)
def test_help_names_what_there_is_to_choose(command, names, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([*command.split(), "--help"])
    assert exit_.value.code == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)


def test_warmup(capsys):
    pytest.importorskip("numba")
    assert main(["warmup", "--dtypes", "float64"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("float64: ")
    assert printed.endswith(" s\n")


def test_a_warmup_without_numba_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr("kernattn._warmup.missing", lambda backend: "numba is not installed")
    assert main(["warmup"]) == 2
    assert "nothing to warm up: numba is not installed" in one_line(capsys)
