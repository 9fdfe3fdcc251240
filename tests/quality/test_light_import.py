"""``import kernattn`` loads no compiler, no framework and no plotting."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("cupy", "dask", "jax", "llvmlite", "matplotlib", "numba", "sklearn", "torch", "tqdm", "transformers")


def loaded_by(*statements: str, heavy: tuple[str, ...] = HEAVY) -> list[set[str]]:
    """Heavy packages in a fresh interpreter after each statement."""
    tell = f"import sys\nprint(*(name for name in {heavy!r} if name in sys.modules))"
    script = "\n".join(f"{statement}\n{tell}" for statement in statements)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return [set(line.split()) for line in run.stdout.splitlines()]


def test_nothing_but_a_compiled_loop_loads_what_is_heavy() -> None:
    """Neither rooms nor the command line, nor the reference."""
    work = (
        "import numpy as np, kernattn as ka, kernattn.cli\n"
        "ka.metrics, ka.solvers, ka.studies, ka.bench\n"
        "x = np.ones((4, 3))\n"
        "phi = ka.random_features(ka.kernels.Softmax(), dim=3, num_features=8)\n"
        "ka.causal_linear_attention(x, x, x, phi, backend='reference')"
    )
    assert loaded_by(work) == [set()]


SCIPY = ("scipy", "scipy.special")


def test_no_attribute_but_the_solvers_loads_scipy() -> None:
    others = "import kernattn as ka\nfor name in ka.__all__:\n    name == 'solvers' or getattr(ka, name)"
    assert loaded_by(others, "ka.solvers", heavy=SCIPY) == [set(), {"scipy"}]


def test_scipy_is_there_when_it_is_called() -> None:
    drawn = (
        "import numpy as np, kernattn as ka\n"
        "x = np.ones((4, 3))\n"
        "phi = ka.random_features(ka.kernels.Softmax(), dim=3, num_features=8)"
    )
    assert loaded_by(drawn, "phi.variance(x, x)", heavy=SCIPY) == [set(), set(SCIPY)]


@pytest.mark.slow
def test_no_gradient_of_pytorch_loads_its_compiler() -> None:
    """Which takes as long as PyTorch itself."""
    differentiated = (
        "import torch, kernattn.torch, kernattn as ka\n"
        "x = torch.ones(1, 1, 4, 3, requires_grad=True)\n"
        "kernattn.torch.FavorAttention(ka.kernels.Softmax(), 3, 8, redraw_interval=2)(x, x, x).sum().backward()"
    )
    assert loaded_by(differentiated, heavy=("torch._dynamo", "sympy")) == [set()]


def test_an_edge_says_which_extra_it_needs() -> None:
    edges = [("torch", "torch"), ("dask", "dask"), ("jax", "jax"), ("huggingface", "torch")]
    edges += [("huggingface", "transformers"), ("sklearn", "sklearn")]
    script = f"""
import sys, importlib
for edge, absent in {edges}:
    sys.modules[absent] = None
    try:
        importlib.import_module("kernattn." + edge)
    except Exception as error:
        print(type(error).__name__, error)
    del sys.modules[absent]
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for line, (edge, _) in zip(run.stdout.splitlines(), edges, strict=True):
        assert line.startswith("MissingExtra ")
        assert f" is not installed and is needed for kernattn.{edge}: " in line
        assert line.endswith(f"pip install 'kernattn[{edge}]'")


def test_an_edge_that_was_not_imported_says_so() -> None:
    edges = ["dask", "huggingface", "jax", "sklearn", "torch"]
    script = f"import kernattn\nprint(*(hasattr(kernattn, edge) for edge in {edges}))\nkernattn.torch"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["False"] * len(edges)
    assert "AttributeError: kernattn.torch is not imported yet: import kernattn.torch first" in run.stderr
