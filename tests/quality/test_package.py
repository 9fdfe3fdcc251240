"""What is installed: light dependencies, the type marker, one version, one test command, no private paths."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import subprocess
from importlib import resources
from pathlib import Path

import pytest

import kernattn
from processes import run_script
from quality.tree import PACKAGE, ROOT


@pytest.fixture
def installed() -> importlib.metadata.Distribution:
    """The metadata of the installed package; there are none where the tests run on a source tree."""
    try:
        return importlib.metadata.distribution("kernattn")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("kernattn is not installed")


def test_core_dependencies(installed: importlib.metadata.Distribution) -> None:
    required = installed.requires or []
    core = {re.split(r"[<>=~!\s;\[]", line)[0] for line in required if "extra ==" not in line}
    assert core == {"array-api-compat", "numpy", "scipy"}


def test_version(installed: importlib.metadata.Distribution) -> None:
    assert kernattn.__version__ == installed.version


def test_other_processes_import_the_package_that_is_tested() -> None:
    """Not the folder that pytest was started in: loops of another copy would be compiled once more."""
    assert run_script("import kernattn; print(kernattn.__file__)").stdout == f"{kernattn.__file__}\n"


def test_data_files_are_installed() -> None:
    assert resources.files("kernattn").joinpath("py.typed").is_file()
    tracked = {path.relative_to(ROOT / "kernattn") for path in (ROOT / "kernattn").rglob("*.cu*")}
    assert all((PACKAGE / path).is_file() for path in tracked)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_ci_runs_the_command_of_the_page(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    command = next(line.strip() for line in script.splitlines() if "/tox" in line)
    assert f"\n{command}\n" in text


def tracked_files() -> list[str]:
    """Files under version control; none where the tests run outside a checkout."""
    run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [name for name in run.stdout.split("\0") if name]


def packed(archive: str) -> set[str]:
    """Files of this tree that a wheel or an sdist would hold."""
    pytest.importorskip("hatchling")
    builder = importlib.import_module(f"hatchling.builders.{archive}")
    made = {"wheel": "WheelBuilder", "sdist": "SdistBuilder"}[archive]
    return {file.relative_path for file in getattr(builder, made)(str(ROOT)).recurse_included_files()}


@pytest.mark.parametrize(("archive", "folder"), [("wheel", "kernattn/"), ("sdist", "")])
def test_what_is_tracked_is_packed(archive: str, folder: str) -> None:
    names = {name for name in tracked_files() if (ROOT / name).is_file() and name.startswith(folder)}
    if not names:
        pytest.skip("not a checkout")
    found = packed(archive)
    assert names - {".gitignore", "pyproject.toml"} <= found  # the build adds these two
    assert {Path(name).suffix for name in found}.isdisjoint({".nbc", ".nbi", ".pyc"})


def test_the_citation_is_of_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {kernattn.__version__}\n" in citation


def test_no_machine_paths() -> None:
    names = tracked_files()
    if not names:
        pytest.skip("not a checkout")
    private = re.compile(r"(?<![\w.~/-])/(?:home|root|Users|work|workspace|mnt)/\w")
    for name in names:
        path = ROOT / name
        if path.is_file() and path.suffix not in {".png", ".npz", ".svg"}:
            match = private.search(path.read_text(encoding="utf-8"))
            assert match is None, f"{name} names a path of one machine: {match and match.group()}"
