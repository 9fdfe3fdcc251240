"""Benchmarks of the CPU run, and say what they measured; nothing here asserts a speed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from bench import Sizes, cases, race_cases, write
from bench.cpu import kernel_peers, pattern_peers
from bench.cpu.device import DEVICE
from bench.cpu.scaling import SCALING, scaling, scaling_figure
from bench.races import Case, Race
from bench.sizes import Watched
from kernattn.bench import Gauge, HostClock, Rates, Work, _gauges, table
from kernattn.cli import main
from kernattn.cli._start import START, time_starts
from processes import run_script

TINY = Sizes(n=128, heads=2, dim=16, features=32)
SAME = (
    "causal",
    "full",
    "softmax",
    "libraries",
    "decoder-kept",
    "edges-steps",
    "transforms",
    "chains",
    "tensor-srht",
    "compiled",
    "kernel",
    "orthogonal",
    "layer",
    "prefixes",
    "gated",
    "tanimoto",
)
OTHERS = ("performer", "alone", "one map", "no gates", "another kernel")  # of which the first adds 1e-4 to its features
RATES = Rates(bytes=1e10, flops=1e11, functions=1e9)


def idle(sizes: Sizes, work: Work) -> dict[str, Gauge]:
    return dict.fromkeys(("bytes", "flops", "functions"), Gauge(lambda: None, 1.0))


def test_a_turn_begins_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.0], []
    monkeypatch.setattr("kernattn.bench._clock.perf_counter", lambda: now[0])
    monkeypatch.setattr("kernattn.bench._clock.sleep", slept.append)

    def call() -> None:
        now[0] += 0.001

    HostClock().settle(call)
    assert 0.01 < sum(slept) < 1  # seconds
    assert 100.01 < now[0] < 101


@pytest.mark.parametrize("work", [Work(1e6, 1e6, 1e6, 1e5), Work(1e6, 1e6, 1e6, 5e5, True), Work(bytes=8.0)])
def test_gauges_do_what_they_say(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traffic is that of whole passes over arrays of the work's size; every product and exponential is one counted."""
    done = {"flops": 0, "functions": 0}

    def tiles(a: Any, b: Any, c: Any, loops: int) -> None:
        done["flops"] += 2 * loops * round(a.size**1.5)

    def exponentials(x: Any, y: Any, loops: int) -> None:
        done["functions"] += loops * x.size

    monkeypatch.setenv("KERNATTN_NUM_THREADS", "1")
    monkeypatch.setattr(_gauges, "_multiply_tiles", tiles)
    monkeypatch.setattr(_gauges, "_take_exponentials", exponentials)
    found = DEVICE.gauges(TINY, work)
    passes = max(1, int(2**25 / work.bytes))
    assert 0.9 * work.bytes <= found["bytes"].amount / passes < 1.1 * work.bytes + 1000
    for gauge in found.values():
        gauge.call()
    assert done == {name: found[name].amount for name in done}


@pytest.mark.parametrize("name", [name for name in DEVICE.cases if not name.startswith("gradients-")])
def test_contestants_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith(("compiled", "gated-delta", "window")) and find_spec("torch"):  # which takes long
        monkeypatch.setattr(import_module("torch"), "compile", lambda run, **how: run)
    if name in ("digits", "patches"):
        pytest.importorskip("sklearn")
        pytest.importorskip("PIL")
    sizes = Watched.of(replace(TINY, n=32) if name == "prefixes" else TINY)  # a model for each of 32 sequences
    calls = dict(DEVICE.cases[name].make(sizes).calls)
    read = set(sizes.read)
    assert next(iter(calls)) == "ours"  # to which ratios are
    ours = calls.pop("ours")()
    for contestant, call in calls.items():
        found = call()
        if name.startswith("half-"):
            out_first = name.endswith("-both-ways") and "torch" in contestant
            _check_halves(ours, found[1:] if out_first else found, contestant)
        if not name.startswith(SAME):
            continue
        expected, found = (x[0] if isinstance(x, tuple) else x for x in (ours, found))
        if not any(word in contestant for word in OTHERS):
            found = np.asarray(found).reshape(expected.shape)
            np.testing.assert_allclose(found, expected, atol=2e-4, err_msg=contestant)
    assert sizes.read == read  # by now calls have what they need: `unread` makes races, and calls none


def test_sizes_that_a_race_puts_in_place_of_others_are_not_read() -> None:
    watched = Watched.of(TINY)
    other = watched.but(n=8 * watched.n, heads=1)
    assert (other.n, other.heads, other.tokens) == (1024, 1, 1024)
    assert watched.read == other.read == {"n", "batch"}
    assert replace(TINY, n=1024, heads=1) == TINY.but(n=1024, heads=1)


