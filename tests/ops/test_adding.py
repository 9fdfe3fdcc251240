"""The recipes of docs/adding.md for an op and for a kind of nonlinearity, followed."""

import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from kernattn import ops
from kernattn._environment import describe
from kernattn._maps.kinds import KINDS, Kind
from kernattn._maps.spec import MapSpec
from kernattn.ops import dispatch as _dispatch
from kernattn.ops._cuda.sources import HEADERS

FOLDER = Path(ops.__file__).parent
ROWS = np.random.default_rng(1).standard_normal((30, 4))
FILES = {
    "__init__": """
from kernattn.ops.dispatch import Op
OP = Op("doubled", ("reference", "cpu"))
""",
    "reference": """
def doubled(x):
    return 2 * x
""",
    "cpu": """
import numpy as np
from kernattn.ops.doubled.loops import fill
def doubled(x):
    out = np.empty_like(x)
    fill(x.reshape(-1), out.reshape(-1))
    return out
""",
    "loops": """
from kernattn.ops._numba.codegen.compile import compiled
@compiled
def fill(x, out):
    for i in range(x.size):
        out[i] = 2 * x[i]
""",
}


@pytest.fixture
def doubled(tmp_path, monkeypatch):
    """A folder among the ops."""
    folder = tmp_path / "doubled"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(ops, "__path__", [*ops.__path__, str(tmp_path)])
    op = import_module("kernattn.ops.doubled").OP
    monkeypatch.setitem(ops.OPS, "doubled", op)
    yield op
    _dispatch._load.cache_clear()
    for name in [name for name in sys.modules if name.startswith("kernattn.ops.doubled")]:
        del sys.modules[name]
    del ops.doubled


def test_an_op(doubled):
    assert doubled.choose(ROWS) == "cpu"
    assert re.search(r"doubled +cpu", describe())
    for backend in ("reference", "cpu"):
        np.testing.assert_array_equal(doubled.implementation(ROWS, backend)(ROWS), 2 * ROWS)


def test_kernels_have_their_headers():
    assert set(HEADERS) == {path.parent.name for path in FOLDER.glob("*/kernels.cu")}
    for header in {name for headers in HEADERS.values() for name in headers}:
        assert (FOLDER / header).is_file(), header


def test_a_kind(monkeypatch):
    """Its row is all that the reference wants."""
    monkeypatch.setitem(KINDS, "softsign", Kind("softsign", 99, lambda xp, u: u / (1 + xp.abs(u))))
    spec, u = MapSpec("softsign", omega=ROWS[:5], amplitude=0.5), ROWS @ ROWS[:5].T
    features = ops.OPS["features"].implementation(ROWS, "reference")(ROWS, spec)
    np.testing.assert_allclose(features, 0.5 * u / (1 + np.abs(u)), rtol=1e-12)
