"""``import kernattn`` loads no compiler, no framework and no plotting."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("cupy", "dask", "jax", "llvmlite", "matplotlib", "numba", "sklearn", "torch", "tqdm", "transformers")


def loaded_by(statement: str, heavy: tuple[str, ...] = HEAVY) -> set[str]:
    """Heavy packages in a fresh interpreter after a statement."""
    script = f"{statement}\nimport sys\nprint(*(name for name in {heavy!r} if name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_import_is_light() -> None:
    assert loaded_by("import kernattn") == set()


def test_rooms_are_light() -> None:
    assert loaded_by("import kernattn as ka; ka.metrics, ka.solvers, ka.studies, ka.bench") == set()


def test_reference_path_is_light() -> None:
    work = (
        "import numpy as np, kernattn as ka\n"
        "x = np.ones((4, 3))\n"
        "phi = ka.random_features(ka.kernels.Softmax(), dim=3, num_features=8)\n"
        "ka.causal_linear_attention(x, x, x, phi, backend='reference')"
    )
    assert loaded_by(work) == set()


@pytest.mark.parametrize("name", ["features", "kernels", "linear_attention", "random_features"])
def test_the_first_attribute_loads_no_scipy(name: str) -> None:
    assert loaded_by(f"import kernattn as ka; ka.{name}", ("scipy",)) == set()


def test_no_attribute_but_the_solvers_loads_scipy() -> None:
    others = "import kernattn as ka\nfor name in ka.__all__:\n    name == 'solvers' or getattr(ka, name)"
    assert loaded_by(others, ("scipy",)) == set()
    assert loaded_by("import kernattn as ka; ka.solvers", ("scipy.special",)) == set()


def test_scipy_is_there_when_it_is_called() -> None:
    closed_form = (
        "import numpy as np, kernattn as ka\n"
        "x = np.ones((4, 3))\n"
        "phi = ka.random_features(ka.kernels.Softmax(), dim=3, num_features=8)\n"
    )
    assert loaded_by(closed_form, ("scipy",)) == set()
    assert loaded_by(closed_form + "phi.variance(x, x)", ("scipy.special",)) == {"scipy.special"}


def test_command_line_is_light() -> None:
    assert loaded_by("import kernattn.cli") == set()


@pytest.mark.parametrize(
    ("edge", "absent"),
    [
        ("torch", "torch"),
        ("dask", "dask"),
        ("jax", "jax"),
        ("huggingface", "torch"),
        ("huggingface", "transformers"),
        ("sklearn", "sklearn"),
    ],
)
def test_an_edge_says_which_extra_it_needs(edge: str, absent: str) -> None:
    script = f"import sys; sys.modules[{absent!r}] = None; import kernattn.{edge}"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    last = run.stderr.splitlines()[-1]
    assert last.startswith("kernattn.errors.MissingExtra: ")
    assert f" is not installed and is needed for kernattn.{edge}: " in last
    assert last.endswith(f"pip install 'kernattn[{edge}]'")


@pytest.mark.parametrize("edge", ["dask", "huggingface", "jax", "sklearn", "torch"])
def test_an_edge_that_was_not_imported_says_so(edge: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", f"import kernattn; kernattn.{edge}"], capture_output=True, text=True, check=False
    )
    assert f"AttributeError: kernattn.{edge} is not imported yet: import kernattn.{edge} first" in run.stderr