def _check_halves(ours: Any, found: Any, contestant: str) -> None:
    """What comes of 16-bit arrays is near what comes of float32; torch's running sums in bfloat16 lose more."""
    if "alone" in contestant:
        return
    for x, y in zip(*((each if isinstance(each, tuple) else (each,))[:3] for each in (ours, found)), strict=False):
        if isinstance(x, np.ndarray):
            y = np.asarray(y.detach().float() if hasattr(y, "float") else y, np.float32).reshape(x.shape)
            assert np.linalg.norm(y - x) < (0.2 if "torch" in contestant else 0.03) * np.linalg.norm(x), contestant


def test_peers_of_windows_see_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("bench.cpu.peers.compiles", lambda: False)  # which takes long
    calls = DEVICE.cases["pattern-local"].make(replace(TINY, n=1024, heads=2, dim=4)).calls
    ours, same = calls["ours"](), ("in chunks", "masked", "Longformer")
    found = {name: np.asarray(call()) for name, call in calls.items() if any(word in name for word in same)}
    assert len(found) >= 2
    for name, x in found.items():
        x = x[0].transpose(1, 0, 2) if "Longformer" in name else x.reshape(ours.shape)
        np.testing.assert_allclose(x, ours, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("name", ["window-64", "window-64-fitted", "window-64-fitted-both-ways"])
def test_peers_of_a_window_and_features_are_the_same_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("bench.cpu.peers.compiles", lambda: False)  # which takes long
    calls = DEVICE.cases[name].make(replace(TINY, n=320)).calls
    (ours, *_), both = calls["ours"](), "both" in name
    found = {contestant: call() for contestant, call in calls.items() if contestant.startswith("torch")}
    assert len(found) == (1 if both else 3)
    for contestant, x in found.items():
        of_values = x[3] if both else x  # after the output and the cotangents of queries and keys
        wanted = calls["ours"]()[2] if both else ours
        np.testing.assert_allclose(of_values, wanted, atol=2e-5, err_msg=contestant)


@pytest.mark.parametrize("n", [256, 1024])  # with a draw for each head, and of the lengths of the paper
def test_the_peer_of_bigbird_sees_random_blocks(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr("bench.cpu.peers.compiles", lambda: False)  # which takes long
    alike, block = np.zeros((2, n, 16), np.float32), n // 16
    values = np.broadcast_to(np.repeat(np.eye(16, dtype=np.float32), block, axis=0), alike.shape)
    weights = np.asarray(pattern_peers.bigbird_hf(alike, alike, values.copy(), block, 3)())[0, :: n // 16]
    seen = np.count_nonzero(weights.reshape(16, 2, 16) > 0, axis=-1)
    assert np.all(seen[[0, -1]] == 16)
    assert np.all(seen[2:-3] == 5 + 3)  # random ones of the last rows can be others of theirs


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["gaussian-features", "tensor-sketch"])
def test_features_of_torch_are_ours_in_another_basis(name: str, dtype: str) -> None:
    pytest.importorskip("torch")
    calls = DEVICE.cases[name].make(replace(TINY, dtype=dtype)).calls
    ours, found = (np.asarray(calls[contestant]())[-100:] for contestant in ("ours", "torch"))
    assert found.dtype == ours.dtype
    np.testing.assert_allclose(found @ found.T, ours @ ours.T, atol=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["gaussian", "laplacian", "polynomial"])
def test_kernel_matrices_meet_lean_peers(name: str, dtype: str) -> None:
    """Lean forms compute in the dtype of the rows, as ours does, over several blocks, the last one not whole."""
    case = DEVICE.cases[f"kernel-{name}"]
    calls = case.make(replace(TINY, n=300, dtype=dtype)).calls
    ours = calls["ours"]()
    lean = {contestant: call for contestant, call in calls.items() if "lean" in contestant}
    assert ("torch, lean" in lean) == bool(find_spec("torch"))
    assert ("NumPy, lean" in lean) == (name != "laplacian")
    for contestant, call in lean.items():
        found = np.asarray(call())
        assert found.dtype == ours.dtype == dtype
        atol = 3e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(found, ours, rtol=atol, atol=atol, err_msg=contestant)


@pytest.mark.parametrize("name", ["causal-elu1", "causal-favor"])
def test_torch_in_chunks_takes_whole_chunks(name: str) -> None:
    race = DEVICE.cases[name].make(replace(TINY, n=100))
    assert [contestant for contestant in race.calls if "torch" in contestant] in ([], ["torch, quadratic"])


@pytest.mark.parametrize(("name", "state"), [("causal-elu1", True), ("causal-favor", True), ("full-favor", False)])
def test_short_sequences_meet_the_quadratic_form(name: str, state: bool) -> None:
    pytest.importorskip("torch")
    make = DEVICE.cases[name].make
    assert "torch, quadratic" not in make(replace(TINY, n=320)).calls
    race = make(replace(TINY, n=16))
    ours, found = race.calls["ours"](), race.calls["torch, quadratic"]()
    if state:
        (ours, after), (found, s, z) = ours, found
        np.testing.assert_allclose(s / z.unsqueeze(-1), after.s / after.z[..., None], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found, ours, atol=2e-4)


def test_rows_tables_and_files(tmp_path: Path) -> None:
    rows = race_cases(DEVICE, ["causal-elu1", "gaussian-features"], TINY, [64], rounds=1, rates=RATES)
    growth = scaling([64, 128], heads=2, dim=8, features=16, seconds=0.0)
    assert {(row["case"], row["n"]) for row in rows} == {("causal-elu1", 64), ("gaussian-features", 5000)}
    assert all(row["floor_ms"] > 0 and row["median_ms"] > 0 for row in rows)
    assert sum("squared_error" in row for row in rows) >= 1
    assert all(row["squared_error"] < 0.01 for row in rows if "squared_error" in row)
    text = table(rows, DEVICE.columns)
    assert text.splitlines()[1].count("|") == text.splitlines()[2].count("|")
    assert text.count("\n") == len(rows) + 1
    assert table(growth, SCALING).count("\n") == len(growth) + 1
    assert [row["n"] for row in growth] == [64] * 4  # all took longer than no time, and stopped growing
    write(tmp_path / "out", "bench", DEVICE.machine(), rows, [text], scaling=growth)
    scaling_figure(tmp_path / "out", growth)
    assert json.loads((tmp_path / "out" / "bench.json").read_text())["scaling"] == growth
    assert "float32: traffic ran at 10 GB/s to 10 GB/s" in (tmp_path / "out" / "bench.md").read_text()
    files = ["bench.json", "bench.md", "scaling.png", "scaling.svg"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == files


def test_lean_peers_of_kernel_matrices_meet_every_pair() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 600, 5))
    v = np.random.default_rng(1).standard_normal((600, 2))
    for other in (x, y):  # of y = x, blocks beyond the diagonal stand for two
        matrix = np.exp(-np.sum((x[:, None] - other) ** 2, axis=-1) / 10)
        np.testing.assert_allclose(kernel_peers.gaussian_matrix(x, other), matrix, atol=1e-12)
        for peer in kernel_peers.gaussian_products(x, other, v).values():
            np.testing.assert_allclose(peer(), matrix @ v, atol=1e-11)
        np.testing.assert_allclose(kernel_peers.gaussian_sum(x, other), matrix.sum(), rtol=1e-12)


def test_sums_over_landmarks_come_to_the_error_of_conjugate_gradients() -> None:
    race = DEVICE.cases["cg"].make(replace(TINY, n=500, features=400, dtype="float64"))
    np.testing.assert_allclose(race.errors["sums by NumPy"](), race.errors["ours"](), rtol=0.2)


def test_ridges_on_real_data_tell_the_median_error_beside_the_squared_one() -> None:
    make = DEVICE.cases["ridges-diamonds"].make
    race = make(replace(TINY, n=4000, features=64, dtype="float64"))
    ours, theirs = (race.calls[name]() for name in ("ours", "sums by NumPy"))
    np.testing.assert_allclose(ours[5:], theirs[5:], atol=1e-6)
    assert race.dim == 9
    assert set(race.errors) == set(race.medians) == set(race.calls)
    assert 0.05 < race.medians["ours"]() < 0.2 < race.errors["ours"]() ** 0.5 + 0.2


def test_cases_are_listed_without_numba() -> None:
    code = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
from kernattn.cli import main
sys.exit(main(["bench", "--list"]) or main(["bench", "--list", "--device", "gpu"]))
"""
    run = run_script(code)
    assert run.returncode == 0, run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines()] == [*cases("cpu"), *cases("gpu")]


def test_every_case_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(DEVICE.cases)
    assert all(case.about and "\n" not in case.about for case in DEVICE.cases.values())
    told = dict(line.split(maxsplit=1) for line in lines)
    assert told["step"].endswith("(reuse = False)")
    assert told["kernel-gaussian"].endswith("(gaussian)")
    assert len(set(told.values())) == len(told)  # no two lines read alike


def test_a_time_below_its_floor_is_marked() -> None:
    column = next(column for column in DEVICE.columns if column.title == "over the floor")
    assert [column.cell(row) for row in ({"over_floor": np.float64(0.84)}, {"over_floor": 1.0}, {})] == [
        "0.84?",
        "1.00",
        "",
    ]


def test_gauges_of_the_machine_make_the_floors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernattn.bench._race.take_turns", lambda calls, *_: ({key: [1.0] for key in calls}, {}))
    rows = race_cases(DEVICE, ["causal-elu1"], TINY, [64])
    gauges = DEVICE.gauges(TINY, Work(rows[0]["bytes"], rows[0]["flops"], rows[0]["functions"]))
    assert rows[0]["product_flops_per_second"] == gauges["flops"].amount
    assert rows[0]["contestant"] == "ours"


def test_memory_of_nothing_is_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure
    made = []
    monkeypatch.setattr("matplotlib.figure.Figure", lambda **how: made.append(figure(**how)) or made[-1])
    fixed = {"heads": 1, "dim": 8, "milliseconds": 1.0}
    growth = [{"method": m, "n": n, "extra_mib": mib, **fixed} for m, mib in (("a", 0.0), ("b", 1.0)) for n in (2, 4)]
    scaling_figure(tmp_path, growth)
    times, memory = ([list(line.get_ydata()) for line in axis.lines] for axis in made[0].axes)
    assert times == [[1.0, 1.0], [1.0, 1.0]]
    assert memory == [[], [1.0, 1.0]]


def test_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernattn.cli._start._seconds", lambda code, environment: float(len(environment)))
    rows = time_starts(rounds=1)
    assert rows[0]["what"] == "import kernattn"
    assert table(rows, START).count("\n") == len(rows) + 1


def test_a_turn_that_begins_asleep_is_one_call() -> None:
    calls: list[int] = []
    clock = HostClock(asleep=True)
    clock.settle(lambda: calls.append(1))
    assert calls == []
    rows = race_cases(DEVICE, ["step"], TINY, rounds=1, rates=RATES, clock=clock)
    assert {row["begins"] for row in rows} == {"asleep"}


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def growth(sizes: list[int], heads: int, dim: int, features: int) -> list[dict[str, object]]:
        fixed = {"method": f"m = {features}", "milliseconds": 1.0, "ns_per_token": 1.0, "extra_mib": 1.0}
        return [{"n": n, "heads": heads, "dim": dim, **fixed} for n in sizes]

    monkeypatch.setattr("bench.cpu.device.DEVICE", replace(DEVICE, gauges=idle))
    monkeypatch.setattr("kernattn.cli._start.time_starts", lambda: [{"what": "import kernattn", "seconds": 0.04}])
    monkeypatch.setattr("bench.cpu.scaling.scaling", growth)
    words = "bench --cases step --asleep --rounds 1 --heads 1 --dim 8 --scaling --start"
    assert main([*words.split(), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "| step | ours | 1.00 |" in printed
    assert "| m = 256 | 1048576 | 1 | 1 | 1 |" in printed
    assert "| import kernattn | 0.04 |" in printed
    stored = json.loads((tmp_path / "bench.json").read_text())
    assert {"machine", "races", "scaling", "start"} == stored.keys()
    assert (tmp_path / "scaling.svg").exists()


def test_rows_are_kept_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A case that fails after another one loses none of its rows."""
    broken = Case(lambda sizes: Race({"ours": lambda: 1 / 0}, Work(bytes=1.0)))
    monkeypatch.setattr(
        "bench.cpu.device.DEVICE", replace(DEVICE, gauges=idle, cases={**DEVICE.cases, "broken": broken})
    )
    words = "bench --cases step broken --rounds 1 --heads 1 --dim 8"
    with pytest.raises(ZeroDivisionError):
        main([*words.split(), "--out", str(tmp_path)])
    stored = json.loads((tmp_path / "bench.json").read_text())
    assert {row["case"] for row in stored["races"]} == {"step"}
    assert "| step | ours | 1.00 |" in (tmp_path / "bench.md").read_text()
    assert "| step | ours | 1.00 |" in capsys.readouterr().out


def test_a_case_without_its_data_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    rows = race_cases(DEVICE, ["digits"], TINY, rates=RATES)
    assert rows == [{"case": "digits", "skipped": rows[0]["skipped"]}]
    assert "scikit-learn is not installed and is needed for" in table(rows, DEVICE.columns)
