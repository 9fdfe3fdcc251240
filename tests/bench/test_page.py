"""A page of tables: every mark is filled by its runs, the prose stays, and targets are judged by the rows."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from platform import machine
from types import SimpleNamespace

import pytest

pytest.importorskip("numba")

from bench.cpu import page as pages
from bench.cpu.device import DEVICE
from bench.cpu.mkl import fastest_mkl
from bench.cpu.page import make_page
from bench.cpu.runs import Run, held_to_avx2
from bench.cpu.targets import columns, reached
from kernattn.errors import KernattnError, ParameterError

PAGE = """# Page
![growth](pictures/scaling.png)
![both ways](pictures/scaling-backward.png)
![another](pictures/else.png)
<!-- table: machine --><!-- end -->
before
<!-- table: targets -->
old
<!-- end -->
<!-- table: attention -->
<!-- end -->
<!-- table: scaling -->
<!-- end -->
after
"""


def row(case: str, contestant: str, **other: object) -> dict[str, object]:
    fixed = {"n": 4096, "heads": 8, "dtype": "float32", "threads": 2, "begins": "awake", "vector_bits": 512}
    times = {"median_ms": 1.0, "low_ms": 1.0, "high_ms": 1.0, "ratio": 1.0, "over_floor": 2.0, "over_parts": 1.5}
    return {"case": case, "contestant": contestant, **fixed, **times, **other}


def marked(page: str) -> str:
    """The page with a line break after each mark that has none."""
    return page.replace("--><!--", "-->\n<!--")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str]]]:
    """Two parts whose processes are not started: what they were asked for; each writes what a race would."""
    asked = []

    def run(words: list[str], env: dict[str, str], timeout: float, **_: object) -> SimpleNamespace:
        asked.append((" ".join(words[1:-2]), env))
        folder = Path(words[-1])
        if "fails" in words or "hangs" in words:
            folder.mkdir()
            (folder / "bench.json").write_text(json.dumps({"machine": "m", "races": [row("step", "ours")]}))
        if "hangs" in words:
            raise subprocess.TimeoutExpired(words, timeout)
        if "fails" in words:
            return SimpleNamespace(returncode=2, stderr="first\nkernattn: error: no such case\n")
        folder.mkdir()
        growth = {"method": "a", "n": 2, "milliseconds": 3.0, "ns_per_token": 1.0, "extra_mib": 0.5}
        content = {"machine": "a machine", "races": [row("softmax", "ours")]}
        if "--scaling" in words:
            content |= {"races": [], "scaling": [growth]}
            (folder / "scaling.png").write_bytes(b"picture")
        if "--backward" in words:
            content = {"scaling_backward": [{"method": "b", "n": 2, "forward_ms": 5.0}]}
            (folder / "scaling-backward.png").write_bytes(b"another picture")
        (folder / "bench.json").write_text(json.dumps(content))
        return SimpleNamespace(returncode=0, stderr="")

    parts = {
        "attention": (Run("--cases softmax", 1), Run("--cases softmax", 2, avx2=True)),
        "scaling": (Run("--scaling"), Run("--scaling --backward")),
    }
    monkeypatch.setattr(pages, "PARTS", parts)
    monkeypatch.setattr(pages, "fastest_mkl", lambda folder: {"LD_PRELOAD": "switch.so"})
    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_marks_are_filled_and_prose_stays(runs: list[tuple[str, dict[str, str]]], tmp_path: Path) -> None:
    page, told = tmp_path / "page.md", []
    (tmp_path / "pictures").mkdir()
    page.write_text(marked(PAGE))
    make_page(page, DEVICE.columns, told.append)
    text = page.read_text()
    assert text.startswith("# Page\n![growth]")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "before" in text
    assert "old" not in text
    assert ". a machine." in text
    assert (
        "```text\nKERNATTN_NUM_THREADS=1 kernattn bench --cases softmax\nAVX2 KERNATTN_NUM_THREADS=2 kernattn" in text
    )
    assert text.count("| softmax | ours | 1.00 | 1 (1–1) | 2.00 | 1.50 | 4096 | 8 | float32 | 512 | 2 | awake |") == 2
    assert "squared error" not in text  # which no row has
    assert "| a | 2 | 3 | 1 | 0.5 |" in text
    assert "| b | 2 | 5 |" in text
    pictures = {path.name: path.read_bytes() for path in (tmp_path / "pictures").iterdir()}
    assert pictures == {"scaling.png": b"picture", "scaling-backward.png": b"another picture"}
    assert [line.partition("s, ")[2].partition(":")[0] for line in told] == [f"{i} of 4" for i in (1, 2, 3, 4)]
    words, environment = runs[1]
    assert words == f"-m kernattn bench --from {pages.CASES} --cases softmax"
    expected = {**held_to_avx2(), "KERNATTN_NUM_THREADS": "2", "LD_PRELOAD": "switch.so", "PATH": os.environ["PATH"]}
    assert environment.items() >= expected.items()
    again = page.read_text()
    make_page(page, DEVICE.columns, told.append)
    assert page.read_text() == again


def test_a_run_that_fails_leaves_its_error_and_its_rows(
    runs: list[tuple[str, dict[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        pages, "PARTS", {"attention": tuple(Run(f"--cases {name}") for name in ("fails", "hangs", "softmax"))}
    )
    page = tmp_path / "page.md"
    page.write_text("<!-- table: attention -->\n<!-- end -->\n")
    with pytest.raises(KernattnError, match="these runs failed: kernattn bench --cases fails"):
        make_page(page, DEVICE.columns, lambda line: None)
    assert "Failed: `kernattn bench --cases fails`: kernattn: error: no such case" in page.read_text()
    assert "Failed: `kernattn bench --cases hangs`: stopped after 600 seconds" in page.read_text()
    assert page.read_text().count("| step | ours |") == 2
    assert "| softmax | ours |" in page.read_text()


def test_an_interrupt_leaves_what_is_done(runs: list[tuple[str, dict[str, str]]], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(marked(PAGE).partition("else.png)\n")[2])

    def report(line: str) -> None:
        if "AVX2" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_page(page, DEVICE.columns, report)
    assert page.read_text().count("| softmax | ours |") == 1
    assert "AVX2 KERNATTN" not in page.read_text()
    assert "<!-- table: scaling -->\n<!-- end -->" in page.read_text()


@pytest.mark.parametrize("text", ["no marks", "<!-- table: no-such-table -->\n<!-- end -->"])
def test_marks_that_nothing_fills_are_refused_before_any_run(
    runs: list[tuple[str, dict[str, str]]], tmp_path: Path, text: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ParameterError, match="marks of tables among attention, scaling"):
        make_page(page, DEVICE.columns, lambda line: None)
    assert not runs


def test_targets() -> None:
    rows = [
        row("softmax", "torch's scaled_dot_product_attention", ratio=1.3),
        row("softmax", "torch's scaled_dot_product_attention", ratio=0.7, vector_bits=256),
        row("causal-elu1", "ours"),
        row("causal-elu1", "ours", n=16384, over_floor=0.5),
        row("step-in-place", "torch, lean, in place", n=1, heads=256, threads=1, ratio=1.8),
        row("backward-causal-elu1", "ours, backward", ratio=0.9),
        *(row("gradients-causal-elu1", f"torch, {each}", n=n, ratio=3.0 + n) for each in "ab" for n in (2, 1)),
        row("gradients-causal-elu1", "torch, c", n=4, ratio=2.9, begins="asleep"),
        {"case": "digits", "skipped": "no data"},
    ]
    held = reached(rows)
    assert [(r["case"], r["threads"], r.get("vectors_512"), r.get("vectors_256")) for r in held] == [
        ("softmax", 2, "1.30, met", "0.70, **missed**"),
        ("causal-elu1", 2, "2.00, **missed**", None),
        ("step-in-place", 1, "1.80, met", None),
        ("backward-causal-elu1", 2, "0.90, met", None),  # no floor is there to be undercut
        ("gradients-causal-elu1", 2, "2.90, **missed**", None),
        ("gradients-causal-elu1", 2, "4.00, met", None),  # the worst of all lengths and of all peers
    ]
    assert [column.title for column in columns(held)][-2:] == ["vectors of 512 bits", "vectors of 256 bits"]


def test_a_time_below_its_floor_meets_no_target() -> None:
    """A gauge that was disturbed shows a floor that is too high: what comes in under it has not reached it."""
    held = reached([row("causal-elu1", "ours", over_floor=0.84), row("step", "ours", heads=256, over_traffic=0.9)])
    assert [r["vectors_512"] for r in held] == ["0.84?, **missed**", "0.90?, **missed**"]
    (near,) = reached([row("causal-elu1", "ours", over_floor=0.999)])
    assert near["vectors_512"] == "1.00, met"


@pytest.mark.skipif(machine().lower() not in ("x86_64", "amd64"), reason="a processor without AVX2")
def test_avx2_holds_the_loops() -> None:
    code = "from kernattn.ops._numba.codegen.registers import VECTOR; print(VECTOR)"
    environment = {**os.environ, **held_to_avx2()}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "32\n"


def test_the_switch_of_mkl_says_yes(tmp_path: Path) -> None:
    variables = fastest_mkl(tmp_path)
    if shutil.which("cc") is None:
        assert variables == {}
    else:
        assert ctypes.CDLL(variables["LD_PRELOAD"]).mkl_serv_intel_cpu_true() == 1


def test_without_a_compiler_there_is_no_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert fastest_mkl(tmp_path) == {}
